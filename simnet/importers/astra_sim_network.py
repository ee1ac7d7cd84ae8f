"""Network files of ASTRA-sim: analytical ones of versions 1 (JSON) and 2 (YAML), and htsim's .topo.

Source: astra-network-analytical, input/*.yml; ASTRA-sim 1.0, inputs/network/analytical; csg-htsim, topologies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, Node, Quantity, Wire
from simnet.importers.devices import chosen_device
from simnet.importers.machine import Machine, Remarks
from simnet.importers.wires import exact, wire
from simnet.units import GB, GBIT_PER_S, Seconds

FORMAT = "ASTRA-sim network"

_KINDS = {"Ring": "ring", "FullyConnected": "mesh", "Switch": "switch"}
_YAML_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_ITEM = re.compile(r"-\s+([^,\[\]]+)$")
_YAML_LINE = re.compile(r"^(\w+)\s*:\s*\[(.*)\]\s*$")
_JSON_KEYS = ("topology-name", "topologies-per-dim", "units-count", "links-count", "link-latency", "link-bandwidth")
# What other files of ASTRA-sim and SimAI begin with, so that they can be named.
_OTHERS = (
    ('"scheduling-policy"', "a system file of ASTRA-sim: how collectives run, no network"),
    ('"logical-dims"', "the logical dimensions for ASTRA-sim over ns-3: no links; give the physical topology"),
    ("scheduling-policy:", "a system file of ASTRA-sim 1.0: how collectives run, no network"),
    ("all-reduce-implementation", "a system file of ASTRA-sim: how collectives run, no network"),
)
_WORKLOAD = re.compile(r"^(MICRO|DATA|MODEL|HYBRID\w*|TRANSFORMER\w*|CUSTOMIZED\w*|DLRM\w*)\b")


def detect(text: str) -> bool:
    """Whether the text is a network, system or workload file of ASTRA-sim."""
    head = text[:4000]
    if re.search(r"^Nodes\s+\d+\s*$", head, re.MULTILINE) and "Tier" in head:
        return True
    if re.search(r"^(topology|npus_count)\s*:", head, re.MULTILINE) or '"topologies-per-dim"' in head:
        return True
    return any(mark in head for mark, _ in _OTHERS) or (_WORKLOAD.match(text) is not None and bool(_counted(text)))


def _counted(text: str) -> bool:
    lines = text.splitlines()
    return len(lines) > 1 and lines[1].strip().isdigit()


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read the one network of the file.

    Raises
    ------
    InvalidInput : another file of ASTRA-sim, a key that lacks or comes twice, lists of different lengths.
    """
    remarks = Remarks()
    if re.search(r"^Nodes\s+\d+\s*$", text, re.MULTILINE):
        found = _htsim(text, name, remarks)
    elif '"topologies-per-dim"' in text:
        found = _version_1(text, name, remarks)
    elif re.search(r"^(topology|npus_count)\s*:", text, re.MULTILINE):
        found = _version_2(text, name, remarks)
    else:
        raise InvalidInput(f"{name} is {_other(text)}")
    return [_machine(found, name, device, remarks)]


def _other(text: str) -> str:
    found = [meaning for mark, meaning in _OTHERS if mark in text[:4000]]
    return found[0] if found else "a workload of ASTRA-sim: layers and collectives, no network"


def _machine(found: tuple[Layout, int, dict[str, Any]], name: str, device: str | None, remarks: Remarks) -> Machine:
    network, num_nodes, facts = found
    chosen = chosen_device(device, None, False, remarks)
    summary = f"{num_nodes} x {chosen.name} on {network.topology}, as in {name}"
    cluster = Cluster(
        name, summary, Node(chosen, 1, Layout("single")), num_nodes, network, {"file": f"{name}, {FORMAT}"}
    )
    return remarks.machine(name, cluster, facts)


def _dimension(word: str, bandwidth: float, latency: Seconds, width: float, name: str) -> Wire:
    """One dimension's wire; a switch is two hops of the file's latency away."""
    hops = 2 if word == "switch" else 1
    link = wire("ideal", bandwidth=exact(bandwidth, name))
    seconds = Quantity(latency * hops, latency * hops, latency * hops, name)
    kind = type(link.link)(link.link.name, link.link.summary, link.link.kind, link.link.bandwidth, seconds)
    return Wire(kind, width)


def _stacked(
    words: Sequence[str], counts: Sequence[int], wires: Sequence[Wire], facts: dict[str, Any]
) -> tuple[Layout, int, dict[str, Any]]:
    layout = Layout(
        "stacked",
        {f"dim{k}": one for k, one in enumerate(wires)},
        {"dims": tuple(counts), "kinds": ",".join(words)},
    )
    return layout, prod(counts), facts | {"npus": prod(counts), "dimensions": list(counts), "kinds": list(words)}


def _kinds(words: Sequence[Any], name: str) -> list[str]:
    unknown = [word for word in words if word not in _KINDS]
    if unknown:
        raise InvalidInput(f"{name}: unknown topology {unknown[0]!r}; a dimension is one of {', '.join(_KINDS)}")
    if not 1 <= len(words) <= 4:
        raise InvalidInput(f"{name} has {len(words)} dimensions; 1 to 4 can be read")
    return [_KINDS[word] for word in words]


def _require_lengths(lists: Mapping[str, Sequence[Any]], name: str) -> None:
    lengths = {key: len(values) for key, values in lists.items()}
    if len(set(lengths.values())) != 1:
        raise InvalidInput(f"{name}: the lists differ in length, {lengths}; the file was cut or damaged")


def _require_numbers(values: Sequence[Any], key: str, name: str, *, least: float = 0.0, whole: bool = False) -> None:
    for value in values:
        number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if not number or value < least or (whole and value != int(value)):
            raise InvalidInput(
                f"{name}: {key} must hold {'whole ' if whole else ''}numbers from {least:g}, got {value!r}"
            )


def _flowing(text: str) -> list[tuple[int, str]]:
    """Lines without comments, with "key:" and the "- item" lines below it written as "key: [ item, item ]"."""
    entries: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.split("#")[0].strip()
        item = _ITEM.match(bare)
        if item is not None and entries and entries[-1][1].endswith(":"):
            entries[-1][2].append(item[1])
        elif bare:
            entries.append((number, bare, []))
    return [(number, f"{bare} [ {', '.join(items)} ]" if items else bare) for number, bare, items in entries]


def _version_2(text: str, name: str, remarks: Remarks) -> tuple[Layout, int, dict[str, Any]]:
    table: dict[str, list[str]] = {}
    for number, bare in _flowing(text):
        match = _YAML_LINE.match(bare)
        if match is None or match[1] not in _YAML_KEYS or match[1] in table:
            raise InvalidInput(
                f"{name}, line {number}: {', '.join(_YAML_KEYS)} must be one list in brackets each, got {bare[:60]!r}"
            )
        table[match[1]] = [part.strip() for part in match[2].split(",")]
    lacks = [key for key in _YAML_KEYS if key not in table]
    if lacks:
        raise InvalidInput(f"{name} lacks {', '.join(lacks)}; the file was cut or damaged")
    _require_lengths(table, name)
    words = _kinds(table["topology"], name)
    counts = [int(c) for c in _numbers(table["npus_count"], "npus_count", name, least=1, whole=True)]
    rates = _numbers(table["bandwidth"], "bandwidth", name, least=1e-9)
    delays = _numbers(table["latency"], "latency", name)
    remarks.assume("GB/s was read as 1e9 bytes/s; ASTRA-sim itself computes with 2**30, 7.4 % more")
    wires = [_dimension(w, b * GB, t * 1e-9, 1.0, name) for w, b, t in zip(words, rates, delays, strict=True)]
    return _stacked(words, counts, wires, {"version": 2})


def _numbers(parts: Sequence[str], key: str, name: str, *, least: float = 0.0, whole: bool = False) -> list[float]:
    if not all(re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d+)?", part) for part in parts):
        raise InvalidInput(f"{name}: {key} must be a list of numbers, got {', '.join(parts)}")
    values = [float(part) for part in parts]
    _require_numbers(values, key, name, least=least, whole=whole)
    return values


def _version_1(text: str, name: str, remarks: Remarks) -> tuple[Layout, int, dict[str, Any]]:
    table = _json(text, name)
    lacks = [key for key in _JSON_KEYS if key not in table]
    if lacks:
        raise InvalidInput(f"{name} lacks {', '.join(lacks)}; the file was cut or damaged")
    lists = {key: table[key] for key in _JSON_KEYS[1:]}
    if not all(isinstance(values, list) for values in lists.values()):
        raise InvalidInput(f"{name}: {', '.join(lists)} must be lists with one entry per dimension")
    _require_lengths(lists, name)
    if table.get("dimensions-count", len(lists["units-count"])) != len(lists["units-count"]):
        raise InvalidInput(f"{name}: dimensions-count {table['dimensions-count']!r} contradicts {lists['units-count']}")
    words, counts, links = _kinds(lists["topologies-per-dim"], name), lists["units-count"], lists["links-count"]
    for key, least, whole in (("units-count", 1, True), ("links-count", 1, True), ("link-latency", 0, False)):
        _require_numbers(lists[key], key, name, least=least, whole=whole)
    _require_numbers(lists["link-bandwidth"], "link-bandwidth", name, least=1e-9)
    remarks.assume("GB/s was read as 1e9 bytes/s; ASTRA-sim itself computes with 2**30, 7.4 % more")
    for key in ("nic-latency", "router-latency"):
        if any(table.get(key, [])):
            remarks.skip(f"{key} {table[key]}: not in the model of a link")
    widths = [_width(*of) for of in zip(words, links, counts, strict=True)]
    shape = zip(words, lists["link-bandwidth"], lists["link-latency"], widths, strict=True)
    wires = [_dimension(w, b * GB, t * 1e-9, width, name) for w, b, t, width in shape]
    return _stacked(words, [int(c) for c in counts], wires, {"version": 1, "topology_name": table["topology-name"]})


def _width(word: str, links: int, count: int) -> float:
    """Links side by side: a ring uses two of a node's links, a full mesh one to each other node."""
    return links / {"ring": 2, "mesh": max(1, count - 1), "switch": 1}[word]


def _json(text: str, name: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise InvalidInput(f"{name} has a key twice; lines were doubled")
        return dict(pairs)

    try:
        table = json.loads(text, object_pairs_hook=unique)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"{name} is not valid JSON ({error}); it may have been cut") from error
    if not isinstance(table, dict):
        raise InvalidInput(f"{name} must hold one JSON object")
    return table


_TIER_KEYS = ("Downlink_speed_Gbps", "Radix_Down", "Radix_Up", "Downlink_Latency_ns", "Bundle", "Oversubscribed")


def _htsim(text: str, name: str, remarks: Remarks) -> tuple[Layout, int, dict[str, Any]]:
    head, tiers = _tiers(text, name)
    if sorted(tiers) != list(range(int(head.get("Tiers", 0)))) or len(tiers) not in (2, 3):
        raise InvalidInput(f"{name}: Tiers {head.get('Tiers', 0):g} needs as many Tier sections, got {sorted(tiers)}")
    last = max(tiers)
    for index, tier in tiers.items():
        needed = ("Downlink_speed_Gbps", "Radix_Down", "Downlink_Latency_ns", *(() if index == last else ("Radix_Up",)))
        lacks = [key for key in needed if not tier.get(key)]
        if lacks:
            raise InvalidInput(f"{name}: tier {index} lacks {lacks[0]}; the file was cut or damaged")
    port, hop = (_tier_wire(word, tiers[k], name) for k, word in enumerate(("switch", "hop")))
    remarks.assume("equal paths of a tier are in perfect balance; ECN, queues and buffers are not in the model")
    facts = {"version": "htsim", "npus": int(head["Nodes"]), "tiers": len(tiers)}
    layout = _tree(tiers, head, {"port": port, "hop": hop}, name)
    return layout, int(head["Nodes"]), facts


def _tier_wire(word: str, tier: dict[str, float], name: str) -> Wire:
    return _dimension(word, tier["Downlink_speed_Gbps"] * GBIT_PER_S, tier["Downlink_Latency_ns"] * 1e-9, 1.0, name)


def _tree(tiers: dict[int, dict[str, float]], head: dict[str, float], wires: dict[str, Wire], name: str) -> Layout:
    per_leaf = int(tiers[0]["Radix_Down"])
    down = per_leaf * tiers[0]["Downlink_speed_Gbps"]
    up = tiers[0]["Radix_Up"] * tiers[1]["Downlink_speed_Gbps"]
    if len(tiers) == 2:
        return Layout("leaf_spine", wires, {"nodes_per_leaf": per_leaf, "oversubscription": down / up})
    leaves = head.get("Podsize", 0) / per_leaf
    _require_radices(tiers, head, leaves, name)
    if leaves < 1 or leaves != int(leaves):
        raise InvalidInput(
            f"{name}: Podsize {head.get('Podsize', 0):g} must be a multiple of {per_leaf} nodes per leaf"
        )
    core = tiers[0]["Radix_Up"] * tiers[1]["Radix_Up"] * tiers[2]["Downlink_speed_Gbps"]
    options = {"nodes_per_leaf": per_leaf, "leaves_per_pod": int(leaves), "leaf_oversubscription": down / up}
    return Layout("fat_tree", wires, options | {"pod_oversubscription": leaves * up / core})


def _require_radices(tiers: dict[int, dict[str, float]], head: dict[str, float], leaves: float, name: str) -> None:
    pods = head["Nodes"] / max(head.get("Podsize", 0), 1)
    for index, expected in ((1, leaves), (2, pods)):
        found = tiers[index]["Radix_Down"] / tiers[index].get("Bundle", 1)
        if found != expected:
            raise InvalidInput(
                f"{name}: tier {index} has {found:g} switches below each of its own, but Nodes, Podsize and "
                f"Radix_Down ask for {expected:g}; lines were mixed up"
            )


def _tiers(text: str, name: str) -> tuple[dict[str, float], dict[int, dict[str, float]]]:
    head: dict[str, float] = {}
    tiers: dict[int, dict[str, float]] = {}
    table = head
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not re.fullmatch(r"\d+(\.\d+)?", words[1]):
            raise InvalidInput(f"{name}, line {number}: expected a name and a number, got {line.strip()[:60]!r}")
        key, value = words[0], float(words[1])
        if key == "Tier":
            table = tiers.setdefault(int(value), {})
            twice = bool(table)
        elif key not in (_TIER_KEYS if tiers else ("Nodes", "Tiers", "Podsize")):
            raise InvalidInput(f"{name}, line {number}: {key} does not belong here; lines were mixed up")
        else:
            twice = key in table
            table[key] = value
        if twice:
            raise InvalidInput(f"{name}, line {number}: {key} comes twice; lines were doubled")
    return head, tiers
