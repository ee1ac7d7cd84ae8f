"""What a machine is, in a screenful: devices, node, network, and what they carry and cost together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simnet.hardware import Cluster, Quantity, Wire
from simnet.topologies.bisection import bisection
from simnet.topologies.registry import build, network_plan, node_plan
from simnet.topologies.routed import FREE
from simnet.units import BytesPerSecond, format_si

MOST_ROUTES, MOST_NODES = 5000, 8192


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a cluster of num_nodes nodes; bandwidths in bytes/s and one direction, price in USD, power in W.

    oversubscription is what half of the nodes can send over what reaches the other half; longest_path_links is
    seen from the first device, and of very large machines only to every so many-th device.
    """

    name: str
    summary: str
    device: str
    devices_per_node: int
    num_nodes: int
    num_devices: int
    num_links: int
    node_topology: str
    network_topology: str
    injection_bytes_per_s: BytesPerSecond | None
    bisection_bytes_per_s: BytesPerSecond
    oversubscription: float | None
    longest_path_links: int
    price_usd: float | None
    price_of: str
    power_w: float | None


def summarise(cluster: Cluster, num_nodes: int | None = None) -> Summary:
    """Work out the figures of a cluster, or of its first nodes; of a huge one the first 8,192."""
    nodes = min(cluster.num_nodes, MOST_NODES) if num_nodes is None else num_nodes
    built, ports = build(cluster, nodes), node_plan(cluster).distinct_ports
    network = network_plan(cluster, nodes)
    across = bisection(network, nodes, ports)
    injection = _injection(cluster, nodes)
    devices = built.devices
    probes = range(0, len(devices), 1 + len(devices) // MOST_ROUTES)
    longest = max(len(built.fabric.route(devices[0], devices[i])) for i in probes)
    return Summary(
        name=cluster.name, summary=cluster.summary, device=cluster.node.device.name,
        devices_per_node=cluster.node.num_devices, num_nodes=nodes, num_devices=len(devices),
        num_links=len(built.fabric.links), node_topology=cluster.node.layout.topology,
        network_topology=cluster.network.topology, injection_bytes_per_s=injection, bisection_bytes_per_s=across,
        oversubscription=nodes // 2 * injection / across if across and injection else None, longest_path_links=longest,
        price_usd=_total(cluster.node.price, cluster.node.device.price, nodes, cluster.node.num_devices),
        price_of="nodes" if cluster.node.price else "devices alone",
        power_w=_total(cluster.node.power, cluster.node.device.power, nodes, cluster.node.num_devices),
    )  # fmt: skip


def _injection(cluster: Cluster, num_nodes: int) -> BytesPerSecond | None:
    """Bytes/s that the first node's ports carry into the network; None where ports limit nothing."""
    ports = {f"n0/{port}" for port in node_plan(cluster).distinct_ports}
    links = [link for link in network_plan(cluster, num_nodes).links if link.src in ports]
    return None if any(link.kind == FREE for link in links) else sum(link.bandwidth for link in links)


def _total(of_node: Quantity | None, of_device: Quantity | None, num_nodes: int, num_devices: int) -> float | None:
    if of_node is not None:
        return of_node.value * num_nodes
    return None if of_device is None else of_device.value * num_nodes * num_devices


def lines(cluster: Cluster, summary: Summary) -> Iterator[str]:
    """A screenful about a cluster."""
    device, one = cluster.node.device, summary
    peaks = ", ".join(f"{name} {format_si(peak.value, 'FLOP/s')}" for name, peak in device.peaks.items())
    yield f"{one.name}: {one.summary}"
    yield f"  devices    {one.num_devices} x {device.name}: {device.summary}"
    yield f"             {peaks}; memory {format_si(device.memory_bandwidth.value, 'B/s')}"
    part = f", of {cluster.num_nodes} there are" if one.num_nodes < cluster.num_nodes else ""
    yield f"  nodes      {one.num_nodes} of {one.devices_per_node} devices each, {one.node_topology}{part}"
    yield from (_wire(name, wire) for name, wire in cluster.node.layout.wires.items())
    yield f"  network    {one.network_topology}{_options(cluster)}"
    yield from (_wire(name, wire) for name, wire in cluster.network.wires.items() if name != "hop")
    if "hop" in cluster.network.wires:
        yield f"    hop      {format_si(cluster.network.wires['hop'].latency, 's')} more per link between switches"
    yield f"  fabric     {one.num_links} directed links; a longest path of {one.longest_path_links}"
    yield from _bandwidths(one)
    price = "not known" if one.price_usd is None else f"{one.price_usd:,.0f} USD ({one.price_of})"
    power = "not known" if one.power_w is None else format_si(one.power_w, "W")
    yield f"  price      {price}; power {power}"
    for text in cluster.sources.values():
        yield f"  from       {text}"


def _bandwidths(one: Summary) -> Iterator[str]:
    if one.num_nodes < 2:
        return
    ratio = "" if one.oversubscription is None else f"; oversubscribed {one.oversubscription:.3g} : 1"
    if one.injection_bytes_per_s is not None:
        yield f"  injection  {format_si(one.injection_bytes_per_s, 'B/s')} per node and direction"
    yield f"  bisection  {format_si(one.bisection_bytes_per_s, 'B/s')} per direction{ratio}"


def _wire(name: str, wire: Wire) -> str:
    width = f" x {wire.width:g}" if wire.width != 1 else ""
    return (
        f"    {name:<8} {wire.link.name}{width}: {format_si(wire.bandwidth, 'B/s')} "
        f"({format_si(wire.link.bandwidth.low * wire.width, 'B/s')} to "
        f"{format_si(wire.link.bandwidth.high * wire.width, 'B/s')}), {format_si(wire.latency, 's')}"
    )


def _options(cluster: Cluster) -> str:
    shown = [f"{key.replace('_', ' ')} {_option(value)}" for key, value in cluster.network.options.items()]
    return f" ({', '.join(shown)})" if shown else ""


def _option(value: object) -> str:
    if isinstance(value, tuple):
        return f"of {len(value)}" if len(value) > 4 else " x ".join(str(v) for v in value)
    return str(value)
