"""Reports of real networks, told by their symptoms, with what the predictor must say about them."""

from __future__ import annotations

import time

import pytest

from simnet.algorithms.registry import build as build_schedule
from simnet.catalog import load_cluster, load_device
from simnet.collective import Collective, Kind
from simnet.collective_prediction import predict_collective
from simnet.costs.alpha_beta import AlphaBeta
from simnet.costs.tcp import Tcp
from simnet.hardware import Cluster, Layout, LinkType, Node, Quantity, Wire
from simnet.interpreters import engine
from simnet.paths import FabricPaths
from simnet.schedule import Schedule, Step
from simnet.topologies.registry import build, cluster_paths
from tests.simnet.pace import slowness

GB = 1e9


def wire(gigabytes: float) -> Wire:
    exact = [Quantity(v, v, v, "test") for v in (gigabytes * GB, 0.0)]
    return Wire(LinkType("wire", "wire", "ideal", exact[0], exact[1]))


def two_tiers(
    nic: float, *, nodes: int, nodes_per_leaf: int, oversubscription: float, inside: float = 300.0
) -> Cluster:
    node = Layout("nvswitch", {"port": wire(inside), "slot": wire(64), "socket": wire(64)}, {"nics": 1})
    options = {"nodes_per_leaf": nodes_per_leaf, "oversubscription": oversubscription}
    network = Layout("leaf_spine", {"port": wire(nic)}, options)
    return Cluster("case", "case", Node(load_device("generic"), 8, node), nodes, network)


def ring_busbw(cluster: Cluster, ranks: int) -> float:
    (row,) = predict_collective(cluster=cluster, ranks=ranks, algorithm="ring", sizes=[2**30])
    return row.busbw_bytes_per_s / GB


def test_a_ring_between_two_nodes_runs_at_the_rate_of_the_nic() -> None:
    cluster = two_tiers(12.5, nodes=2, nodes_per_leaf=2, oversubscription=1.0)
    assert ring_busbw(cluster, 16) == pytest.approx(12.5, rel=1e-3)


def test_two_switches_instead_of_one_show_the_share_of_their_uplink() -> None:
    one = two_tiers(43.53, nodes=8, nodes_per_leaf=8, oversubscription=1.0)
    two = two_tiers(43.53, nodes=8, nodes_per_leaf=4, oversubscription=4 / 0.449)
    assert ring_busbw(one, 64) == pytest.approx(43.53, rel=1e-3)
    assert ring_busbw(two, 64) == pytest.approx(19.53, rel=2e-3)


def test_sockets_on_100_gbit_do_not_give_100_gbit() -> None:
    cluster = two_tiers(12.5, nodes=4, nodes_per_leaf=4, oversubscription=1.0)
    cost = Tcp(flow_bandwidth=1.25e9, flows=4)
    (row,) = predict_collective(cluster=cluster, ranks=32, algorithm="ring", sizes=[2**28], cost=cost)
    assert 4.0 < row.busbw_bytes_per_s / GB < 6.0


def test_headers_take_their_share_of_a_wire_at_mtu_1500() -> None:
    cluster = two_tiers(0.125, nodes=2, nodes_per_leaf=2, oversubscription=1.0)
    (row,) = predict_collective(
        cluster=cluster, ranks=2, ranks_per_node=1, sizes=[2**26], cost=Tcp(overhead=0.0), engine="simulate"
    )
    assert row.busbw_bytes_per_s / GB == pytest.approx(0.125 * Tcp().duplex_efficiency, rel=2e-3)


def test_devices_of_one_node_share_its_nic() -> None:
    paths = cluster_paths(load_cluster("abci"), 8)
    one = Step.columns([0], [4], [0])
    four = Step.columns([0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3])
    times = []
    for step in (one, four):
        schedule = Schedule("pairs", Collective(Kind.BROADCAST), 8, 4, lambda step=step: iter([step]))
        times.append(float(engine.run(schedule, 4 * 2**24, paths, AlphaBeta(), engine="simulate", itemsize=4).time))
    assert (times[1] - 2.54e-6) / (times[0] - 2.54e-6) == pytest.approx(4.0, rel=1e-6)


def test_another_topology_gives_another_time() -> None:
    times = set()
    for name in ("abci", "big-basin", "mn-1", "jia-p40", "stampede2", "tpu-v2-pod", "tpu-v3-pod"):
        (row,) = predict_collective(cluster=name, ranks=64, sizes=[2**25])
        times.add(round(row.time_s, 9))
    assert len(times) == 7


@pytest.mark.parametrize("name", ["abci", "big-basin", "tpu-v2-pod", "dgx-1"])
def test_engines_agree_on_the_fabrics_of_the_catalogue(name: str) -> None:
    cluster = load_cluster(name)
    paths = cluster_paths(cluster, 16)
    schedule = build_schedule("ring", 16)
    assert isinstance(paths, FabricPaths)
    times = [
        float(engine.run(schedule, 2**20, paths, AlphaBeta(), engine=one, itemsize=4).time)
        for one in ("estimate", "simulate")
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_building_the_whole_of_abci_and_routing_a_ring_costs_little() -> None:
    start = time.process_time()
    built = build(load_cluster("abci"), 544)
    assert len(built.devices) == 2176
    assert time.process_time() - start < 3.0 * slowness()


def test_rails_apart_give_what_pairs_of_devices_were_measured_to_reach() -> None:
    paths = cluster_paths(load_cluster("abci-rails"), 8)
    rates = []
    for count in (1, 4):
        ranks = list(range(count))
        step = Step.columns(ranks, [r + 4 for r in ranks], ranks)
        schedule = Schedule("pairs", Collective(Kind.BROADCAST), 8, 4, lambda step=step: iter([step]))
        time_s = float(engine.run(schedule, 4 * 2**22, paths, AlphaBeta(), engine="simulate", itemsize=4).time)
        rates.append(count * 4 * 2**22 / time_s / GB)
    assert rates[0] == pytest.approx(10.2268, rel=0.01)
    assert rates[1] == pytest.approx(20.481, rel=0.01)
