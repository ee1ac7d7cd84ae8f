"""Repeats of two kinds are found, said, and held by intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnet.calibration import calibrate, message_time
from simnet.costs.nccl_scaled import half_widths, times
from simnet.importers.logs import read_log
from simnet.modes import Condition, find_modes, two_modes
from simnet.results import Measurement, NcclSite

WHAT = Condition("all_reduce", 4096, 8)
SIZES = [8 << i for i in range(16)]


def noisy(centre: float, count: int, seed: int = 0, spread: float = 0.03) -> list[float]:
    return (centre * np.exp(np.random.default_rng(seed).normal(0, spread, count))).tolist()


def test_two_clusters_are_found_with_their_sizes_and_medians() -> None:
    found = two_modes(WHAT, [*noisy(85e-6, 30), *noisy(580e-6, 12, seed=1)])
    assert found is not None
    assert (found.num_quick, found.num_slow) == (30, 12)
    assert (found.quick_s, found.slow_s) == pytest.approx((85e-6, 580e-6), rel=0.03)
    assert str(found).startswith("two modes of all_reduce of 4096 bytes on 8 ranks: 30 of 42 repeats at 8")


@pytest.mark.parametrize("seed", range(20))
def test_one_cluster_a_long_tail_and_single_outliers_are_no_modes(seed: int) -> None:
    chance = np.random.default_rng(seed)
    tail = 1e-4 * (1 + chance.exponential(0.5, 60))
    for sample in (noisy(1e-4, 40, seed), tail.tolist(), [*noisy(1e-4, 20, seed), 9e-4, 8e-4], chance.random(50)):
        assert two_modes(WHAT, sample) is None


def test_few_repeats_tell_nothing() -> None:
    assert two_modes(WHAT, [1e-4, 1e-4, 1e-4, 5e-4, 5e-4, 5e-4]) is None


def test_repeats_are_those_of_one_condition() -> None:
    rows = [Measurement("send", 1024, time) for time in noisy(1e-5, 10)]
    rows += [Measurement("send", 2048, time) for time in noisy(3e-5, 10)]
    assert find_modes(rows) == []
    rows += [Measurement("send", 1024, time) for time in noisy(4e-5, 10)]
    assert [found.condition.size_bytes for found in find_modes(rows)] == [1024]


def test_a_log_says_so(tmp_path: Path) -> None:
    log = tmp_path / "rows.jsonl"
    samples = [*noisy(2e-5, 20), *noisy(6e-5, 20)]
    log.write_text(
        f'{{"collective": "all_reduce", "size_bytes": 64, "ranks": 4, "time_s": 2e-5, "samples_s": {samples}}}\n'
    )
    assert [note for note in read_log(log).notes if note.startswith("two modes of all_reduce of 64 bytes on 4 ranks")]


def test_sizes_that_jump_back_and_forth_are_said(tmp_path: Path) -> None:
    log = tmp_path / "osu.txt"
    rows = "\n".join(f"{64 << i:<12} {500 if i in (1, 4) else 80 + i}.00" for i in range(7))
    log.write_text(f"# OSU MPI Allreduce Latency Test v7.4\n# Size          Avg Latency(us)\n{rows}\n")
    (note,) = [note for note in read_log(log).notes if "kinds" in note]
    assert note.startswith("2 sizes of all_reduce take more than twice as long as the next larger one (the first 128 b")


def test_intervals_of_lines_hold_both_kinds() -> None:
    rows = [Measurement("send", size, 5e-6 + size / 1e10) for size in SIZES]
    slow = 1.8 * rows[3].time_s
    both = replace(rows[3], samples_s=(*noisy(rows[3].time_s, 20, spread=0.01), *noisy(slow, 9, spread=0.01)))
    profile = calibrate([*rows[:3], both, *rows[4:]], name="two", draws=20)
    (segment,) = profile.segments
    size = rows[3].size_bytes
    assert segment.latency_s.high + size / segment.bandwidth_bytes_per_s.low > 0.97 * slow
    assert message_time(profile, size) == pytest.approx(rows[3].time_s, rel=1e-3)
    assert any(text.startswith("two modes of send of 64 bytes") for text in profile.assumptions)
    single = calibrate(rows, name="one", draws=20)
    assert single.segments[0].latency_s.high < 5.1e-6


def test_refused_rows_that_agree_are_times_of_another_kind() -> None:
    rows = [Measurement("send", size, 5e-6 + size / 1e10) for size in SIZES]
    slow = [replace(row, time_s=4 * row.time_s) for row in rows[2:12:2]]
    profile = calibrate([*rows, *slow], name="two", draws=20)
    assert len(profile.refused) == len(slow)
    assert any(text.startswith("two modes: 5 of the refused rows agree") for text in profile.assumptions)
    assert profile.segments[0].latency_s.high > 3.9 * 5e-6
    one = calibrate([*rows, *slow[:1]], name="one", draws=20)
    assert not any("two modes" in text for text in one.assumptions)


def test_intervals_of_nccl_hold_both_kinds() -> None:
    site = NcclSite(channels=12, channel_bandwidth=1e10, nics=2, nic_bandwidth=1.2e10)
    rows = [Measurement("all_reduce", s, 2e-5 + 2 * s / 2e10, 8, nodes=2) for s in SIZES]
    both = replace(rows[3], samples_s=(*noisy(rows[3].time_s, 20), *noisy(3 * rows[3].time_s, 9)))
    plain, two = (
        calibrate([*rows[:3], row, *rows[4:]], name="x", site=site).nccl for row in (rows[3], both)
    )  # fmt: skip
    assert plain is not None
    assert two is not None
    size = [rows[3].size_bytes]
    high = times(two, 8, 2, size) * np.exp(half_widths(two, 8, 2, size))
    assert high[0] > 2.9 * rows[3].time_s
    assert half_widths(plain, 8, 2, size)[0] < 0.5
