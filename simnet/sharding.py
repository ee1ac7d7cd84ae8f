"""How samples are dealt to ranks, and what goes wrong where ranks hold unequal shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.errors import Deadlock, InvalidInput

IntArray = npt.NDArray[np.int64]


def split(samples: int, ranks: int) -> IntArray:
    """Samples of each rank, shape (ranks,): as equal as whole samples can be, the first ranks holding one more."""
    if ranks < 1 or samples < 0:
        raise InvalidInput(f"samples need 1 or more ranks to go to, got {samples} samples and {ranks} ranks")
    return np.full(ranks, samples // ranks) + (np.arange(ranks) < samples % ranks)


def num_steps(samples: Sequence[int] | IntArray, batch: int, *, drop_last: bool = False) -> IntArray:
    """Steps each rank runs over its own samples with its own batch, shape (ranks,)."""
    if batch < 1:
        raise InvalidInput(f"batch per rank must be 1 or more samples, got {batch}")
    counts = np.asarray(samples, np.int64)
    return counts // batch if drop_last else -(-counts // batch)


def gradient_weights(samples: Sequence[int] | IntArray) -> npt.NDArray[np.float64]:
    """Factor for each rank's mean gradient, so that the mean over ranks is the mean over samples.

    All 1 where shares are equal. Without them the samples of a small share count more than the others: ranks
    holding 3 and 1 samples with sums 6 and 10 average to 6 instead of 4.

    Source: transformers issue 34242; pytorch issue 37359.
    """
    counts = np.asarray(samples, float)
    if counts.size == 0 or counts.min() < 0 or counts.sum() == 0:
        raise InvalidInput(f"weights need at least one sample on at least one rank, got {list(samples)}")
    return counts.size * counts / counts.sum()


@dataclass(frozen=True, slots=True)
class Hang:
    """Ranks that run unequal numbers of steps: those that ended, and those that wait for them for ever."""

    step: int
    ended: tuple[int, ...]
    waiting: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"step {self.step + 1} hangs: {_named(self.ended)} ended before it, {_named(self.waiting)} "
            "will wait in its first all-reduce; give all ranks as many steps (pad or drop the last samples), or join"
        )


def _named(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def find_hang(steps: Sequence[int] | IntArray) -> Hang | None:
    """Predict from the steps of each rank where a synchronous run stops for ever; None if it does not.

    Steps count from 0. Source: pytorch issues 38174, 60611.
    """
    counts = np.asarray(steps, np.int64)
    if counts.size == 0 or counts.min() == counts.max():
        return None
    first = int(counts.min())
    ended, waiting = (tuple(np.flatnonzero(which).tolist()) for which in (counts == first, counts > first))
    return Hang(first, ended, waiting)


def require_equal_steps(steps: Sequence[int] | IntArray) -> int:
    """Return the number of steps all ranks run.

    Raises
    ------
    Deadlock : they run unequal numbers of steps; the text names the ranks and the step.
    """
    hang = find_hang(steps)
    if hang is not None:
        raise Deadlock(str(hang))
    return int(np.asarray(steps)[0]) if len(steps) else 0


def join_divisors(steps: Sequence[int] | IntArray, *, initial_world_size: bool = True) -> IntArray:
    """What torch's Join divides each step's sum of gradients by, shape (most steps of any rank,).

    Ranks that ended contribute zeros; the divisor is the initial number of ranks, or those still running.
    """
    counts = np.asarray(steps, np.int64)
    running = (counts[:, None] > np.arange(counts.max())[None, :]).sum(0)
    return np.full_like(running, counts.size) if initial_world_size else running
