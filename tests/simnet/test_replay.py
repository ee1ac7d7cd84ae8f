import json
from pathlib import Path
from typing import Any

import pytest

from simnet.errors import InvalidInput
from simnet.importers.trace_job import TraceJob, read_trace_job
from simnet.replay import finish_times, replay

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


def test_a_real_trace_replays_as_recorded(samples: Path) -> None:
    job = read_trace_job(samples / "chakra_kineto" / "kineto_nccl_data.json.gz")
    assert (job.world_size, job.num_steps) == (2, 3)
    found = replay(job, bandwidth="12.5 GB/s", latency="5 us")
    assert abs(found.error) < 0.001
    slow = replay(job, ranks=16, bandwidth="1 GB/s", latency="50 us")
    assert slow.predicted_s > found.predicted_s
