"""Launchers are told apart by their variables, and a place that cannot be is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from realrun.cli.main import main
from realrun.launch import Launch, detect, first_node, join, stream
from realrun.plans import ProbePlan
from simnet.errors import InvalidInput

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "n1",
    "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "x",
}  # fmt: skip
SRUN = {
    "SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "12345",
    "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}  # fmt: skip
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "MASTER_ADDR": "n1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, Launch("torchrun", 5, 8, 1, 4, "n1", 29400)),
        (SRUN, Launch("srun", 5, 8, 1, 4, "gpu07", 20345)),
        (MPIRUN, Launch("mpirun", 5, 8, 1, 4, "n1", 29500)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
         Launch("mpirun", 1, 2, 1, 2, "127.0.0.1", 29500)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Launch("RANK and WORLD_SIZE", 0, 2, 0, 2, "127.0.0.1", 29500)),
        ({}, None),
    ],
)  # fmt: skip
def test_a_launcher_is_recognised_by_its_variables(environ, expected):
    assert detect(environ) == expected


def test_torchrun_inside_a_slurm_job_is_torchrun():
    assert detect(SRUN | TORCHRUN).launcher == "torchrun"


def test_a_batch_script_outside_srun_is_no_launched_rank():
    assert detect({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1"}) is None


def test_mpirun_over_hosts_needs_a_meeting_point():
    environ = {key: value for key, value in MPIRUN.items() if key != "MASTER_ADDR"}
    with pytest.raises(InvalidInput, match="add -x MASTER_ADDR"):
        detect(environ)


def test_an_incomplete_environment_is_refused():
    with pytest.raises(InvalidInput, match="WORLD_SIZE must be a whole number, got 'many'"):
        detect({"RANK": "0", "WORLD_SIZE": "many"})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu[03-07,12],login", "gpu03"), ("a1,a2", "a1"), ("n[1,3]-ib", "n1-ib"), ("single", "single")],
)
def test_the_first_node_of_a_slurm_list(nodes, first):
    assert first_node(nodes) == first


def realrun_command(*arguments: str, **environ: str) -> subprocess.Popen:
    code = "from realrun.cli.main import main; main()"
    environment = {**os.environ, **environ}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def launched(*arguments: str, **place: str) -> list[tuple[str, str]]:
    """What two ranks print; another port is tried where somebody took the one that was free a moment ago."""
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        ranks = [realrun_command(*arguments, RANK=str(rank), MASTER_PORT=port, **place) for rank in range(2)]
        outputs = [rank.communicate(timeout=250) for rank in ranks]
        if "another program has it" not in outputs[0][1]:
            break
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    return outputs


@pytest.mark.slow
def test_ranks_of_a_launcher_measure_together_and_rank_0_prints(tmp_path):
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    arguments = (
        "allreduce",
        "--sizes",
        "4:1K:16",
        "--iterations",
        "2",
        "--timeout",
        "240 s",
        "--json",
        "--out",
        str(tmp_path / "rows.jsonl"),
    )
    outputs = launched(*arguments, **place)
    rows = [json.loads(line) for line in outputs[0][0].splitlines()]
    assert [row["size_bytes"] for row in rows] == [4, 64, 1024]
    assert outputs[1][0] == ""
    assert (tmp_path / "rows.jsonl").read_text() == outputs[0][0]
    assert {row["environment"]["launcher"] for row in rows} == {"RANK and WORLD_SIZE"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["allreduce"], "--ranks is needed"),
        (["allreduce", "--ranks", "0"], "ranks must be 1 or more, got 0"),
        (["allreduce", "--ranks", "2", "--algorithm", "torus2d", "--grid", "3x2"], "grid 3x2 gives 6 ranks, not 2"),
        (["allreduce", "--ranks", "2", "--dtype", "quarter"], "dtype must be one of"),
        (["allreduce", "--ranks", "2", "--predicted", "/nowhere"], "/nowhere holds no JSON lines"),
        (["allreduce", "--ranks", "2", "--timeout", "60"], "timeout needs a unit"),
        (
            ["probe", "--ranks", "2", "--model", "nosuch"],
            "layers are timed of resnet50 or alexnet, got model 'nosuch'",
        ),
        (["probe", "--ranks", "2", "--precision", "fp7"], "precision must be one of fp32, tf32, bf16, fp16, got 'fp7'"),
        (["probe", "--ranks", "1"], "a probe needs 2 ranks or more, got 1"),
    ],
)
def test_wrong_requests_get_one_sentence_and_exit_code_2(monkeypatch, capsys, arguments, text):
    monkeypatch.setattr(sys, "argv", ["realrun", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    output, error = capsys.readouterr()
    assert (ended.value.code, output) == (2, "")
    assert text in error
    assert len(error.splitlines()) == 1


def test_without_torch_the_command_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; from realrun.cli.main import main; main()"
    for arguments in (["train"], ["allreduce"]):
        ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert len(ended.stderr.splitlines()) == 1
        assert "install simnet-testbed[real]" in ended.stderr or "--ranks is needed" in ended.stderr


def test_whoever_starts_local_ranks_need_not_load_torch():
    code = (
        "import sys; sys.argv = ['realrun', 'allreduce', '--ranks', '1', '--sizes', '4', '--iterations', '1']\n"
        "from realrun.cli.main import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_run_that_is_killed_keeps_what_it_measured(tmp_path: Path):
    out = tmp_path / "rows.jsonl"
    run = realrun_command("allreduce", "--ranks", "2", "--sizes", "4:1G:2", "--out", str(out))
    assert run.stdout is not None
    while "float" not in (line := run.stdout.readline()):
        assert line, run.communicate()
    run.kill()
    run.communicate()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0]["size_bytes"] == 4
    assert len(rows[0]["samples_s"]) == 20


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"ranks": 2, "backend": "foo"}, "backend must be gloo or nccl, got 'foo'"),
        ({"ranks": 2, "timeout": 0.0}, "timeout must be above 0 s"),
        ({"ranks": 2, "timeout": -5.0}, "timeout must be above 0 s"),
        ({"ranks": 100_000}, "one machine takes at most 256 ranks"),
    ],
)
def test_what_no_machine_can_start_is_refused_before_a_rank_starts(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        next(stream("realrun.benchmark:sweep", **asked))


@pytest.mark.parametrize(
    ("refused", "arguments"),
    [
        ("got model 'small-resnet'", ["probe", "--ranks", "2", "--model", "small-resnet"]),
        ("precision must be one of", ["probe", "--ranks", "2", "--precision", "fp7"]),
        ("backend nccl needs a CUDA device per rank", ["probe", "--ranks", "2", "--backend", "nccl"]),
        ("backend nccl needs a CUDA device per rank", ["allreduce", "--ranks", "2", "--backend", "nccl"]),
        ("backend nccl needs a CUDA device per rank", ["train", "--backend", "nccl"]),
        ("no all-reduce is called 'rign'", ["calibrate", "--ranks", "2", "--algorithms", "ring,rign"]),
        ("no all-reduce is called 'ring_all_gather'", ["calibrate", "--ranks", "2", "--algorithms", "ring_all_gather"]),
    ],
)
def test_no_rank_starts_for_a_request_that_cannot_be_met(
    refused: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def started(*_: Any, **__: Any) -> None:
        pytest.fail("ranks were started")

    monkeypatch.setattr("realrun.ranks.RankPool", started)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    out = tmp_path / "rows.jsonl"
    monkeypatch.setattr(sys, "argv", ["realrun", *arguments, *(() if arguments[0] == "train" else ("--out", str(out)))])
    with pytest.raises(SystemExit) as ended:
        main()
    output, error = capsys.readouterr()
    assert (ended.value.code, output, error.count("\n")) == (2, "", 1)
    assert refused in error
    assert not out.exists()


def test_a_port_that_another_program_has_is_refused_with_what_to_set():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            InvalidInput, match=f"port {port} of this host, and another program has it; set MASTER_PORT"
        ):
            join(Launch("torchrun", 0, 2, 0, 2, "127.0.0.1", port), backend="gloo")


def test_a_size_that_fits_no_memory_is_told_in_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["realrun", "probe", "--ranks", "2", "--sizes", "1000000G", "--iterations", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    output, error = capsys.readouterr()
    assert (ended.value.code, output) == (3, "")
    assert error == "error: out of memory; ask for smaller sizes, batches or fewer ranks on a machine\n"


def test_nccl_is_refused_to_a_launched_rank_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InvalidInput, match="0 devices here; use --backend gloo"):
        join(Launch("torchrun", 0, 2, 0, 2, "127.0.0.1", 29500), backend="nccl")


def test_a_probe_of_no_images_is_refused() -> None:
    with pytest.raises(InvalidInput, match="batch must be 1 or more images, got 0"):
        ProbePlan((4,), batch=0)
