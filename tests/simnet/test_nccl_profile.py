"""A profile that holds NCCL's fit, from logs to comparisons on rows it never saw, and in training steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simnet as sn
from simnet.calibration import calibrate
from simnet.changes import parse_change
from simnet.collective_prediction import predict_collective
from simnet.costs.nccl_scaled import half_widths, nodes_of, scaled, times
from simnet.errors import InvalidInput
from simnet.extrapolation import extrapolate
from simnet.importers.logs import read_log
from simnet.prediction import predict_step
from simnet.profile_prices import with_profile
from simnet.profiles import read_profile, write_profile
from simnet.results import Measurement, NcclFit, NcclSite, Profile
from simnet.scenario import load_scenario
from simnet.units import GB
from simnet.whatif import whatif
from tests.simnet.terminal import rows, run

LOGS = Path(__file__).parents[1] / "data" / "logs"
SITE = NcclSite(channels=12, channel_bandwidth=10 * GB, nics=2, nic_bandwidth=12 * GB)
MACHINE = ("--nics", "2", "--nic-bandwidth", "12 GB/s", "--inside", "120 GB/s")


def log(ranks: int) -> Path:
    return LOGS / f"tree_or_ring_{ranks}_ranks.log"


def measured(*worlds: int) -> list[Measurement]:
    return [row for ranks in worlds for row in read_log(log(ranks)).measurements]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return calibrate(measured(4, 8), name="small", site=SITE)


@pytest.fixture(scope="module")
def path(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("profile") / "small.toml"
    write_profile(profile, file)
    return str(file)


def fit(profile: Profile) -> NcclFit:
    assert profile.nccl is not None
    return profile.nccl


def test_from_logs_of_few_ranks_to_an_error_on_a_log_of_more(tmp_path: Path) -> None:
    file, predicted = tmp_path / "small.toml", tmp_path / "predicted.txt"
    held = ("--holdout", "ranks=16")
    printed = run("calibrate", *map(str, (log(4), log(8), log(16))), "--out", str(file), *held, *MACHINE)
    assert "36 rows fitted, 0 refused, 18 held out" in printed
    predicted.write_text(run("allreduce", "--ranks", "16", "--profile", str(file), "--sizes", "1K:64M:4"))
    *compared, accuracy = rows("compare", str(predicted), str(log(16)), "--profile", str(file))
    assert (accuracy["rows"], len(compared)) == (9, 9)
    assert accuracy["geometric_mean"] < 0.15
    assert {row["algorithm"] for row in compared} == {"nccl"}
    assert all(row["low_s"] < row["expected_s"] < row["high_s"] for row in compared)


def test_python_compares_as_the_command_does(path: str, tmp_path: Path) -> None:
    predicted = tmp_path / "predicted.txt"
    predicted.write_text(run("allreduce", "--ranks", "16", "--profile", path, "--sizes", "1K:64M:4"))
    assert sn.compare(predicted, log(16), profiles=[path]).accuracy().rows == 9
    with pytest.raises(InvalidInput, match="is not known"):
        sn.compare(predicted, log(16))


def test_rows_the_fit_saw_earn_no_accuracy(path: str, tmp_path: Path) -> None:
    predicted = tmp_path / "predicted.txt"
    predicted.write_text(run("allreduce", "--ranks", "8", "--profile", path, "--sizes", "1K:64M:4"))
    with pytest.raises(InvalidInput, match="all 9 matched rows were used to fit"):
        run("compare", str(predicted), str(log(8)), "--profile", path)


def test_the_fit_survives_its_file(profile: Profile, path: str) -> None:
    assert read_profile(path) == profile


def test_a_profile_says_what_extrapolate_says(profile: Profile) -> None:
    by_profile = predict_collective(ranks=16, profile=profile, sizes="1K:64M:4")
    by_logs = extrapolate(measured(4, 8), ranks=16, nodes=4, site=SITE)
    for name in ("time_s", "low_s", "high_s"):
        assert [getattr(a, name) for a in by_profile] == pytest.approx([getattr(b, name) for b in by_logs])


def test_measured_sizes_come_back_and_others_have_wider_intervals(profile: Profile) -> None:
    row = next(row for row in measured(8) if row.size_bytes == 1 << 20)
    pair = [r.time_s for r in measured(8) if r.size_bytes == row.size_bytes]
    assert float(times(fit(profile), 8, 2, [1 << 20])[0]) == pytest.approx(np.mean(pair))
    at, between = half_widths(fit(profile), 8, 2, [1 << 20, 1 << 21])
    further = half_widths(fit(profile), 64, 16, [1 << 20])[0]
    assert at < between
    assert at < further


def test_a_network_that_no_row_crosses_is_as_uncertain_as_before() -> None:
    inside, across = (fit(calibrate(measured(*worlds), name="x", site=SITE)) for worlds in ((4,), (4, 8)))
    sizes = [1 << 12, 1 << 26]
    assert (half_widths(inside, 16, 4, sizes) > 0.25).all()
    assert (half_widths(across, 16, 4, sizes) < 0.25).all()
    assert (half_widths(inside, 4, 1, sizes) < 0.1).all()


def test_nodes_are_filled_as_they_were_measured(profile: Profile) -> None:
    assert [nodes_of(fit(profile), ranks) for ranks in (2, 4, 8, 32)] == [1, 1, 2, 8]
    with pytest.raises(InvalidInput, match="full nodes: 6 ranks"):
        predict_collective(ranks=6, profile=profile)


def test_what_such_a_profile_cannot_price_is_refused(profile: Profile) -> None:
    with pytest.raises(InvalidInput, match="no single messages"):
        predict_collective(ranks=8, profile=profile, algorithm="ring")
    with pytest.raises(InvalidInput, match="needs a profile that holds NCCL"):
        predict_collective(ranks=8, algorithm="nccl", bandwidth="1 GB/s", latency="1 us")
    with pytest.raises(InvalidInput, match="no bandwidth"):
        predict_collective(ranks=8, profile=profile, bandwidth="1 GB/s", latency="1 us")
    with pytest.raises(InvalidInput, match="2 ranks or more"):
        predict_collective(ranks=1, profile=profile)


def test_messages_between_two_ranks_are_fitted_beside_it() -> None:
    sends = [Measurement("send", 8 << i, 5e-6 + (8 << i) / 10e9) for i in range(12)]
    both = calibrate([*measured(4, 8), *sends], name="both", site=SITE, draws=3)
    assert both.segments[0].latency_s.value == pytest.approx(5e-6, rel=1e-6)
    assert len(both.points) == 36 + 12
    assert predict_collective(ranks=8, profile=both, algorithm="ring", sizes=1024)[0].algorithm == "ring"
    assert predict_collective(ranks=8, profile=both, sizes=1024)[0].algorithm == "nccl"


def test_logs_without_rank_lines_need_to_be_told_their_nodes(tmp_path: Path) -> None:
    bare = tmp_path / "bare.log"
    bare.write_text("\n".join(line for line in log(8).read_text().splitlines() if " Rank " not in line))
    with pytest.raises(InvalidInput, match="--ranks-per-node"):
        run("calibrate", str(bare), "--out", str(tmp_path / "p.toml"), *MACHINE)
    run("calibrate", str(bare), "--out", str(tmp_path / "p.toml"), *MACHINE, "--ranks-per-node", "4")
    assert fit(read_profile(tmp_path / "p.toml")).variants[0].leftovers[-1].nodes == 2


def test_a_step_is_priced_by_it(profile: Profile, path: str) -> None:
    scenario = replace(load_scenario("abci-hvd-32"), draws=50)
    found = predict_step(with_profile(scenario, path))
    assert found.engine == "nccl profile"
    assert found.reason.startswith("NCCL's model of whole all-reduces on 8 nodes")
    alone = replace(with_profile(scenario, path), draws=1).with_exchange(
        buckets="one_bucket", bucket_options={}, overlap=False, interference=0.0
    )
    step = predict_step(alone)
    size = sum(bucket.num_bytes for bucket in step.buckets)
    assert step.parts_s["exposed_exchange"] == pytest.approx(float(times(fit(profile), 32, 8, [size])[0]))


def test_whatif_scales_the_wires_that_nccl_counts(profile: Profile, path: str) -> None:
    scenario = replace(with_profile(load_scenario("abci-hvd-32"), path).with_exchange(overlap=False), draws=20)
    base, wide, late = whatif(
        scenario, [parse_change(c) for c in ("inter-node bandwidth x2", "inter-node latency x4")], together=False
    )
    assert late.step_s.value > base.step_s.value > wide.step_s.value
    quick = times(scaled(fit(profile), across=(2.0, 1.0)), 16, 4, [1 << 26])[0]
    assert 1.5 < times(fit(profile), 16, 4, [1 << 26])[0] / quick < 2.1
    with pytest.raises(InvalidInput, match="inter and intra alone"):
        whatif(scenario, [parse_change("network.port bandwidth x2")])


def test_a_profile_can_be_the_change(path: str) -> None:
    base, other = whatif(replace(load_scenario("abci-hvd-32"), draws=20), [parse_change(f"profile {path}")])
    assert other.reason.startswith("NCCL's model")
    assert other.step_s != base.step_s


def test_a_profile_of_messages_prices_any_algorithm_of_a_step(tmp_path: Path) -> None:
    sends = [Measurement("send", 8 << i, 5e-6 + (8 << i) / 5e9) for i in range(20)]
    write_profile(calibrate(sends, name="slow", draws=10), tmp_path / "slow.toml")
    scenario = replace(load_scenario("abci-hvd-32"), draws=1).with_exchange(overlap=False)
    slow = with_profile(scenario, str(tmp_path / "slow.toml"))
    assert slow.exchange.algorithm == scenario.exchange.algorithm
    assert predict_step(slow).step_s.value > predict_step(scenario).step_s.value
    with pytest.raises(InvalidInput, match="measured as a whole"):
        predict_step(replace(slow, bandwidth={"inter": 2.0}))


def test_the_command_line_takes_it_for_steps(path: str) -> None:
    (row,) = rows("step", "--scenario", "abci-hvd-32", "--profile", path, "--draws", "10")
    assert row["engine"] == "nccl profile"
    assert len(rows("whatif", "lanes 2", "--scenario", "abci-hvd-32", "--profile", path)) == 2
    with pytest.raises(InvalidInput, match="no profile to price it"):
        predict_step(load_scenario("abci-hvd-32").with_exchange(algorithm="nccl"))
