"""One training step: parts that add up, overlap that never hurts, bounds that hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnet.algorithms.registry import build
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput
from simnet.interpreters.program import Job
from simnet.interpreters.simulate import simulate_jobs
from simnet.paths import UniformPaths
from simnet.training import Draws, StepWork, step
from simnet.workload import Bucket

times = st.floats(0, 1, allow_subnormal=False)


def work(backward, latency, transfer, layers=None, **changes):
    backward = np.array(backward, float)
    layers = layers or [len(backward) - 1 - i for i in range(len(latency))]
    buckets = tuple(Bucket((i,), 4, "float32", layer) for i, layer in enumerate(layers))
    zero = np.zeros(len(backward))
    parts = StepWork(
        backward / 2, backward, 0.1, buckets, np.array(latency, float), np.array(transfer, float), zero, zero
    )
    return replace(parts, **changes)


@st.composite
def works(draw):
    num = draw(st.integers(1, 6))
    each = st.lists(times, min_size=num, max_size=num)
    return work(
        draw(each), draw(each), draw(each), lanes=draw(st.integers(1, 3)), input=draw(times),
        accumulation=draw(st.integers(1, 3)),
    )  # fmt: skip


def test_hand_computed_overlap():
    # backward of layers 1 then 0, 1 s each; two buckets of 0.5 + 1 s: the second is ready at 2.0, waits until 2.5
    found = step(work([1, 1], [0.5, 0.5], [1, 1]))
    ends = [span.end for span in found.spans if span.row == "exchange"]
    assert ends == [1 + 1 + 1.5, 1 + 2.5 + 1.5]
    assert found.breakdown()["exposed_exchange"] == pytest.approx(5 - 3)
    assert float(found.total[0]) == pytest.approx(5 + 0.1)


def test_lanes_hide_latencies_but_share_the_wire():
    one, two = (step(work([0, 0], [1, 1], [1, 1], lanes=n)).total[0] for n in (1, 2))
    assert (one, two) == (pytest.approx(4.1), pytest.approx(3.1))


@given(works())
def test_parts_add_up_to_the_step(parts):
    found = step(parts, Draws(compute=np.array([1.0, 1.3]), slowest=np.array([0.0, 0.1])))
    for draw in range(2):
        assert sum(found.breakdown(draw).values()) == pytest.approx(float(found.total[draw]), abs=1e-9)
    assert (found.waiting > -1e-9).all()


@given(works())
def test_a_step_takes_at_least_every_single_term(parts):
    found = step(parts).total[0]
    compute = parts.accumulation * (parts.forward.sum() + parts.backward.sum()) + parts.update
    for bound in (compute, parts.transfer.sum(), parts.latency.max(initial=0), parts.input):
        assert found >= bound - 1e-9


@given(works())
def test_overlap_on_one_lane_is_never_slower(parts):
    one = replace(parts, lanes=1)
    assert step(one).total[0] <= step(replace(one, overlap=False)).total[0] + 1e-9


@given(works(), st.floats(1, 3))
def test_more_of_anything_is_never_faster(parts, factor):
    base = step(parts).total[0]
    for name in ("transfer", "latency", "backward", "forward"):
        assert step(replace(parts, **{name: getattr(parts, name) * factor})).total[0] >= base - 1e-9


def test_interference_takes_from_compute_only_while_messages_fly():
    quiet = work([1, 1, 1], [0, 0, 0], [0, 0, 0])
    assert step(replace(quiet, interference=0.2)).total[0] == step(quiet).total[0]
    busy = work([1, 1, 1], [0, 0, 0], [0.5, 0.5, 0])
    assert step(replace(busy, interference=0.2)).total[0] == pytest.approx(step(busy).total[0] + 0.2 * 1.0)


def test_no_buckets_means_no_exchange():
    found = step(work([1.0], [], []))
    assert found.exposed.shape == (1, 0)
    assert found.total[0] == pytest.approx(1.6)


def test_accumulation_computes_more_and_exchanges_once():
    one = work([1, 1], [0, 0], [1, 1])
    assert step(replace(one, accumulation=3)).total[0] == pytest.approx(step(one).total[0] + 2 * 3)


def test_a_straggler_sets_the_pace_of_all():
    # four ranks of 93 ms, one with 200 ms more in its backward pass: all steps take 293 ms
    parts = replace(work([0.062], [0], [0]), update=0.0)
    found = step(parts, Draws(slowest=0.2 / 0.093))
    assert float(found.total[0]) == pytest.approx(0.293)
    assert found.breakdown()["waiting"] == pytest.approx(0.2)


def test_a_starved_step_waits_for_its_input():
    found = step(work([1.0], [0], [0], input=5.0))
    assert float(found.total[0]) == 5.0
    assert found.breakdown()["input_stall"] == pytest.approx(5.0 - 1.6)


def test_work_needs_two_times_per_bucket():
    with pytest.raises(InvalidInput, match="two times per bucket"):
        work([1, 1], [0], [0, 0], layers=[1])


def test_ten_gigabit_two_nodes_lie_between_no_and_full_overlap():
    # ResNet-101, 1 GPU 172 images/s at batch 64, 178 MB over 10 Gbit/s; published 291 on two nodes
    compute, wire = 64 / 172, 178e6 / 1.25e9
    parts = replace(work([compute / 1.5], [0], [wire]), update=0.0)
    rates = [128 / float(step(replace(parts, overlap=o)).total[0]) for o in (False, True)]
    many = replace(work([compute / 1.5 / 30] * 30, [0] * 30, [wire / 30] * 30), update=0.0)
    assert 128 / (compute + wire) == pytest.approx(rates[0], rel=1e-6)
    assert rates[0] == pytest.approx(249, abs=1)
    assert 291 < 128 / float(step(many).total[0]) < 344.1


def test_halving_the_bytes_halves_what_is_exposed():
    # 17 h with fp32 gradients, 11 h with fp16: 5 h of compute and 12 h of exchange; four times fewer bytes: 8 h
    parts = replace(work([5 / 1.5], [0], [12.0], overlap=False), update=0.0)
    hours = [float(step(replace(parts, transfer=parts.transfer / c)).total[0]) for c in (1, 2, 4)]
    assert hours == [pytest.approx(17), pytest.approx(11), pytest.approx(8)]


def test_hand_computed_step_on_two_lanes():
    # Forward 1.5 s; gradients at 2.5, 3.5, 4.5. Two lanes: 2.5 -> 3.3 -> 4.3, then 3.5 -> 4.3 -> 5.3, and the third
    # finds the first lane free: 4.5 -> 5.3 -> 6.3. One lane sends at 2.5, 4.3, 6.1, each taking 1.8.
    parts = work([1, 1, 1], [0.8, 0.8, 0.8], [1, 1, 1])
    ends = {n: [s.end for s in step(replace(parts, lanes=n)).spans if s.row == "exchange"] for n in (1, 2, 3)}
    assert ends[1] == pytest.approx([4.3, 6.1, 7.9])
    assert ends[2] == pytest.approx([4.3, 5.3, 6.3])
    assert ends[3] == ends[2]
    two = step(replace(parts, lanes=2))
    assert two.exposed[0] == pytest.approx([0, 0.8, 1.0])
    assert float(two.total[0]) == pytest.approx(6.3 + 0.1)


@given(works(), st.integers(1, 3))
def test_another_lane_is_never_slower(parts, lanes):
    fewer, more = (step(replace(parts, lanes=n)).total[0] for n in (lanes, lanes + 1))
    assert more <= fewer + 1e-9


def two_rings(late, latency, transfer):
    """Time of two rings of 8 ranks in flight together, s, the second `late` s after the first, on an event clock."""
    ring, ranks, moves = build("ring", 8), 8, 14
    count = 8 * 25_000
    paths = UniformPaths(ranks, latency / moves, moves * count * 4 / ranks / transfer)
    jobs = [Job(ring, count, lane=lane, starts=np.full(ranks, start)) for lane, start in enumerate((0.0, late))]
    return simulate_jobs(jobs, paths, AlphaBeta()).time


@pytest.mark.parametrize(("late", "within"), [(0.0, 1e-9), (0.3, 0.05), (0.6, 0.05), (0.9, 0.05), (1.2, 1e-9)])
def test_two_buckets_in_flight_take_as_long_as_two_rings_on_the_same_wire(late, within):
    # exact where they start together or not in each other's way; between, which of them the wire serves first differs
    latency, transfer = 0.1, 1.0
    parts = work([late, 0], [latency] * 2, [transfer] * 2, layers=[1, 0], lanes=2, update=0.0)
    parts = replace(parts, forward=np.zeros(2), backward=np.array([late, 0.0]))
    assert float(step(parts).total[0]) == pytest.approx(two_rings(late, latency, transfer), rel=within)
