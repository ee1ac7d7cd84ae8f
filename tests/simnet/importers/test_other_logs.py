from pathlib import Path

import pytest

from simnet.errors import InvalidInput
from simnet.importers.logs import read_log
from simnet.units import GB, MIB

DATA = Path(__file__).parents[2] / "data" / "logs"


def test_osu_collectives_are_us_and_bandwidths_mb_of_1e6() -> None:
    first, *_, last = read_log(DATA / "osu_allreduce.txt").measurements
    assert (first.collective, first.size_bytes, first.time_s) == ("all_reduce", 4, pytest.approx(20.00e-6))
    assert last.size_bytes == MIB
    row = read_log(DATA / "osu_bw_validation.txt").measurements[-1]
    assert row.collective == "stream"
    assert row.num_wrong == 0
    assert row.size_bytes / row.time_s == pytest.approx(10_753.0e6, rel=0.01)


def test_imb_rows_are_by_active_processes_with_their_slowest_time() -> None:
    log = read_log(DATA / "imb_mixed.txt")
    ping = next(row for row in log.measurements if row.collective == "send")
    assert (ping.ranks, ping.environment["waiting_processes"]) == (2, 30)
    reduced = [row for row in log.measurements if row.collective == "all_reduce"]
    assert {row.ranks for row in reduced} == {32}
    assert reduced[0].time_s == pytest.approx(11e-6)
    assert reduced[0].environment["t_avg"] == pytest.approx(10e-6)
    gathered = [row.size_bytes for row in log.measurements if row.collective == "all_gather"]
    assert gathered[0] == 32


def test_a_drop_of_bandwidth_above_twofold_is_noted() -> None:
    assert any("262144" in note and "drops" in note for note in read_log(DATA / "imb_mixed.txt").notes)


def test_nccl_debug_tells_rings_trees_and_transports() -> None:
    facts = read_log(DATA / "nccl_debug.log").facts
    assert facts["rings"] == {0: (0, 1, 2, 3), 1: (0, 2, 1, 3)}
    assert facts["trees"][0] == {0: -1, 1: 0, 2: 1, 3: 2}
    assert facts["transports"] == {"P2P/IPC": 4}
    assert facts["nccl_ranks"] == [4]


def test_mlperf_runs_last_from_start_to_stop() -> None:
    log = read_log(DATA / "mlperf.txt")
    assert log.measurements[0].time_s == pytest.approx(300.5)
    assert (log.facts["benchmark"], log.facts["global_batch_size"], log.facts["evaluations"]) == ("resnet", 1024, 8)
    assert read_log(DATA / "mlperf_v05.txt").measurements[0].time_s == pytest.approx(600.0)


def test_a_run_that_did_not_stop_has_no_time(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text("\n".join((DATA / "mlperf.txt").read_text().splitlines()[:-1]) + "\n")
    log = read_log(path)
    assert log.measurements == ()
    assert any("run time is unknown" in note for note in log.notes)


def test_deepspeed_sizes_are_of_1024_and_ranks_come_from_the_factor() -> None:
    first, second, _ = read_log(DATA / "deepspeed.log").measurements
    assert (first.collective, first.size_bytes, first.time_s) == ("all_reduce", 25 * MIB, pytest.approx(1.25e-3))
    assert (second.collective, second.ranks) == ("reduce_scatter", 8)
    summary = read_log(DATA / "deepspeed_summary.txt").measurements
    assert [row.time_s for row in summary] == pytest.approx([9.30e-3 / 150, 1.3e-3])


def test_ddp_tells_the_exchange_of_a_step() -> None:
    log = read_log(DATA / "ddp.log")
    assert (log.measurements[0].collective, log.measurements[0].size_bytes) == ("gradients", 102_228_128)
    assert log.measurements[0].time_s == pytest.approx(43.26421e-3)
    assert log.facts["bucket_bytes"] == [8_196_000, 94_032_128]


def test_kineto_kernels_carry_bytes_of_their_type() -> None:
    log = read_log(DATA / "kineto.json")
    assert [(row.collective, row.ranks, row.size_bytes) for row in log.measurements[:2]] == [
        ("all_reduce", 4, 4000), ("all_reduce", 4, 8000),
    ]  # fmt: skip
    assert log.measurements[0].time_s == pytest.approx(100e-6)
    assert log.facts["nccl_kernels"] == 6


def test_horovod_tensors_fused_together_are_one_operation() -> None:
    (row,) = read_log(DATA / "horovod_timeline.json").measurements
    assert (row.collective, row.size_bytes, row.time_s) == ("all_reduce", 12_000, pytest.approx(300e-6))


def test_execution_traces_tell_sizes_and_no_times() -> None:
    log = read_log(DATA / "execution_trace.json")
    assert log.measurements == ()
    assert {"collective": "all_reduce", "size_bytes": 1_000_000, "ranks": 4, "count": 2} in log.facts["collectives"]
    assert {"collective": "broadcast", "size_bytes": 424, "ranks": 4, "count": 1} in log.facts["collectives"]
    assert read_log(DATA / "chakra_nodes.json").measurements[0].time_s == pytest.approx(120e-6)


def test_nccl_tests_json_is_its_table() -> None:
    log = read_log(DATA / "nccl_tests.json")
    assert {(row.collective, row.ranks) for row in log.measurements} == {("all_reduce", 8)}
    assert len(log.measurements) == 36


def test_nccom_prints_gib_as_gb() -> None:
    log = read_log(DATA / "nccom.txt")
    assert any("GiB/s" in note for note in log.notes)
    last = log.measurements[-1]
    assert last.algbw_bytes_per_s == pytest.approx(last.size_bytes / last.time_s)


def test_own_rows_keep_every_sample() -> None:
    log = read_log(DATA / "rows.jsonl")
    assert [len(row.samples_s) for row in log.measurements] == [3, 3, 3]
    assert log.measurements[-1].collective == "send"
    assert (log.measurements[-1].src, log.measurements[-1].dst) == ("0", "1")
    assert log.predictions[0].engine == "estimate"


def test_what_is_no_log_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    for text in ("", "hello\nworld\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "{}", "[1, 2]", '{"nodes": []}'):
        path.write_text(text)
        with pytest.raises(InvalidInput, match=r"notes\.md"):
            read_log(path)
    with pytest.raises(InvalidInput, match="cannot read"):
        read_log(tmp_path / "none.log")


# name, rows, size and time of the last row or a fact
REAL_ROWS = {
    "osu/hpc_efa_32n512p_baremetal.txt": (19, 1_048_576, 874.60e-6),
    "osu/hpc_efa_4n64p_baremetal.txt": (19, 1_048_576, 704.31e-6),
    "osu/hpc_efa_osu_latency_1.txt": (24, 4_194_304, 238.19e-6),
    "osu/hpc_efa_osu_bw_1.txt": (23, 4_194_304, 4_194_304 / 24_211.33e6),
    "osu/cscs_osu_bw_validation_column.txt": (23, 4_194_304, 4_194_304 / 23_982.18e6),
    "imb/azure_allreduce_1408p_waagent_on.txt": (3, 16, 29.28e-6),
    "imb/azure_pingpong_slurm_dip_256k.txt": (24, 4_194_304, 1156.95e-6),
    "mlperf/v05_google_ssd_tpuv3-32.txt": (1, 0, 1057.364),
    "mlperf/v40_giga_llama2_lora_8h100.txt": (1, 0, 1690.351),
    "mlperf/v40_eos_1n8g_resnet.txt": (1, 0, 798.372),
    "mlperf/v40_eos_8n64g_resnet.txt": (1, 0, 150.326),
    "mlperf/v40_l40s_2n_resnet.txt": (1, 0, 3040.369),
    "mlperf/v40_l40s_16n_resnet.txt": (1, 0, 427.543),
    "mlperf/v40_juniper_1n_llama2.txt": (1, 0, 6916.764),
    "mlperf/v40_juniper_4n_llama2.txt": (1, 0, 2812.520),
    "mlperf/v30_dell_2n8g_resnet.txt": (1, 0, 2007.073),
}
REAL_FACTS = {
    "mlperf/v40_tinybox_6x4090_resnet.txt": {"global_batch_size": 1536, "evaluations": 13},
    "mlperf/v05_google_ssd_tpuv3-32.txt": {"global_batch_size": 32, "evaluations": 3},
    "nccl_debug/dell_2n8g_a100_trees_channels_rankprefix.log": {
        "nccl_version": "2.12.10+cuda11.6", "nccl_ranks": [8], "transports": {"P2P/IPC/read": 56, "NET/IBext": 32},
    },
    "nccl_debug/dell_1n8g_a100_pcie_no_ib.log": {"nccl_ranks": [8], "transports": {"direct": 42, "P2P/IPC": 48}},
    "chakra_kineto/kineto_nccl_data.json.gz": {"events": 40573, "kernels": 2700, "nccl_kernels": 21, "world_size": 2},
    "chakra_kineto/kineto_cpu_only_rank34.json.gz": {"events": 30, "kernels": 0, "rank": 34, "world_size": 300},
    "chakra_kineto/kineto_trace_compare_base.json.gz": {"events": 33, "kernels": 6, "nccl_kernels": 0},
    "chakra_kineto/kineto_simple_add.json.gz": {"events": 111, "complete_events": 56, "kernels": 4},
    "chakra_kineto/kineto_rank_non_gpu.json.gz": {"events": 2467, "kernels": 0},
    "chakra_kineto/pytorch_et_1.0.2-chakra.0.0.4.json": {"schema": "1.0.2-chakra.0.0.4", "nodes": 263},
    "chakra_kineto/pytorch_et_linear.json.gz": {"schema": "1.0.1", "nodes": 931},
    "chakra_kineto/pytorch_et_resnet_2gpu.json.gz": {"schema": "1.1.0-chakra.0.0.4", "nodes": 14392},
}  # fmt: skip


@pytest.mark.parametrize("name", REAL_ROWS)
def test_real_rows(samples: Path, name: str) -> None:
    rows, size, time = REAL_ROWS[name]
    found = read_log(samples / name).measurements
    assert len(found) == rows
    assert found[-1].size_bytes == size
    assert found[-1].time_s == pytest.approx(time, rel=1e-6)


@pytest.mark.parametrize("name", REAL_FACTS)
def test_real_facts(samples: Path, name: str) -> None:
    facts = read_log(samples / name).facts
    assert {key: facts.get(key) for key in REAL_FACTS[name]} == REAL_FACTS[name]


def test_the_slow_switch_of_a_real_ping_pong_is_noted(samples: Path) -> None:
    log = read_log(samples / "imb/azure_pingpong_slurm_dip_256k.txt")
    assert any("between 131072 and 262144" in note for note in log.notes)


def test_real_prints_bandwidth_of_nccom_in_gib(samples: Path) -> None:
    log = read_log(samples / "nccl_tests/aws_nccom_trainium_not_nccl.txt")
    assert {(row.collective, row.ranks) for row in log.measurements} == {("all_reduce", None)}
    assert log.measurements[-1].algbw_bytes_per_s == pytest.approx(1.525 * GB, rel=1e-3)


@pytest.mark.parametrize(
    "name", ["profiler/torch_profiler_key_averages_h100.txt", "scaling/dlperf_resnet50_bert_v100_1to32.md"]
)
def test_real_texts_that_are_no_logs_are_refused(samples: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="is a t"):
        read_log(samples / name)
