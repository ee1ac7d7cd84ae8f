"""The loop closes on this machine: probe, calibrate, predict, measure, compare."""

from __future__ import annotations

import pytest

from studies.registry import find


@pytest.mark.slow
def test_the_loop_closes_on_this_machine():
    result = find("here").run(quick=True)
    assert {row["algorithm"] for row in result.rows} == {"ring", "torus2d", "halving_doubling", "hierarchical"}
    assert len(result.rows) == 8
    assert all(claim.holds for claim in result.claims)
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in result.rows)
    assert any("geometric mean error" in note for note in result.notes)
    assert any("of their median" in note for note in result.notes)
