"""Ranks that are late: jitter, slow ranks, slow links, and nodes that fail.

A synchronous step ends when its slowest rank does, so the step of n ranks is the maximum of n draws: its mean
grows with n even where every rank has the same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.paths import Paths, Routes
from simnet.units import Seconds

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_NODES = 4096


class Shape(StrEnum):
    """Distribution of the factor on a rank's compute time; its mean is 1 in every case.

    EXPONENTIAL is a floor of 1 - spread and an exponential above it: a device that is sometimes delayed, never early.
    """

    LOGNORMAL = "lognormal"
    NORMAL = "normal"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Jitter:
    """Factor on the compute time of a rank in a step, with mean 1 and standard deviation `spread`."""

    spread: float
    shape: Shape = Shape.LOGNORMAL

    def __post_init__(self) -> None:
        limit = 1.0 if self.shape is Shape.EXPONENTIAL else math.inf
        if not 0 <= self.spread <= limit:
            raise InvalidInput(f"spread of {self.shape} jitter must be 0 to {limit}, got {self.spread}")

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> FloatArray:
        """Factors of the given shape."""
        match self.shape:
            case Shape.LOGNORMAL:
                sigma = self._sigma
                return np.exp(sigma * rng.standard_normal(size) - sigma**2 / 2)
            case Shape.NORMAL:
                return np.maximum(0.0, 1 + self.spread * rng.standard_normal(size))
            case Shape.EXPONENTIAL:
                return 1 + self.spread * (rng.standard_exponential(size) - 1)

    def upper_quantile(self, tail: float) -> float:
        """Return the factor that is exceeded with probability `tail`, 0 < tail < 1."""
        match self.shape:
            case Shape.LOGNORMAL:
                sigma = self._sigma
                return math.exp(-sigma * NormalDist().inv_cdf(tail) - sigma**2 / 2)
            case Shape.NORMAL:
                return max(0.0, 1 - self.spread * NormalDist().inv_cdf(tail))
            case Shape.EXPONENTIAL:
                return 1 + self.spread * (-math.log(tail) - 1)

    @property
    def _sigma(self) -> float:
        return math.sqrt(math.log1p(self.spread**2))


def maximum_quantile(jitter: Jitter, num_ranks: int, probability: float) -> float:
    """Return the factor that the slowest of num_ranks independent ranks stays below with this probability."""
    if num_ranks < 1 or not 0 < probability < 1:
        raise InvalidInput(f"a maximum needs 1 or more ranks and 0 < probability < 1, got {num_ranks}, {probability}")
    return jitter.upper_quantile(-math.expm1(math.log(probability) / num_ranks))


def expected_maximum(jitter: Jitter, num_ranks: int) -> float:
    """Mean of the largest of num_ranks independent factors: the step over the mean rank.

    Source: order statistics, E[max] = integral of the quantile of the maximum over its probability.
    """
    if num_ranks < 1:
        raise InvalidInput(f"a maximum needs 1 or more ranks, got {num_ranks}")
    if num_ranks == 1 or jitter.spread == 0:
        return 1.0
    middle = (np.arange(_NODES) + 0.5) / _NODES
    above, weight = (1 - middle) ** 4, 4 * (1 - middle) ** 3  # most nodes where the maximum is rare and large
    tails = -np.expm1(np.log1p(-above) / num_ranks)
    return float(np.mean([jitter.upper_quantile(tail) for tail in tails] * weight))


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that compute slower than the others, in every step: by a factor, and by seconds."""

    ranks: tuple[int, ...]
    factor: float = 1.0
    extra: Seconds = 0.0

    def __post_init__(self) -> None:
        if self.factor <= 0 or self.extra < 0:
            raise InvalidInput(f"a slow rank needs factor above 0 and 0 or more s, got {self.factor}, {self.extra} s")


def slow_node(node: int, ranks_per_node: int, factor: float) -> Slow:
    """All ranks of a node, placed node after node."""
    return Slow(tuple(range(node * ranks_per_node, (node + 1) * ranks_per_node)), factor)


def compute_times(
    base: Seconds, num_ranks: int, *, draws: int = 1, jitter: Jitter | None = None, slow: Sequence[Slow] = (),
    node_jitter: Jitter | None = None, ranks_per_node: int = 1, rng: np.random.Generator | None = None,
) -> FloatArray:  # fmt: skip
    """Compute time of every rank in s, shape (draws, num_ranks).

    Parameters
    ----------
    jitter : of every rank by itself; `node_jitter` is common to the ranks_per_node ranks of a node (clock, cooling,
        an input pipeline they share), so that fewer independent draws make the maximum.

    Raises
    ------
    InvalidInput : a slow rank does not exist, or there is jitter and no generator.
    """
    times = np.full((draws, num_ranks), float(base))
    if jitter is not None or node_jitter is not None:
        times *= _factors(draws, num_ranks, jitter, node_jitter, ranks_per_node, rng=rng)
    for entry in slow:
        wrong = [rank for rank in entry.ranks if not 0 <= rank < num_ranks]
        if wrong:
            raise InvalidInput(f"slow rank {wrong[0]} does not exist among {num_ranks} ranks")
        ranks = list(entry.ranks)
        times[:, ranks] = times[:, ranks] * entry.factor + entry.extra
    return times


def _factors(
    draws: int, num_ranks: int, jitter: Jitter | None, node_jitter: Jitter | None, ranks_per_node: int, *,
    rng: np.random.Generator | None,
) -> FloatArray:  # fmt: skip
    if rng is None:
        raise InvalidInput("jitter needs a random generator: pass rng=numpy.random.default_rng(seed)")
    if ranks_per_node < 1:
        raise InvalidInput(f"ranks_per_node must be 1 or more, got {ranks_per_node}")
    factors = np.ones((draws, num_ranks)) if jitter is None else jitter.draw(rng, (draws, num_ranks))
    if node_jitter is not None:
        nodes = node_jitter.draw(rng, (draws, -(-num_ranks // ranks_per_node)))
        factors = factors * np.repeat(nodes, ranks_per_node, axis=1)[:, :num_ranks]
    return factors


@dataclass(frozen=True, slots=True)
class Waits:
    """A synchronous step over draws: when it can go on, s; how long each rank waits, s, (draws, ranks); who is last."""

    time: FloatArray
    wait: FloatArray
    last: IntArray

    @property
    def p50(self) -> Seconds:
        """Median over draws."""
        return float(np.quantile(self.time, 0.5))

    @property
    def p95(self) -> Seconds:
        """95th percentile over draws."""
        return float(np.quantile(self.time, 0.95))


def wait_for_all(arrivals: FloatArray) -> Waits:
    """What each rank measures at a barrier, from when it arrives, s, shape (draws, num_ranks).

    The step is as long for every rank; the one that waits 0 is the one to look at.
    """
    time = arrivals.max(axis=-1)
    return Waits(time, time[..., None] - arrivals, arrivals.argmax(axis=-1))


@dataclass(frozen=True, slots=True)
class SlowPaths:
    """Other paths with some links slower: bandwidth over a factor, or latency added to every message across them."""

    paths: Paths
    factors: Mapping[int, float]
    extra_latency: Mapping[int, Seconds]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.paths.world_size

    @property
    def link_bandwidth(self) -> FloatArray:
        """Bandwidth of every link in bytes/s, shape (num_links,)."""
        bandwidth = self.paths.link_bandwidth.copy()
        for link, factor in self.factors.items():
            bandwidth[link] /= factor
        return bandwidth

    def latency(self, src: IntArray, dst: IntArray) -> FloatArray:
        """Latency of each message's path in s, shape (num_messages,)."""
        latency = self.paths.latency(src, dst)
        if self.extra_latency and len(src):
            extra = np.zeros(len(self.paths.link_bandwidth))
            extra[list(self.extra_latency)] = list(self.extra_latency.values())
            routes = self.paths.routes(src, dst)
            latency = latency + np.add.reduceat(extra[routes.links], routes.first[:-1])
        return latency

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Links of each message's path, in order."""
        return self.paths.routes(src, dst)


def slow_links(
    paths: Paths, factors: Mapping[int, float], *, extra_latency: Mapping[int, Seconds] | None = None
) -> SlowPaths:
    """Slow down links by index: factor 2 halves the bandwidth.

    Raises
    ------
    InvalidInput : there is no such link, or a factor is not above 0.
    """
    num_links = len(paths.link_bandwidth)
    for link in (*factors, *(extra_latency or {})):
        if not 0 <= link < num_links:
            raise InvalidInput(f"slow link {link} does not exist among {num_links} links")
    for link, factor in factors.items():
        if not factor > 0:
            raise InvalidInput(f"factor of slow link {link} must be above 0, got {factor}; 2 halves its bandwidth")
    return SlowPaths(paths, dict(factors), dict(extra_latency or {}))


@dataclass(frozen=True, slots=True)
class Failures:
    """Nodes that fail now and then, and a run that restarts from its last checkpoint.

    `mtbf` is the mean time between failures of one node, s; failures are independent and memoryless.
    `checkpoint` is s to write one, `restart` s to start again and read it.
    """

    mtbf: Seconds
    num_nodes: int
    checkpoint: Seconds
    restart: Seconds
    interval: Seconds | None = None

    def __post_init__(self) -> None:
        if not self.mtbf > 0 or self.num_nodes < 1 or self.checkpoint < 0 or self.restart < 0:
            raise InvalidInput(
                "failures need mtbf above 0 s, 1 or more nodes, and 0 or more s to write and to restart, got "
                f"{self.mtbf} s, {self.num_nodes}, {self.checkpoint} s, {self.restart} s"
            )
        if self.interval is not None and not self.interval > 0:
            raise InvalidInput(f"the checkpoint interval must be above 0 s, got {self.interval} s")

    @property
    def system_mtbf(self) -> Seconds:
        """Mean time between failures of any node."""
        return self.mtbf / self.num_nodes

    @property
    def best_interval(self) -> Seconds:
        """Useful time between checkpoints that makes the expected time least, to second order in C/M.

        Source: Daly, FGCS 22(3), 2006, equation 37; Young, CACM 17(9), 1974, is its leading term.
        """
        mtbf, write = self.system_mtbf, self.checkpoint
        if write == 0:
            raise InvalidInput("checkpoints that take 0 s have no best interval; give interval in s")
        if write >= 2 * mtbf:
            return mtbf
        ratio = write / (2 * mtbf)
        return math.sqrt(2 * write * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write

    def expected_time(self, work: Seconds) -> Seconds:
        """Mean time until `work` s of useful time are done, with checkpoints, lost work and restarts.

        Without an interval of its own it takes `best_interval`. No checkpoint is written after the last stretch.

        Raises
        ------
        InvalidInput : a stretch is so long against the time between failures that the run would never end.

        Source: Daly, FGCS 22(3), 2006, section 3: each stretch is retried until it fits between two failures.
        """
        full, stretch, last = self._stretches(work)
        mtbf = self.system_mtbf
        try:
            grown = full * math.expm1(stretch / mtbf) + math.expm1(last / mtbf)
            return math.exp(self.restart / mtbf) * mtbf * grown
        except OverflowError as error:
            raise InvalidInput(
                f"{max(stretch, last):.3g} s between checkpoints never pass without a failure at {mtbf:.3g} s "
                "between failures; write checkpoints more often"
            ) from error

    def draw_times(self, work: Seconds, rng: np.random.Generator, draws: int) -> FloatArray:
        """Times until `work` s of useful time are done, one per draw, s, shape (draws,)."""
        return np.array([self._draw(work, rng) for _ in range(draws)])

    def _draw(self, work: Seconds, rng: np.random.Generator) -> Seconds:
        clock = 0.0
        full, stretch, last = self._stretches(work)
        for useful in (*[stretch] * full, last):
            need = useful
            while (lasts := rng.exponential(self.system_mtbf)) < need:
                clock, need = clock + lasts, useful + self.restart
            clock += need
        return clock

    def _stretches(self, work: Seconds) -> tuple[int, Seconds, Seconds]:
        """How many full stretches, the time of one with its checkpoint, and the time of the last without."""
        if work <= 0:
            return 0, 0.0, 0.0
        interval = self.interval if self.interval is not None else self.best_interval
        full = max(0, math.ceil(work / interval - 1e-9) - 1)
        return full, interval + self.checkpoint, work - full * interval
