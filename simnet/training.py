"""One training step of synchronous data parallelism: forward, backward, gradient exchange beside it, update.

The slowest rank sets the pace: an all-reduce of a bucket starts when the last rank has its gradients. Buckets
leave in order, on the first free lane; lanes hide each other's latencies, their bytes take turns on the wire.
Whatever of the exchange is not over when the backward pass is over is exposed. The parts add up to the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.results import Span
from simnet.workload import Bucket

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step has to do; times in s, of one rank that is neither fast nor slow.

    forward, backward : per layer, each (num_layers,)
    update : weights and optimizer
    latency, transfer : of each bucket alone: what lanes hide of each other, what they do not; each (num_buckets,)
    batch_norm_forward, batch_norm_backward : exchange of statistics, per layer, each (num_layers,)
    input : until the next batch is on the device
    """

    forward: FloatArray
    backward: FloatArray
    update: float
    buckets: Sequence[Bucket]
    latency: FloatArray
    transfer: FloatArray
    batch_norm_forward: FloatArray
    batch_norm_backward: FloatArray
    input: float = 0.0
    overlap: bool = True
    lanes: int = 1
    interference: float = 0.0
    accumulation: int = 1

    def __post_init__(self) -> None:
        if not len(self.buckets) == len(self.latency) == len(self.transfer):
            raise InvalidInput(
                f"a step needs two times per bucket, got {len(self.buckets)} buckets, {len(self.latency)} latencies "
                f"and {len(self.transfer)} transfers"
            )


@dataclass(frozen=True, slots=True)
class Draws:
    """Factors on the parts of the work, (num_draws,) or plain numbers; those of buckets (num_draws, num_buckets).

    slowest : how much longer the slowest rank computes than the mean one, as a fraction
    contention : how much longer every rank computes because it shares a node and a network, as a fraction
    """

    compute: FloatArray | float = 1.0
    latency: FloatArray | float = 1.0
    transfer: FloatArray | float = 1.0
    batch_norm: FloatArray | float = 1.0
    slowest: FloatArray | float = 0.0
    contention: FloatArray | float = 0.0
    input: FloatArray | float = 1.0
    interference: FloatArray | float = 1.0
    update: FloatArray | float = 1.0


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Parts of a step in s, each (num_draws,), which add up to `total`; exposed is (num_draws, num_buckets)."""

    forward: FloatArray
    backward: FloatArray
    batch_norm: FloatArray
    waiting: FloatArray
    contention: FloatArray
    interference: FloatArray
    exposed: FloatArray
    update: FloatArray
    input_stall: FloatArray
    total: FloatArray
    spans: tuple[Span, ...] = ()

    def breakdown(self, draw: int = 0) -> dict[str, float]:
        """Parts of one draw by name, s."""
        parts = {
            "forward": self.forward, "backward": self.backward, "batch_norm": self.batch_norm, "waiting": self.waiting,
            "contention": self.contention, "interference": self.interference,
            "exposed_exchange": self.exposed.sum(axis=1), "update": self.update, "input_stall": self.input_stall,
        }  # fmt: skip
        return {name: float(values[draw]) for name, values in parts.items()}


def step(work: StepWork, draws: Draws | None = None) -> StepTimes:
    """Time of one step in every draw, with its parts; spans are those of the first draw."""
    draws = draws or Draws()
    late = np.asarray(draws.slowest, float) + np.asarray(draws.contention, float)
    pace = np.atleast_1d(np.asarray(draws.compute, float) * (1 + late))
    size = max(len(pace), *(np.shape(np.atleast_1d(f))[0] for f in (draws.latency, draws.transfer, draws.batch_norm)))
    pace = np.broadcast_to(pace, (size,))
    mean = np.broadcast_to(np.asarray(draws.compute, float), (size,))
    norm = np.broadcast_to(np.asarray(draws.batch_norm, float), (size,))
    passes, updating = work.accumulation, work.update * np.broadcast_to(np.asarray(draws.update, float), (size,))
    norm_forward, norm_backward = work.batch_norm_forward.sum() * norm, work.batch_norm_backward.sum() * norm
    start = (passes - 1) * (pace * (work.forward.sum() + work.backward.sum()) + norm_forward + norm_backward)
    start = start + pace * work.forward.sum() + norm_forward
    ready = start[:, None] + _ready(work, pace, norm)
    backward_end = start + pace * work.backward.sum() + norm_backward
    begins, ends = _exchange(work, draws, ready, backward_end)
    undisturbed = backward_end
    backward_end, exposed = _exposed(work.interference * np.asarray(draws.interference), begins, ends, backward_end)
    computed = mean * (passes * (work.forward.sum() + work.backward.sum()) + updating)
    normed = passes * (norm_forward + norm_backward)
    update = pace * updating
    busy = backward_end + exposed.sum(axis=1) + update
    stall = np.maximum(0.0, np.broadcast_to(work.input * np.asarray(draws.input, float), (size,)) - busy)
    bars = _compute_spans(start[0], backward_end[0], update[0], busy[0], stall[0])
    return StepTimes(
        mean * passes * work.forward.sum(), mean * passes * work.backward.sum(), normed, computed * draws.slowest,
        computed * draws.contention, backward_end - undisturbed, exposed, mean * updating, stall, busy + stall,
        (*bars, *_exchange_spans(begins[0], ends[0])),
    )  # fmt: skip


def _ready(work: StepWork, pace: FloatArray, norm: FloatArray) -> FloatArray:
    """When each bucket's gradients are there, s after the start of the last backward pass, (num_draws, num_buckets)."""
    done = np.cumsum(work.backward[::-1])[::-1]
    normed = np.cumsum(work.batch_norm_backward[::-1])[::-1]
    layers = [bucket.layer for bucket in work.buckets]
    waits = np.array([bucket.wait for bucket in work.buckets])
    return pace[:, None] * done[layers] + norm[:, None] * normed[layers] + waits


def _exchange(
    work: StepWork, draws: Draws, ready: FloatArray, backward_end: FloatArray
) -> tuple[FloatArray, FloatArray]:
    size, num = ready.shape
    latency = np.broadcast_to(work.latency * np.atleast_2d(draws.latency), (size, num))
    transfer = np.broadcast_to(work.transfer * np.atleast_2d(draws.transfer), (size, num))
    begins, ends = np.empty((size, num)), np.empty((size, num))
    lanes = np.zeros((size, min(work.lanes, max(1, num))))
    wire = np.zeros(size)
    rows = np.arange(size)
    for i in range(num):
        lane = lanes.argmin(axis=1)
        earliest = ready[:, i] if work.overlap else np.maximum(ready[:, i], backward_end)
        begins[:, i] = np.maximum(earliest, lanes[rows, lane])
        wire = np.maximum(begins[:, i] + latency[:, i], wire) + transfer[:, i]
        ends[:, i] = wire
        lanes[rows, lane] = wire
    return begins, ends


def _exposed(
    interference: FloatArray, begins: FloatArray, ends: FloatArray, backward_end: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """End of the backward pass with what the exchange takes from it, and each bucket's time beyond it."""
    if ends.shape[1] == 0:
        return backward_end, np.zeros((len(backward_end), 0))
    last = np.maximum.accumulate(ends, axis=1)
    covered = np.concatenate([np.zeros((len(last), 1)), last[:, :-1]], axis=1)
    inside = np.minimum(last, backward_end[:, None]) - np.maximum(begins, covered)
    backward_end = backward_end + interference * np.maximum(0.0, inside).sum(axis=1)
    beyond = np.maximum(0.0, last - backward_end[:, None])
    return backward_end, np.diff(beyond, axis=1, prepend=0.0)


def _compute_spans(start: float, end: float, update: float, busy: float, stall: float) -> list[Span]:
    bars = [
        Span("forward", "compute", 0.0, float(start)),
        Span("backward", "compute", float(start), float(end)),
        Span("update", "compute", float(busy - update), float(busy)),
    ]
    return [*bars, Span("waiting for input", "compute", float(busy), float(busy + stall))] if stall > 0 else bars


def _exchange_spans(begins: FloatArray, ends: FloatArray) -> list[Span]:
    return [
        Span(f"all_reduce {i}", "exchange", float(begin), float(end), i)
        for i, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]
