"""simnet predicts how long collectives, training steps and whole runs take on a described cluster.

Public names are loaded on first use, so that `import simnet` is quick:

>>> import simnet as sn
>>> sn.predict(cluster="uniform", bandwidth="12.5 GB/s", latency="1 us", ranks=16, sizes="64M")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'simnet' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
