from __future__ import annotations

import json
from pathlib import Path

import pytest

from simnet.algorithms.registry import algorithms, build
from simnet.cli.main import main
from simnet.errors import InvalidInput
from simnet.exporters.astra_sim import Dimension, write_network
from simnet.exporters.chakra import COMP_NODE, RECV_NODE, SEND_NODE, write_chakra
from simnet.exporters.rank_steps import rank_steps
from simnet.verification import schedules, sent

Fields = dict[int, list[int | bytes]]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, at


def _fields(data: bytes) -> Fields:
    found: Fields = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(data[at : at + value])
            at += value
        else:
            assert key & 7 == 0
            found.setdefault(key >> 3, []).append(value)
    return found


def _messages(data: bytes) -> list[Fields]:
    found, at = [], 0
    while at < len(data):
        length, at = _varint(data, at)
        found.append(_fields(data[at : at + length]))
        at += length
    return found


def _attributes(node: Fields) -> dict[str, int]:
    found = {}
    for text in node[10]:
        assert isinstance(text, bytes)
        fields = _fields(text)
        name, value = fields.pop(1)[0], next(iter(fields.values()))[0]
        assert isinstance(name, bytes)
        assert isinstance(value, int)
        found[name.decode()] = value
    return found


@pytest.mark.parametrize("name", algorithms())
def test_traces_hold_every_message_at_both_ends_with_one_tag(name: str) -> None:
    for schedule in schedules(algorithms()[name], max_ranks=4):
        ends: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        volume = [0] * schedule.world_size
        for rank in range(schedule.world_size):
            head, *nodes = _messages(b"".join(write_chakra(schedule, 2 * schedule.num_chunks, rank)))
            assert head == {1: [b"0.0.4"]}
            for number, node in enumerate(nodes):
                attributes = _attributes(node)
                assert node[1] == [number]
                assert attributes["is_cpu_op"] == 0
                kind = node[3][0]
                assert isinstance(kind, int)
                assert rank == attributes["comm_src" if kind == SEND_NODE else "comm_dst"]
                key = (attributes["comm_src"], attributes["comm_dst"], attributes["comm_tag"])
                ends.setdefault(key, []).append((kind, attributes["comm_size"]))
                volume[rank] += attributes["comm_size"] * (kind == SEND_NODE)
        assert volume == (sent(schedule)[1] * 8).tolist()
        for pair in ends.values():
            assert sorted(kind for kind, _ in pair) == [SEND_NODE, RECV_NODE]
            assert pair[0][1] == pair[1][1]


def test_nodes_depend_on_the_step_before() -> None:
    _, *nodes = _messages(b"".join(write_chakra(build("ring", 4), 400, 2)))
    assert len(nodes) == 12
    assert 5 not in nodes[0]
    assert nodes[4][5] == [bytes([2, 3])]


def test_additions_are_compute_nodes_between_a_receive_and_what_needs_it() -> None:
    _, *nodes = _messages(b"".join(write_chakra(build("ring", 4), 4_000_000, 2, gamma=1e-12)))
    added = [node for node in nodes if node[3] == [COMP_NODE]]
    assert len(added) == 3
    for node in added:
        assert isinstance(node[1][0], int)
        need = nodes[node[1][0] - 1]
        assert node[5] == [bytes([node[1][0] - 1])]
        assert need[3] == [RECV_NODE]
        assert node[7] == [4]
        assert _attributes(node) == {"is_cpu_op": 0, "num_ops": 1_000_000, "tensor_size": 4_000_000}
    kinds = [node[3][0] for node in nodes[:3]]
    assert kinds == [RECV_NODE, COMP_NODE, SEND_NODE]
    assert nodes[3][5] == [bytes([1, 2])]
    assert not any(node[3] == [COMP_NODE] for node in _messages(b"".join(write_chakra(build("ring", 4), 400, 2)))[1:])


def test_network_file_counts_gb_as_gib() -> None:
    text = write_network([Dimension("Ring", 4, 12.5e9, 1e-6), Dimension("Switch", 2, 2**30, 0.5e-6)])
    lines = dict(line.partition(":")[::2] for line in text.splitlines())
    assert lines["topology"] == " [ Ring, Switch ]"
    assert lines["npus_count"] == " [ 4, 2 ]"
    rates = json.loads(lines["bandwidth"].partition("#")[0])
    assert [rate * 2**30 for rate in rates] == pytest.approx([12.5e9, 2**30])
    assert rates[0] == pytest.approx(11.6415, rel=1e-5)
    assert json.loads(lines["latency"].partition("#")[0]) == pytest.approx([1000, 500])


def test_networks_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Ring, FullyConnected, Switch, got 'Mesh'"):
        Dimension("Mesh", 4, 1e9, 0)
    with pytest.raises(InvalidInput, match="bandwidth above 0"):
        Dimension("Ring", 4, 0, 0)
    with pytest.raises(InvalidInput, match="at least one dimension"):
        write_network([])


def test_item_size_and_count_are_checked() -> None:
    with pytest.raises(InvalidInput, match="itemsize must be 1 byte"):
        list(rank_steps(build("ring", 2), 4, 0, itemsize=0))
    with pytest.raises(InvalidInput, match="0 or more elements"):
        list(rank_steps(build("ring", 2), -4, 0))


def _run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["simnet", "export", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_export_writes_the_files_it_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "x")
    torus = ("--algorithm", "torus2d", "--ranks", "4", "--grid", "2x2", "--out", out, "--json")
    assert _run(monkeypatch, *torus, "--format", "chakra", "--bandwidth", "12.5 GB/s", "--latency", "1 us") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(row["file"]).name for row in rows] == ["x.0.et", "x.1.et", "x.2.et", "x.3.et", "x.network.yml"]
    assert all(Path(row["file"]).stat().st_size == row["bytes"] > 0 for row in rows)
    assert "npus_count: [ 2, 2 ]" in (tmp_path / "x.network.yml").read_text()
    assert _run(monkeypatch, *torus[:-1], "--format", "chakra", "--adds", "200 GB/s") == 0
    assert "whole microseconds" in capsys.readouterr().out
    assert _run(monkeypatch, *torus, "--format", "goal", "--adds", "200 GB/s") == 0
    assert ": calc " in (tmp_path / "x").read_text()
    for form in ("msccl", "goal", "text"):
        assert _run(monkeypatch, *torus, "--format", form) == 0
    assert "step 0 x 1, chunks + -2 mod 4\n  1[0:2] += 0[0:2]\n" in (tmp_path / "x").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--format", "xml"), "--format must be msccl, goal, chakra or text, got 'xml'"),
        (("--format", "goal", "--size", "5"), "whole elements of 4 bytes, got 5"),
        (("--format", "chakra", "--bandwidth", "1 GB/s"), "needs both --bandwidth and --latency"),
        (("--out", "/nowhere/at/all"), "cannot be written"),
        (("--adds", "200 GB/s"), "--adds belongs to --format goal and chakra, got --format msccl"),
        (("--format", "goal", "--adds", "0 GB/s"), "--adds must be above 0"),
    ],
)
def test_wrong_exports_get_one_sentence(
    words: tuple[str, ...],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run(monkeypatch, "--algorithm", "ring", "--ranks", "2", "--out", str(tmp_path / "y"), *words) == 2
    assert text in capsys.readouterr().err
