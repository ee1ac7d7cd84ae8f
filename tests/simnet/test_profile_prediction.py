"""A profile stands for latency, bandwidth and reduction, and gives rows its interval."""

from __future__ import annotations

import pytest

from simnet.collective_prediction import predict_collective
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput
from simnet.profiles import write_profile
from simnet.results import Fitted, Profile, Segment

SIZE = 12_000_000


def profile(gamma: float = 0.0) -> Profile:
    segment = Segment(None, Fitted(1e-6, 0.5e-6, 2e-6), Fitted(12.5e9, 10e9, 15e9))
    return Profile("here", (segment,), Fitted(gamma, gamma, gamma))


def test_one_line_without_reduction_is_alpha_and_beta():
    given = predict_collective(ranks=4, bandwidth="12.5 GB/s", latency="1 us", sizes=SIZE)[0]
    fitted = predict_collective(ranks=4, profile=profile(), sizes=SIZE)[0]
    assert fitted.time_s == pytest.approx(given.time_s, rel=1e-12)
    assert (given.profile, fitted.profile) == ("", "here")


def test_the_interval_holds_all_figures_at_their_fast_and_at_their_slow_ends():
    row = predict_collective(ranks=4, profile=profile(), sizes=SIZE)[0]
    assert row.low_s == pytest.approx(6 * (0.5e-6 + SIZE / 4 / 15e9), rel=1e-12)
    assert row.high_s == pytest.approx(6 * (2e-6 + SIZE / 4 / 10e9), rel=1e-12)
    assert row.low_s < row.time_s < row.high_s


def test_reductions_take_the_profiles_time_per_byte():
    plain, adding = (predict_collective(ranks=4, profile=profile(g), sizes=SIZE)[0].time_s for g in (0.0, 1e-10))
    assert adding - plain == pytest.approx(3 * SIZE / 4 * 1e-10, rel=1e-9)


def test_a_profile_is_read_from_its_file_and_excludes_a_cost(tmp_path):
    write_profile(profile(), tmp_path / "here.toml")
    assert predict_collective(ranks=4, profile=tmp_path / "here.toml", sizes=SIZE) == predict_collective(
        ranks=4, profile=profile(), sizes=SIZE
    )
    with pytest.raises(InvalidInput, match="cost and profile exclude each other"):
        predict_collective(ranks=4, profile=profile(), cost=AlphaBeta(), sizes=SIZE)
