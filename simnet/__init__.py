"""simnet predicts how long collectives, training steps and whole runs take on a described cluster.

Public names are loaded on first use, so that `import simnet` is quick; `simnet.api` documents them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "cluster": "simnet.api",
    "compare": "simnet.api",
    "predict": "simnet.api",
    "predict_collective": "simnet.api",
    "predict_run": "simnet.api",
    "sweep": "simnet.sweeps",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'simnet' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
