"""Goyal et al.: NCCL ring inside a server, halving-doubling between servers."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm

import numpy as np

from simnet.algorithms.chain import SEGMENTS, chain_broadcast, chain_reduce
from simnet.algorithms.grid import divisors, require_group
from simnet.algorithms.halving_doubling import core, halving_doubling
from simnet.algorithms.registry import Options, Traffic, algorithm, find
from simnet.collective import Collective, Kind
from simnet.combine import Phase, on_groups, refine, then
from simnet.schedule import Schedule


def _variants(world_size: int) -> Iterable[Options]:
    return [{}, *({"ranks_per_node": size, "segments": 3} for size in divisors(world_size))]


def _traffic(world_size: int, ranks_per_node: int | None = None, segments: int = SEGMENTS) -> Traffic:
    size = require_group(world_size, ranks_per_node)
    place, between = np.arange(size), find("halving_doubling").traffic(world_size // size)
    inside = (place > 0) + (place < size - 1).astype(np.int64)
    messages = inside * segments + (place == 0) * np.asarray(between.messages)[:, None]
    return Traffic(messages.reshape(-1), (inside + (place == 0) * np.asarray(between.share)[:, None]).reshape(-1))


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def goyal(world_size: int, *, ranks_per_node: int | None = None, segments: int = SEGMENTS) -> Schedule:
    """All-reduce in three phases: ring reduce in every server, halving-doubling between servers, ring broadcast.

    Ranks are numbered server after server. The ring reduce and broadcast are pipelined chains: a rank
    sends S bytes in `segments` messages once for each (not the tail of the reduce, not the end of the
    broadcast); the first rank of every server adds the traffic of halving_doubling.

    Parameters
    ----------
    ranks_per_node : divisor of world_size; default the one nearest below its square root.

    Source: Goyal et al., "Accurate, Large Minibatch SGD", arXiv 1706.02677, 2017, section 4.
    """
    size = require_group(world_size, ranks_per_node)
    nodes = world_size // size
    ranks = np.arange(world_size).reshape(nodes, size)
    chunks = lcm(segments, len(core(nodes)))

    def phase(part: Schedule, groups: np.ndarray) -> Phase:
        return on_groups(refine(part, chunks // part.num_chunks), groups, world_size=world_size, num_chunks=chunks)

    return then(
        phase(chain_reduce(size, segments=segments), ranks),
        phase(halving_doubling(nodes), ranks[:, 0]),
        phase(chain_broadcast(size, segments=segments), ranks),
        name="goyal",
        collective=Collective(Kind.ALL_REDUCE),
    )
