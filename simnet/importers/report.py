"""Imported machines as text and as rows; one of several chosen; one node multiplied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from simnet.catalog import load_link
from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Wire
from simnet.importers.machine import Imported, Machine

_MOST_LINES = 12


def select(
    found: Imported, name: str | None, *, num_nodes: int | None = None, port: str | None = None
) -> list[Machine]:
    """Machines of a file, or the one of that name; a single node becomes num_nodes of it behind one switch.

    Raises
    ------
    InvalidInput : no machine of that name; several nodes of what is a whole network, or without a port's link type.
    """
    chosen = [machine for machine in found.machines if name in (None, machine.name)]
    if not chosen:
        names = ", ".join(machine.name for machine in found.machines)
        raise InvalidInput(f"{found.path} holds no machine {name!r}; choose one of {names}")
    return [_multiplied(machine, num_nodes, port) for machine in chosen]


def _multiplied(machine: Machine, num_nodes: int | None, port: str | None) -> Machine:
    cluster = machine.cluster
    if cluster is None or (num_nodes is None and port is None):
        return machine
    nodes = 1 if num_nodes is None else num_nodes
    if cluster.network.topology != "single_switch" or nodes < 1:
        raise InvalidInput(f"--nodes multiplies a file of one node, 1 or more times, got {nodes} for {machine.name}")
    wire = cluster.network.wires["port"]
    if port is not None:
        wire = Wire(load_link(port))
    elif nodes > 1 and wire.link.kind == "ideal":
        raise InvalidInput(f"{machine.name} does not tell the speed of its NICs; give --port with a link type")
    network = replace(cluster.network, wires={"port": wire})
    made: Cluster = replace(cluster, num_nodes=nodes, network=network)
    return replace(machine, cluster=made)


def row(found: Imported, machine: Machine) -> dict[str, Any]:
    """Return a machine as plain data."""
    cluster = machine.cluster
    return {
        "format": found.format, "path": found.path, "machine": machine.name, "usable": cluster is not None,
        "reason": machine.reason, "summary": "" if cluster is None else cluster.summary,
        "num_nodes": None if cluster is None else cluster.num_nodes,
        "num_devices": None if cluster is None else cluster.num_devices,
        "facts": dict(machine.facts), "warnings": list(machine.warnings), "assumed": list(machine.assumed),
        "skipped": list(machine.skipped),
        "wires": {} if cluster is None else {name: _wire(wire) for name, wire in cluster.wires().items()},
    }  # fmt: skip


def _wire(wire: Wire) -> dict[str, Any]:
    return {"link": wire.link.name, "width": wire.width, "bandwidth_bytes_per_s": asdict(wire.link.bandwidth)} | {
        "latency_s": asdict(wire.link.latency)
    }


def lines(found: Imported, machine: Machine) -> Iterator[str]:
    """A screenful about an imported machine."""
    yield f"{machine.name}: {found.format}"
    if machine.cluster is None:
        yield f"  not usable  {machine.reason}"
    else:
        yield f"  machine     {machine.cluster.summary}"
    for key, value in machine.facts.items():
        if value not in (None, [], {}, 0):
            yield f"    {key.replace('_', ' '):<24} {_text(value)}"
    for title, texts in (("WARNING", machine.warnings), ("assumed", machine.assumed), ("skipped", machine.skipped)):
        yield from (f"  {title:<11} {text}" for text in texts[:_MOST_LINES])
        if len(texts) > _MOST_LINES:
            yield f"  {title:<11} and {len(texts) - _MOST_LINES} more; --json lists all"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key or 'none'}: {item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
