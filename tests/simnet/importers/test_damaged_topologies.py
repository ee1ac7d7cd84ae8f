"""Damaged topology files: a sentence, or a machine that is not other than the file's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simnet.errors import InvalidInput
from simnet.importers.machine import Machine
from simnet.importers.topology import read_topology

DATA = Path(__file__).parents[2] / "data" / "topologies"
FOLDERS = ("nccl_topo_xml", "nvsmi_topo", "ib_fabric", "astra_sim", "simgrid")
# Files of these formats say the same thing twice, so that what is lost must show.
REDUNDANT = ["nvidia_smi_4_gpus.txt", "nvidia_smi_two_hosts.txt", "nvidia_smi_switched.txt", "rocm_smi_3_gpus.txt"]
REDUNDANT += ["astra_stacked.yml", "astra_1.json"]
CABLED = ["fabric.ibnetdiscover", "ports.ibnetdiscover-p", "fabric.iblinkinfo", "fabric_lines.iblinkinfo"]


def cut(data: bytes, *, sampled: int) -> Iterator[bytes]:
    """The text up to every line end, and up to bytes on the way."""
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    chosen = ends if len(ends) <= 4 * sampled else random.Random(1).sample(ends, 4 * sampled)
    yield from (data[:end] for end in chosen)
    yield from (data[: random.Random(i).randrange(len(data))] for i in range(sampled))


def rearranged(data: bytes, *, sampled: int) -> Iterator[bytes]:
    """The text with lines dropped, doubled and shuffled."""
    lines = data.splitlines(keepends=True)
    for i in sorted(random.Random(2).sample(range(len(lines)), min(len(lines), 2 * sampled))):
        yield b"".join(lines[:i] + lines[i + 1 :])
        yield b"".join(lines[: i + 1] + lines[i:])
    for seed in range(sampled // 2):
        yield b"".join(random.Random(seed).sample(lines, len(lines)))


def disguised(data: bytes, *, sampled: int) -> Iterator[bytes]:
    """The text as other systems write it, and with bytes that are no text."""
    yield data.replace(b"\n", b"\r\n")
    yield b"\xef\xbb\xbf" + data
    yield data.decode("utf-8", "replace").encode("utf-16")
    for seed in range(sampled):
        at = random.Random(seed).randrange(len(data))
        yield data[:at] + b"\xff\xfe\x80" + data[at + 1 :]


def damaged(data: bytes, *, sampled: int) -> Iterator[bytes]:
    """All of it."""
    for kind in (cut, rearranged, disguised):
        yield from kind(data, sampled=sampled)


def outcome(path: Path, data: bytes) -> list[Machine] | str:
    """Machines of a text, or the sentence it was refused with; anything else raised fails the test."""
    path.write_bytes(data)
    try:
        return list(read_topology(path).machines)
    except InvalidInput as error:
        return str(error)


def told(machine: Machine) -> dict[str, Any]:
    """Facts without names of NICs, which a file cut below its matrix does not have."""
    return {key: value for key, value in machine.facts.items() if key not in ("nic_names", "hops", "matrices")}


def admits(machine: Machine) -> bool:
    """Whether the machine says that the file has bytes that are no text."""
    return any("no text" in remark for remark in machine.skipped)


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_a_damaged_file_never_ends_in_a_traceback(name: str, tmp_path: Path) -> None:
    for data in damaged((DATA / name).read_bytes(), sampled=4):
        found = outcome(tmp_path / name, data)
        assert found
        if isinstance(found, str):
            assert len(found) < 500
            assert "\n" not in found.strip()


@pytest.mark.parametrize("name", REDUNDANT)
def test_what_a_redundant_file_lost_never_becomes_another_machine(name: str, tmp_path: Path) -> None:
    own = [told(machine) for machine in read_topology(DATA / name).machines]
    for data in damaged((DATA / name).read_bytes(), sampled=12):
        found = outcome(tmp_path / name, data)
        assert isinstance(found, str) or all(told(machine) in own or admits(machine) for machine in found)


@pytest.mark.parametrize("name", CABLED)
def test_a_fabric_that_lost_lines_is_refused_or_warns(name: str, tmp_path: Path) -> None:
    (own,) = read_topology(DATA / name).machines
    for data in damaged((DATA / name).read_bytes(), sampled=12):
        found = outcome(tmp_path / name, data)
        if isinstance(found, str) or cables(found[0]) == cables(own) or found[0].reason:
            continue
        assert found[0].warnings or found[0].skipped
        assert found[0].facts["links"] <= own.facts["links"] or admits(found[0])


def cables(machine: Machine) -> list[Any]:
    return [machine.facts["adapters"], machine.facts["links"], sorted(machine.facts["rates"])]


@pytest.mark.parametrize(
    "name", ["nvidia_smi_4_gpus.txt", "fabric.ibnetdiscover", "astra_stacked.yml", "nccl_4_gpus.xml"]
)
def test_line_ends_and_marks_of_other_systems_change_nothing(name: str, tmp_path: Path) -> None:
    data = (DATA / name).read_bytes()
    own = [machine.facts for machine in read_topology(DATA / name).machines]
    for changed in (data.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + data, data.decode().encode("utf-16")):
        found = outcome(tmp_path / name, changed)
        assert not isinstance(found, str)
        assert [machine.facts for machine in found] == own


READINGS: dict[str, dict[str, Any]] = {
    "nccl_topo_xml/azure_ndv4-topo.xml": {"cpus": 4, "pcis": 20, "devices": 8, "link_speeds": ["16 GT/s"]},
    "nccl_topo_xml/azure_ncv4-topo.xml": {"gpus": 4, "device_links": 4, "device_link_count": 48},
    "nccl_topo_xml/aws_g5.48xl-topo.xml": {"cpus": 2, "pcis": 9, "gpus": 0},
    "nccl_topo_xml/aws_p4de-24xl-topo.xml": {"pci_classes": {"0x060400": 4, "0x030200": 8, "0x020000": 4}},
    "nccl_topo_xml/rccl_topo_8p_940.xml": {"version": "2", "gpus": 8, "nets": 8, "device_link_count": 56},
    "nccl_topo_xml/rccl_topo_16p1h.xml": {"cpus": 4, "pcis": 52, "gpus": 16, "device_link_count": 112},
    "nccl_topo_xml/rccl_topo_3p_pcie.xml": {"gpus": 3, "nets": 1, "net_speeds_mbit_per_s": [200000]},
    "nccl_topo_xml/rccl_topo_collnet_n4.xml": {"gpus": 8, "nets": 4, "device_links": 24},
    "nvsmi_topo/topo_2gpu_phb_spaces.txt": {"gpus": 2, "nics": 0, "gpu_pairs": {"PHB": 1}},
    "nvsmi_topo/topo_8h100_nv18_compact.txt": {"gpus": 8, "gpu_pairs": {"NV18": 28}},
    "nvsmi_topo/topo_8h100_nv18_affinity_lists.txt": {"gpus": 8, "gpu_pairs": {"NV18": 28}},
    "nvsmi_topo/topo_8v100_dgx1like_mlx_mixed_tabs.txt": {
        "gpus": 8, "nics": 2, "gpu_pairs": {"NV1": 8, "NV2": 8, "SYS": 12},
        "gpu_nic_pairs": {"NODE": 4, "SYS": 8, "PIX": 4},
    },
    "nvsmi_topo/rocm_smi_showtopo_4mi210.txt": {"gpus": 4, "gpu_pairs": {"XGMI": 6}},
    "ib_fabric/ibtopo2_sdr_2ca.ibnetdiscover": {"switches": 1, "adapters": 2, "port_lines": 4, "links": 2},
    "ib_fabric/ibtopo4_qdr_1ca.ibnetdiscover": {"switches": 1, "adapters": 1, "rates": {"4xQDR": 2}},
    "ib_fabric/superbench_faked_hdr_fattree.ibnetdiscover": {
        "switches": 8, "adapters": 10, "port_lines": 35, "links": 18, "switch_links": 7, "lines_without_reverse": 1,
        "referenced_not_described": 1, "rates": {"4xHDR": 35},
    },
    "ib_fabric/ports_report_p_edr.ibnetdiscover-p": {
        "port_lines": 9, "connected_ports": 7, "unconnected_ports": 2, "nodes_described": 6,
    },
    "ib_fabric/ports_report_p_hdr_aggnode.ibnetdiscover-p": {
        "port_lines": 6, "connected_ports": 3, "unconnected_ports": 3, "nodes_described": 6,
    },
    "ib_fabric/ports_report_p_unquoted_name.ibnetdiscover-p": {"port_lines": 1, "connected_ports": 0},
    "astra_sim/v2_Ring_8npus.yml": {"npus": 8, "kinds": ["ring"]},
    "astra_sim/v2_Ring_FullyConnected_Switch_yml_comments.yml": {"npus": 64, "dimensions": [2, 8, 4]},
    "astra_sim/v1_sample_Torus3D.json": {"npus": 64, "dimensions": [4, 4, 4]},
    "astra_sim/v2_8nodes.topo": {"npus": 8, "tiers": 3},
    "simgrid/griffon.xml": {"zones": 1, "clusters": 3, "cluster_hosts": 92, "links": 1, "zoneRoutes": 3},
    "simgrid/g5k.xml": {"zones": 26, "clusters": 40, "cluster_hosts": 1528, "links": 46, "routes": 9, "routers": 22},
    "simgrid/small_platform_failures.xml": {"hosts": 5, "links": 12, "routes": 15},
    "simgrid/cluster_fat_tree.xml": {"cluster_hosts": 16, "topologies": ["FAT_TREE"]},
    "simgrid/cluster_torus.xml": {"cluster_hosts": 12, "topologies": ["TORUS"]},
    "simgrid/cluster_backbone.xml": {"zones": 0, "cluster_hosts": 100},
}  # fmt: skip


@pytest.mark.parametrize("name", READINGS)
def test_real_files_are_read_as_an_independent_reader_did(name: str, samples: Path) -> None:
    facts = read_topology(samples / name).machines[0].facts
    assert {key: facts[key] for key in READINGS[name]} == READINGS[name]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_damaged_real_files_never_end_in_a_traceback(folder: str, samples: Path, tmp_path: Path) -> None:
    for path in sorted((samples / folder).iterdir()):
        for data in damaged(path.read_bytes()[:20_000], sampled=3):
            assert outcome(tmp_path / path.name, data)  # never a traceback
