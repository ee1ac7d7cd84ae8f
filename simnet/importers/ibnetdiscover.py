"""Fabrics as `ibnetdiscover` prints them: records of switches and adapters, or with -p one line per port.

Every cable is listed from both ends. Adapters of one host are one node; aggregation nodes of switches are none.

Source: ibnetdiscover(8) of rdma-core, sections TOPOLOGY FILE FORMAT and -p.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, Node, Wire
from simnet.importers.devices import chosen_device
from simnet.importers.machine import Machine, Remarks
from simnet.importers.wires import infiniband, infiniband_rate

FORMAT = "ibnetdiscover"

_HEAD = re.compile(r'^(Switch|Ca|Rt)\s+(\d+)\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(
    r'^\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\([0-9a-fA-F]+\))?\s*#\s*(.*?)'
    r"\s(\d+x[A-Z]+\d*)((?:\s+\w=\d+)*)\s*$"
)
_LOOKS_LIKE_PORT = re.compile(r"^\s*\[\d*\]?")
_REPORT = re.compile(r"^\s*(CA|SW|RT)\s+(\d+)\s+(\d+)\s+(0x[0-9a-fA-F]{16})\s+(\d+x)\s+(\S+)\s*(.*?)\s*$")
_REMOTE = re.compile(r"^-\s+(CA|SW|RT)\s+(\d+)\s+(\d+)\s+(0x[0-9a-fA-F]{16})\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)$")
_AGGREGATION = "Aggregation Node"
# Latency between switches over that from adapter to adapter: about 0.2 of 0.9 us.
_HOP = 0.22
_OTHER_LINES = re.compile(r"^\s*(#.*|(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=\S*.*)?$")

End = tuple[str, int]


def detect(text: str) -> bool:
    """Whether a record, or a line of a -p report, stands in the text."""
    return any(_HEAD.match(line) or _REPORT.match(line) for line in text.splitlines())


@dataclass(slots=True)
class _Found:
    """What the lines say; ports[(vertex, port)] is the other end and the rate."""

    names: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    described: dict[str, None] = field(default_factory=dict)
    ports: dict[End, tuple[End, str]] = field(default_factory=dict)
    unconnected: int = 0
    lines: int = 0

    def describe(self, vertex: str, kind: str, name: str) -> None:
        self.kinds[vertex] = kind
        if name:
            self.names[vertex] = name.strip()
        self.described[vertex] = None

    def connect(self, here: End, there: End, rate: str, where: str) -> None:
        self.lines += 1
        known = self.ports.setdefault(here, (there, rate))
        if known != (there, rate):
            raise InvalidInput(f"{where}: port {here[1]} of {here[0]} leads to two places; lines were mixed up")


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read the one fabric of the file.

    Raises
    ------
    InvalidInput : a port line that cannot be read, a port with two other ends, a cable whose ends contradict.
    """
    lines = text.splitlines()
    report = any(_REPORT.match(line) for line in lines)
    remarks = Remarks()
    found = (_read_report if report else _read_records)(lines, name, remarks)
    return [_machine(found, name, device, remarks)]


def _read_records(lines: Sequence[str], name: str, remarks: Remarks) -> _Found:
    found, here = _Found(), ""
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        if head := _HEAD.match(line):
            here = head[3]
            if here in found.described:
                raise InvalidInput(f"{where}: a second record of {here}; lines were doubled or files joined")
            found.describe(here, head[1], head[4] or "")
        elif port := _PORT.match(line):
            if not here:
                raise InvalidInput(f"{where}: a port before any switch or adapter; lines were lost or mixed up")
            found.connect((here, int(port[1])), (port[2], int(port[3])), port[5], where)
            _remember(found, port[2], port[4])
        elif _LOOKS_LIKE_PORT.match(line) and line.strip():
            raise InvalidInput(
                f"{where}: a port that cannot be read, {line.strip()[:60]!r}; the file was cut or damaged"
            )
        elif not _OTHER_LINES.match(line):
            remarks.skip(f"line {number}: {line.strip()[:60]!r}")
    return found


def _remember(found: _Found, vertex: str, comment: str) -> None:
    quoted = re.search(r'"([^"]*)"', comment)
    found.kinds.setdefault(vertex, {"S": "Switch", "H": "Ca", "R": "Rt"}[vertex[0]])
    if quoted and vertex.startswith("H-"):
        found.names.setdefault(vertex, quoted[1].strip())


def _read_report(lines: Sequence[str], name: str, remarks: Remarks) -> _Found:
    found = _Found()
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        row = _REPORT.match(line)
        if row is None:
            if line.strip() and not line.lstrip().startswith("#"):
                remarks.skip(f"line {number}: {line.strip()[:60]!r}")
            continue
        here = (_guid(row[1], row[4]), int(row[3]))
        if not row[7].startswith("-"):
            found.describe(here[0], _KINDS[row[1]], row[7].strip("' "))
            found.unconnected += 1
            continue
        remote = _REMOTE.match(row[7])
        if remote is None:
            raise InvalidInput(f"{where}: the other end cannot be read, {row[7][:60]!r}; the file was cut or damaged")
        there = (_guid(remote[1], remote[4]), int(remote[3]))
        found.describe(here[0], _KINDS[row[1]], remote[5])
        found.kinds.setdefault(there[0], _KINDS[remote[1]])
        found.names.setdefault(there[0], remote[6].strip())
        found.connect(here, there, row[5] + row[6], where)
    return found


_KINDS = {"CA": "Ca", "SW": "Switch", "RT": "Rt"}


def _guid(kind: str, text: str) -> str:
    return f"{'H' if kind == 'CA' else 'S'}-{text[2:]}"


Cable = tuple[End, End]


@dataclass(slots=True)
class _Fabric:
    """Cables with their rates, how many are listed from one end only, and the ports of hosts."""

    name: str
    found: _Found
    cables: dict[Cable, str] = field(default_factory=dict)
    single: int = 0
    hosts: dict[str, list[End]] = field(default_factory=dict)

    def is_switch(self, vertex: str) -> bool:
        return self.found.kinds.get(vertex) == "Switch"

    def called(self, vertex: str) -> str:
        name = self.found.names.get(vertex, "")
        return f"{vertex} ({name})" if name else vertex


def _joined(found: _Found, name: str, remarks: Remarks) -> _Fabric:
    fabric = _Fabric(name, found)
    for here, (there, rate) in found.ports.items():
        back = found.ports.get(there)
        if back is None:
            fabric.single += 1
        elif back != (here, rate):
            text = (
                f"port {here[1]} of {fabric.called(here[0])} leads to port {there[1]} of {fabric.called(there[0])} at "
                f"{rate}, which leads to port {back[0][1]} of {fabric.called(back[0][0])} at {back[1]}"
            )
            if not any(_AGGREGATION in found.names.get(end[0], "") for end in (here, there)):
                raise InvalidInput(f"{name}: {text}; the file is damaged")
            remarks.warn(f"{text}: left out")
            continue
        fabric.cables[min(here, there), max(here, there)] = rate
    fabric.hosts = _hosts(fabric)
    return fabric


def _machine(found: _Found, name: str, device: str | None, remarks: Remarks) -> Machine:
    fabric = _joined(found, name, remarks)
    facts, cables = _facts(fabric), fabric.cables
    _inspect(fabric, remarks)
    unknown = sorted({rate for rate in cables.values() if infiniband_rate(rate) is None})
    if unknown:
        return remarks.machine(name, None, facts, f"the rate {unknown[0]} is none that is known")
    if not fabric.hosts:
        return remarks.machine(name, None, facts, "no adapter is connected to a switch")
    lost = _unreached(fabric)
    if lost:
        reason = f"{', '.join(lost)} cannot reach {next(iter(fabric.hosts))}: cables between their switches are missing"
        return remarks.machine(name, None, facts, reason)
    return remarks.machine(name, _cluster(fabric, device, remarks), facts)


def _facts(fabric: _Fabric) -> dict[str, Any]:
    found = fabric.found
    kinds = Counter(found.kinds[vertex] for vertex in found.described)
    return {
        "switches": kinds["Switch"],
        "adapters": kinds["Ca"],
        "nodes_described": len(found.described),
        "port_lines": found.lines + found.unconnected,
        "connected_ports": found.lines,
        "unconnected_ports": found.unconnected,
        "links": len(fabric.cables),
        "switch_links": sum(fabric.is_switch(a) and fabric.is_switch(b) for (a, _), (b, _) in fabric.cables),
        "rates": dict(Counter(rate for _, rate in found.ports.values())),
        "lines_without_reverse": fabric.single,
        "referenced_not_described": len(set(found.kinds) - set(found.described)),
    }


def _inspect(fabric: _Fabric, remarks: Remarks) -> None:
    rates = Counter(fabric.cables.values())
    usual = rates.most_common(1)[0][0] if rates else ""
    for ((a, p), (b, q)), rate in fabric.cables.items():
        if (infiniband_rate(rate) or 0.0) < (infiniband_rate(usual) or 0.0):
            ends = f"port {p} of {fabric.called(a)} to port {q} of {fabric.called(b)}"
            remarks.warn(f"{ends} runs at {rate}, not {usual}")
    for vertex in sorted(set(fabric.found.kinds) - set(fabric.found.described)):
        remarks.warn(f"{fabric.called(vertex)} is named by others and has no record of its own")
    if fabric.single:
        count = f"{fabric.single} of {len(fabric.cables)} cables"
        remarks.warn(f"{count} are listed from one end only; lines may have been lost")


def _hosts(fabric: _Fabric) -> dict[str, list[End]]:
    """Ports of adapters by host, aggregation nodes left out."""
    found = fabric.found
    hosts: dict[str, list[End]] = {}
    for cable in sorted(fabric.cables):
        for end, other in (cable, cable[::-1]):
            vertex = end[0]
            name = found.names.get(vertex, vertex)
            if found.kinds[vertex] != "Ca" or not fabric.is_switch(other[0]) or vertex not in found.described:
                continue
            if _AGGREGATION not in name:
                hosts.setdefault((name.split() or [vertex])[0], []).append(end)
    return hosts


def _unreached(fabric: _Fabric) -> list[str]:
    """Hosts that no path joins with the first one; adapters do not forward."""
    neighbours: dict[str, list[str]] = {}
    for (a, _), (b, _) in fabric.cables:
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    start = next(iter(fabric.hosts.values()))[0][0]
    reached, queue = {start}, [start]
    while queue:
        here = queue.pop()
        if here != start and not fabric.is_switch(here):
            continue
        fresh = [vertex for vertex in neighbours.get(here, ()) if vertex not in reached]
        reached.update(fresh)
        queue += fresh
    return [host for host, ends in fabric.hosts.items() if any(end[0] not in reached for end in ends)]


def _cluster(fabric: _Fabric, wanted: str | None, remarks: Remarks) -> Cluster:
    hosts, name = fabric.hosts, fabric.name
    if len(set(map(len, hosts.values()))) > 1:
        remarks.assume("hosts differ in their number of adapters: every adapter was taken as a node of its own")
        hosts = {f"{host}.{i}": [end] for host, ends in hosts.items() for i, end in enumerate(ends)}
    per_node = len(next(iter(hosts.values())))
    remarks.assume("one device per port of an adapter: the file does not tell what a host holds")
    remarks.assume("latencies are not in the file: those of the catalogue for adapters, 0.2 us between switches")
    places = {end: f"n{n}/dev{i}" for n, ends in enumerate(hosts.values()) for i, end in enumerate(ends)}
    rows, wires = _rows(fabric, places)
    chosen = chosen_device(wanted, None, False, remarks)
    summary = f"{len(hosts)} nodes of {per_node} adapter ports, {len(fabric.cables)} cables, as in {name}"
    node = Node(chosen, per_node, Layout("single"))
    network = Layout("drawn_network", wires, {"links": rows})
    return Cluster(name, summary, node, len(hosts), network, {"file": f"{name}, {FORMAT}"})


def _rows(fabric: _Fabric, places: dict[End, str]) -> tuple[tuple[str, ...], dict[str, Wire]]:
    """Links as "from to wire count", cables between the same two ends taken together."""
    wires: dict[str, Wire] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for (a, b), rate in fabric.cables.items():
        ends = [places.get(end) or (end[0] if fabric.is_switch(end[0]) else "") for end in (a, b)]
        if not all(ends):
            continue
        up = all(fabric.is_switch(end[0]) for end in (a, b))
        key = f"{'up' if up else 'port'}_{rate}"
        wires[key] = infiniband(rate, fabric.name, latency=_HOP if up else 0.5)
        counts[ends[0], ends[1], key] += 1
    return tuple(f"{a} {b} {key} {count}" for (a, b, key), count in counts.items()), wires
