"""Rows of what the catalogue holds, and of the algorithms, models, recipes, topologies and cost models there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from simnet.catalog.loader import Folder, clusters, devices, links, load_cluster, load_device, load_link
from simnet.catalog.models import model_rows
from simnet.hardware import Quantity

Row = dict[str, Any]


def device_rows(folder: Folder = None) -> Iterator[Row]:
    """One row per device; quantities in SI with low, high and source."""
    for name in devices(folder):
        device = load_device(name, folder)
        peaks = {f"{precision}_flop_per_s": _quantity(peak) for precision, peak in device.peaks.items()}
        yield {
            "name": name,
            "summary": device.summary,
            "memory_bytes": _quantity(device.memory),
            "memory_bandwidth_bytes_per_s": _quantity(device.memory_bandwidth),
            **peaks,
            "power_w": _quantity(device.power),
            "price_usd": _quantity(device.price),
        }


def link_rows(folder: Folder = None) -> Iterator[Row]:
    """One row per link type; bandwidth in bytes/s per direction, latency in s."""
    for name in links(folder):
        link = load_link(name, folder)
        yield {
            "name": name,
            "summary": link.summary,
            "kind": link.kind,
            "bandwidth_bytes_per_s": _quantity(link.bandwidth),
            "latency_s": _quantity(link.latency),
        }


def cluster_rows(folder: Folder = None) -> Iterator[Row]:
    """One row per cluster; its wires with their joint bandwidth in bytes/s and latency in s."""
    for name in clusters(folder):
        cluster = load_cluster(name, folder)
        wires = {
            place: {
                "link": wire.link.name,
                "bandwidth_bytes_per_s": _quantity(wire.link.bandwidth.scaled(wire.width)),
                "latency_s": _quantity(wire.link.latency),
            }
            for place, wire in cluster.wires().items()
        }
        yield {
            "name": name,
            "summary": cluster.summary,
            "device": cluster.node.device.name,
            "devices_per_node": cluster.node.num_devices,
            "num_nodes": cluster.num_nodes,
            "node_topology": cluster.node.layout.topology,
            "network_topology": cluster.network.topology,
            "wires": wires,
            "sources": dict(cluster.sources),
        }


def algorithm_rows(folder: Folder = None) -> Iterator[Row]:
    """One row per collective algorithm."""
    from simnet.algorithms.registry import algorithms

    for name, one in algorithms().items():
        row = {"name": name, "summary": one.summary, "collective": str(one.kind), "options": list(one.options)}
        yield row | {"source": _source(one.build)}


def recipe_rows(folder: Folder = None) -> Iterator[Row]:
    """One row per published training recipe: batches in samples over all devices, accuracy as a fraction."""
    from simnet.recipe import recipes

    for name, one in recipes().items():
        batches = " -> ".join(str(phase.batch) for phase in one.phases)
        yield {
            "name": name,
            "summary": f"{one.model}, {one.epochs:g} epochs at batch {batches}",
            "model": one.model,
            "epochs": one.epochs,
            "phases": [[phase.epochs, phase.batch] for phase in one.phases],
            "precision": one.precision,
            "gradient_dtype": one.gradient_dtype,
            "optimizer": one.optimizer,
            "largest_batch_trained": one.max_batch,
            "accuracy": one.accuracy,
            "source": one.source,
        }


def topology_rows(folder: Folder = None) -> Iterator[Row]:
    """One row per topology."""
    from simnet.topologies.registry import topologies

    for name, one in topologies().items():
        row = {"name": name, "summary": one.summary, "scope": str(one.scope), "options": list(one.parameters)}
        yield row | {"source": _source(one.build)}


def cost_rows(folder: Folder = None) -> Iterator[Row]:
    """One row per cost model."""
    from simnet.costs.registry import cost_models

    for name, one in cost_models().items():
        row = {"name": name, "summary": one.summary, "options": list(one.options), "required": list(one.required)}
        yield row | {"source": one.source}


KINDS: dict[str, Callable[..., Iterator[Row]]] = {
    "devices": device_rows,
    "links": link_rows,
    "clusters": cluster_rows,
    "topologies": topology_rows,
    "costs": cost_rows,
    "algorithms": algorithm_rows,
    "models": model_rows,
    "recipes": recipe_rows,
}


def _quantity(quantity: Quantity | None) -> Row | None:
    if quantity is None:
        return None
    return {"value": quantity.value, "low": quantity.low, "high": quantity.high, "source": quantity.source}


def _source(build: Callable[..., Any]) -> str:
    """Text after "Source:" in a docstring, on one line; empty where there is none."""
    _, _, text = (build.__doc__ or "").partition("Source:")
    return " ".join(text.split("\n\n")[0].split())
