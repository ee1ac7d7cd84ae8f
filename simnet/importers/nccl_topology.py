"""Topology XML as NCCL and RCCL read and dump it: one node, its PCIe tree, NVLinks or xGMI links, NICs.

Source: NVIDIA/nccl, src/graph/xml.cc (elements and attributes); PCI SIG class codes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from xml.etree.ElementTree import Element

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, Node, Wire
from simnet.importers.devices import chosen_device
from simnet.importers.machine import Machine, Remarks
from simnet.importers.nearest import nearest_ports, ring_order
from simnet.importers.wires import pcie, pcie_raw, port, wire
from simnet.importers.xml import first_element, parse_xml

FORMAT = "NCCL topology XML"

_GPU_CLASSES, _NIC_CLASSES = ("0x0300", "0x0302", "0x1200"), ("0x0200", "0x0207")
_NVSWITCH = "0x068000"
_KNOWN = ("system", "cpu", "pci", "gpu", "nic", "net", "nvlink", "xgmi")
_NVLINK_BY_SM = {60: "nvlink1", 70: "nvlink2", 80: "nvlink3", 90: "nvlink4"}
SLOWEST_RAW = 2e9


def detect(text: str) -> bool:
    """Whether the first element is one of NCCL's files."""
    return first_element(text) in ("system", "graphs", "algo")


@dataclass(frozen=True, slots=True)
class _Port:
    """A GPU, NIC or bridge as a vertex, and its link up."""

    vertex: str
    parent: str
    kind: str
    element: Element
    raw: float | None

    @property
    def where(self) -> str:
        busid = self.element.get("busid", "")
        return self.vertex if self.vertex.endswith(busid) or not busid else f"{self.vertex} ({busid})"


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read the one machine of the file.

    Raises
    ------
    InvalidInput : not well-formed, another kind of NCCL file, two devices of one bus id, a link to none.
    """
    root = parse_xml(text, name)
    if root.tag == "graphs":
        raise InvalidInput(
            f"{name} is a graph NCCL found (<graphs>), not a topology; dump that with NCCL_TOPO_DUMP_FILE"
        )
    if root.tag == "algo":
        raise InvalidInput(
            f"{name} is an MSCCL algorithm (<algo>), not a topology; check it with simnet verify --msccl"
        )
    return [_Reader(root, name, device).machine()]


class _Reader:
    def __init__(self, root: Element, name: str, device: str | None) -> None:
        self.root, self.name, self.wanted = root, name, device
        self.remarks = Remarks()
        self.ports: list[_Port] = []
        self.nets: dict[str, float] = {}
        for cpu in root.iter("cpu"):
            self._walk(cpu, f"cpu{cpu.get('numaid', '0')}")
        self.gpus = sorted((p for p in self.ports if p.kind == "gpu"), key=lambda p: int(p.vertex[3:]))
        self._require_sound()

    def machine(self) -> Machine:
        facts = self._facts()
        for tag, count in Counter(str(element.tag) for element in self.root.iter()).items():
            if tag not in _KNOWN:
                self.remarks.skip(f"{count} elements <{tag}>: not in the model")
        if not self.gpus:
            reason = "no element and no PCI class says which devices are GPUs"
            return self.remarks.machine(self.name, None, facts, reason)
        self._inspect()
        return self.remarks.machine(self.name, self._cluster(), facts)

    def _walk(self, element: Element, parent: str) -> None:
        for child in element:
            if child.tag == "nic":
                self._add_nets(child, parent, None)
            if child.tag != "pci":
                continue
            kind = self._kind(child)
            vertex = self._vertex(kind, child)
            raw = pcie_raw(child.get("link_speed", ""), _whole(child, "link_width", self.name))
            self.ports.append(_Port(vertex, parent, kind, child, raw))
            if kind == "nic":
                self._add_nets(child, vertex, vertex)
            self._walk_below(child, vertex)

    def _walk_below(self, element: Element, vertex: str) -> None:
        bridges = [child for child in element if child.tag == "pci"]
        if bridges:
            self._walk(element, vertex)

    def _kind(self, element: Element) -> str:
        if element.find("gpu") is not None:
            return "gpu"
        if element.find("nic/net") is not None or element.find("nic") is not None:
            return "nic"
        kind = element.get("class", "")
        if element.find("pci") is None and kind.startswith(_GPU_CLASSES):
            return "gpu"
        return "nic" if element.find("pci") is None and kind.startswith(_NIC_CLASSES) else "bridge"

    def _vertex(self, kind: str, element: Element) -> str:
        if kind == "bridge":
            return f"pci-{element.get('busid', '?')}"
        gpu = element.find("gpu")
        if gpu is not None:
            return f"gpu{_whole(gpu, 'dev', self.name)}"
        return f"{kind}{sum(p.kind == kind for p in self.ports)}"

    def _add_nets(self, element: Element, parent: str, vertex: str | None) -> None:
        nets = list(element.iter("net")) if vertex is None else list(element.findall("nic/net"))
        for net in nets:
            speed = float(_whole(net, "speed", self.name))
            if vertex is None:
                vertex = f"nic{sum(p.kind == 'nic' for p in self.ports)}"
                self.ports.append(_Port(vertex, parent, "nic", net, None))
            self.nets[vertex] = self.nets.get(vertex, 0.0) + speed

    def _require_sound(self) -> None:
        names = Counter(p.vertex for p in self.ports)
        ids = Counter(e.get("busid") for e in self.root.iter("pci"))
        for what, counts in (("device", names), ("bus id", ids)):
            twice = next((key for key, count in counts.items() if count > 1), None)
            if twice is not None:
                raise InvalidInput(f"{self.name} has the {what} {twice} twice; its lines were doubled or mixed up")
        for index, gpu in enumerate(self.gpus):
            if int(gpu.vertex[3:]) != index:
                raise InvalidInput(f"{self.name} lacks gpu{index}; its lines were dropped or mixed up")

    def _facts(self) -> dict[str, Any]:
        pcis, nets = list(self.root.iter("pci")), list(self.root.iter("net"))
        links = [e for tag in ("nvlink", "xgmi") for e in self.root.iter(tag)]
        return {
            "version": self.root.get("version"),
            "cpus": sum(1 for _ in self.root.iter("cpu")),
            "pcis": len(pcis),
            "gpus": sum(1 for _ in self.root.iter("gpu")),
            "devices": len(self.gpus),
            "nets": len(nets),
            "net_names": [net.get("name", "") for net in nets],
            "net_speeds_mbit_per_s": sorted({_whole(net, "speed", self.name) for net in nets}),
            "pci_classes": dict(Counter(e.get("class", "") for e in pcis)),
            "link_speeds": sorted({e.get("link_speed", "") for e in pcis} - {""}),
            "device_links": len(links),
            "device_link_count": sum(_whole(e, "count", self.name) for e in links),
        }

    def _inspect(self) -> None:
        widest = max((_whole(p.element, "link_width", self.name) for p in self.gpus), default=0)
        for one in self.ports:
            if one.raw is not None and one.raw < SLOWEST_RAW:
                self.remarks.warn(f"PCIe link of {one.where} carries {one.raw / 1e9:.2g} GB/s ({_link(one)})")
            width = _whole(one.element, "link_width", self.name)
            if one.kind == "gpu" and 0 < width < max(widest, 16):
                self.remarks.warn(f"PCIe link of {one.where} is at width {width} of {max(widest, 16)}")
            speed = self.nets.get(one.vertex, 0.0) * 1e6 / 8
            if one.raw is not None and speed > one.raw:
                self.remarks.warn(
                    f"{one.where} has {speed / 1e9:.3g} GB/s of ports behind {one.raw / 1e9:.3g} GB/s of PCIe"
                )
        for bridge in (p for p in self.ports if p.kind == "bridge"):
            nics = [p.vertex for p in self.ports if p.kind == "nic" and p.parent == bridge.vertex]
            if len(nics) > 1:
                carries = "an unknown rate" if bridge.raw is None else f"{bridge.raw / 1e9:.3g} GB/s"
                self.remarks.warn(f"{' and '.join(nics)} share one bridge, {bridge.where}, which carries {carries}")

    def _cluster(self) -> Cluster:
        rows, wires = self._rows()
        devices = ring_order([gpu.vertex for gpu in self.gpus], self._pairs())
        if devices != tuple(gpu.vertex for gpu in self.gpus):
            self.remarks.assume(f"ranks follow a cycle of direct links: {' '.join(devices)}")
        nics = [p.vertex for p in self.ports if p.kind == "nic"]
        ports = nearest_ports(rows, devices, nics)
        options = {"devices": devices, "ports": ports, "links": tuple(rows)}
        chosen = chosen_device(self.wanted, self._sm(), bool(self._pairs()), self.remarks)
        node = Node(chosen, len(devices), Layout("drawn_node", wires, options))
        network = Layout("single_switch", {"port": self._port(nics)})
        if self.root.find(".//gpu") is None:
            self.remarks.assume("the file is a hint with PCI ids alone: NVLinks are not in it, devices talk over PCIe")
        summary = f"{len(devices)} x {chosen.name}, {len(nics)} NICs, as in {self.name}"
        return Cluster(self.name, summary, node, 1, network, {"file": f"{self.name}, {FORMAT}"})

    def _sm(self) -> int | None:
        found = {_whole(e, "sm", self.name) for e in self.root.iter("gpu") if e.get("gcn") is None and e.get("sm")}
        return found.pop() if len(found) == 1 else None

    def _port(self, nics: list[str]) -> Wire:
        speeds = sorted({self.nets.get(nic, 0.0) for nic in nics})
        if not speeds or speeds[0] == 0:
            self.remarks.assume("the file gives no speed of the NICs: 12.5 GB/s a port, used only with several nodes")
            return wire("ideal")
        if len(speeds) > 1:
            self.remarks.warn(
                f"NICs differ in speed, {speeds[0]:g} to {speeds[-1]:g} Mbit/s; the slowest stands for all"
            )
        return port(speeds[0], self.name)

    def _rows(self) -> tuple[list[str], dict[str, Wire]]:
        rows: list[str] = []
        wires: dict[str, Wire] = {}
        for one in self.ports:
            key, made = self._link_up(one)
            wires[key] = made
            rows.append(f"{one.vertex} {one.parent} {key}")
        cpus = [f"cpu{cpu.get('numaid', '0')}" for cpu in self.root.iter("cpu")]
        if len(cpus) > 1:
            wires["socket"] = wire("memory")
            self.remarks.assume("links between processors are not in the file: 16 to 60 GB/s")
            rows += [f"{a} {b} socket" for a, b in combinations(cpus, 2)]
        return [*rows, *self._device_rows(wires)], wires

    def _link_up(self, one: _Port) -> tuple[str, Wire]:
        share = 0.5 if one.kind == "gpu" else 0.0
        if one.raw is not None:
            key = f"{'slot' if one.kind == 'gpu' else 'pcie'}_{_link(one)}".replace(" ", "").replace("/", "")
            return re.sub(r"[^A-Za-z0-9_]", "_", key), pcie(one.raw, f"{self.name}: {_link(one)}", latency=share)
        if one.vertex in self.nets and one.element.tag == "net":
            return f"net_{self.nets[one.vertex]:.0f}", port(self.nets[one.vertex], self.name)
        self.remarks.assume(f"speed of the PCIe links of {one.kind}s is not in the file: PCI Express 4, 16 lanes")
        return f"open_{one.kind}", wire("pcie4-x16", latency=share)

    def _pairs(self) -> dict[tuple[str, str], int]:
        """NVLinks or xGMI links by the two vertices, nvswitch being one vertex."""
        by_id = {p.element.get("busid"): p.vertex for p in self.ports if p.kind == "gpu"}
        pairs: dict[tuple[str, str], int] = {}
        for gpu in self.gpus:
            for link in [e for tag in ("nvlink", "xgmi") for e in gpu.element.findall(f"gpu/{tag}")]:
                target, count = link.get("target", ""), _whole(link, "count", self.name)
                switch = link.get("tclass") == _NVSWITCH
                other = "nvswitch" if switch else by_id.get(target)
                if other is None:
                    raise InvalidInput(f"{self.name}: {gpu.where} links to {target}, which is no GPU of the file")
                if other == gpu.vertex:
                    self.remarks.warn(f"{gpu.where} has {count} links to itself, which were left out")
                    continue
                if switch:
                    pairs[gpu.vertex, other] = pairs.get((gpu.vertex, other), 0) + count
                else:
                    self._agree(pairs, (min(gpu.vertex, other), max(gpu.vertex, other)), count)
        return pairs

    def _agree(self, pairs: dict[tuple[str, str], int], key: tuple[str, str], count: int) -> None:
        before = pairs.setdefault(key, count)
        if before != count:
            pairs[key] = min(before, count)
            counts = f"{before} and {count} links"
            self.remarks.warn(f"{key[0]} and {key[1]} count {counts} between them; the fewer were taken")

    def _device_rows(self, wires: dict[str, Wire]) -> Iterator[str]:
        pairs = self._pairs()
        if not pairs:
            return
        is_xgmi = next(self.root.iter("xgmi"), None) is not None
        sm = self._sm() or 0
        name = "xgmi" if is_xgmi else _NVLINK_BY_SM.get(sm - sm % 10, "nvlink3")
        wires["device_link"] = wire(name)
        if any(b == "nvswitch" for _, b in pairs):
            wires["switch_link"] = wire(name, latency=0.5)
        for (a, b), count in pairs.items():
            yield f"{a} {b} {'switch_link' if b == 'nvswitch' else 'device_link'} {count}"


def _link(one: _Port) -> str:
    speed = one.element.get("link_speed", "").replace(" PCIe", "")
    return f"{speed} x {one.element.get('link_width', '')}"


def _whole(element: Element, key: str, name: str) -> int:
    text = element.get(key, "0") or "0"
    if not re.fullmatch(r"\d{1,9}", text):
        raise InvalidInput(f"{name}: {key} of <{element.tag}> must be a whole number, got {text!r}")
    return int(text)
