from dataclasses import replace

import numpy as np
import pytest

from simnet.costs.nccl_scaled import times
from simnet.errors import InvalidInput
from simnet.nccl_fit import fit_nccl
from simnet.results import Measurement, NcclLeftover, NcclSite
from simnet.ring_fit import fit_ring
from simnet.units import GB
from studies import collectives
from studies.facts import facts

SIZES = [1 << k for k in range(10, 26, 3)]


@pytest.fixture(scope="module")
def result() -> collectives.Result:
    return collectives.run(quick=True)


def test_every_claim_holds(result: collectives.Result) -> None:
    assert [claim.text for claim in result.claims if not claim.holds] == []


def test_rows_carry_an_interval_around_their_prediction(result: collectives.Result) -> None:
    for row in result.rows:
        assert row["low"] < row["predicted"] < row["high"]
        assert row["error"] == pytest.approx(row["predicted"] / row["published"] - 1)


def test_predictions_do_not_see_the_rows_they_are_judged_on(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {row["id"]: row["predicted"] for row in collectives.run(quick=True).rows}
    doubled = tuple(
        replace(fact, values={**fact.values, "value": 2 * fact.value})
        if fact.kind == "validate" and fact.id.startswith(("abci.nccl", "deepbench"))
        else fact
        for fact in facts()
    )
    monkeypatch.setattr(collectives, "facts", lambda: doubled)
    after = {row["id"]: row["predicted"] for row in collectives.run(quick=True).rows}
    assert after == before


def test_an_interval_learns_from_other_machines_alone(result: collectives.Result) -> None:
    machines = [collectives._abci(), *collectives._deepbench()]
    own = machines[0]
    point = own.points[0]
    worse = replace(own, points=[replace(p, predicted_s=3 * p.predicted_s) for p in own.points])
    same = collectives.half_width(point, own.name, [worse, *machines[1:]])
    assert same == collectives.half_width(point, own.name, machines)


def test_a_ring_is_found_back_at_another_world_size() -> None:
    def time(ranks: int, size: int) -> float:
        return 2 * (ranks - 1) * 3e-6 + 20e-6 + 1e-11 * size + 2 * (ranks - 1) / ranks * size / 6e9

    rows = [Measurement("all_reduce", s, time(n, s), n) for n in (2, 4) for s in SIZES]
    found = fit_ring(rows).predict(8, SIZES)
    assert found == pytest.approx([time(8, s) for s in SIZES], rel=1e-6)


def test_a_ring_needs_two_world_sizes() -> None:
    with pytest.raises(InvalidInput, match="two world sizes"):
        fit_ring([Measurement("all_reduce", 1024, 1e-3, 4)])


def test_the_nccl_model_is_found_back_where_it_made_the_rows() -> None:
    site = NcclSite(channels=12, channel_bandwidth=10 * GB, nics=2, nic_bandwidth=12 * GB)
    seed = fit_nccl(
        [Measurement("all_reduce", s, 1e-4 + s / 1e10, n, nodes=n // 4) for n in (4, 8) for s in SIZES], site
    )
    nothing = (NcclLeftover(8, 2, tuple(SIZES), (0.0,) * len(SIZES)),)
    true = replace(seed, variants=(replace(seed.variants[0], leftovers=nothing),))
    rows = [
        Measurement("all_reduce", s, float(t), n, nodes=n // 4)
        for n in (4, 8)
        for s, t in zip(SIZES, times(true, n, n // 4, SIZES), strict=True)
    ]
    found = fit_nccl(rows, site)
    assert found.variants[0].error < 0.02
    assert np.log(times(found, 16, 4, SIZES) / times(true, 16, 4, SIZES)) == pytest.approx(
        np.zeros(len(SIZES)), abs=0.05
    )


def test_rows_without_nodes_cannot_be_fitted() -> None:
    site = NcclSite(channels=12, channel_bandwidth=10 * GB, nics=2, nic_bandwidth=12 * GB)
    with pytest.raises(InvalidInput, match="ranks, nodes"):
        fit_nccl([Measurement("all_reduce", 1024, 1e-3, 4)], site)
