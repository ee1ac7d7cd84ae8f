"""Logs, traces and topologies in, one file per format."""
