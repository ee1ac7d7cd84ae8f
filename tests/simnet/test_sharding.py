import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnet.errors import Deadlock, InvalidInput
from simnet.sharding import find_hang, gradient_weights, join_divisors, num_steps, require_equal_steps, split


@given(st.integers(0, 10_000), st.integers(1, 200))
def test_shares_differ_by_at_most_one_and_lose_nothing(samples, ranks):
    shares = split(samples, ranks)
    assert shares.sum() == samples
    assert shares.max() - shares.min() <= 1
    assert shares.max() == -(-samples // ranks)


def test_the_mean_over_samples_is_not_the_mean_over_ranks():
    """Public report: samples 1, 2, 3 on one rank and 10 on the other average to 6; the right answer is 4."""
    means = np.array([2.0, 10.0])
    assert means.mean() == 6
    assert (gradient_weights([3, 1]) * means).mean() == 4


def test_an_empty_rank_halves_the_gradient_unless_it_is_weighed():
    means = np.array([1.0, 0.0])
    assert means.mean() == 0.5
    assert (gradient_weights([5, 0]) * means).mean() == 1


def test_equal_shares_need_no_weights():
    assert gradient_weights([32] * 4).tolist() == [1, 1, 1, 1]


def test_uneven_steps_are_a_hang_that_names_the_ranks():
    """Public report: three steps on rank 0, two on rank 1; rank 1 ends, rank 0 fails in its third step."""
    hang = find_hang([3, 2])
    assert (hang.step, hang.ended, hang.waiting) == (2, (1,), (0,))
    with pytest.raises(Deadlock, match="step 3 hangs: rank 1 ended before it, rank 0 will wait"):
        require_equal_steps([3, 2])


def test_many_waiting_ranks_are_counted_not_listed():
    assert "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 91 more will wait" in str(find_hang([1] + [2] * 99))


def test_equal_steps_do_not_hang():
    assert find_hang([3, 3]) is None
    assert find_hang([]) is None
    assert require_equal_steps([3, 3]) == 3


def test_join_averages_as_torch_does():
    """Checked with torch: gradients 4, 4, 4 on rank 0 and 8, 8 on rank 1 give 6, 6, 2, or 6, 6, 4."""
    sums = np.array([12, 12, 4])
    assert (sums / join_divisors([3, 2])).tolist() == [6, 6, 2]
    assert (sums / join_divisors([3, 2], initial_world_size=False)).tolist() == [6, 6, 4]


def test_ragged_shards_make_unequal_steps_and_dropping_can_hide_it():
    shards = split(1_281_167, 1088)
    assert num_steps(shards, 32).max() == 37
    assert find_hang(num_steps(split(65, 2), 32)).waiting == (0,)
    assert find_hang(num_steps(split(65, 2), 32, drop_last=True)) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: split(10, 0), "1 or more ranks"),
        (lambda: num_steps([1], 0), "1 or more samples"),
        (lambda: gradient_weights([0, 0]), "at least one sample"),
    ],
)
def test_requests_that_mean_nothing_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
