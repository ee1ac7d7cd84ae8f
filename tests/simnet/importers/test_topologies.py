"""Topology files of every format, read as their makers mean them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simnet.catalog import load_cluster
from simnet.catalog.writer import cluster_toml
from simnet.cli.app import command_line
from simnet.errors import InvalidInput
from simnet.importers.machine import Machine
from simnet.importers.report import select
from simnet.importers.topology import detect, formats, read_topology
from simnet.importers.wires import pcie_raw
from simnet.topologies.registry import BuiltFabric, build

DATA = Path(__file__).parents[2] / "data" / "topologies"
USABLE = [
    "nccl_4_gpus.xml", "rccl_2_gpus.xml", "nccl_hint.xml", "nvidia_smi_4_gpus.txt", "nvidia_smi_two_hosts.txt",
    "nvidia_smi_switched.txt", "rocm_smi_3_gpus.txt", "fabric.ibnetdiscover", "ports.ibnetdiscover-p",
    "fabric.iblinkinfo", "fabric_lines.iblinkinfo",
    "astra_stacked.yml", "astra_1.json", "tree.topo", "platform_clusters.xml", "platform_routes.xml",
]  # fmt: skip


def machines(name: str, **options: Any) -> list[Machine]:
    return list(read_topology(DATA / name, **options).machines)


def one(name: str, **options: Any) -> Machine:
    (machine,) = machines(name, **options)
    return machine


def fabric(machine: Machine) -> BuiltFabric:
    assert machine.cluster is not None
    return build(machine.cluster, machine.cluster.num_nodes)


def hops(built: BuiltFabric, a: int, b: int) -> list[str]:
    found = [built.fabric.links[i] for i in built.fabric.route(built.devices[a], built.devices[b])]
    return [link.dst for link in found]


def narrowest(built: BuiltFabric, a: int, b: int) -> float:
    return min(built.fabric.links[i].bandwidth for i in built.fabric.route(built.devices[a], built.devices[b]))


def delay(built: BuiltFabric, a: int, b: int) -> float:
    return sum(built.fabric.links[i].latency for i in built.fabric.route(built.devices[a], built.devices[b]))


@pytest.mark.parametrize("name", ["fabric.iblinkinfo", "fabric_lines.iblinkinfo"])
def test_iblinkinfo_tells_lanes_and_both_ends(name: str) -> None:
    machine = one(name)
    assert machine.facts["rates"] == {"4xEDR": 14, "4xFDR": 2}
    assert (machine.facts["switches"], machine.facts["adapters"], machine.facts["links"]) == (3, 4, 8)
    assert machine.facts["unconnected_ports"] == 3
    assert machine.cluster is not None
    assert machine.cluster.num_devices == 4
    assert machine.cluster.network.wires["port_4xEDR"].link.bandwidth.value == pytest.approx(12.5e9)
    assert any("port 36 of MF0;leaf-b" in text and "Could be 25.78125 Gbps" in text for text in machine.warnings)


def test_lists_of_astra_sim_may_stand_in_lines_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "block.yml").write_text(
        "topology:\n  - Ring\n  - Switch\nnpus_count: # of each dimension\n  - 8\n  - 4\n"
        "bandwidth:\n  - 50.0\n  - 25\nlatency:\n  - 500\n  - 1e3\n"
    )
    (tmp_path / "flow.yml").write_text(
        "topology: [ Ring, Switch ]\nnpus_count: [ 8, 4 ]\nbandwidth: [ 50.0, 25 ]\nlatency: [ 500, 1e3 ]\n"
    )
    block, flow = (read_topology(tmp_path / name).machines[0] for name in ("block.yml", "flow.yml"))
    assert block.facts == flow.facts
    assert block.cluster is not None
    assert flow.cluster is not None
    assert block.cluster.num_devices == flow.cluster.num_devices == 32
    (tmp_path / "bad.yml").write_text("topology:\n  - Ring\nnpus_count: [ 8 ]\nbandwidth:\nlatency: [ 1 ]\n")
    with pytest.raises(InvalidInput, match="got 'bandwidth:'"):
        read_topology(tmp_path / "bad.yml")


def test_entities_are_named_and_never_read(tmp_path: Path) -> None:
    (tmp_path / "e.xml").write_text(
        '<!DOCTYPE platform [ <!ENTITY bw "125MBps"> ]>\n<platform version="4.1"><zone id="z" routing="Full">'
        '<link id="l" bandwidth="&bw;" latency="1us"/></zone></platform>\n'
    )
    with pytest.raises(InvalidInput, match=r"defines entities \(bw\), which are never read; write what"):
        read_topology(tmp_path / "e.xml")


def test_elements_of_nccl_that_are_not_modelled_are_named(tmp_path: Path) -> None:
    text = (DATA / "nccl_4_gpus.xml").read_text()
    (tmp_path / "n.xml").write_text(re.sub(r"(<gpu [^>/]*>)", r'\1<c2c bw="450000" count="1"/>', text, count=1))
    (machine,) = read_topology(tmp_path / "n.xml").machines
    assert [text for text in machine.skipped if "c2c" in text] == ["1 elements <c2c>: not in the model"]


def test_two_rates_of_one_cable_are_said_and_the_slower_is_taken(tmp_path: Path) -> None:
    text = (DATA / "fabric.ibnetdiscover").read_text()
    rate = re.search(r"4x[A-Z]+", text)
    assert rate is not None
    (tmp_path / "f.ibnetdiscover").write_text(text.replace(rate[0], "1xSDR", 1))
    (machine,) = read_topology(tmp_path / "f.ibnetdiscover").machines
    assert machine.cluster is not None
    assert any(f"state 1xSDR and {rate[0]}: 1xSDR was taken" in warning for warning in machine.warnings)


def test_iblinkinfo_of_switches_alone_and_of_active_ports_alone_is_the_same_machine(tmp_path: Path) -> None:
    lines = (DATA / "fabric.iblinkinfo").read_text().splitlines()
    switches = lines[next(i for i, line in enumerate(lines) if line.startswith("Switch")) :]
    active = [line for line in lines if "LinkUp" in line]
    for kept in (switches, active):
        (tmp_path / "part.txt").write_text("\n".join(kept))
        (machine,) = read_topology(tmp_path / "part.txt").machines
        assert machine.cluster is not None
        assert (machine.cluster.num_devices, machine.facts["links"]) == (4, 8)


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        ('"cn02 mlx5_0" ( )', '"cn09 mlx5_0" ( )', "LID 12 is called"),
        ("==>       1    1[  ]", "==>       1    7[  ]", "two places|contradict|leads to"),
        ('"MF0;leaf-a:MSB7800/U1" ( )', '"MF0;leaf-a', "cannot be read"),
    ],
)
def test_iblinkinfo_that_contradicts_itself_is_refused(tmp_path: Path, before: str, after: str, match: str) -> None:
    text = (DATA / "fabric.iblinkinfo").read_text()
    assert before in text
    (tmp_path / "bad.txt").write_text(text.replace(before, after, 1))
    with pytest.raises(InvalidInput, match=match):
        read_topology(tmp_path / "bad.txt")


def test_iblinkinfo_with_a_rate_nobody_knows_is_no_machine(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_text((DATA / "fabric.iblinkinfo").read_text().replace("25.78125", "33.3"))
    (machine,) = read_topology(tmp_path / "odd.txt").machines
    assert machine.cluster is None
    assert "33.3 Gbit/s a lane" in machine.reason


def test_every_format_has_a_look_alike_here() -> None:
    found = {detect((DATA / name).read_text()) for name in USABLE}
    assert found == set(formats())


@pytest.mark.parametrize("name", USABLE)
def test_a_machine_that_was_read_is_the_same_after_writing_it_as_a_cluster(name: str, tmp_path: Path) -> None:
    for machine in machines(name):
        if machine.cluster is None:
            assert machine.reason
            continue
        (tmp_path / "mine.toml").write_text(cluster_toml(machine.cluster))
        again = load_cluster(str(tmp_path / "mine.toml"))
        first, second = fabric(machine), build(again, again.num_nodes)
        assert first.devices == second.devices
        assert first.fabric.links == second.fabric.links


def test_nccl_trees_have_nvlinks_pcie_and_the_nearest_nic() -> None:
    machine = one("nccl_4_gpus.xml")
    built = fabric(machine)
    assert machine.facts["gpus"] == 4
    assert machine.facts["pci_classes"] == {"0x060400": 2, "0x030200": 4, "0x020700": 3}
    assert hops(built, 0, 1) == ["n0/gpu1"]
    assert narrowest(built, 0, 1) == pytest.approx(2 * 24.24e9)
    assert [device[3:] for device in built.devices] == ["gpu0", "gpu1", "gpu3", "gpu2"]
    assert narrowest(built, 0, 3) == pytest.approx(24.24e9)
    assert hops(built, 0, 2) == ["n0/pci-0000:17:00.0", "n0/cpu0", "n0/cpu1", "n0/pci-0000:87:00.0", "n0/gpu3"]
    assert machine.cluster is not None
    assert machine.cluster.node.device.name == "v100-sxm2"
    assert machine.cluster.node.layout.options["ports"] == ("nic0", "nic0", "nic1", "nic2")
    assert machine.cluster.wires()["network.port"].bandwidth == 12.5e9


def test_suspicious_links_are_named() -> None:
    text = " ".join(one("nccl_4_gpus.xml").warnings)
    assert "gpu2 (0000:88:00.0) is at width 8 of 16" in text
    assert "gpu3 (0000:89:00.0) carries 0.1 GB/s" in text
    assert "nic1 and nic2 share one bridge, pci-0000:87:00.0" in text
    assert "gpu0" not in text


def test_pcie_rates_are_transfers_times_width_and_less_after_headers() -> None:
    machine = one("nccl_4_gpus.xml")
    assert machine.cluster is not None
    slot = machine.cluster.wires()["node.slot_8_0GTsx16"].link.bandwidth
    raw = 8e9 * 16 * 128 / 130 / 8
    assert 0.6 * raw < slot.low < slot.value < slot.high < raw


def test_rccl_files_have_xgmi_links_and_a_nic_without_a_slot() -> None:
    machine = one("rccl_2_gpus.xml")
    assert narrowest(fabric(machine), 0, 1) == pytest.approx(2 * 40e9)
    assert machine.facts["net_speeds_mbit_per_s"] == [25000]
    assert machine.cluster is not None
    assert machine.cluster.wires()["network.port"].bandwidth == pytest.approx(3.125e9)


def test_hints_without_gpu_elements_are_read_by_pci_class_and_say_what_they_lack() -> None:
    machine = one("nccl_hint.xml")
    assert (machine.facts["gpus"], machine.facts["devices"]) == (0, 2)
    assert any("NVLinks are not in it" in text for text in machine.assumed)


def test_other_files_of_the_same_tools_are_told_apart(tmp_path: Path) -> None:
    graph, algorithm, blank = (tmp_path / name for name in ("graph.xml", "algo.xml", "blank.xml"))
    graph.write_text('<graphs version="1"><graph id="0"/></graphs>')
    algorithm.write_text('<algo name="x" ngpus="2"/>')
    blank.write_text('<system version="1"><cpu numaid="0"><pci busid="a"/></cpu></system>')
    for path, message in ((graph, "a graph NCCL found"), (algorithm, "an MSCCL algorithm")):
        with pytest.raises(InvalidInput, match=message):
            read_topology(path)
    assert "which devices are GPUs" in read_topology(blank).machines[0].reason
    for name, message in (
        ("nvidia_smi_p2p.txt", "topo -p2p"),
        ("astra_system.json", "a system file"),
        ("astra_workload.txt", "a workload"),
    ):
        with pytest.raises(InvalidInput, match=message):
            machines(name)


def test_entities_are_never_expanded() -> None:
    with pytest.raises(InvalidInput, match=r"defines entities \(a\), which are never read"):
        machines("bomb.xml")


def test_a_matrix_becomes_a_tree_that_gives_the_same_answers() -> None:
    machine = one("nvidia_smi_4_gpus.txt", device="v100-sxm2")
    built = fabric(machine)
    assert machine.facts["gpu_pairs"] == {"NV2": 2, "NV1": 2, "SYS": 2}
    assert machine.facts["gpu_nic_pairs"] == {"PIX": 2, "SYS": 4, "NODE": 2}
    assert hops(built, 0, 1) == ["n0/gpu1"]
    assert narrowest(built, 0, 1) == pytest.approx(2 * 24.24e9)
    assert hops(built, 0, 2) == ["n0/plx0", "n0/numa0", "n0/gpu3"]
    assert machine.cluster is not None
    assert machine.cluster.node.layout.options["ports"] == ("mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1")


def test_pairs_that_all_count_all_links_stand_around_a_switch() -> None:
    built = fabric(one("nvidia_smi_switched.txt"))
    assert hops(built, 0, 7) == ["n0/nvswitch", "n0/gpu7"]
    assert narrowest(built, 0, 7) == pytest.approx(12 * 25e9)


def test_two_hosts_in_one_file_are_two_machines() -> None:
    alpha, beta = machines("nvidia_smi_two_hosts.txt")
    assert (alpha.name, beta.name) == ("alpha", "beta")
    assert (alpha.facts["gpu_pairs"], beta.facts["gpu_pairs"]) == ({"SYS": 1}, {"NV4": 1})
    assert any("NIC0 and NIC1 sit behind one PCIe bridge" in text for text in beta.warnings)


def test_rocm_matrices_are_read_by_link_type() -> None:
    machine = one("rocm_smi_3_gpus.txt")
    assert machine.facts["gpu_pairs"] == {"XGMI": 1, "PCIE": 2}
    assert hops(fabric(machine), 0, 1) == ["n0/gpu1"]
    assert hops(fabric(machine), 0, 2) == ["n0/host", "n0/gpu2"]


def test_a_fabric_adds_up_parallel_cables_and_leaves_aggregation_nodes_out() -> None:
    machine = one("fabric.ibnetdiscover")
    built = fabric(machine)
    assert (machine.facts["switches"], machine.facts["adapters"], machine.facts["links"]) == (3, 4, 8)
    assert machine.facts["referenced_not_described"] == 1
    assert len(built.devices) == 4
    up = [link for link in built.fabric.links if (link.src, link.dst) == ("S-00000000000000a1", "S-00000000000000b1")]
    assert [link.bandwidth for link in up] == [pytest.approx(50e9)]
    assert narrowest(built, 0, 1) == pytest.approx(12.5e9)
    assert any("runs at 4xEDR, not 4xHDR" in text for text in machine.warnings)


def test_port_reports_count_open_ports_and_quoted_or_bare_names() -> None:
    machine = one("ports.ibnetdiscover-p")
    assert (machine.facts["port_lines"], machine.facts["unconnected_ports"], machine.facts["links"]) == (6, 2, 2)
    assert narrowest(fabric(machine), 0, 1) == pytest.approx(12.5e9)


def test_hosts_that_cannot_reach_each_other_make_no_machine(tmp_path: Path) -> None:
    lines = (DATA / "fabric.ibnetdiscover").read_text().splitlines()
    path = tmp_path / "apart.ibnetdiscover"
    path.write_text("\n".join(line for line in lines if "[3]" not in line))
    (machine,) = read_topology(path).machines
    assert machine.cluster is None
    assert "cannot reach" in machine.reason


def test_analytical_networks_keep_units_and_count_the_hops_of_a_switch() -> None:
    built = fabric(one("astra_stacked.yml"))
    assert narrowest(built, 0, 1) == 200e9
    assert delay(built, 0, 1) == pytest.approx(50e-9)
    assert delay(built, 0, 4) == pytest.approx(500e-9)
    assert delay(built, 0, 12) == pytest.approx(2 * 2000e-9)
    assert any("2**30" in text for text in one("astra_stacked.yml").assumed)


def test_version_one_files_count_links_side_by_side() -> None:
    built = fabric(one("astra_1.json"))
    assert narrowest(built, 0, 1) == pytest.approx(2 * 30e9)
    assert narrowest(built, 0, 4) == pytest.approx(10e9)


def test_htsim_trees_are_oversubscribed_where_they_say_so() -> None:
    built = fabric(one("tree.topo"))
    links = {(link.src, link.dst): link.bandwidth for link in built.fabric.links}
    assert links["leaf0.0", "agg0.0.0"] == pytest.approx(2 * 12.5e9)
    assert links["agg0.0.0", "core0.0"] == pytest.approx(2 * 25e9)
    assert delay(built, 0, 15) == pytest.approx(2 * 0.7e-6 + 4 * 0.6e-6)


def test_simgrid_clusters_follow_their_topology() -> None:
    flat, ring, tree, fly = machines("platform_clusters.xml")
    assert flat.facts["hosts_here"] == 5
    assert delay(fabric(flat), 0, 1) == pytest.approx(45e-6)
    assert narrowest(fabric(flat), 0, 1) == pytest.approx(125e6)
    assert hops(fabric(ring), 0, 1) == ["n1/dev0"]
    assert delay(fabric(ring), 0, 2) == pytest.approx(100e-6)
    assert len(hops(fabric(ring), 0, 12)) == 1
    assert narrowest(fabric(tree), 0, 7) == pytest.approx(2**30)
    assert len(hops(fabric(tree), 0, 7)) == 4
    assert "DRAGONFLY" in fly.reason


def test_simgrid_routes_share_the_links_they_name() -> None:
    built = fabric(one("platform_routes.xml"))
    there, back = ([built.fabric.links[i] for i in built.fabric.route(a, b)] for a, b in
                   (("n0/dev0", "n2/dev0"), ("n2/dev0", "n0/dev0")))  # fmt: skip
    assert sum(link.latency for link in there) == pytest.approx(1.01e-3)
    shared = {link.src for link in there} & {link.src for link in back}
    assert any(name.startswith("thin") for name in shared)
    assert not any(name.startswith("wide") for name in shared)


def test_one_node_can_be_multiplied_where_its_nics_are_known() -> None:
    (machine,) = select(read_topology(DATA / "nccl_4_gpus.xml"), None, num_nodes=3)
    assert machine.cluster is not None
    assert machine.cluster.num_devices == 12
    open_matrix = read_topology(DATA / "nvidia_smi_4_gpus.txt")
    with pytest.raises(InvalidInput, match="give --port"):
        select(open_matrix, None, num_nodes=2)
    (wired,) = select(open_matrix, None, num_nodes=2, port="ib-edr")
    assert narrowest(fabric(wired), 0, 4) == pytest.approx(12.5e9)
    with pytest.raises(InvalidInput, match="a file of one node"):
        select(read_topology(DATA / "fabric.ibnetdiscover"), None, num_nodes=2)


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(command_line("simnet.cli", summary="test"), ["import", *arguments])
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.stdout


def test_import_writes_a_cluster_and_tells_what_it_is(tmp_path: Path) -> None:
    out = tmp_path / "mine.toml"
    text = run(str(DATA / "nccl_4_gpus.xml"), "--out", str(out))
    assert "WARNING" in text
    assert load_cluster(str(out)).num_devices == 4
    rows = [json.loads(line) for line in run(str(DATA / "nvidia_smi_two_hosts.txt"), "--json").splitlines()]
    assert [row["machine"] for row in rows] == ["alpha", "beta"]
    with pytest.raises(InvalidInput, match="choose one to write with --machine"):
        run(str(DATA / "nvidia_smi_two_hosts.txt"), "--out", str(out))
    run(str(DATA / "nvidia_smi_two_hosts.txt"), "--machine", "beta", "--out", str(out))
    assert load_cluster(str(out)).num_devices == 2


def test_import_refuses_what_is_no_topology(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n")
    (tmp_path / "empty.txt").write_text("")
    for name, message in (
        ("notes.txt", "no topology of"),
        ("empty.txt", "is empty"),
        ("no", "cannot read"),
    ):
        with pytest.raises(InvalidInput, match=message):
            run(str(tmp_path / name))


def test_import_tells_the_rows_of_a_log() -> None:
    assert "busbw" in run(str(DATA.parent / "logs" / "new_8_ranks.log"))


def test_matrices_keep_their_hosts_colours_and_odd_names(tmp_path: Path) -> None:
    rows = [
        "\x1b[4m\tGPU0\tGPU1\tmlx5_bond_0\tCPU Affinity\tNUMA Affinity\x1b[0m",
        "GPU0\t X \tNV4\tPIX\t0-7\t0", "GPU1\tNV4\t X \tSYS\t0-7\t0", "mlx5_bond_0\tPIX\tSYS\t X ",
    ]  # fmt: skip
    plain, shell = tmp_path / "plain.txt", tmp_path / "shell.txt"
    plain.write_text("\n".join(rows) + "\n")
    mixed = [f"{host}: {row}" for row in rows for host in ("node02", "node01")]
    shell.write_text("\n".join(mixed) + "\n")
    (machine,) = read_topology(plain).machines
    assert machine.facts["gpu_nic_pairs"] == {"PIX": 1, "SYS": 1}
    hosts = read_topology(shell).machines
    assert [one.name for one in hosts] == ["node02", "node01"]
    assert all(one.facts == machine.facts for one in hosts)


@pytest.mark.parametrize(
    ("speed", "width", "raw"),
    [
        ("8000 MT/s", "16", 8e9 * 16 / 8 * 128 / 130),
        ("2.5 GT/s", "4", 2.5e9 * 4 / 8 * 0.8),
        ("64 GT/s PCIe", "16", 64e9 * 16 / 8 * 242 / 256),
        ("Unknown", "0", None),
        ("", "16", None),
    ],
)
def test_pcie_speeds_of_every_spelling_are_read(speed: str, width: str, raw: float | None) -> None:
    assert pcie_raw(speed, int(width)) == (None if raw is None else pytest.approx(raw))


def test_a_pcie_speed_without_a_unit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="bare number"):
        pcie_raw("8", 16)
    with pytest.raises(InvalidInput, match="1 to 32 lanes"):
        pcie_raw("8 GT/s", 7)


def test_hosts_with_several_adapters_are_nodes_of_several_devices(tmp_path: Path) -> None:
    ends = [
        (f"{16 * host + card:016x}", f"node{host} mlx5_{card}", 2 * host + card) for host in (1, 2) for card in (0, 1)
    ]
    lines = ['Switch  40 "S-00000000000000a1"         # "leaf1" enhanced port 0 lid 1 lmc 0']
    lines += [f'[{port}]     "H-{guid}"[1](11)             # "{name}" lid 11 4xHDR' for guid, name, port in ends]
    for guid, name, port in ends:
        lines += ["", f'Ca      1 "H-{guid}"          # "{name}"']
        lines += [f'[1](11)         "S-00000000000000a1"[{port}]         # lid 11 lmc 0 "leaf1" lid 1 4xHDR']
    path = tmp_path / "two.ibnetdiscover"
    path.write_text("\n".join(lines) + "\n")
    (machine,) = read_topology(path).machines
    assert machine.cluster is not None
    assert (machine.cluster.num_nodes, machine.cluster.node.num_devices) == (2, 2)
    built = fabric(machine)
    assert all(len(hops(built, a, b)) == 2 for a in range(4) for b in range(4) if a != b)


PREFIXES: dict[str, Callable[[int, str], str]] = {
    "by host": lambda _, line: "node01: " + line,
    "tagged by mpirun": lambda _, line: "[1,0]<stdout>:" + line,
    "stamped": lambda i, line: f"2024-05-01 12:00:{i % 60:02d} " + line,
    "container runtime": lambda i, line: f"2024-05-01T12:00:{i % 60:02d}.123Z " + line,
    "grep -n": lambda i, line: f"{i}:{line}",
    "quoted": lambda _, line: "> " + line,
    "indented": lambda _, line: "    " + line,
}


@pytest.mark.parametrize("name", USABLE)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_file_behind_a_prefix_is_the_same_machine(name: str, prefix: str, tmp_path: Path) -> None:
    lines = (DATA / name).read_text().splitlines()
    path = tmp_path / Path(name).name
    path.write_text("".join(PREFIXES[prefix](i, line) + "\n" for i, line in enumerate(lines, 1)))
    found, expected = read_topology(path).machines, read_topology(DATA / name).machines
    assert [m.facts for m in found] == [m.facts for m in expected]
    assert [m.cluster and m.cluster.num_devices for m in found] == [
        m.cluster and m.cluster.num_devices for m in expected
    ]
