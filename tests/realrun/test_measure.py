"""Every sample is kept, the slowest rank counts, and the rank that comes late is named."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch.distributed as dist

from realrun.benchmark import sweep
from realrun.known_results import expectation, pattern
from realrun.measure import Samples, measure
from realrun.plans import Plan
from simnet.algorithms import registry
from simnet.interpreters.execute import execute


def late_on(rank: int) -> Samples:
    """A step of 10 ms on every rank, 400 ms on one, before a collective of 2 ms."""
    wait = 0.4 if dist.get_rank() == rank else 0.01
    return measure(lambda: time.sleep(0.002), iterations=4, warmup=1, before=lambda: time.sleep(wait))


def slow_on(rank: int) -> Samples:
    wait = 0.2 if dist.get_rank() == rank else 0.0
    return measure(lambda: time.sleep(wait), iterations=4, warmup=0)


def swept(plan: Plan) -> list[dict]:
    return list(sweep(plan))


def test_the_straggler_comes_last_to_the_barrier_and_the_collective_does_not_show_it(rank_pool):
    for samples in rank_pool(4).run(late_on, 1):
        assert samples.duration.shape == samples.lateness.shape == (4, 4)
        assert samples.straggler == 1
        assert samples.median_lateness[1] > 0.2
        assert samples.quantile(0.5) < samples.median_lateness[1]


def test_a_sample_is_the_time_of_the_slowest_rank(rank_pool):
    for samples in rank_pool(3).run(slow_on, 2):
        assert samples.times.shape == (4,)
        assert (samples.times >= 0.2).all()
        assert np.array_equal(samples.times, samples.duration[:, 2])


def test_ranks_that_come_about_together_have_no_straggler():
    duration = np.full((3, 3), 1e-3)
    assert Samples(duration, np.tile([0.0, 1e-5, 4e-5], (3, 1))).straggler is None
    assert Samples(duration, np.tile([0.0, 4e-4, 5e-4], (3, 1))).straggler is None
    assert Samples(duration, np.tile([0.0, 1e-4, 5e-4], (3, 1))).straggler == 2


def test_a_sweep_yields_a_record_per_size_with_every_sample(rank_pool):
    plan = Plan("torus2d", (0, 4, 4096), {"grid": (2, 2)}, "half", iterations=5, warmup=1)
    records = rank_pool(4).run(swept, plan)[0]
    assert [r["size_bytes"] for r in records] == [0, 4, 4096]
    for record in records:
        assert record["num_wrong"] == 0
        assert len(record["samples_s"]) == 5
        assert np.shape(record["rank_samples_s"]) == (4, 5)
        assert list(record["samples_s"]) == np.max(record["rank_samples_s"], axis=0).tolist()
        assert record["time_s"] == record["p50_s"] == np.median(record["samples_s"])
        assert record["environment"]["ranks_on_this_host"] == 4


@pytest.mark.parametrize("world_size", [1, 25, 26, 128, 1000])
def test_known_sums_fit_every_dtype_and_every_rank_counts(world_size):
    total = sum(pattern(rank, 2_000, world_size).astype(int) for rank in range(world_size))
    assert np.array_equal(total, expectation(registry.build("ring", world_size), 0, 2_000)[0])
    assert total.max() <= 127
    for rank in (0, world_size - 1):
        assert pattern(rank, 2_000, world_size).any()


def test_what_a_sweep_expects_is_what_the_numpy_executor_gives():
    for name, n in (("ring", 3), ("ring_reduce_scatter", 4), ("ring_all_gather", 3), ("binomial_tree_broadcast", 5)):
        schedule, count = registry.build(name, n), 12
        given = np.stack([pattern(rank, count, n) for rank in range(n)])
        for rank, result in enumerate(execute(schedule, given)):
            expected, wanted = expectation(schedule, rank, count)
            assert np.array_equal(result[wanted], expected[wanted])
