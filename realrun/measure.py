"""Time a function on all ranks: a barrier before every sample, every sample of every rank kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from simnet.units import Seconds

FloatArray = npt.NDArray[np.float64]

STRAGGLER_SHARE = 0.1
STRAGGLER_LEAD = 2.0
STRAGGLER_OFTEN = 0.75


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of every rank in every iteration.

    Attributes
    ----------
    duration : s from leaving the barrier to having the result, shape (iterations, ranks)
    lateness : s a rank came to the barrier after the first one, shape (iterations, ranks)
    """

    duration: FloatArray
    lateness: FloatArray

    @property
    def times(self) -> FloatArray:
        """Time of the slowest rank, s, shape (iterations,): what the collective took."""
        return self.duration.max(axis=1)

    def quantile(self, quantile: float) -> Seconds:
        """Quantile of `times`."""
        return float(np.quantile(self.times, quantile))

    @property
    def median_lateness(self) -> FloatArray:
        """How late each rank came to the barrier, s, median over iterations, shape (ranks,)."""
        return np.median(self.lateness, axis=0)

    @property
    def straggler(self) -> int | None:
        """Rank that the others wait for, if there is one.

        Timing the collective itself hides it: all ranks end together. The straggler is the rank that comes
        last to the barrier in three of four iterations, in the median by at least a tenth of the collective's
        time and twice as late as the next.
        """
        late = self.median_lateness
        if len(late) < 2:
            return None
        rank = int(np.argmax(late))
        second, last = np.sort(late)[-2:]
        often = np.mean(self.lateness.argmax(axis=1) == rank) >= STRAGGLER_OFTEN
        clear = last >= STRAGGLER_SHARE * self.quantile(0.5) and last >= STRAGGLER_LEAD * second
        return rank if clear and often else None


def measure(
    function: Callable[[], object],
    *,
    iterations: int = 20,
    warmup: int = 3,
    group: dist.ProcessGroup | None = None,
    before: Callable[[], object] | None = None,
    synchronize: Callable[[], object] = lambda: None,
) -> Samples:
    """Run `function` on every rank of a group and return everyone's times, on every rank.

    Parameters
    ----------
    group : a group on host memory (gloo); None for the default one.
    before : what each rank does before it comes to the barrier, such as its backward pass; it
        shows in `lateness`, not in `duration`.
    synchronize : blocks until the device is done, such as torch.cuda.synchronize.
    """
    own = [_sample(function, before, synchronize, group) for _ in range(warmup + iterations)][warmup:]
    duration, wait = (_gathered(column, group) for column in zip(*own, strict=True)) if own else _nothing(group)
    return Samples(duration, wait.max(axis=1, keepdims=True) - wait)


def _sample(
    function: Callable[[], object],
    before: Callable[[], object] | None,
    synchronize: Callable[[], object],
    group: dist.ProcessGroup | None,
) -> tuple[Seconds, Seconds]:
    if before is not None:
        before()
    synchronize()
    arrival = time.perf_counter()
    dist.barrier(group)
    start = time.perf_counter()
    function()
    synchronize()
    return time.perf_counter() - start, start - arrival


def _gathered(values: tuple[Seconds, ...], group: dist.ProcessGroup | None) -> FloatArray:
    own = torch.tensor(values, dtype=torch.float64)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    return torch.stack(every, dim=1).numpy()


def _nothing(group: dist.ProcessGroup | None) -> tuple[FloatArray, FloatArray]:
    empty = np.empty((0, dist.get_world_size(group)))
    return empty, empty
