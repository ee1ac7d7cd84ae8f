"""The error of a run that cannot go on: who waited for whom, in which step, and how long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from simnet.errors import Incomplete, SimnetError
from simnet.units import Seconds


@dataclass(frozen=True, slots=True)
class Stall:
    """A rank's account of a wait that ended badly; `lost` where the connection broke before the time limit."""

    rank: int
    peer: int
    step: int
    program: str
    waited: Seconds
    lost: bool
    action: str = "hear from"

    def __str__(self) -> str:
        end = "then its connection broke" if self.lost else "the time limit"
        where = f"rank {self.rank}, step {self.step} of {self.program}"
        return f"{where}: could not {self.action} rank {self.peer} for {self.waited:.2f} s, {end}"


_CONNECTION = re.compile(r"gloo|nccl|timed? ?out|connection|socket|broken pipe|c10d", re.IGNORECASE)
_TIME = re.compile(r"timed? ?out", re.IGNORECASE)


def is_connection_error(error: BaseException) -> bool:
    """Whether a backend's error says that a peer is gone or silent, and not that the call was wrong."""
    return _CONNECTION.search(str(error)) is not None


def is_time_limit(error: BaseException) -> bool:
    """Whether a connection error says that the time limit passed."""
    return _TIME.search(str(error)) is not None


class Stalled(Incomplete):
    """A rank gave up on a peer; the `Stall` says how."""

    def __init__(self, stall: Stall) -> None:
        super().__init__(stall)
        self.stall = stall


def culprits(errors: Mapping[int, BaseException]) -> list[int]:
    """Ranks that others waited for and that did not themselves wait for anyone.

    Ranks in a ring that lost one member all give up at nearly the same time, each naming its
    neighbour; the one to look at is at the end of the chain. Empty where all wait in a circle.
    """
    waits = _waits(errors)
    return sorted({peer for peer in waits.values() if peer not in waits})


def circle(errors: Mapping[int, BaseException]) -> list[int]:
    """Ranks of which each waited for the next and the last for the first; empty where no such circle is."""
    waits = _waits(errors)
    for start in sorted(waits):
        path = [start]
        while (peer := waits.get(path[-1])) is not None and peer not in path:
            path.append(peer)
        if peer == start:
            return path
    return []


def _waits(errors: Mapping[int, BaseException]) -> dict[int, int]:
    return {rank: e.stall.peer for rank, e in errors.items() if isinstance(e, Stalled)}


def account(rank: int, error: BaseException) -> str:
    """One rank's error as a clause that begins with the rank."""
    text = str(error) if isinstance(error, SimnetError) else f"{type(error).__name__}: {error}"
    return text if text.startswith(f"rank {rank},") else f"rank {rank}: {text}"
