"""realrun runs the schedules of simnet with PyTorch on real hardware and measures them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from realrun.collectives import all_reduce
    from realrun.comm_hook import ddp_hook
    from realrun.executor import Executor
    from realrun.handle import Handle
    from realrun.ranks import RankPool
    from realrun.stall import Stalled

_HOMES = {
    "Executor": "executor",
    "Handle": "handle",
    "RankPool": "ranks",
    "Stalled": "stall",
    "all_reduce": "collectives",
    "ddp_hook": "comm_hook",
}

__all__ = ["Executor", "Handle", "RankPool", "Stalled", "all_reduce", "ddp_hook"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'realrun' has no attribute {name!r}")
    return getattr(import_module(f"realrun.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
