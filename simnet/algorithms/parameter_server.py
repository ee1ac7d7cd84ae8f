"""Parameter servers: workers push gradients to one or several servers and pull the sums back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from simnet.algorithms.direct import MOST_TRANSFERS
from simnet.algorithms.registry import Options, Traffic, algorithm
from simnet.collective import Collective, IntArray, Kind
from simnet.errors import InvalidInput
from simnet.schedule import Item, Op, Schedule, Step


def _variants(world_size: int) -> Iterable[Options]:
    return [{"servers": servers} for servers in sorted({1, min(2, world_size), (world_size + 1) // 2, world_size})]


def _traffic(world_size: int, servers: int = 1) -> Traffic:
    serves = np.arange(world_size) < servers
    messages = servers - serves + serves * (world_size - 1)
    return Traffic(messages, messages / servers)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def parameter_server(world_size: int, *, servers: int = 1) -> Schedule:
    """Synchronous all-reduce through servers: the first `servers` ranks each add up 1/servers of the data.

    Every rank pushes S/servers bytes to each server but itself; every server sends S/servers bytes back
    to each rank but itself. With one server this is the naive star, with n it is `direct`.
    Steps of more than 2,048 x 2,048 transfers come in blocks of workers.

    Parameters
    ----------
    servers : 1 to world_size; servers are workers too.

    Source: Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014.
    """
    if not 1 <= servers <= world_size:
        raise InvalidInput(f"servers must be 1 to the {world_size} ranks, got {servers}")

    def items() -> Iterator[Item]:
        for workers in _blocks(world_size, servers):
            worker, server = workers.repeat(servers), np.tile(np.arange(servers), len(workers))
            other = worker != server
            yield Step.columns(worker[other], server[other], server[other], op=Op.REDUCE)
        for workers in _blocks(world_size, servers):
            worker, server = workers.repeat(servers), np.tile(np.arange(servers), len(workers))
            other = worker != server
            yield Step.columns(server[other], worker[other], server[other])

    return Schedule("parameter_server", Collective(Kind.ALL_REDUCE), world_size, servers, items)


def _blocks(world_size: int, servers: int) -> Iterator[IntArray]:
    ranks = np.arange(world_size) if world_size > 1 else np.empty(0, np.int64)
    block = max(1, MOST_TRANSFERS // servers)
    return (ranks[begin : begin + block] for begin in range(0, len(ranks), block))
