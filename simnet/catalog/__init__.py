"""Devices, links, clusters and profiles as TOML files; every number with its source and +/-."""
