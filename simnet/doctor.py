"""What of this project works on this machine, and what is missing for the rest."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

MINIMUM_PYTHON = (3, 11)
REQUIRED = ("numpy", "simpy", "networkx", "matplotlib", "pandas", "pydantic", "pint", "typer", "rich")
OPTIONAL = {
    "torch": "realrun (pip install 'simnet-testbed[real]')",
    "sklearn": "realrun train on the digits (pip install 'simnet-testbed[train]')",
    "hypothesis": "simnet.testing (pip install 'simnet-testbed[test]')",
    "dask": "sweeps over several machines (pip install 'simnet-testbed[scale]')",
}
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `needed_for` names what does not work where it is not ok."""

    subject: str
    ok: bool
    found: str
    needed_for: str


def examine() -> Iterator[Finding]:
    """Look at Python, packages, the network lab's tools and the user's own catalogue folder."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", sys.version_info >= MINIMUM_PYTHON, version, "everything (Python 3.11 or newer)")
    for name in REQUIRED:
        yield _package(name, "everything (pip install simnet-testbed)")
    for name, use in OPTIONAL.items():
        yield _package(name, use)
    yield from _lab()
    yield from _folders()


def _package(name: str, use: str) -> Finding:
    if find_spec(name) is None:
        return Finding(name, False, "not installed", use)
    return Finding(name, True, metadata.version(_DISTRIBUTIONS.get(name, name)), use)


def _lab() -> Iterator[Finding]:
    for tool in ("ip", "tc"):
        path = shutil.which(tool)
        yield Finding(tool, path is not None, path or "not found", "realrun lab (install iproute2)")
    root = os.geteuid() == 0
    yield Finding("root", root, "yes" if root else "no", "realrun lab (run it as root)")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("cores", cores >= 2, str(cores), "quiet measurements of two or more local ranks")


def _folders() -> Iterator[Finding]:
    for variable, use in (("SIMNET_CATALOG", "your own catalogue"), ("SIMNET_SAMPLES", "tests on real sample files")):
        folder = os.environ.get(variable)
        if folder:
            yield Finding(variable, Path(folder).is_dir(), folder, f"{use} (must name a folder)")
