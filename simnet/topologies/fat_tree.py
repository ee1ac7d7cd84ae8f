"""Three tiers: leaves, the aggregation of a pod, and a core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simnet.fabric import Link, Vertex
from simnet.hardware import Wire
from simnet.topologies.balance import chooser
from simnet.topologies.leaf_spine import climb, require_tiers
from simnet.topologies.plan import NetworkPlan, port_links, port_vertex
from simnet.topologies.registry import Scope, topology


@topology(Scope.NETWORK, nodes_per_leaf=2, leaves_per_pod=2)
def fat_tree(
    num_nodes: int,
    ports: Sequence[Vertex],
    *,
    port: Wire,
    nodes_per_leaf: int,
    leaves_per_pod: int,
    hop: Wire | None = None,
    leaf_oversubscription: float = 1.0,
    pod_oversubscription: float = 1.0,
    aggregations: int = 1,
    cores: int = 1,
    rails: bool = False,
    routing: str = "deterministic",
    seed: int = 0,
) -> NetworkPlan:
    """Leaves below the aggregation switches of their pod, pods below a core, oversubscribed at either tier.

    With `rails` every port of a node has a tree of its own, and a message leaves by the port it arrives at.
    pod_oversubscription is what a pod's leaves can send up over what the pod can send to the core. Each
    aggregation switch has a link to each core switch; routes over equal paths as `routing` says.

    Source: Leiserson, IEEE Trans. Computers C-34(10), 1985; Al-Fares et al., SIGCOMM 2008.
    """
    require_tiers(
        nodes_per_leaf=nodes_per_leaf, leaves_per_pod=leaves_per_pod, leaf_oversubscription=leaf_oversubscription,
        pod_oversubscription=pod_oversubscription, aggregations=aggregations, cores=cores,
    )  # fmt: skip
    width = 1 if rails else len(ports)
    up = nodes_per_leaf * width / leaf_oversubscription
    tree = _Tree(nodes_per_leaf, leaves_per_pod, aggregations, cores, up, up * leaves_per_pod / pod_oversubscription)
    links: list[Link] = []
    for plane in range(len(ports) if rails else 1):
        used = [ports[plane]] if rails else list(ports)
        links += [
            link
            for n in range(num_nodes)
            for p in used
            for link in port_links(port_vertex(n, p), tree.leaf(n, plane), port)
        ]
        links += tree.climbs(num_nodes, plane, port, hop)
    choose_agg, choose_core = chooser(routing, aggregations, seed=seed), chooser(routing, cores, seed=seed + 1)

    def route(a: int, q: int, b: int, r: int) -> list[Vertex]:
        plane = r if rails else 0
        ends = a * len(ports) + q, b * len(ports) + r
        between = tree.between(a, b, plane, choose_agg(*ends), choose_core(*ends))
        return [port_vertex(a, ports[q]), *between, port_vertex(b, ports[r])]

    return NetworkPlan(tuple(links), route, parallel=rails and len(ports) > 1)


@dataclass(frozen=True, slots=True)
class _Tree:
    """Counts of a tree, and the joint width of a leaf's and of a pod's uplinks in ports."""

    nodes_per_leaf: int
    leaves_per_pod: int
    aggregations: int
    cores: int
    leaf_width: float
    pod_width: float

    def pod(self, node: int) -> int:
        return node // (self.nodes_per_leaf * self.leaves_per_pod)

    def leaf(self, node: int, plane: int) -> str:
        return f"leaf{plane}.{node // self.nodes_per_leaf}"

    def aggs(self, pod: int, plane: int) -> list[str]:
        return [f"agg{plane}.{pod}.{g}" for g in range(self.aggregations)]

    def climbs(self, num_nodes: int, plane: int, port: Wire, hop: Wire | None) -> list[Link]:
        leaves: dict[int, dict[str, None]] = {}
        for node in range(0, num_nodes, self.nodes_per_leaf):
            leaves.setdefault(self.pod(node), {})[self.leaf(node, plane)] = None
        links: list[Link] = []
        for pod, below in leaves.items():
            links += climb(below, self.aggs(pod, plane), port, hop, self.leaf_width / self.aggregations)
        aggs = [agg for pod in leaves for agg in self.aggs(pod, plane)]
        tops = [f"core{plane}.{c}" for c in range(self.cores)]
        return links + climb(aggs, tops, port, hop, self.pod_width / self.aggregations / self.cores)

    def between(self, a: int, b: int, plane: int, agg: int, core: int) -> list[Vertex]:
        here, there = self.leaf(a, plane), self.leaf(b, plane)
        if here == there:
            return [here]
        home, away = self.pod(a), self.pod(b)
        if home == away:
            return [here, f"agg{plane}.{home}.{agg}", there]
        return [here, f"agg{plane}.{home}.{agg}", f"core{plane}.{core}", f"agg{plane}.{away}.{agg}", there]
