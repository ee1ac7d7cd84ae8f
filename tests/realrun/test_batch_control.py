from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realrun.batch_control import num_steps, order, parse, shares, uneven_totals
from realrun.learning_rate import LearningRate, linear_scaling
from simnet.errors import InvalidInput


def test_the_batch_grows_at_its_epochs() -> None:
    control = parse("16@0,32@30")
    assert [control.per_rank(epoch) for epoch in (0, 29, 30, 90)] == [16, 16, 32, 32]
    assert control.rate_factor(30) == 1.0
    assert parse("16@0,32@30", rate_rule="linear").rate_factor(30) == 2.0


@pytest.mark.parametrize("text", ["", "16@5", "32@0,16@0", "x", "0", "16@0,32@a", "-1"])
def test_a_batch_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse(text)


@given(
    num_samples=st.integers(1, 60), per_rank=st.integers(1, 7), world_size=st.integers(1, 6), epoch=st.integers(0, 3)
)
def test_every_rank_has_equally_many_steps_and_every_sample_is_taken_once(
    num_samples: int, per_rank: int, world_size: int, epoch: int
) -> None:
    def of(rank: int) -> list:
        return list(shares(num_samples, epoch=epoch, seed=5, per_rank=per_rank, rank=rank, world_size=world_size))

    ranks = [of(rank) for rank in range(world_size)]
    assert {len(steps) for steps in ranks} == {num_steps(num_samples, per_rank, world_size)}
    taken = np.concatenate([np.concatenate([steps[k].samples for steps in ranks]) for k in range(len(ranks[0]))])
    assert np.array_equal(taken, order(num_samples, epoch=epoch, seed=5))
    for k in range(len(ranks[0])):
        assert sum(len(steps[k].samples) for steps in ranks) == ranks[0][k].total


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    assert np.array_equal(order(100, epoch=3, seed=1), order(100, epoch=3, seed=1))
    assert not np.array_equal(order(100, epoch=3, seed=1), order(100, epoch=4, seed=1))
    assert not np.array_equal(order(100, epoch=3, seed=1), order(100, epoch=3, seed=2))


def test_ranks_with_unequal_ends_know_the_size_of_every_step_before_running() -> None:
    assert uneven_totals([3, 2], 1) == [2, 2, 1]
    assert uneven_totals([5, 0, 2], 2) == [4, 2, 1]


def test_the_rate_warms_up_and_decays() -> None:
    rate = LearningRate(3.2, 90, warm_up_epochs=5, start=0.1)
    assert rate.at(0) == 0.1
    assert rate.at(2.5) == pytest.approx((0.1 + 3.2) / 2)
    assert rate.at(5) == 3.2
    assert rate.at(47.5) == pytest.approx(3.2 * 0.25)
    assert rate.at(90) == 0.0


def test_the_rate_steps_at_its_milestones() -> None:
    rate = LearningRate(1.0, 90, decay="step", milestones=(30, 60, 80))
    assert [rate.at(e) for e in (29.9, 30, 60, 85)] == pytest.approx([1, 0.1, 0.01, 0.001])


def test_the_rate_scales_with_the_batch() -> None:
    assert linear_scaling(0.1, 8192) == pytest.approx(3.2)
    with pytest.raises(InvalidInput, match="from a batch of 1 or more, got 0"):
        linear_scaling(0.1, 8192, base_batch=0)
