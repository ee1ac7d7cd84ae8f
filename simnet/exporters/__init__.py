"""Traces and schedules out, one file per format."""
