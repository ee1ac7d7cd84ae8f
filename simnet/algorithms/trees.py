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


def one_port_times(parents: IntArray) -> IntArray:
    """Step in which each rank hears from its parent, shape (2, world_size); ROOT for the roots.

    Parents has the same shape, one row per tree. Times grow down each tree, and among the edges out of
    one rank and among those into one rank, over both trees, one is even and one is odd: with a new
    segment every two steps nobody sends or receives twice in a step.

    Source: Sanders, Speck & Traeff, Parallel Computing 35(12), 2009, lemma on two-colouring.
    """
    colour = _colours(parents)
    ranks = np.arange(parents.shape[1])
    time = np.full_like(parents, ROOT)
    for _ in range(len(ranks).bit_length() + 1):
        above = np.take_along_axis(time, parents, axis=1) + 1
        time = np.where(parents == ranks, ROOT, above + (above + colour) % 2)
    return time


def _colours(parents: IntArray) -> IntArray:
    """Colour edges (tree, child) 0 or 1 so that two that share a parent or a child, over both trees, differ."""
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
