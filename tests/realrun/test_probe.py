"""A probe measures messages through the executor and leaves raw records."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from realrun.compute import convolution, dtype_of, layer_times, matmul, timed
from realrun.models import MODELS
from realrun.plans import LAYER_MODELS, ProbePlan
from realrun.probe import _rounds, probe, traffic
from simnet.errors import InvalidInput
from simnet.schedule import validate


def probed(plan: ProbePlan) -> list[dict]:
    return list(probe(plan))


def test_a_probe_records_messages_one_way_and_both_ways_and_rates(rank_pool):
    records = rank_pool(2).run(probed, ProbePlan((4, 65536), iterations=4, warmup=1, compute=True))[0]
    found = [(r["quantity"], r.get("size_bytes")) for r in records]
    assert found[:6] == [
        ("latency", 4), ("bidirectional_bandwidth", 4), ("bandwidth", 65536), ("bidirectional_bandwidth", 65536),
        ("reduction_rate", 65536), ("copy_rate", 65536),
    ]  # fmt: skip
    assert [quantity for quantity, _ in found[6:]] == ["matmul_rate", "convolution_rate"] * 2
    for record in records:
        assert record["kind"] == "probe"
        assert len(record["samples_s"]) == 4
        assert min(record["samples_s"]) <= record["time_s"] <= max(record["samples_s"])
        assert record["environment"]["backend"] == "gloo"


def test_pairs_are_taken_evenly_and_a_loaded_probe_keeps_all_ranks_busy(rank_pool):
    every = rank_pool(3).run(probed, ProbePlan((8,), pairs=0, iterations=1, warmup=0, rates=False))[0]
    assert len({(r["src"], r["dst"]) for r in every}) == 3
    loaded = rank_pool(4).run(probed, ProbePlan((8,), loaded=True, iterations=1, warmup=0))[0]
    assert [(r["src"].split(":")[1], r["dst"].split(":")[1]) for r in loaded[:2]] == [("0", "1"), ("2", "3")]
    assert [r["quantity"] for r in loaded[4:]] == ["reduction_rate"] * 4 + ["copy_rate"] * 4


def test_a_loaded_probe_over_several_hosts_also_pairs_the_halves():
    plan = ProbePlan((8,), loaded=True)
    assert _rounds(6, plan, across=True) == [[(0, 1), (2, 3), (4, 5)], [(0, 3), (1, 4), (2, 5)]]
    assert _rounds(5, plan, across=False) == [[(0, 1), (2, 3)]]


def test_a_coupled_exchange_makes_every_rank_wait_for_every_other():
    schedule = validate(traffic(6, [(0, 1), (2, 3), (4, 5)], both_ways=True, coupled=True))
    pairs = [{tuple(sorted((t.src, t.dst))) for t in step.transfers()} for step in schedule.expand()]
    assert pairs == [{(0, 1), (2, 3), (4, 5)}, {(1, 2), (3, 4), (0, 5)}]


@pytest.mark.parametrize("both_ways", [False, True])
def test_probe_traffic_is_a_valid_schedule(both_ways):
    schedule = validate(traffic(4, [(0, 1), (2, 3)], both_ways=both_ways))
    assert [len(step) for step in schedule.expand()] == ([4] if both_ways else [2, 2])


def test_layer_times_cover_every_call_and_equal_layers_are_measured_once():
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(inplace=True)
    )
    rows = list(layer_times(network, torch.randn(2, 3, 8, 8), iterations=3, warmup=1))
    assert [(r.name, r.kind, r.parameters) for r in rows] == [
        ("0", "Conv2d", 224), ("1", "ReLU", 0), ("2", "Conv2d", 584), ("3", "ReLU", 0),
    ]  # fmt: skip
    assert all(len(r.forward_s) == len(r.backward_s) == 3 for r in rows)
    assert [len(r.update_s) for r in rows] == [3, 0, 3, 0]
    assert rows[1].forward_s == rows[3].forward_s


def test_operations_of_products_and_convolutions():
    device = torch.device("cpu")
    work, flop = matmul(8, "bf16", device)
    assert flop == 1024
    assert len(timed(work, device, iterations=2, warmup=1)) == 2
    work, flop = convolution(2, 4, 6, "fp32", device)
    assert flop == 2 * 9 * 2 * 4 * 4 * 36
    assert work().shape == (2, 4, 6, 6)


def test_a_precision_the_device_does_not_have_is_refused():
    with pytest.raises(InvalidInput, match="tf32 exists on CUDA devices only"):
        dtype_of("tf32", torch.device("cpu"))
    with pytest.raises(InvalidInput, match="precision must be one of"):
        dtype_of("fp64", torch.device("cpu"))


def test_layers_are_timed_of_the_networks_that_take_such_images():
    assert [name for name, (_, small, large) in MODELS.items() if small <= 224 <= large] == list(LAYER_MODELS)


def test_a_precision_that_the_device_does_not_have_is_refused_before_anything_is_measured(rank_pool):
    plan = ProbePlan((4,), iterations=1, warmup=0, model="alexnet", precision="tf32")
    if torch.cuda.is_available():
        pytest.skip("a CUDA device has tf32")
    with pytest.raises(InvalidInput, match="tf32 exists on CUDA devices only"):
        next(rank_pool(2).stream(probe, plan))
