import json
from pathlib import Path
from typing import Any

import pytest

from simnet.calibration import calibrate
from simnet.errors import InvalidInput
from simnet.exporters.job_file import write_job
from simnet.importers.job_file import read_job
from simnet.importers.trace_job import read_trace_job
from simnet.job import TraceJob, compacted, finish_times
from simnet.profiles import write_profile
from simnet.replay import read_jobs, replay
from simnet.results import Measurement, NcclSite

US = 1e-6


def kernel(name: str, stream: int, start: float, duration: float, launch: float, **args: Any) -> list[dict[str, Any]]:
    number = hash((name, start))
    return [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": launch, "dur": 1,
         "args": {"correlation": number}},
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": duration,
         "args": {"correlation": number, **args}},
    ]  # fmt: skip


REDUCE = {"Collective name": "allreduce", "In msg nelems": 1_000_000, "Group size": 4, "dtype": "Float"}
EVENTS = [
    *kernel("backward_1", 7, 0, 100, 0),
    *kernel("ncclDevKernel_AllReduce", 20, 102, 300, 5, **REDUCE),
    *kernel("backward_2", 7, 101, 99, 6),
    *kernel("optimizer", 7, 405, 100, 7),
]


@pytest.fixture
def job(tmp_path: Path) -> TraceJob:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"distributedInfo": {"world_size": 4}, "traceEvents": EVENTS}))
    return read_trace_job(path)


def total(job: TraceJob, reduce_us: float) -> float:
    times = finish_times(job.operations, lambda op: reduce_us * US if op.collective else op.duration)
    return max(times) / US


def test_replay_of_what_was_recorded_gives_the_recorded_time(job: TraceJob) -> None:
    assert job.recorded == pytest.approx(505 * US)
    assert total(job, 300) == pytest.approx(505)


def test_a_slow_collective_holds_the_optimizer_and_not_the_backward_pass(job: TraceJob) -> None:
    names = [op.name for op in job.operations]
    ends = finish_times(job.operations, lambda op: 1000 * US if op.collective else op.duration)
    assert ends[names.index("backward_2")] == pytest.approx(200 * US)
    assert ends[names.index("optimizer")] == pytest.approx((100 + 2 + 1000 + 3 + 100) * US)


def test_a_quick_collective_hides_behind_the_backward_pass(job: TraceJob) -> None:
    assert total(job, 1) == pytest.approx(200 + 3 + 100)


def test_more_ranks_on_a_slower_network_take_longer(job: TraceJob) -> None:
    near = replay(job, bandwidth="100 GB/s", latency="1 us")
    far = replay(job, ranks=64, bandwidth="1 GB/s", latency="10 us")
    assert near.error == pytest.approx(0)
    assert near.predicted_s < far.predicted_s
    assert far.collectives_predicted_s == pytest.approx(2 * 63 * 10e-6 + 2 * 63 / 64 * 4e6 / 1e9, rel=1e-3)
    assert any("all 64 ranks" in text for text in far.assumptions)


def test_a_faster_device_shortens_compute_alone(job: TraceJob) -> None:
    found = replay(job, bandwidth="100 GB/s", latency="1 us", compute_speed=2)
    assert found.predicted_s < replay(job, bandwidth="100 GB/s", latency="1 us").predicted_s


def test_chakra_nodes_keep_their_named_dependencies(tmp_path: Path) -> None:
    nodes = [
        {"id": 1, "name": "compute", "type": "COMP_NODE", "duration_micros": 100},
        {"id": 2, "name": "reduce", "type": "COMM_COLL_NODE", "duration_micros": 50, "data_deps": [1],
         "attr": [{"name": "comm_type", "int64_val": 0}, {"name": "comm_size", "int64_val": 4096}]},
        {"id": 3, "name": "update", "type": "COMP_NODE", "duration_micros": 10, "data_deps": [2]},
    ]  # fmt: skip
    path = tmp_path / "chakra.json"
    path.write_text(json.dumps({"nodes": nodes}))
    job = read_trace_job(path)
    assert job.recorded == pytest.approx(160 * US)
    with pytest.raises(InvalidInput, match="--ranks"):
        replay(job, bandwidth="1 GB/s", latency="1 us")


def test_traces_without_device_times_or_without_an_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"nodes": [{"id": 1, "name": "record_param_comms"}]}))
    with pytest.raises(InvalidInput, match="without device times"):
        read_trace_job(path)
    path.write_text(json.dumps({"traceEvents": EVENTS})[:-40])
    with pytest.raises(InvalidInput, match="breaks off"):
        read_trace_job(path)


def collective(name: str, start: float, *, size: int = 1_000_000, ranks: int = 4, **more: Any) -> list[dict[str, Any]]:
    args = {
        "Collective name": name,
        "In msg nelems": size,
        "Out msg nelems": size,
        "Group size": ranks,
        "dtype": "Byte",
    }
    return kernel(f"ncclDevKernel_{name}", 20, start, 50, start - 1, **{**args, **more})


def written(path: Path, events: list[dict[str, Any]], **info: Any) -> str:
    path.write_text(json.dumps({"distributedInfo": {"world_size": 4, **info}, "traceEvents": events}))
    return str(path)


UNIFORM = {"bandwidth": "1 GB/s", "latency": "10 us"}


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("allreduce", 2 * 3 * (10e-6 + 250_000 / 1e9)),
        ("_allgather_base", 3 * (10e-6 + 250_000 / 1e9)),
        ("_reduce_scatter_base", 3 * (10e-6 + 250_000 / 1e9)),
        ("all_to_all", 10e-6 + 750_000 / 1e9),
        ("all_to_allv", 10e-6 + 750_000 / 1e9),
    ],
)
def test_every_collective_is_priced_anew(name: str, seconds: float, tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", [*kernel("work", 7, 0, 10, 0), *collective(name, 12)])
    found = replay(read_jobs([path]), **UNIFORM)
    assert found.collectives_predicted_s == pytest.approx(seconds)
    assert found.collectives[0].algorithm
    assert any("uneven" in text for text in found.assumptions) == (name == "all_to_allv")


@pytest.mark.parametrize("name", ["broadcast", "_reduce_oop"])
def test_chains_are_the_usual_way_from_and_to_a_root_and_others_can_be_asked_for(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", [*kernel("work", 7, 0, 10, 0), *collective(name, 12)])
    kind = "reduce" if "reduce" in name else "broadcast"
    assert replay(read_jobs([path]), **UNIFORM).collectives[0].algorithm == f"chain_{kind}"
    other = replay(read_jobs([path]), algorithms=[f"binomial_tree_{kind}"], **UNIFORM)
    assert other.collectives_predicted_s == pytest.approx(2 * (10e-6 + 1e-3))


def test_what_has_no_price_keeps_its_time_and_is_listed(tmp_path: Path) -> None:
    events = [*collective("send", 2), *collective("allreduce", 100, dtype="Unheard")]
    found = replay(read_jobs([written(tmp_path / "t.json", events)]), **UNIFORM)
    assert found.collectives_predicted_s == pytest.approx(100 * US)
    assert [text for text in found.assumptions if "keep recorded times" in text] == [
        "1 send without a size or a price keep recorded times",
        "1 all_reduce without a size or a price keep recorded times",
    ]


def test_a_kernel_without_arguments_is_still_a_collective(tmp_path: Path) -> None:
    events = [*kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 20, 2, 50, 1)]
    found = replay(read_jobs([written(tmp_path / "t.json", events, world_size="4")]), **UNIFORM)
    assert (found.ranks, found.collectives_predicted_s) == (4, pytest.approx(50 * US))
    assert "1 all_reduce without a size or a price keep recorded times" in found.assumptions


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", [float("nan"), -1, None, "5"])
def test_device_work_without_a_time_leaves_a_hole_and_is_refused(key: str, value: object, tmp_path: Path) -> None:
    events = [*kernel("one", 7, 0, 10, 0), *kernel("two", 7, 20, 10, 0)]
    events[-1][key] = value
    with pytest.raises(InvalidInput, match="holds 1 pieces of device work without a time"):
        read_jobs([written(tmp_path / "t.json", events)])


def test_smaller_groups_keep_their_ranks_where_the_job_grows(tmp_path: Path) -> None:
    events = [*collective("allreduce", 2, ranks=2), *collective("allreduce", 100, ranks=4)]
    found = replay(read_jobs([written(tmp_path / "t.json", events)]), ranks=32, **UNIFORM)
    assert sorted(row.predicted_ranks or 0 for row in found.collectives) == [2, 32]
    assert any("groups of 2 ranks keep their size" in text for text in found.assumptions)


def two_ranks(tmp_path: Path, late: float) -> list[str]:
    """Two traces of one job: rank 1 computes longer, so rank 0 waits in its first all-reduce."""
    paths = []
    for rank, extra in enumerate((0.0, late)):
        begin, wait = 102 + extra, late - extra
        events = [*kernel("backward", 7, 0, 100 + extra, 0), *collective("allreduce", begin)]
        events[-1]["dur"] = 50 + wait
        events += kernel("optimizer", 7, begin + 50 + wait + 15, 30, 5)
        paths.append(written(tmp_path / f"{rank}.json", events, rank=rank))
    return paths


def test_ranks_traced_together_wait_for_the_latest_and_no_longer(tmp_path: Path) -> None:
    paths = two_ranks(tmp_path, late=40)
    both = replay(read_jobs(paths), **UNIFORM)
    assert both.traced_ranks == 2
    assert both.collectives_recorded_s == pytest.approx(50 * US)
    assert both.recorded_s == pytest.approx(237 * US)
    assert both.error == pytest.approx(0, abs=1e-9)
    step = 6 * (10e-6 + 250_000 / 1e9)
    assert both.predicted_s == pytest.approx(237e-6 - 50e-6 + step)
    alone = replay(read_jobs(paths[:1]), **UNIFORM)
    assert alone.predicted_s == pytest.approx(both.predicted_s - 40e-6)


def test_traces_of_different_jobs_do_not_run_together(tmp_path: Path) -> None:
    first = written(tmp_path / "a.json", [*collective("allreduce", 2), *collective("broadcast", 100)])
    other = written(tmp_path / "b.json", [*collective("allreduce", 2), *collective("allreduce", 100)])
    short = written(tmp_path / "c.json", collective("allreduce", 2))
    for path in (other, short):
        with pytest.raises(InvalidInput, match="other collectives from number 1 on"):
            read_jobs([first, path])


def test_a_job_survives_its_file_and_can_be_changed_there(job: TraceJob, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("\n".join(write_job([compacted(job)])))
    before, after = replay(job, **UNIFORM), replay(read_jobs([str(path)]), **UNIFORM)
    assert after.predicted_s == pytest.approx(before.predicted_s, rel=1e-9)
    assert (after.recorded_s, after.error) == pytest.approx((before.recorded_s, 0.0), abs=1e-9)
    path.write_text(path.read_text().replace('size = "4000000 B"', 'size = "8 MB"'))
    assert replay(read_jobs([str(path)]), **UNIFORM).collectives_predicted_s == pytest.approx(
        6 * (10e-6 + 2_000_000 / 1e9)
    )


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        ('duration = "100 us"', "duration = 100", "text with a unit"),
        ('duration = "100 us"', 'duration = "-1 us"', "0 or more|us"),
        ("id = 1", "id = 0", "two operations 0"),
        ("after = [0]", "after = [3]", "does not come before"),
        ("stream = 0", "streem = 0", "unknown key 'streem'"),
        ("[[rank]]", "[[rang]]", "unknown key 'rang'"),
        ("num_steps = 1", "num_steps = 0", "whole number of 1"),
        ("num_steps = 1", "num_steps = ", "not TOML"),
    ],
)  # fmt: skip
def test_a_job_file_that_is_wrong_says_where(
    job: TraceJob, tmp_path: Path, before: str, after: str, match: str
) -> None:
    text = "\n".join(write_job([job]))
    assert before in text
    (tmp_path / "job.toml").write_text(text.replace(before, after, 1))
    with pytest.raises(InvalidInput, match=match):
        read_job(tmp_path / "job.toml")


def test_putting_compute_together_moves_no_end_that_something_waits_for(tmp_path: Path) -> None:
    events = [event for k in range(5) for event in kernel(f"k{k}", 7, 100 * k, 60, 100 * k - 5)]
    events += [*collective("allreduce", 165), *kernel("optimizer", 7, 520, 9, 500)]
    job = read_trace_job(written(tmp_path / "t.json", events))
    tight = compacted(job)
    assert [op.name for op in tight.operations] == ["k0 and 1 more", "ncclDevKernel_allreduce", "k2 and 3 more"]
    assert [total(tight, r) for r in (1, 50, 5000)] == pytest.approx([total(job, r) for r in (1, 50, 5000)])


def test_a_profile_of_nccl_prices_its_all_reduces_and_leaves_the_rest(tmp_path: Path) -> None:
    rows = [
        Measurement("all_reduce", s, 2e-5 + 2 * (n - 1) / n * s / 2e10, n, nodes=max(1, n // 4))
        for n in (4, 8)
        for s in (1 << k for k in range(10, 26, 3))
    ]
    site = NcclSite(channels=12, channel_bandwidth=1e10, nics=2, nic_bandwidth=1.2e10)
    write_profile(calibrate(rows, name="nccl", site=site), tmp_path / "nccl.toml")
    events = [*collective("allreduce", 2), *collective("broadcast", 100)]
    path = written(tmp_path / "t.json", events)
    found = replay(read_jobs([path]), ranks=16, profile=str(tmp_path / "nccl.toml"))
    assert {row.collective: row.algorithm for row in found.collectives} == {"all_reduce": "nccl", "broadcast": ""}
    assert any(text.startswith("broadcast keeps its recorded times") for text in found.assumptions)


def test_a_real_trace_replays_as_recorded(samples: Path) -> None:
    job = read_trace_job(samples / "chakra_kineto" / "kineto_nccl_data.json.gz")
    assert (job.world_size, job.num_steps) == (2, 3)
    found = replay(job, bandwidth="12.5 GB/s", latency="5 us")
    assert abs(found.error) < 0.001
    slow = replay(job, ranks=16, bandwidth="1 GB/s", latency="50 us")
    assert slow.predicted_s > found.predicted_s
