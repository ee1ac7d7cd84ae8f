"""InfiniBand fabrics as tools list them, cable by cable from either end: checks, remarks, and the machine.

Adapters of one host are one node; aggregation nodes of switches are none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, Node, Wire
from simnet.importers.devices import chosen_device
from simnet.importers.machine import Machine, Remarks
from simnet.importers.wires import infiniband, infiniband_rate, infiniband_sum

_AGGREGATION = "Aggregation Node"
# Latency between switches over that from adapter to adapter: about 0.2 of 0.9 us.
_HOP = 0.22

End = tuple[str, int]


@dataclass(slots=True)
class Found:
    """What the lines say; ports[(vertex, port)] is the other end and the rate."""

    format: str
    names: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    described: dict[str, None] = field(default_factory=dict)
    ports: dict[End, tuple[End, str]] = field(default_factory=dict)
    unconnected: int = 0
    lines: int = 0

    def describe(self, vertex: str, kind: str, name: str) -> None:
        """Take a switch ("Switch") or an adapter ("Ca") that has a record of its own."""
        self.kinds[vertex] = kind
        if name:
            self.names[vertex] = name.strip()
        self.described[vertex] = None

    def connect(self, here: End, there: End, rate: str, where: str) -> None:
        """Take a cable as one end lists it."""
        self.lines += 1
        known = self.ports.setdefault(here, (there, rate))
        if known != (there, rate):
            raise InvalidInput(f"{where}: port {here[1]} of {here[0]} leads to two places; lines were mixed up")


Cable = tuple[End, End]


@dataclass(slots=True)
class _Fabric:
    """Cables with their rates, how many are listed from one end only, and the ports of hosts."""

    name: str
    found: Found
    cables: dict[Cable, str] = field(default_factory=dict)
    single: int = 0
    hosts: dict[str, list[End]] = field(default_factory=dict)

    def is_switch(self, vertex: str) -> bool:
        return self.found.kinds.get(vertex) == "Switch"

    def called(self, vertex: str) -> str:
        name = self.found.names.get(vertex, "")
        return f"{vertex} ({name})" if name else vertex


def _joined(found: Found, name: str, remarks: Remarks) -> _Fabric:
    fabric = _Fabric(name, found)
    for here, (there, rate) in found.ports.items():
        back = found.ports.get(there)
        if back is None:
            fabric.single += 1
        elif back[0] == here and back[1] != rate:
            slower = min(rate, back[1], key=lambda one: infiniband_rate(one) or 0.0)
            fabric.cables[min(here, there), max(here, there)] = slower
            a, b = sorted((here, there))
            ends = f"port {a[1]} of {fabric.called(a[0])} and port {b[1]} of {fabric.called(b[0])}"
            remarks.warn(f"{ends} are one cable and state {' and '.join(sorted((rate, back[1])))}: {slower} was taken")
            continue
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


def machine(found: Found, name: str, device: str | None, remarks: Remarks) -> Machine:
    """Join the cables of a file, look at them, and make a machine of them.

    Raises
    ------
    InvalidInput : a cable whose ends contradict.
    """
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
    return Cluster(name, summary, node, len(hosts), network, {"file": f"{name}, {fabric.found.format}"})


def _rows(fabric: _Fabric, places: dict[End, str]) -> tuple[tuple[str, ...], dict[str, Wire]]:
    """Links as "from to wire count", cables between the same two ends taken together."""
    joined: dict[tuple[str, str], Counter[str]] = {}
    up: dict[tuple[str, str], bool] = {}
    for (a, b), rate in fabric.cables.items():
        first, second = (places.get(end) or (end[0] if fabric.is_switch(end[0]) else "") for end in (a, b))
        if first and second:
            joined.setdefault((first, second), Counter())[rate] += 1
            up[first, second] = all(fabric.is_switch(end[0]) for end in (a, b))
    rows, wires = [], dict[str, Wire]()
    for ends, rates in joined.items():
        kind, latency = ("up", _HOP) if up[ends] else ("port", 0.5)
        if len(rates) == 1:
            (rate, count), key = next(iter(rates.items())), f"{kind}_{next(iter(rates))}"
            wires[key] = infiniband(rate, fabric.name, latency=latency)
        else:
            key, count = f"{kind}_" + "_".join(f"{n}_{rate}" for rate, n in sorted(rates.items())), 1
            wires[key] = infiniband_sum(rates, fabric.name, latency=latency)
        rows.append(f"{ends[0]} {ends[1]} {key} {count}")
    return tuple(rows), wires
