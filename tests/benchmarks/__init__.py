"""Benchmarks of the engines: `python -m tests.benchmarks --out docs/benchmarks.md`, or `make bench`."""
