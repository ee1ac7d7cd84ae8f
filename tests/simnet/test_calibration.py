from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnet.calibration import calibrate, message_time
from simnet.errors import InvalidInput
from simnet.points import parse_holdout
from simnet.profiles import read_profile, write_profile
from simnet.results import Measurement


def sends(sizes: list[int], *, latency: float = 5e-6, bandwidth: float = 10e9) -> list[Measurement]:
    return [Measurement("send", size, latency + size / bandwidth) for size in sizes]


SIZES = [8 << i for i in range(20)]


def test_a_line_is_found_back() -> None:
    profile = calibrate(sends(SIZES), name="line")
    assert len(profile.segments) == 1
    assert profile.segments[0].latency_s.value == pytest.approx(5e-6, rel=1e-6)
    assert profile.segments[0].bandwidth_bytes_per_s.value == pytest.approx(10e9, rel=1e-6)
    assert profile.residuals["max"] < 1e-9


def test_a_protocol_switch_is_found_back() -> None:
    small = sends(SIZES[:10], latency=2e-6, bandwidth=1e9)
    large = sends(SIZES[10:], latency=9e-6, bandwidth=12e9)
    first, second = calibrate(small + large, name="switch").segments
    assert first.max_bytes == SIZES[9]
    assert first.latency_s.value == pytest.approx(2e-6, rel=1e-6)
    assert second.bandwidth_bytes_per_s.value == pytest.approx(12e9, rel=1e-6)


def test_rings_are_their_messages() -> None:
    ranks, latency, bandwidth = 8, 3e-6, 20e9
    rows = [
        Measurement("all_reduce", size, 2 * (ranks - 1) * (latency + size / ranks / bandwidth), ranks) for size in SIZES
    ]
    segment = calibrate(rows, name="ring").segments[0]
    assert segment.latency_s.value == pytest.approx(latency, rel=1e-6)
    assert segment.bandwidth_bytes_per_s.value == pytest.approx(bandwidth, rel=1e-6)


def test_sixteen_ranks_at_93_us_are_3_us_a_step() -> None:
    rows = [Measurement("all_reduce", size, 93e-6, 16) for size in (8, 16, 32, 64, 128, 256, 512)]
    assert calibrate(rows, name="flat").segments[0].latency_s.value == pytest.approx(3.1e-6)


def test_one_dip_is_not_a_law() -> None:
    rows = sends(SIZES)
    dip = Measurement("send", SIZES[12], 12 * rows[12].time_s)
    profile = calibrate([*rows[:12], dip, *rows[13:]], name="dip")
    assert [(point.size_bytes, point.time_s) for point in profile.refused] == [(dip.size_bytes, dip.time_s)]
    assert "contradicts" in profile.refused[0].reason
    assert profile.segments[-1].bandwidth_bytes_per_s.value == pytest.approx(10e9, rel=1e-6)


def test_a_point_too_good_to_be_true_is_refused_alone() -> None:
    rows = sends(SIZES)
    lucky = Measurement("send", SIZES[3], rows[3].time_s / 50)
    profile = calibrate([*rows[:3], lucky, *rows[4:]], name="lucky")
    assert [point.time_s for point in profile.refused] == [lucky.time_s]


def test_logs_of_two_machines_are_refused() -> None:
    with pytest.raises(InvalidInput, match="contradict"):
        calibrate(sends(SIZES[::3]) + sends(SIZES, latency=1e-4, bandwidth=1e8)[: len(SIZES[::3]) + 1][::1] * 1
                  + sends(SIZES, latency=3e-3, bandwidth=1e6)[:7], name="mixed")  # fmt: skip


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    chance, held = np.random.default_rng(3), 0
    for _ in range(20):
        rows = [Measurement("send", row.size_bytes, row.time_s * chance.normal(1, 0.02)) for row in sends(SIZES)]
        fitted = calibrate(rows, name="noise", draws=60).segments
        held += len(fitted) == 1 and fitted[0].latency_s.low <= 5e-6 <= fitted[0].latency_s.high
    assert 10 <= held <= 20


def test_reduction_rate_is_its_own_quantity() -> None:
    adds = [Measurement("add", size, size * 1e-10) for size in (1 << 20, 1 << 22, 1 << 24)]
    profile = calibrate([*sends(SIZES), *adds], name="gamma")
    assert profile.gamma_s_per_byte is not None
    assert profile.gamma_s_per_byte.value == pytest.approx(1e-10)


def test_wrong_results_and_other_algorithms_are_named_not_fitted() -> None:
    bad = Measurement("all_reduce", 64, 1e-5, 4, num_wrong=3)
    other = Measurement("all_reduce", 64, 1e-5, 4, algorithm="torus2d")
    profile = calibrate([*sends(SIZES), bad, other], name="x")
    assert [point.reason for point in profile.refused] == [
        "3 values were wrong", "algorithm torus2d is not fitted, only compared",
    ]  # fmt: skip


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    profile = calibrate(sends(SIZES), name="file", created="2026-01-01", command="simnet calibrate")
    write_profile(profile, tmp_path / "p.toml")
    assert read_profile(tmp_path / "p.toml") == profile
    assert message_time(profile, 10_000) == pytest.approx(6e-6, rel=1e-6)


def test_a_file_that_is_no_profile_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    for text in ("name = 3", "[[segments]", 'name = "a"\nsegments = [{latency_s = 3}]'):
        path.write_text(text)
        with pytest.raises(InvalidInput, match="profile"):
            read_profile(path)
    with pytest.raises(InvalidInput, match="cannot read"):
        read_profile(tmp_path / "none.toml")


def test_too_few_rows_say_why() -> None:
    with pytest.raises(InvalidInput, match="only 2 rows"):
        calibrate(sends([8, 16]), name="few")


def test_holdout_rows_leave_the_fit() -> None:
    rows = sends(SIZES)
    kept, held = parse_holdout(rows, [f"sizes={SIZES[4]}:{SIZES[8]}:2"])
    assert [row.size_bytes for row in held] == SIZES[4:9]
    assert len(kept) + len(held) == len(rows)
    with pytest.raises(InvalidInput, match="--holdout"):
        parse_holdout(rows, ["half"])


def test_messages_as_in_a_collective_are_fitted_before_others() -> None:
    def probe(kind: str, loaded: bool, latency: float) -> list[Measurement]:
        rows = sends(SIZES, latency=latency)
        return [replace(row, collective=kind, environment={"loaded": loaded}) for row in rows]

    profile = calibrate(
        [*probe("send", False, 5e-6), *probe("exchange", True, 8e-6), *probe("send", True, 6e-6)], name="x"
    )
    assert profile.segments[0].latency_s.value == pytest.approx(8e-6, rel=1e-6)
    assert {point.reason.partition(";")[0] for point in profile.refused} == {
        "measured while other ranks idled", "one way",
    }  # fmt: skip


def test_a_cliff_is_named_and_not_fitted_through() -> None:
    times = {1: 0.039e-3, 2: 0.04e-3, 4: 0.042e-3, 8: 0.05e-3, 16: 0.07e-3, 32: 0.1e-3, 64: 0.155e-3}
    rows = [Measurement("send", kib * 1024, time) for kib, time in times.items()]
    cliff = [Measurement("send", 128 * 1024, 1.073e-3), Measurement("send", 256 * 1024, 20.161e-3)]
    profile = calibrate([*rows, *cliff], name="gloo over InfiniBand")
    assert sorted(point.size_bytes for point in profile.refused) == [128 * 1024, 256 * 1024]


def test_many_rows_of_one_condition_are_fitted_at_their_median() -> None:
    rows = [replace(row, time_s=row.time_s * (1 + 0.001 * k)) for row in sends(SIZES) for k in range(-50, 51)]
    profile = calibrate(rows, name="many", draws=10)
    assert len(profile.points) == len(SIZES)
    assert profile.segments[0].bandwidth_bytes_per_s.value == pytest.approx(10e9, rel=1e-3)


def test_messages_in_flight_tell_no_latency() -> None:
    streams = [Measurement("stream", size, 0.5e-6 + size / 12e9) for size in SIZES]
    profile = calibrate([*sends(SIZES), *streams], name="both")
    assert profile.segments[0].latency_s.value == pytest.approx(5e-6, rel=1e-6)
    assert len(profile.refused) == len(streams)
    assert any("not that of one message" in text for text in calibrate(streams, name="alone").assumptions)
