"""Laws of the topologies: bisection, path lengths, symmetry, orders, on small instances of every builder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet import catalog
from simnet.errors import InvalidInput
from simnet.fabric import Link
from simnet.hardware import Cluster, Layout, LinkType, Node, Option, Quantity, Wire
from simnet.topologies.bisection import bisection
from simnet.topologies.registry import BuiltFabric, Scope, build, network_plan, node_plan, topologies

GB = 1e9


def wire(gigabytes: float, latency: float = 0.0, kind: str = "wire") -> Wire:
    exact = [Quantity(v, v, v, "test") for v in (gigabytes * GB, latency)]
    return Wire(LinkType(kind, kind, "ideal", exact[0], exact[1]))


def cluster(
    network: str,
    wires: Mapping[str, Wire],
    options: Mapping[str, Option] | None = None,
    *,
    num_nodes: int = 64,
    node: Layout | None = None,
    num_devices: int = 1,
) -> Cluster:
    device = catalog.load_device("generic")
    inside = Node(device, num_devices, node or Layout("single"))
    return Cluster("test", "test", inside, num_nodes, Layout(network, wires, options or {}))


SWITCHED = {"port": wire(10, 1e-6), "hop": wire(1, 0.1e-6)}
RAILS = Layout("mesh", {"pair": wire(40), "host": wire(10)}, {"nics": 2})
PCIE = {"slot": wire(12, 1e-6), "socket": wire(16, 0.5e-6)}
NETWORKS = {
    "single_switch": cluster("single_switch", {"port": wire(10)}),
    "leaf_spine": cluster("leaf_spine", SWITCHED, {"nodes_per_leaf": 4, "spines": 3, "routing": "hashed"}),
    "fat_tree": cluster(
        "fat_tree", SWITCHED, {"nodes_per_leaf": 2, "leaves_per_pod": 3, "aggregations": 2, "cores": 2}
    ),
    "fat_tree_rails": cluster(
        "fat_tree", SWITCHED, {"nodes_per_leaf": 2, "leaves_per_pod": 2, "rails": True}, node=RAILS, num_devices=4
    ),
    "rail_optimised": cluster("rail_optimised", SWITCHED, {"nodes_per_group": 4}, node=RAILS, num_devices=4),
    "dragonfly": cluster(
        "dragonfly",
        {"port": wire(10), "local": wire(20), "distant": wire(30)},
        {"nodes_per_router": 2, "routers_per_group": 2, "globals_per_router": 1},
        num_nodes=12,
    ),
    "ring": cluster("ring", {"link": wire(10)}),
    "torus": cluster("torus", {"link": wire(10)}, {"dims": (3, 4, 2)}, num_nodes=24),
    "stacked": cluster(
        "stacked",
        {"dim0": wire(200), "dim1": wire(100), "dim2": wire(50)},
        {"dims": (2, 3, 4), "kinds": "ring,mesh,switch"},
        num_nodes=24,
    ),
    "backbone": cluster("backbone", {"port": wire(10, 2e-6), "shared": wire(15, 1e-6)}),
    "routed": cluster(
        "routed",
        {"x": wire(4, 1e-6)},
        {
            "links": ("ab x", "bc x"),
            "routes": ("0 1 ab", "1 0 ab", "1 2 bc", "2 1 bc", "0 2 ab bc", "2 0 bc ab"),
        },
        num_nodes=3,
    ),
    "drawn_network": cluster(
        "drawn_network", {"a": wire(10), "b": wire(5)},
        {"links": ("n0/dev0 s a", "n1/dev0 s a", "s t b 2", "n2/dev0 t a")}, num_nodes=3,
    ),
}  # fmt: skip
NODES = {
    "single": (1, Layout("single", {"host": wire(10)})),
    "mesh": (4, Layout("mesh", {"pair": wire(48), "host": wire(12)}, {"nics": 2})),
    "pcie_tree": (8, Layout("pcie_tree", PCIE, {"switches": 4})),
    "cube_mesh": (8, Layout("cube_mesh", {"pair": wire(20), **PCIE})),
    "nvswitch": (8, Layout("nvswitch", {"port": wire(300), **PCIE})),
    "drawn_node": (
        2, Layout("drawn_node", {"x": wire(7)}, {"devices": ("a", "b"), "ports": ("a", "b"), "links": ("a b x",)})
    ),
}  # fmt: skip


def _built(name: str) -> BuiltFabric:
    return build(NETWORKS[name], min(NETWORKS[name].num_nodes, 12))


def _route(built: BuiltFabric, a: int, b: int) -> list[Link]:
    return [built.fabric.links[i] for i in built.fabric.route(built.devices[a], built.devices[b])]


def _bisection(one: Cluster, num_nodes: int) -> float:
    return bisection(network_plan(one, num_nodes), num_nodes, node_plan(one).distinct_ports)


def _example(name: str) -> Cluster:
    """A small instance of a topology found in the package: its own options, every wire alike."""
    found = topologies()[name]
    wires = {key: wire(10, 1e-6) for key, p in found.parameters.items() if "Wire" in str(p.annotation)}
    if "dims" in found.example:
        wires = {key: one for key, one in wires.items() if key in ("link", "dim0")}
    wires |= {"wire": wire(10, 1e-6)} if found.open else {}
    layout = Layout(name, wires, found.example)
    if found.scope is Scope.NETWORK:
        return cluster(name, wires, found.example, num_nodes=8)
    return cluster("single_switch", {"port": wire(10)}, node=layout, num_devices=8, num_nodes=2)


@pytest.mark.parametrize("name", topologies())
def test_every_topology_of_the_package_joins_every_pair_without_a_loop(name: str) -> None:
    one = _example(name)
    built = build(one, one.num_nodes)
    assert len(built.devices) == one.num_devices
    for a, b in permutations(range(len(built.devices)), 2):
        links = _route(built, a, b)
        assert (links[0].src, links[-1].dst) == (built.devices[a], built.devices[b])
        assert all(x.dst == y.src for x, y in pairwise(links))
        assert len({link.src for link in links}) == len(links)
    assert topologies()[name].summary


@pytest.mark.parametrize("name", topologies())
def test_many_messages_at_once_take_the_routes_they_take_one_by_one(name: str) -> None:
    one = _example(name)
    built = build(one, one.num_nodes)
    pairs = np.array(list(permutations(range(len(built.devices)), 2)) * 10)
    first, links = built.fabric.routes(built.devices, *pairs.T)
    for row in np.random.default_rng(1).integers(len(pairs), size=400).tolist():
        src, dst = pairs[row].tolist()
        expected = built.fabric.route(built.devices[src], built.devices[dst])
        assert tuple(links[first[row] : first[row + 1]].tolist()) == expected


@pytest.mark.parametrize("name", NETWORKS)
def test_every_pair_is_joined_by_a_path_without_a_loop(name: str) -> None:
    built = _built(name)
    for a, b in permutations(range(len(built.devices)), 2):
        links = _route(built, a, b)
        assert links[0].src == built.devices[a]
        assert links[-1].dst == built.devices[b]
        assert all(x.dst == y.src for x, y in pairwise(links))
        assert len({link.src for link in links}) == len(links)


@pytest.mark.parametrize(
    "name", [n for n in NETWORKS if n not in ("dragonfly", "fat_tree_rails", "rail_optimised", "stacked")]
)
def test_routes_are_as_short_as_any_path_is(name: str) -> None:
    built = _built(name)
    for a, b in permutations(range(min(len(built.devices), 12)), 2):
        shortest = nx.shortest_path_length(built.fabric.graph, built.devices[a], built.devices[b])
        assert len(_route(built, a, b)) == shortest


@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in ("backbone", "routed")])
def test_links_come_in_pairs_of_equal_figures(name: str) -> None:
    links = _built(name).fabric.links
    ends = {(link.src, link.dst): (link.bandwidth, link.latency) for link in links}
    assert len(links) % 2 == 0
    assert all(ends[dst, src] == figures for (src, dst), figures in ends.items())


def test_bisections_are_those_of_the_textbooks() -> None:
    assert _bisection(NETWORKS["single_switch"], 8) == pytest.approx(4 * 10 * GB)
    assert _bisection(NETWORKS["ring"], 8) == pytest.approx(2 * 10 * GB)
    two_d = cluster("torus", {"link": wire(10)}, {"dims": (4, 4)}, num_nodes=16)
    assert _bisection(two_d, 16) == pytest.approx(2 * 4 * 10 * GB)
    open_grid = cluster("torus", {"link": wire(10)}, {"dims": (4, 4), "wrap": False}, num_nodes=16)
    assert _bisection(open_grid, 16) == pytest.approx(4 * 10 * GB)
    thin = cluster("leaf_spine", SWITCHED, {"nodes_per_leaf": 4, "oversubscription": 4.0})
    assert _bisection(thin, 8) == pytest.approx(10 * GB)
    full = cluster("leaf_spine", SWITCHED, {"nodes_per_leaf": 4})
    assert _bisection(full, 8) == pytest.approx(4 * 10 * GB)


def test_each_tier_of_a_fat_tree_divides_what_passes_it() -> None:
    counts: dict[str, Option] = {"nodes_per_leaf": 2, "leaves_per_pod": 2}

    def gigabytes(**over: float) -> float:
        return _bisection(cluster("fat_tree", SWITCHED, counts | over), 8) / GB

    assert gigabytes() == pytest.approx(40)
    assert gigabytes(pod_oversubscription=2.0) == pytest.approx(20)
    assert gigabytes(leaf_oversubscription=2.0) == pytest.approx(20)
    assert gigabytes(leaf_oversubscription=2.0, pod_oversubscription=2.0) == pytest.approx(10)


def test_the_climb_adds_hops_and_their_latency() -> None:
    built = build(NETWORKS["fat_tree"], 12)
    lengths = {b: len(_route(built, 0, b)) for b in (1, 2, 6)}
    assert lengths == {1: 2, 2: 4, 6: 6}
    assert sum(link.latency for link in _route(built, 0, 6)) == pytest.approx(1.4e-6)


def test_parallel_rails_never_meet() -> None:
    built = build(NETWORKS["fat_tree_rails"], 8)
    for a, b in permutations(range(len(built.devices)), 2):
        rails = {
            link.dst.lstrip("abcdefglor")[0]
            for link in _route(built, a, b)
            if link.dst.startswith(("leaf", "agg", "core"))
        }
        assert len(rails) <= 1


def test_rails_are_one_switch_apart_inside_a_group_and_others_three() -> None:
    built = build(NETWORKS["rail_optimised"], 8)
    switches = [link.dst for link in _route(built, 0, 4)]
    assert switches == ["n0/nic0", "leaf0.0", "n1/nic0", "n1/gpu0"]
    assert "spine0" in [link.dst for link in _route(built, 0, 7)]
    assert "spine0" in [link.dst for link in _route(built, 0, 16)]


def test_a_dragonfly_crosses_one_global_link_at_most() -> None:
    built = _built("dragonfly")
    for a, b in permutations(range(12), 2):
        kinds = Counter(link.bandwidth for link in _route(built, a, b))
        assert kinds[30 * GB] == (a // 4 != b // 4)
        assert kinds[20 * GB] <= 2


def test_a_dragonfly_without_enough_global_links_is_refused() -> None:
    with pytest.raises(InvalidInput, match="need 3 links to others"):
        build(cluster("dragonfly", NETWORKS["dragonfly"].network.wires, NETWORKS["dragonfly"].network.options), 16)


def test_a_torus_wraps_only_where_it_is_whole() -> None:
    whole = build(cluster("torus", {"link": wire(1)}, {"dims": (4, 8)}, num_nodes=32), 32)
    part = build(cluster("torus", {"link": wire(1)}, {"dims": (4, 8)}, num_nodes=32), 16)
    assert len(whole.fabric.links) == 2 * 2 * 32
    assert len(part.fabric.links) == 2 * (16 + 12)


def test_hashed_routing_spreads_over_spines_and_does_not_change_its_mind() -> None:
    built = [build(NETWORKS["leaf_spine"], 64) for _ in range(2)]
    used: Counter[str] = Counter()
    for a in range(16):
        for b in range(32, 64):
            first, second = (_route(one, a, b) for one in built)
            assert first == second
            used[first[1].dst] += 1
    assert sorted(used) == ["spine0", "spine1", "spine2"]
    assert max(used.values()) < 1.3 * min(used.values())


def test_deterministic_routing_keeps_all_that_goes_to_one_port_on_one_spine() -> None:
    one = cluster("leaf_spine", SWITCHED, {"nodes_per_leaf": 4, "spines": 4})
    built = build(one, 16)
    for b in range(8, 16):
        assert len({_route(built, a, b)[1].dst for a in range(8) if a // 4 != b // 4}) == 1
    with pytest.raises(InvalidInput, match="deterministic or hashed"):
        build(cluster("leaf_spine", SWITCHED, {"nodes_per_leaf": 4, "routing": "random"}), 8)


def test_stacked_dimensions_use_the_wire_of_each_that_differs() -> None:
    built = _built("stacked")
    assert [link.bandwidth / GB for link in _route(built, 0, 1)] == [200]
    assert [link.bandwidth / GB for link in _route(built, 0, 2)] == [100]
    across = build(NETWORKS["stacked"], 24)
    assert [link.bandwidth / GB for link in _route(across, 0, 23)] == [200, 100, 50, 50]


@pytest.mark.parametrize("name", NODES)
def test_devices_of_a_node_do_not_forward(name: str) -> None:
    count, layout = NODES[name]
    plan = node_plan(cluster("single_switch", {"port": wire(1)}, node=layout, num_devices=count))
    assert len(plan.devices) == count
    for path in plan.inner.values():
        assert not set(path[1:-1]) & set(plan.devices)
    assert len(plan.inner) == count**2


def test_dgx1_has_its_published_links() -> None:
    for per_device in (4, 6):
        layout = Layout("cube_mesh", {"pair": wire(20), **PCIE}, {"links_per_device": per_device})
        plan = node_plan(cluster("single_switch", {"port": wire(1)}, node=layout, num_devices=8))
        for device in plan.devices:
            nvlinks = [link for link in plan.links if link.src == device and link.dst in plan.devices]
            assert sum(link.bandwidth for link in nvlinks) == pytest.approx(per_device * 20 * GB)
        around = zip(plan.devices, [*plan.devices[1:], plan.devices[0]], strict=True)
        ends = {(link.src, link.dst) for link in plan.links}
        assert all(pair in ends for pair in around)


def test_pairs_without_nvlink_cross_the_sockets_over_pcie() -> None:
    count, layout = NODES["cube_mesh"]
    plan = node_plan(cluster("single_switch", {"port": wire(1)}, node=layout, num_devices=count))
    path = plan.inner[plan.devices.index("gpu0"), plan.devices.index("gpu5")]
    assert path == ("gpu0", "plx0", "cpu0", "cpu1", "plx2", "gpu5")


def test_one_root_needs_no_link_between_sockets() -> None:
    single = Layout("pcie_tree", {"slot": wire(12)}, {"sockets": 1, "switches": 2})
    plan = node_plan(cluster("single_switch", {"port": wire(1)}, node=single, num_devices=4))
    assert plan.inner[0, 3] == ("gpu0", "plx0", "cpu0", "plx1", "gpu3")
    with pytest.raises(InvalidInput, match="needs the wire 'socket'"):
        node_plan(
            cluster("single_switch", {"port": wire(1)}, node=Layout("pcie_tree", {"slot": wire(12)}), num_devices=4)
        )


def test_a_device_uses_no_more_of_a_nic_than_its_slot_carries() -> None:
    layout = Layout("pcie_tree", {"slot": wire(12), "socket": wire(16)}, {"switches": 4})
    built = build(cluster("single_switch", {"port": wire(50)}, node=layout, num_devices=8), 2)
    assert min(link.bandwidth for link in _route(built, 0, 8)) == 12 * GB


def test_copy_engines_are_links_that_all_traffic_of_a_device_passes() -> None:
    plain = Layout("mesh", {"pair": wire(48), "host": wire(12)})
    layout = Layout("mesh", {"copy_engine": wire(30), **plain.wires})
    built = build(cluster("single_switch", {"port": wire(50)}, node=layout, num_devices=4), 2)
    assert min(link.bandwidth for link in _route(built, 0, 1)) == 30 * GB
    first = {built.fabric.route("n0/gpu0", f"n0/gpu{k}")[0] for k in (1, 2, 3)}
    assert len(first | {built.fabric.route("n0/gpu0", "n1/gpu0")[0]}) == 1


def test_a_tpu_v3_pod_has_its_published_bisection() -> None:
    pod = catalog.load_cluster("tpu-v3-pod")
    link = pod.network.wires["link"].link.bandwidth
    assert _bisection(pod, 1024) == pytest.approx(64 * link.value)
    assert 64 * link.low < 6.4e12 <= 64 * link.high


def test_of_equally_short_paths_in_a_node_the_widest_is_taken() -> None:
    links = ("a slow thin", "b slow thin", "a fast wide", "b fast wide")
    options: dict[str, Option] = {"devices": ("a", "b"), "ports": ("a", "b"), "links": links}
    layout = Layout("drawn_node", {"thin": wire(1), "wide": wire(9)}, options)
    plan = node_plan(cluster("single_switch", {"port": wire(1)}, node=layout, num_devices=2))
    assert plan.inner[0, 1] == ("a", "fast", "b")


def test_all_messages_on_a_backbone_share_it() -> None:
    built = _built("backbone")
    there, back = _route(built, 0, 1), _route(built, 3, 2)
    assert [link for link in there if link in back] == [there[1]]
    assert sum(link.latency for link in there) == pytest.approx(3e-6)
    assert _bisection(NETWORKS["backbone"], 8) == pytest.approx(15 * GB)


def test_a_network_without_the_route_asked_for_says_so() -> None:
    built = build(cluster("routed", {"x": wire(1)}, {"links": ("l x",), "routes": ("1 0 l",)}, num_nodes=2), 2)
    with pytest.raises(InvalidInput, match="no route from node 0 to node 1"):
        _route(built, 0, 1)
    with pytest.raises(InvalidInput, match="a route is"):
        build(cluster("routed", {"x": wire(1)}, {"links": ("l x",), "routes": ("0 1 m",)}, num_nodes=2), 2)
    with pytest.raises(InvalidInput, match="a routed link is"):
        build(cluster("routed", {"x": wire(1)}, {"links": ("l y",), "routes": ("0 1 l",)}, num_nodes=2), 2)


@settings(max_examples=25)
@given(
    sides=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    wrap=st.booleans(),
    nodes=st.integers(1, 64),
)
def test_tori_of_any_shape_route_as_short_as_any_path(sides: list[int], wrap: bool, nodes: int) -> None:
    total = math.prod(sides)
    one = cluster("torus", {"link": wire(1)}, {"dims": tuple(sides), "wrap": wrap}, num_nodes=total)
    built = build(one, min(nodes, total))
    lengths = dict(nx.all_pairs_shortest_path_length(built.fabric.graph))
    for a, b in permutations(built.devices[:12], 2):
        assert len(built.fabric.route(a, b)) == lengths[a][b]


@settings(max_examples=25)
@given(
    nodes=st.integers(1, 30), per_leaf=st.integers(1, 5), per_pod=st.integers(1, 3),
    aggregations=st.integers(1, 3), cores=st.integers(1, 3), rails=st.booleans(),
    routing=st.sampled_from(["deterministic", "hashed"]),
)  # fmt: skip
def test_trees_of_any_shape_join_every_pair(
    nodes: int, per_leaf: int, per_pod: int, aggregations: int, cores: int, rails: bool, routing: str
) -> None:
    options: dict[str, Option] = {
        "nodes_per_leaf": per_leaf, "leaves_per_pod": per_pod, "aggregations": aggregations, "cores": cores,
        "rails": rails, "routing": routing,
    }  # fmt: skip
    built = build(cluster("fat_tree", SWITCHED, options, node=RAILS, num_devices=4), nodes)
    devices = range(0, len(built.devices), 3)
    for a, b in permutations(devices, 2):
        links = _route(built, a, b)
        assert (links[0].src, links[-1].dst) == (built.devices[a], built.devices[b])
        assert all(x.dst == y.src for x, y in pairwise(links))


@pytest.mark.parametrize("routing", ["deterministic", "hashed"])
def test_drawn_networks_spread_over_equal_paths(routing: str) -> None:
    leaves = [f"n{n}/dev0 leaf{n // 8} port" for n in range(16)]
    spines = [f"leaf{k} spine{s} up" for k in range(2) for s in range(4)]
    wires = {"port": wire(10), "up": wire(20)}
    options: dict[str, Option] = {"links": tuple(leaves + spines), "routing": routing}
    built = build(cluster("drawn_network", wires, options, num_nodes=16), 16)
    used = Counter(_route(built, a, b)[1].dst for a in range(8) for b in range(8, 16))
    assert len(used) == 4
    assert max(used.values()) <= 2 * min(used.values())


def test_a_device_without_a_way_to_the_port_is_named() -> None:
    links = ("a x w", "b x w")
    options: dict[str, Option] = {"devices": ("a", "b"), "ports": ("nic",), "links": links}
    layout = Layout("drawn_node", {"w": wire(1)}, options)
    built = build(cluster("single_switch", {"port": wire(1)}, node=layout, num_devices=2), 2)
    assert hops_of(built, "n0/a", "n0/b") == 2
    with pytest.raises(InvalidInput, match="n0/a reaches no port"):
        built.fabric.route("n0/a", "n1/b")
    with pytest.raises(InvalidInput, match="n0/a reaches no port"):
        built.fabric.routes(built.devices, np.zeros(600, np.int64), np.full(600, 3))
    with pytest.raises(InvalidInput, match="no device 'x'"):
        built.fabric.routes(["x", "n0/b"], np.zeros(600, np.int64), np.ones(600, np.int64))


def hops_of(built: BuiltFabric, src: str, dst: str) -> int:
    return len(built.fabric.route(src, dst))
