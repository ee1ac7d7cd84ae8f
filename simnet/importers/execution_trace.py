"""PyTorch execution traces and Chakra traces as JSON: which collectives a step issues, and their sizes.

A host trace carries no device times, so its collectives are facts; Chakra nodes with a duration are rows.

Source: PyTorch, torch/csrc/profiler/standalone/execution_trace_observer.cpp (schema 1.0.1 to 1.1.0);
mlcommons/chakra, schema/protobuf/et_def.proto.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simnet.importers.json_stream import JsonStream
from simnet.importers.kineto import ITEM_BYTES, collective_of
from simnet.importers.record import Fact, Item, Note
from simnet.results import Measurement
from simnet.units import US

FORMAT = "execution trace"
MARKER = r'"nodes"\s*:|"comm_type"'
_CHAKRA = {0: "all_reduce", 1: "reduce", 2: "all_gather", 5: "broadcast", 6: "all_to_all", 7: "reduce_scatter"}
_COMM_NODES = (7, "7", "COMM_COLL_NODE")


def read(path: Path) -> Iterator[Item]:
    """Rows of nodes with a duration, then the collectives as facts."""
    stream = JsonStream(path, "nodes")
    nodes, unsized = 0, 0
    issued: Counter[tuple[str, int, int | None]] = Counter()
    for node in stream.elements():
        nodes += 1
        found = collective(node) if isinstance(node, dict) else None
        if found is None:
            continue
        if found[1] is None:
            unsized += 1
            continue
        issued[found[0], found[1], found[2]] += 1
        duration = node.get("duration_micros")
        if isinstance(duration, int | float) and duration > 0:
            yield Measurement(found[0], found[1], duration * US, found[2], source=str(path))
    yield from _facts(stream, nodes, issued, unsized)


def collective(node: Mapping[str, Any]) -> tuple[str, int | None, int | None] | None:
    """Name, bytes and ranks of a node that communicates; None for every other."""
    attributes = _attributes(node)
    if node.get("type") in _COMM_NODES or "comm_type" in attributes:
        name = _CHAKRA.get(attributes.get("comm_type", -1))
        size = attributes.get("comm_size")
        return (name, size if isinstance(size, int) else None, None) if name else None
    if node.get("name") != "record_param_comms":
        return None
    return _recorded(node, attributes)


def _recorded(node: Mapping[str, Any], attributes: Mapping[str, Any]) -> tuple[str, int | None, int | None] | None:
    """Read a recorder node: by its attributes, or before schema 1.1.0 by its inputs."""
    inputs = node.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else inputs
    listed = values if isinstance(values, list) else []
    words = [value for value in listed if isinstance(value, str) and collective_of(value)]
    name = collective_of(str(attributes.get("collective_name", words[0] if words else "")))
    if name is None:
        return None
    ranks = attributes.get("pg_size", listed[-1] if listed and isinstance(listed[-1], int) else None)
    ranks = ranks if isinstance(ranks, int) and ranks > 0 else None
    item = ITEM_BYTES.get(str(attributes.get("dtype", "")).lower())
    count = attributes.get("out_msg_nelems" if name == "all_gather" else "in_msg_nelems")
    if item and isinstance(count, int):
        return name, item * count, ranks
    return name, _tensor_bytes(listed, name, ranks), ranks


def _tensor_bytes(values: list[Any], name: str, ranks: int | None) -> int | None:
    """Bytes of the tensors among the inputs: each is [id, storage, offset, elements, item bytes, device]."""
    tensors = [
        t for value in values[:1] if isinstance(value, list) for t in value if isinstance(t, list) and len(t) >= 5
    ]
    if not tensors or not all(isinstance(t[3], int) and isinstance(t[4], int) for t in tensors):
        return None
    total = sum(t[3] * t[4] for t in tensors)
    if name != "all_gather":
        return total
    return total * ranks if ranks else None


def _attributes(node: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes by name, whatever the schema calls their value."""
    listed = node.get("attrs", node.get("attr"))
    found = {}
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and "name" in entry:
            values = [value for key, value in entry.items() if key not in ("name", "type", "doc_string")]
            found[str(entry["name"])] = _plain(values[0]) if values else None
    return found


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _facts(
    stream: JsonStream, nodes: int, issued: Counter[tuple[str, int, int | None]], unsized: int
) -> Iterator[Item]:
    if isinstance(stream.header.get("schema"), str):
        yield Fact("schema", stream.header["schema"])
    if nodes:
        yield Fact("nodes", nodes)
    if issued:
        yield Fact(
            "collectives",
            [
                {"collective": n, "size_bytes": s, "ranks": r, "count": c}
                for (n, s, r), c in sorted(issued.items(), key=str)
            ],
        )
    if unsized:
        yield Note(f"{unsized} collectives carry no size")
    if stream.cut:
        yield Note(f"the trace breaks off after {nodes} whole nodes")
    elif not nodes:
        yield Note("started, no result: the trace holds no node")
