"""Star: one rank of every node adds up the whole buffer, these ranks all-reduce, and each sends back the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from simnet.algorithms.grid import divisors, require_group
from simnet.algorithms.registry import Options, Traffic, algorithm, find
from simnet.collective import Collective, Kind
from simnet.combine import Phase, on_groups, refine, then
from simnet.schedule import Item, Op, Schedule, Step


def _variants(world_size: int) -> Iterable[Options]:
    return ({"ranks_per_node": g} for g in divisors(world_size))


def _traffic(world_size: int, ranks_per_node: int | None = None) -> Traffic:
    size = require_group(world_size, ranks_per_node or world_size)
    nodes = world_size // size
    other, root = find("ring").traffic(nodes), np.arange(size) == 0
    own = np.where(root, size - 1, 1)
    messages = own + np.outer(other.messages * np.ones(nodes, int), root)
    share = own + np.outer(other.share * np.ones(nodes), root)
    return Traffic(messages.reshape(-1), share.reshape(-1))


def _star(size: int, op: Op) -> Schedule:
    """Reduce to rank 0, or broadcast from it, in one step."""
    others, root = np.arange(1, size), np.zeros(size - 1, np.int64)

    def items() -> Iterator[Item]:
        if size > 1:
            yield Step.columns(others, root, 0, op=op) if op == Op.REDUCE else Step.columns(root, others, 0, op=op)

    kind = Kind.REDUCE if op == Op.REDUCE else Kind.BROADCAST
    return Schedule(f"star_{kind}", Collective(kind), size, 1, items)


@algorithm(Kind.ALL_REDUCE, variants=_variants, traffic=_traffic)
def star(world_size: int, *, ranks_per_node: int | None = None) -> Schedule:
    """All-reduce as a parameter store on devices does: all push to one rank of the node, and it sends back to all.

    With s ranks in a node, its root takes in and sends out (s-1) S bytes; the others send S. Roots of several
    nodes all-reduce around a ring in between.

    Parameters
    ----------
    ranks_per_node : divisor of world_size; default all ranks around one.

    Source: Chen et al., MXNet, arXiv 1512.01274, section 3.3: two levels of servers, devices inside a machine first.
    """
    size = require_group(world_size, ranks_per_node or world_size)
    nodes = world_size // size
    inner = find("ring").build(nodes)
    ranks = np.arange(world_size).reshape(nodes, size)

    def inside(op: Op) -> Phase:
        tree = refine(_star(size, op), inner.num_chunks)
        return on_groups(tree, ranks, world_size=world_size, num_chunks=inner.num_chunks)

    middle = on_groups(inner, ranks[:, 0][None, :], world_size=world_size, num_chunks=inner.num_chunks)
    collective = Collective(Kind.ALL_REDUCE)
    return then(inside(Op.REDUCE), middle, inside(Op.COPY), name="star", collective=collective)
