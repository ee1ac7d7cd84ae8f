"""Test your own collectives with the battery this project runs on its own.

```python
from simnet.testing import assert_implements

def test_my_all_reduce():
    for world_size in range(1, 10):
        assert_implements(my_all_reduce(world_size), "all_reduce")
```

The strategies draw what the project's own tests draw; they need Hypothesis (`pip install simnet-testbed[test]`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from simnet.algorithms.registry import algorithms
from simnet.collective import Collective, Kind
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput, WrongResult
from simnet.fabric import Fabric, Link
from simnet.interpreters.check import check
from simnet.interpreters.closed_form import bandwidth_bound
from simnet.interpreters.engine import run
from simnet.interpreters.execute import execute
from simnet.interpreters.simulate import simulate
from simnet.paths import FabricPaths, UniformPaths
from simnet.placement import Placement
from simnet.rounding import summation_order
from simnet.schedule import Op, Schedule, Step, Transfer, chunk_bounds
from simnet.verification import redundant, variants


def assert_implements(schedule: Schedule, collective: Collective | Kind | str, *, lean: bool = True) -> None:
    """Hold a schedule to everything a collective algorithm must fulfil.

    The symbolic check; the same steps when read again; the sums of real integers for buffers that are empty, smaller
    than the world size and not divisible by it; one order of summation on all ranks, so that their bits agree;
    no transfer that could be left out; and times that agree between the engines and do not beat the links.

    Parameters
    ----------
    collective : what it must do; a name means root 0.
    lean : whether every transfer must matter.

    Raises
    ------
    InvalidSchedule, WrongResult : the first requirement that is not met.
    """
    due = collective if isinstance(collective, Collective) else Collective(_kind(collective))
    if schedule.collective != due:
        raise WrongResult(f"{schedule.name} says it does {schedule.collective}, it must do {due}")
    check(schedule)
    _assert_re_iterable(schedule)
    for count in _counts(schedule):
        _assert_result(schedule, count)
    if due.reduces:
        summation_order(schedule)
    if lean and (idle := redundant(schedule, sample=512)):
        raise WrongResult(f"{schedule.name}: the result is the same without {idle[0]}; drop it or pass lean=False")
    _assert_times(schedule)


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError as error:
        raise InvalidInput(f"unknown collective {name!r}; choose one of {', '.join(Kind)}") from error


def _assert_re_iterable(schedule: Schedule) -> None:
    first, again = (list(schedule.expand()) for _ in range(2))
    same = len(first) == len(again) and all(
        list(a.transfers()) == list(b.transfers()) for a, b in zip(first, again, strict=True)
    )
    if not same:
        raise WrongResult(f"{schedule.name} gives other steps when it is read again; build items anew on every call")


def _counts(schedule: Schedule) -> Sequence[int]:
    """Elements per rank worth trying; chunks of unequal size only where no chunk changes its place."""
    n, chunks = schedule.world_size, schedule.num_chunks
    rigid = schedule.num_scratch or schedule.collective.kind is Kind.ALL_TO_ALL
    return (0, chunks, 3 * chunks) if rigid else (0, 1, n - 1, n, n + 1, 3 * chunks + 1)


def _assert_result(schedule: Schedule, count: int) -> None:
    n, kind = schedule.world_size, schedule.collective.kind
    inputs = np.random.default_rng(count).integers(-(2**40), 2**40, (n, count))
    before, outputs = inputs.copy(), execute(schedule, inputs)
    if not np.array_equal(inputs, before):
        raise WrongResult(f"{schedule.name} changed its inputs")
    of_element = _chunk_of_element(schedule, count)
    wanted = schedule.collective.wants(n, schedule.num_chunks)[:, of_element]
    if schedule.collective.reduces:
        expected = np.broadcast_to(inputs.sum(axis=0), inputs.shape)
    else:
        ranks, chunks = schedule.collective.origin(n, schedule.num_chunks)
        size = count // schedule.num_chunks
        moved = (
            np.arange(count)
            if kind is not Kind.ALL_TO_ALL
            else chunks[:, of_element] * size + np.arange(count) % max(size, 1)
        )
        expected = inputs[ranks[:, of_element], moved]
    if not np.array_equal(outputs[wanted], expected[wanted]):
        rank, element = np.argwhere(wanted & (outputs != expected))[0].tolist()
        raise WrongResult(f"{schedule.name}: {count} elements, rank {rank}, element {element} is wrong")


def _chunk_of_element(schedule: Schedule, count: int) -> npt.NDArray[np.int64]:
    return np.searchsorted(chunk_bounds(count, schedule.num_chunks), np.arange(count), side="right") - 1


def _assert_times(schedule: Schedule) -> None:
    n, count = schedule.world_size, 12 * schedule.num_chunks
    paths, cost = UniformPaths(n, 1e-6, 1e9), AlphaBeta()
    exact = simulate(schedule, count, paths, cost)
    quick = run(schedule, count, paths, cost)
    if np.all(quick.exact) and not np.isclose(quick.time, exact.time, rtol=1e-9):
        raise WrongResult(f"{schedule.name}: {quick.engine} says {quick.time} s, simulate {exact.time} s")
    if schedule.collective.kind is Kind.ALL_REDUCE:
        least = bandwidth_bound(n, count * 4, 1e-9)
        if exact.time < least * (1 - 1e-9):
            raise WrongResult(f"{schedule.name} takes {exact.time} s, but the links need {least} s")


@st.composite
def schedules(
    draw: st.DrawFn,
    *,
    kinds: Sequence[Kind | str] = tuple(Kind),
    max_ranks: int = 9,
    names: Sequence[str] | None = None,
) -> Schedule:
    """Draw a schedule of this project: an algorithm, a world size it admits and options."""
    chosen = names or [name for name, one in algorithms().items() if one.kind in kinds]
    one, ranks = algorithms()[draw(st.sampled_from(chosen))], draw(st.integers(1, max_ranks))
    admitted = [schedule for _, schedule in variants(one, max_ranks=ranks, min_ranks=ranks)]
    return draw(st.sampled_from(admitted)) if admitted else one.build(1)


@st.composite
def step_lists(draw: st.DrawFn, *, world_size: int, num_chunks: int, max_steps: int = 4) -> list[Step]:
    """Draw any steps at all: valid row by row, though they do nothing sensible."""

    @st.composite
    def transfers(draw: st.DrawFn) -> Transfer:
        src, hop = draw(st.integers(0, world_size - 1)), draw(st.integers(1, world_size - 1))
        count = draw(st.integers(1, num_chunks))
        first, target = (draw(st.integers(0, num_chunks - count)) for _ in range(2))
        return Transfer(src, (src + hop) % world_size, first, target, count, Op.REDUCE)

    rows = st.lists(transfers(), min_size=1, max_size=2 * world_size)
    return [Step.of(step) for step in draw(st.lists(rows, max_size=max_steps))]


def sizes(world_size: int, *, most: int = 1 << 20) -> SearchStrategy[int]:
    """Draw element counts: none, fewer than ranks, around multiples of the world size, large."""
    near = st.builds(lambda k, d: max(0, k * world_size + d), st.integers(0, 64), st.integers(-1, 1))
    return st.one_of(st.just(0), st.integers(0, world_size), near, st.integers(0, most))


def starts(world_size: int, *, most: float = 1e-3) -> SearchStrategy[npt.NDArray[np.float64]]:
    """Draw when ranks enter, s, shape (world_size,): together, one late, or at random."""
    together = st.just(np.zeros(world_size))
    late = st.integers(0, world_size - 1).map(lambda rank: np.where(np.arange(world_size) == rank, most, 0.0))
    at_random = st.lists(st.floats(0, most), min_size=world_size, max_size=world_size).map(np.array)
    return st.one_of(together, late, at_random)


@st.composite
def fabrics(draw: st.DrawFn, *, world_size: int) -> FabricPaths:
    """Draw a small network with every rank placed on it: one switch, a ring, or two switches with a shared uplink."""
    latency, bandwidth = draw(st.sampled_from([0.0, 1e-6])), draw(st.sampled_from([1e9, 12.5e9]))
    ranks = [f"rank{r}" for r in range(world_size)]
    match draw(st.sampled_from(["switch", "ring", "two switches"])):
        case "switch":
            cables = [(rank, "switch", bandwidth) for rank in ranks]
        case "ring":
            cables = [
                (rank, ranks[(r + 1) % world_size], bandwidth) for r, rank in enumerate(ranks) if r + 1 < world_size
            ]
            cables += [(ranks[-1], ranks[0], bandwidth)] * (world_size > 2)
        case _:
            cables = [(rank, f"switch{r % 2}", bandwidth) for r, rank in enumerate(ranks)]
            cables.append(("switch0", "switch1", bandwidth * draw(st.sampled_from([0.5, 1.0, 4.0]))))
    links = [Link(a, b, latency, rate) for x, y, rate in cables for a, b in ((x, y), (y, x))]
    order = draw(st.permutations(ranks))
    return FabricPaths(Fabric(links), Placement(tuple(order)))
