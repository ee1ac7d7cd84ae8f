"""Binary trees over ranks, and when each of their edges may be used."""

from __future__ import annotations

import numpy as np

from simnet.collective import IntArray

ROOT = -1


def in_order_parents(world_size: int) -> IntArray:
    """Parent of every rank in a binary tree rooted at 0 whose odd ranks are leaves; the root is its own parent."""
    ranks = np.arange(world_size)
    bit = ranks & -ranks
    up = (ranks ^ bit) | (bit << 1)
    return np.where(up < world_size, up, ranks ^ bit)


def complement(world_size: int) -> IntArray:
    """Position of every rank in the second tree: mirrored for even world sizes, moved on by one for odd."""
    ranks = np.arange(world_size)
    return (world_size - 1 - ranks) if world_size % 2 == 0 else (ranks - 1) % world_size


def two_trees(world_size: int) -> IntArray:
    """Parents in both trees, shape (2, world_size)."""
    parents, acts_as = in_order_parents(world_size), complement(world_size)
    return np.stack([parents, np.argsort(acts_as)[parents[acts_as]]])


def with_chains(parents: IntArray, colours: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Give every rank of two trees over nodes a chain of its node's further ranks; parents and colours, each (2, n).

    Colours alternate along a chain and between the trees: a rank in it sends once and receives once a step.
    """
    ranks = np.arange(parents.shape[1] * size)
    node, place = np.divmod(ranks, size)
    chained = np.where(place > 0, ranks - 1, parents[:, node] * size)
    alternating = (place + np.array([[0], [1]])) % 2
    return chained, np.where(place > 0, alternating, colours[:, node])


def edge_times(parents: IntArray, colours: IntArray, every: int) -> IntArray:
    """Step in which each rank hears from its parent, shape (2, world_size); ROOT for the roots.

    Times grow down each tree; with a new segment `every` two steps each is even or odd as the edge's colour is.
    """
    ranks = np.arange(parents.shape[1])
    time, before = np.full_like(parents, ROOT), None
    while before is None or not np.array_equal(time, before):
        before = time
        above = np.take_along_axis(time, parents, axis=1) + 1
        time = np.where(parents == ranks, ROOT, above + (above + colours) % every)
    return time


def two_colours(parents: IntArray) -> IntArray:
    """Colour edges (tree, child) 0 or 1 so that two that share a parent or a child, over both trees, differ.

    With a new segment every two steps, nobody then sends or receives twice in a step.

    Source: Sanders, Speck & Traeff, Parallel Computing 35(12), 2009, lemma on two-colouring.
    """
    n = parents.shape[1]
    edges = np.flatnonzero((parents != np.arange(n)).reshape(-1))
    siblings = _pairs(edges, parents.reshape(-1)[edges])
    twins = _pairs(edges, edges % n)
    colour: dict[int, int] = {}
    for start in edges.tolist():
        todo = [(start, 0)]
        while todo:
            edge, wanted = todo.pop()
            if edge not in colour:
                colour[edge] = wanted
                todo += [(other[edge], 1 - wanted) for other in (siblings, twins) if edge in other]
    flat = np.zeros(2 * n, np.int64)
    flat[list(colour)] = list(colour.values())
    return flat.reshape(2, n)


def _pairs(edges: IntArray, key: IntArray) -> dict[int, int]:
    """Map each of two edges with the same key to the other."""
    order = np.argsort(key, kind="stable")
    same = np.flatnonzero(key[order][1:] == key[order][:-1])
    first, second = edges[order][same].tolist(), edges[order][same + 1].tolist()
    return dict(zip(first + second, second + first, strict=True))
