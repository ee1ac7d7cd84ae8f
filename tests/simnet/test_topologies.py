from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from simnet import catalog
from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, LinkType, Node, Option, Quantity, Wire
from simnet.paths import FabricPaths, bottleneck
from simnet.placement import Placement, linear
from simnet.topologies.registry import build, cluster_paths
from simnet.topologies.torus import dimension_order, sub_block
from tests.simnet.pace import slowness


def _exact(value: float) -> Quantity:
    return Quantity(value, value, value, "test")


def _wire(bandwidth: float, latency: float = 0.0, kind: str = "wire") -> Wire:
    return Wire(LinkType(kind, kind, "ideal", _exact(bandwidth), _exact(latency)))


def _cluster(network: Layout, *, num_nodes: int, node: Layout | None = None, num_devices: int = 1) -> Cluster:
    device = catalog.load_device("generic")
    return Cluster("test", "test", Node(device, num_devices, node or Layout("single")), num_nodes, network)


def _torus(dims: tuple[int, ...], *, wrap: bool = True) -> Cluster:
    options: dict[str, Option] = {"dims": dims, "wrap": wrap}
    return _cluster(Layout("torus", {"link": _wire(10e9, 1e-6)}, options), num_nodes=int(np.prod(dims)))


@pytest.mark.parametrize("name", catalog.clusters())
def test_every_route_starts_and_ends_at_its_devices_and_is_connected(name: str) -> None:
    cluster = catalog.load_cluster(name)
    built = build(cluster, min(cluster.num_nodes, 36))
    ranks = np.random.default_rng(0).permutation(len(built.devices))[:24]
    for a in ranks:
        for b in ranks:
            route = [built.fabric.links[i] for i in built.fabric.route(built.devices[a], built.devices[b])]
            if a == b:
                assert route == []
                continue
            assert (route[0].src, route[-1].dst) == (built.devices[a], built.devices[b])
            assert all(x.dst == y.src for x, y in itertools.pairwise(route))


@pytest.mark.parametrize("name", catalog.clusters())
def test_every_link_has_one_back_with_the_same_figures(name: str) -> None:
    cluster = catalog.load_cluster(name)
    links = build(cluster, min(cluster.num_nodes, 36)).fabric.links
    ends = {(link.src, link.dst): (link.bandwidth, link.latency, link.kind) for link in links}
    assert all(ends[dst, src] == figures for (src, dst), figures in ends.items())


def test_abci_has_nvlink_inside_two_rails_between_and_a_third_above_the_rack() -> None:
    paths = cluster_paths(catalog.load_cluster("abci"), 4 * 68)
    src = np.array([0, 3, 0])
    dst = np.array([1, 4, 4 * 34])
    np.testing.assert_allclose(bottleneck(paths, src, dst), [48.48e9, 25e9, 25e9])
    np.testing.assert_allclose(paths.latency(src, dst), [1.89e-6, 2.54e-6, 2.94e-6])
    above = [link for link in paths.fabric.links if link.dst == "spine0"] if isinstance(paths, FabricPaths) else []
    assert [link.bandwidth for link in above] == pytest.approx([34 * 25e9 / 3] * 2)


def test_building_abci_at_2176_devices_takes_a_fraction_of_a_second() -> None:
    cluster = catalog.load_cluster("abci")
    start = time.process_time()
    paths = cluster_paths(cluster, 2176)
    ranks = np.arange(2176)
    paths.latency(ranks, (ranks + 64) % 2176)
    assert time.process_time() - start < 2.0 * slowness()


def test_uniform_paths_equal_the_fabric_they_stand_for() -> None:
    cluster = catalog.uniform("12.5 GB/s", "1 us")
    fast = cluster_paths(cluster, 6)
    slow = FabricPaths(build(cluster, 6).fabric, linear(build(cluster, 6).devices, 6))
    src, dst = np.arange(6), (np.arange(6) + 1) % 6
    np.testing.assert_array_equal(fast.latency(src, dst), slow.latency(src, dst))
    np.testing.assert_array_equal(bottleneck(fast, src, dst), bottleneck(slow, src, dst))


def test_a_torus_corrects_the_last_dimension_first_and_goes_the_short_way() -> None:
    closed, block = (True, True), (4, 4)
    assert dimension_order((0, 0), (1, 2), block, closed) == [(0, 0), (0, 1), (0, 2), (1, 2)]
    assert dimension_order((0, 0), (3, 3), block, closed) == [(0, 0), (0, 3), (3, 3)]
    assert len(dimension_order((0, 0), (3, 3), block, (False, False))) == 7


def test_a_torus_of_two_has_one_link_between_neighbours() -> None:
    assert len(build(_torus((2, 2)), 4).fabric.links) == 8
    assert len(build(_torus((4, 4)), 16).fabric.links) == 64
    assert len(build(_torus((4, 4), wrap=False), 16).fabric.links) == 48


def test_part_of_a_torus_is_the_block_closest_to_a_cube() -> None:
    assert sub_block(256, (32, 32)) == (16, 16)
    assert sub_block(64, (8, 8, 8)) == (4, 4, 4)
    assert sub_block(64, (32, 2)) == (32, 2)
    with pytest.raises(InvalidInput, match="hold 2000 nodes"):
        sub_block(2000, (32, 32))


def test_placements_and_ranks_per_node_choose_devices() -> None:
    abci = catalog.load_cluster("abci")
    one_each = cluster_paths(abci, 8, ranks_per_node=1)
    assert np.allclose(one_each.latency(np.array([0]), np.array([1])), 2.54e-6)
    turned = cluster_paths(abci, 8, placement=lambda devices, n: Placement(tuple(devices[:n][::-1])))
    assert isinstance(turned, FabricPaths)
    assert turned.placement.vertices[0] == "n1/gpu3"


@pytest.mark.parametrize(("ranks", "per_node"), [(0, None), (4353, None), (8, 5), (8, 0), (1089, 1)])
def test_more_ranks_than_devices_are_refused(ranks: int, per_node: int | None) -> None:
    with pytest.raises(InvalidInput, match="on abci"):
        cluster_paths(catalog.load_cluster("abci"), ranks, ranks_per_node=per_node)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout("moebius"), "unknown network topology"),
        (Layout("single_switch"), "needs the wire 'port'"),
        (Layout("single_switch", {"port": _wire(1.0), "hop": _wire(1.0)}), "takes no wire or option 'hop'"),
        (Layout("torus", {"link": _wire(1.0), "dims": _wire(1.0)}), "'dims' of torus is an option"),
        (Layout("leaf_spine", {"port": _wire(1.0)}, {"nodes_per_leaf": 0}), "nodes_per_leaf must be 1 or more, got 0"),
    ],
)
def test_a_layout_with_the_wrong_parts_is_refused(layout: Layout, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build(_cluster(layout, num_nodes=4), 2)
