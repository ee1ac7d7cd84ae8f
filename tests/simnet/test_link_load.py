"""What links carry: by hand, and equal to what a simulation sends over them."""

from __future__ import annotations

import pytest

from simnet.algorithms.registry import build
from simnet.catalog import load_cluster
from simnet.critical_path import explain_collective
from simnet.explain import bottleneck_link, quick_to_simulate
from simnet.interpreters.messages import num_transfers
from simnet.link_load import busiest, carried_bytes
from simnet.paths import UniformPaths, link_name
from simnet.scenario import Exchange, Job, Scenario, load_scenario
from simnet.step_model import StepModel
from simnet.topologies.registry import cluster_paths


def test_every_port_of_a_ring_carries_the_same():
    paths, ring = UniformPaths(4, 0.0, 1e9), build("ring", 4)
    assert carried_bytes(ring, paths, 400) == pytest.approx([600] * 8)
    found = busiest(ring, paths, 4e9, 6.0)
    assert (found.link, found.load, found.alike, found.of_kind) == ("port of rank 0, out", pytest.approx(1.0), 8, 8)


def test_only_the_root_of_a_star_is_loaded():
    found = busiest(build("star", 4), UniformPaths(4, 0.0, 1e9), 1e9, 6.0)
    assert (found.link, found.load, found.alike, found.of_kind) == ("port of rank 0, out", pytest.approx(0.5), 2, 8)


@pytest.mark.parametrize(("algorithm", "ranks"), [("ring", 16), ("torus2d", 16), ("hierarchical", 32)])
def test_loads_are_those_of_a_simulation(algorithm, ranks):
    paths, schedule = cluster_paths(load_cluster("abci"), ranks), build(algorithm, ranks)
    count = 4 * schedule.num_chunks
    simulated = {link.link: link.carried_bytes for link in explain_collective(schedule, count, paths).links}
    counted = carried_bytes(schedule, paths, 4 * count)
    assert {link_name(paths, i): n for i, n in enumerate(counted.tolist()) if n} == pytest.approx(simulated)


def test_the_bottleneck_names_a_link_from_where_to_where_and_those_like_it():
    found = bottleneck_link(StepModel(load_scenario("akiba-1024")))
    assert found is not None
    assert found.link.count(" -> ") == 1
    assert 0 < found.load <= 1
    assert 1 <= found.alike <= found.of_kind
    assert found.saved > 0.1


def test_all_ports_of_equal_servers_are_alike_and_one_device_has_no_bottleneck():
    flat = Scenario("flat", Job("uniform", 8, "resnet50", 8, framework="any"), Exchange(buckets="one_bucket"))
    found = bottleneck_link(StepModel(flat))
    assert found is not None
    assert (found.alike, found.of_kind, found.what) == (16, 16, "bandwidth")
    assert bottleneck_link(StepModel(flat.with_job(devices=1))) is None


def test_where_two_kinds_are_as_narrow_the_most_loaded_link_is_named():
    # PCIe and Omni-Path of a Stampede 2 node both carry 12.5 GB/s; the port is loaded, whatever its latency saves
    found = bottleneck_link(StepModel(load_scenario("you-knl512")))
    assert found is not None
    assert found.link == "n0/nic0 -> leaf0"


def test_fewer_devices_are_taken_where_all_would_take_long_to_simulate():
    model = StepModel(load_scenario("sony-1088"))
    ranks = quick_to_simulate(model)
    assert ranks == 56
    assert (
        num_transfers(build("torus2d", ranks, grid=(8, 7))) <= 2000 < num_transfers(build("torus2d", 76, grid=(4, 19)))
    )
    assert quick_to_simulate(StepModel(load_scenario("dgx1v-8"))) == 8
