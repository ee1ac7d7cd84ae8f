"""A cluster as the TOML file that `load_cluster` reads back."""

from __future__ import annotations

from typing import Any

from simnet.hardware import Cluster, Layout, Quantity, Wire


def cluster_toml(cluster: Cluster) -> str:
    """Return the text of a cluster file; every wire carries its own figures, the device and link types are named."""
    import tomli_w

    node = {
        "device": cluster.node.device.name,
        "num_devices": cluster.node.num_devices,
        "power": _optional(cluster.node.power, "W"),
        "price": _optional(cluster.node.price, "USD"),
        **_layout(cluster.node.layout),
    }
    table = {
        "summary": cluster.summary,
        "num_nodes": cluster.num_nodes,
        "sources": dict(cluster.sources),
        "node": {key: value for key, value in node.items() if value is not None},
        "network": _layout(cluster.network),
    }
    return tomli_w.dumps(table)


def _layout(layout: Layout) -> dict[str, Any]:
    options = {key: list(value) if isinstance(value, tuple) else value for key, value in layout.options.items()}
    return {
        "topology": layout.topology,
        "options": options,
        "wires": {name: _wire(wire) for name, wire in layout.wires.items()},
    }


def _wire(wire: Wire) -> dict[str, Any]:
    return {
        "link": wire.link.name,
        "width": wire.width,
        "bandwidth": _quantity(wire.link.bandwidth, "B/s"),
        "latency": _quantity(wire.link.latency, "s"),
    }


def _optional(quantity: Quantity | None, unit: str) -> dict[str, Any] | None:
    return None if quantity is None else _quantity(quantity, unit)


def _quantity(quantity: Quantity, unit: str) -> dict[str, Any]:
    low, high = f"{quantity.low!r} {unit}", f"{quantity.high!r} {unit}"
    return {"value": f"{quantity.value!r} {unit}", "range": [low, high], "source": quantity.source}
