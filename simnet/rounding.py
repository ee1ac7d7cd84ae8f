"""The order in which a schedule adds, and what that means for floating-point sums.

The order is found by running the executor over expressions instead of numbers, so it is the order of
the schedule and of every interpreter that keeps it. It can be printed, and adding by it in NumPy
gives the same bits as `execute`.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput, Unsupported, WrongResult
from simnet.interpreters import execute
from simnet.schedule import Schedule

Data = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """What one rank contributes."""

    rank: int

    def __add__(self, other: Order) -> Sum:
        return Sum(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """`left` was in the buffer, `right` arrived and was added."""

    left: Order
    right: Order

    def __add__(self, other: Order) -> Sum:
        return Sum(self, other)


Order = Term | Sum


def summation_order(schedule: Schedule) -> list[Order]:
    """Order of summation of every chunk, as every rank that ends with the result has it.

    Floating-point addition commutes, so orders that differ only in left and right are one order.

    Raises
    ------
    WrongResult : two ranks end with sums of different orders; their bits may differ.
    Unsupported : the collective does not add.
    """
    if not schedule.collective.reduces:
        raise Unsupported(
            f"{schedule.name} adds nothing up; ask for the order of an all_reduce, reduce_scatter or reduce"
        )
    n, chunks = schedule.world_size, schedule.num_chunks
    state = np.empty((n, chunks + schedule.num_scratch), object)
    state[:] = np.array([Term(rank) for rank in range(n)], object)[:, None]
    for _ in execute.run(schedule, state, chunks):
        pass
    wanted = schedule.collective.wants(n, chunks)
    names = _Names()
    found: list[Order] = []
    for chunk in range(chunks):
        ranks = np.flatnonzero(wanted[:, chunk]).tolist()
        different = {names.name(state[rank, chunk]): rank for rank in ranks}
        if len(different) > 1:
            two = sorted(different.values())[:2]
            raise WrongResult(f"{schedule.name}, chunk {chunk}: ranks {two} add in different orders")
        found.append(state[ranks[0], chunk])
    return found


def format_order(order: Order) -> str:
    """Write an order with its brackets: ((x1 + x2) + x0)."""
    done: dict[int, str] = {}
    for node in _children_first(order):
        done[id(node)] = (
            f"x{node.rank}" if isinstance(node, Term) else f"({done[id(node.left)]} + {done[id(node.right)]})"
        )
    return done[id(order)]


def add_in_order(order: Order, values: Data) -> Data:
    """Sum of values (world_size, ...) in that order and in their own type, shape (...)."""
    done: dict[int, Data] = {}
    for node in _children_first(order):
        done[id(node)] = values[node.rank] if isinstance(node, Term) else done[id(node.left)] + done[id(node.right)]
    return done[id(order)]


def depth(order: Order) -> int:
    """Largest number of additions any term goes through: n - 1 for a chain, ceil(log2 n) for a balanced tree."""
    done: dict[int, int] = {}
    for node in _children_first(order):
        done[id(node)] = 0 if isinstance(node, Term) else 1 + max(done[id(node.left)], done[id(node.right)])
    return done[id(order)]


def error_bound(schedule: Schedule, inputs: Data) -> npt.NDArray[np.float64]:
    """Largest possible distance of each element's sum from the exact one, shape (count,), without overflow.

    ((1 + u)**depth - 1) * sum of magnitudes, u the unit roundoff of the inputs' type. Elements take the
    depth of the deepest chunk.

    Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 4.2.
    """
    deepest = max(depth(order) for order in summation_order(schedule))
    growth = (1 + unit_roundoff(inputs.dtype)) ** deepest - 1
    return np.abs(inputs.astype(np.float64)).sum(axis=0) * growth


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Half the distance from 1 to the next number of a floating-point type, NumPy's or ml_dtypes'."""
    import ml_dtypes

    return float(ml_dtypes.finfo(np.dtype(dtype)).eps) / 2  # type: ignore[no-untyped-call]


def average(schedule: Schedule, inputs: Data, *, before: float | None = None) -> Data:
    """Mean over ranks with the schedule's sums: scaled by `before`, added, scaled by 1 / (n before).

    Scaling by 1/n first (the default) cannot overflow but loses the smallest numbers; 1 keeps those and may
    overflow; 1/sqrt(n) is the middle way.

    Raises
    ------
    InvalidInput : the inputs are integers, whose mean is no integer; or before is not above 0.
    WrongResult : finite inputs gave a sum that is not; the text says where and what to do.
    """
    if not np.issubdtype(inputs.dtype, np.inexact) and inputs.dtype.kind != "V":
        raise InvalidInput(
            f"the average of {inputs.dtype} is no {inputs.dtype}; take the sum, or convert to a float type"
        )
    n = schedule.world_size
    factor = 1 / n if before is None else before
    if not factor > 0:
        raise InvalidInput(f"before must be above 0, got {factor}; use 1 / {n}")
    with np.errstate(over="ignore"):
        sums = execute.execute(schedule, inputs * inputs.dtype.type(factor))
        require_finite(inputs, sums)
        return sums * inputs.dtype.type(1 / (n * factor))


def require_finite(inputs: Data, sums: Data) -> None:
    """Raise WrongResult, with rank and element, where finite inputs gave a sum that overflowed."""
    broken = np.isfinite(inputs).all(axis=0, keepdims=True) & ~np.isfinite(sums)
    if broken.any():
        rank, element = (int(i) for i in np.argwhere(broken)[0][:2])
        n = len(inputs)
        raise WrongResult(
            f"element {element} of rank {rank} overflowed {inputs.dtype} in the sum over {n} ranks; "
            f"scale by 1/{n} before, or by 1/sqrt({n}) before and after"
        )


def _children_first(order: Order, *, known: Container[int] = ()) -> list[Order]:
    """Every node once, each after both its parts, those below nodes of known ids left out.

    Without recursion, as chains are as deep as the world is large.
    """
    found: dict[int, Order] = {}
    todo = [order]
    while todo:
        node = todo.pop()
        if id(node) in known:
            continue
        found.pop(id(node), None)
        found[id(node)] = node
        if isinstance(node, Sum):
            todo += [node.left, node.right]
    return list(found.values())[::-1]


class _Names:
    """Numbers for orders, the same for orders that differ only in left and right.

    Nodes are remembered by id, so the orders must stay alive meanwhile.
    """

    def __init__(self) -> None:
        self.of_node: dict[int, int] = {}
        self.of_key: dict[object, int] = {}

    def name(self, order: Order) -> int:
        for node in _children_first(order, known=self.of_node):
            if isinstance(node, Term):
                key: object = ("term", node.rank)
            else:
                key = frozenset((self.of_node[id(node.left)], self.of_node[id(node.right)]))
            self.of_node[id(node)] = self.of_key.setdefault(key, len(self.of_key))
        return self.of_node[id(order)]
