"""Platform files of SimGrid: clusters by topology, and zones of hosts with routes over named links.

Every <cluster> is a machine, and so is every zone that lists hosts and the routes between all of them.

Source: SimGrid 3.3x, XML reference (units, clusters, sharing policies).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import Element

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, Node, Option, Quantity, Wire
from simnet.importers.devices import chosen_device
from simnet.importers.machine import Machine, Remarks
from simnet.importers.wires import exact, wire
from simnet.importers.xml import first_element, parse_xml
from simnet.units import BytesPerSecond, Seconds

FORMAT = "SimGrid platform"

_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_BANDWIDTH = re.compile(r"\s*([0-9.]+(?:[eE][-+]?\d+)?)\s*(k|M|G|T|Ki|Mi|Gi|Ti)?(Bps|bps)\s*")
_LATENCY = re.compile(r"\s*([0-9.]+(?:[eE][-+]?\d+)?)\s*(ps|ns|us|ms|s)?\s*")
_SECONDS = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, None: 1.0}
_MOST_HOSTS = 4096


def detect(text: str) -> bool:
    """Whether the first element is <platform>."""
    return first_element(text) == "platform"


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read one machine per cluster and per zone of hosts.

    Raises
    ------
    InvalidInput : not well-formed, a unit nobody knows, an id twice, a route over a link that is not there.
    """
    root = parse_xml(text, name)
    if root.tag != "platform":
        raise InvalidInput(f"{name} begins with <{root.tag}>, no platform of SimGrid")
    facts = _facts(root, name)
    _require_unique(root, name)
    machines = [_cluster_machine(one, name, facts, device) for one in root.iter("cluster")]
    machines += [_zone_machine(zone, name, facts, device) for zone in _zones(root)]
    return machines or [Remarks().machine(name, None, facts, "the platform has no host and no cluster")]


def _zones(root: Element) -> list[Element]:
    tags = ("zone", "AS")
    return [zone for tag in tags for zone in root.iter(tag) if zone.find("host") is not None]


def _facts(root: Element, name: str) -> dict[str, Any]:
    clusters = list(root.iter("cluster"))
    counts = {tag: sum(1 for _ in root.iter(tag)) for tag in ("zone", "host", "link", "route", "zoneRoute", "router")}
    return {
        "version": root.get("version"),
        **{f"{tag}s": count for tag, count in counts.items()},
        "clusters": len(clusters),
        "cluster_hosts": sum(len(_radical(one.get("radical", ""), name)) for one in clusters),
        "topologies": sorted({one.get("topology", "(default)") for one in clusters}),
    }


def _require_unique(root: Element, name: str) -> None:
    for zone in root.iter():
        for tag in ("host", "link", "cluster", "router"):
            twice = [i for i, count in Counter(e.get("id") for e in zone.findall(tag)).items() if count > 1]
            if twice:
                raise InvalidInput(f"{name} has the {tag} {twice[0]!r} twice in one zone; its lines were doubled")


def _radical(text: str, name: str) -> list[int]:
    """Numbers of hosts that "0-3,7" stands for."""
    numbers: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise InvalidInput(f"{name}: a radical is ranges such as 0-99,120, got {text!r}")
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return numbers


def _bandwidth(text: str | None, where: str) -> BytesPerSecond:
    match = _BANDWIDTH.fullmatch(text or "")
    if match is None or not float(match[1]) > 0:
        raise InvalidInput(f"{where}: a bandwidth needs a unit such as 125MBps or 1Gbps, got {text!r}")
    return float(match[1]) * _PREFIX[match[2] or ""] / (8 if match[3] == "bps" else 1)


def _latency(text: str | None, where: str) -> Seconds:
    match = _LATENCY.fullmatch(text or "0")
    if match is None or (match[2] is None and float(match[1]) != 0):
        raise InvalidInput(f"{where}: a latency needs a unit such as 50us, got {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def _wire(bandwidth: BytesPerSecond, latency: Seconds, name: str) -> Wire:
    found = wire("ideal", bandwidth=exact(bandwidth, name))
    return replace(found, link=replace(found.link, latency=Quantity(latency, latency, latency, name)))


def _finished(name: str, num_nodes: int, network: Layout, device: str | None, remarks: Remarks) -> Cluster:
    remarks.assume("speeds of hosts (flop/s) stay in the file: a SimGrid host is one device here")
    chosen = chosen_device(device, None, False, remarks)
    summary = f"{num_nodes} hosts on {network.topology}, as in {name}"
    return Cluster(name, summary, Node(chosen, 1, Layout("single")), num_nodes, network, {"file": f"{name}, {FORMAT}"})


def _cluster_machine(one: Element, name: str, facts: dict[str, Any], device: str | None) -> Machine:
    label = f"{name}-{one.get('id', '')}"
    remarks = Remarks()
    hosts = len(_radical(one.get("radical", ""), name))
    if facts["clusters"] > 1:
        remarks.skip(f"the links between the {facts['clusters']} clusters of the file: each is a machine of its own")
    facts = facts | {"hosts_here": hosts}
    made = _layout(one, label, hosts, remarks)
    if isinstance(made, str):
        return remarks.machine(label, None, facts, made)
    return remarks.machine(label, _finished(label, hosts, made, device, remarks), facts)


def _layout(one: Element, label: str, hosts: int, remarks: Remarks) -> Layout | str:
    """The network of a <cluster>, or why it cannot be built."""
    bandwidth, latency = _bandwidth(one.get("bw"), label), _latency(one.get("lat"), label)
    if one.get("sharing_policy", "SPLITDUPLEX") != "SPLITDUPLEX":
        remarks.assume("links that both directions share were taken as full duplex")
    if one.get("limiter_link"):
        remarks.skip("limiter_link: not in the model")
    parameters = one.get("topo_parameters", "")
    match one.get("topology", "FLAT").upper():
        case "FLAT":
            return _flat(one, label, _wire(bandwidth, 2 * latency, label))
        case "TORUS":
            return _torus(parameters, hosts, label, _wire(bandwidth, latency, label))
        case "FAT_TREE":
            wires = {"port": _wire(bandwidth, 2 * latency, label), "hop": _wire(bandwidth, latency, label)}
            return _fat_tree(parameters, hosts, label, wires)
        case other:
            return f"clusters of topology {other} are not built from a file; write one with simnet's dragonfly"


def _flat(one: Element, label: str, port: Wire) -> Layout:
    if not one.get("bb_bw"):
        return Layout("single_switch", {"port": port})
    shared = _wire(_bandwidth(one.get("bb_bw"), label), _latency(one.get("bb_lat"), label), label)
    return Layout("backbone", {"port": port, "shared": shared})


def _numbers(text: str, label: str) -> list[int]:
    if not re.fullmatch(r"\s*\d{1,6}(\s*,\s*\d{1,6})*\s*", text) or 0 in (found := [int(n) for n in text.split(",")]):
        raise InvalidInput(f"{label}: topology parameters must be whole numbers from 1, got {text!r}")
    return found


def _torus(parameters: str, hosts: int, label: str, link: Wire) -> Layout:
    """SimGrid counts hosts along the first dimension first."""
    sides = tuple(reversed(_numbers(parameters, label)))
    _require_hosts(label, hosts, sides)
    return Layout("torus", {"link": link}, {"dims": sides, "wrap": True})


def _fat_tree(parameters: str, hosts: int, label: str, wires: dict[str, Wire]) -> Layout | str:
    """Parameters "levels; children by level; parents by level; cables by level", the lowest level first."""
    parts = parameters.split(";")
    if len(parts) != 4:
        raise InvalidInput(f"{label}: a FAT_TREE needs four parameters between semicolons, got {parameters!r}")
    (levels,), down, up, cables = (_numbers(part, label) for part in parts)
    if not len(down) == len(up) == len(cables) == levels:
        raise InvalidInput(f"{label}: a FAT_TREE of {levels} levels needs {levels} numbers each, got {parameters!r}")
    if up[0] != 1 or cables[0] != 1 or levels not in (2, 3):
        return (
            f"fat trees of {levels} levels with {up[0]} parents a host are not built; 2 or 3 levels and one parent are"
        )
    _require_hosts(label, hosts, down)
    options: dict[str, Option] = {"nodes_per_leaf": down[0]}
    over = [down[k] / (up[k + 1] * cables[k + 1]) for k in range(levels - 1)]
    if levels == 2:
        return Layout("leaf_spine", wires, options | {"oversubscription": over[0], "spines": up[1]})
    options |= {
        "leaves_per_pod": down[1],
        "leaf_oversubscription": over[0],
        "pod_oversubscription": over[1] * cables[1],
    }
    return Layout("fat_tree", wires, options | {"aggregations": up[1], "cores": up[2]})


def _require_hosts(label: str, hosts: int, sides: Sequence[int]) -> None:
    places = 1
    for side in sides:
        places *= side
    if places != hosts:
        raise InvalidInput(
            f"{label}: the radical names {hosts} hosts, the topology has {places} places; lines are wrong"
        )


def _zone_machine(zone: Element, name: str, facts: dict[str, Any], device: str | None) -> Machine:
    label = f"{name}-{zone.get('id', '')}"
    remarks = Remarks()
    hosts = [host.get("id", "") for host in zone.findall("host")]
    facts = facts | {"hosts_here": len(hosts)}
    if len(hosts) > _MOST_HOSTS:
        return remarks.machine(label, None, facts, f"zones of more than {_MOST_HOSTS} hosts with routes are not read")
    links = {link.get("id", ""): link for link in zone.findall("link")}
    routes = _routes(zone, hosts, links, label)
    lacking = [(a, b) for a in hosts for b in hosts if a != b and (a, b) not in routes]
    if lacking:
        a, b = lacking[0]
        reason = f"{len(lacking)} of {len(hosts) * (len(hosts) - 1)} pairs of hosts have no route, {a} to {b} first"
        return remarks.machine(label, None, facts, reason)
    network = _routed(hosts, links, routes, label, remarks)
    return remarks.machine(label, _finished(label, len(hosts), network, device, remarks), facts)


Routes = dict[tuple[str, str], list[tuple[str, str]]]


def _routes(zone: Element, hosts: list[str], links: dict[str, Element], label: str) -> Routes:
    """Link and direction of every hop, for each ordered pair of hosts that the zone routes."""
    routes: Routes = {}
    given = set()
    for route in zone.findall("route"):
        a, b = route.get("src", ""), route.get("dst", "")
        hops = [(hop.get("id", ""), hop.get("direction", "NONE")) for hop in route.findall("link_ctn")]
        unknown = [link for link, _ in hops if link not in links]
        if unknown or not hops:
            raise InvalidInput(
                f"{label}: the route {a} to {b} crosses {unknown or 'no link'}, which the zone does not have"
            )
        if (a, b) in given:
            raise InvalidInput(f"{label}: the route {a} to {b} comes twice; lines were doubled")
        given.add((a, b))
        if a not in hosts or b not in hosts or a == b:
            continue
        routes[a, b] = hops
        if route.get("symmetrical", "YES").upper() == "YES":
            routes.setdefault((b, a), [(link, _TURNED[way]) for link, way in reversed(hops)])
    return routes


_TURNED = {"UP": "DOWN", "DOWN": "UP", "NONE": "NONE"}


def _routed(hosts: list[str], links: dict[str, Element], routes: Routes, label: str, remarks: Remarks) -> Layout:
    rows: dict[str, None] = {}
    wires: dict[str, Wire] = {}
    keys: dict[tuple[float, float], str] = {}
    for link, way in dict.fromkeys(hop for hops in routes.values() for hop in hops):
        element = links[link]
        bandwidth = _bandwidth(element.get("bandwidth"), f"{label}, link {link}")
        latency = _latency(element.get("latency"), f"{label}, link {link}")
        key = keys.setdefault((bandwidth, latency), f"link{len(keys)}")
        wires[key] = _wire(bandwidth, latency, label)
        rows[f"{_called(element, link, way)} {key}"] = None
        if element.get("sharing_policy", "SHARED").upper() == "FATPIPE":
            remarks.assume(f"link {link} is a FATPIPE, which does not share; it was taken as shared")
    number = {host: i for i, host in enumerate(hosts)}
    lines = [
        " ".join([str(number[a]), str(number[b]), *(_called(links[link], link, way) for link, way in hops)])
        for (a, b), hops in sorted(routes.items(), key=lambda item: (number[item[0][0]], number[item[0][1]]))
    ]
    return Layout("routed", wires, {"links": tuple(rows), "routes": tuple(lines)})


def _called(element: Element, link: str, way: str) -> str:
    """Name of a link's direction; one that is not split has the same name both ways."""
    plain = re.sub(r"\s", "_", link)
    split = element.get("sharing_policy", "SHARED").upper() in ("SPLITDUPLEX", "FULLDUPLEX")
    return f"{plain}:{'down' if way == 'DOWN' else 'up'}" if split else plain
