"""The arithmetic of the closed loop, without a lab: calibration, prediction, order, the step from its parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from realrun.lab.plan import plan
from realrun.lab.step_trial import StepAnswer
from realrun.lab.trial import ONE_WAY, TWO_WAY, Answer, Request
from simnet.errors import InvalidInput, Unsupported
from simnet.units import KIB, MIB
from studies import closed_loop, lab_step
from studies.closed_loop import MBIT, Calibration, Entry, calibrate, errors, order_faults, predict

RATE = 100 * MBIT
EXACT = Calibration(1.0, 0.0, 0.0, ())


def _ping(what: str, size: int, time: float) -> Answer:
    return Answer(Request(what, size), (time, 9.0, time), realtime=True)


def _pings(factor: float, overhead: float) -> list[Answer]:
    rate = RATE * factor
    return [
        _ping(what, size, overhead + closed_loop.port_bytes(size, both=what == TWO_WAY) / rate)
        for what in (ONE_WAY, TWO_WAY)
        for size in (4 * KIB, MIB, 4 * MIB)
    ]


@pytest.mark.parametrize(("factor", "overhead"), [(1.0, 0.0), (0.95, 3e-4)])
def test_calibration_finds_the_rate_and_overhead_that_made_the_points(factor: float, overhead: float) -> None:
    found = calibrate(_pings(factor, overhead), RATE)
    assert found.factor == pytest.approx(factor)
    assert found.overhead == pytest.approx(overhead, abs=1e-9)
    assert len(found.points) == 6


def test_a_shaper_that_hides_the_overhead_gives_none() -> None:
    found = calibrate(_pings(1.0, -5e-4), RATE)
    assert found.overhead == 0.0
    assert found.hidden == pytest.approx(5e-4)


def test_a_star_at_100_mbit_is_predicted_by_what_tc_counts() -> None:
    star = plan("star", 4, RATE)
    for entry in (Entry("ring"), Entry("halving_doubling")):
        times = [predict(star, entry, size, EXACT) for size in (MIB, 4 * MIB, 16 * MIB)]
        assert times == pytest.approx([0.1344, 0.5377, 2.151], rel=2e-3)


def test_another_topology_changes_the_time() -> None:
    labs = [plan("star", 4, RATE), plan("two-tier", 4, RATE, uplink=50 * MBIT), plan("ring", 4, RATE)]
    times = [predict(lab, Entry("halving_doubling"), MIB, EXACT) for lab in labs]
    assert times[1] > 1.5 * times[0]
    assert times[2] > 1.2 * times[0]


def _row(name: str, measured: float, predicted: float, size: int = MIB) -> dict[str, Any]:
    return {
        "id": name, "system": "lab star", "quantity": f"all_reduce {name}", "size_bytes": size,
        "published": measured, "predicted": predicted, "error": predicted / measured - 1,
    }  # fmt: skip


def test_only_clear_differences_must_have_the_right_order() -> None:
    assert order_faults([_row("a", 1.0, 1.0), _row("b", 1.05, 0.9)]) == []
    assert order_faults([_row("a", 1.0, 1.0), _row("b", 1.2, 0.9)]) == ["a and b"]
    assert order_faults([_row("a", 1.0, 1.0), _row("b", 1.2, 0.9, size=4)]) == []


def test_errors_count_only_sizes_from_a_limit_on() -> None:
    rows = [_row("a", 1.0, 1.5, size=64 * KIB), _row("b", 1.0, 1.01)]
    assert errors(rows, at_least=MIB) == pytest.approx(0.01)
    assert errors(rows) == pytest.approx(0.255)


def test_a_step_is_its_parts_with_the_exchange_beside_or_behind() -> None:
    answer = StepAnswer(
        forward=0.02, backward=0.04, update=0.001, ready=(0.01, 0.03), bucket_bytes=(100, 200),
        samples_s=(0.1,), serial_s=(0.1,), beside_s=(0.061,), alone_s=(0.061,),
    )  # fmt: skip
    overlapped, serial = lab_step.rows_of(answer, lambda size: size * 2e-4)
    # Bucket 1 starts when bucket 0 is over (0.03 + 0.02) and lasts 0.04, then the update.
    assert overlapped["predicted"] == pytest.approx(0.05 + 0.04 + 0.001)
    assert serial["predicted"] == pytest.approx(0.02 + 0.04 + 0.02 + 0.04 + 0.001)


@pytest.mark.parametrize(
    ("part", "refusal"),
    [
        ("require_tools", InvalidInput("a lab needs root")),
        ("_call", Unsupported("ip netns add failed: Operation not permitted")),
    ],
)
def test_where_no_lab_can_be_it_says_how_noisy_loopback_is(
    monkeypatch: pytest.MonkeyPatch, part: str, refusal: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(closed_loop.network, "require_tools", lambda: None)
    monkeypatch.setattr(closed_loop.network, part, refuse)
    tiny = closed_loop.Extent((), (Entry("ring"),), (KIB,), (), repeats=3)
    monkeypatch.setattr(closed_loop, "QUICK", tiny)
    result = closed_loop.run(quick=True)
    assert str(refusal) in result.notes[0]
    assert "of the median" in result.notes[0]
    assert result.claims == []


def test_the_kept_record_of_the_full_study_bears_its_claims_out() -> None:
    record = Path(closed_loop.__file__).parent / "published" / "closed_loop.jsonl"
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    runs = [row for row in rows if row["id"].partition("-")[0] != "step"]
    assert len(runs) == 3 * 5 * 5
    failed = [f"{claim.text}: {claim.detail}" for claim in closed_loop.claims_of(runs) if not claim.holds]
    assert not failed
    assert all(abs(row["error"]) <= 0.1 for row in rows if row not in runs)
