"""Devices, links, clusters and profiles as TOML files; every number with its source and +/-."""

from __future__ import annotations

from simnet.catalog.loader import (
    clusters,
    devices,
    links,
    load_cluster,
    load_device,
    load_link,
    uniform,
)

__all__ = ["clusters", "devices", "links", "load_cluster", "load_device", "load_link", "uniform"]
