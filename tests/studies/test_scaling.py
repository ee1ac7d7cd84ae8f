"""Contention: fitted to columns that nothing is compared with, and committed."""

from __future__ import annotations

from simnet.intervals import known_variation
from studies import facts, scaling


def test_a_refit_gives_the_committed_contention():
    for name, found in scaling.fit().items():
        assert abs(found.value - known_variation()[name].value) < 0.003
        assert found.low < found.value < found.high


def test_no_rate_fitted_to_is_a_published_figure_to_compare_with():
    compared = {fact.value for fact in facts.facts() if fact.kind == "validate"}
    assert not compared & {rate for column in scaling.COLUMNS for rate in column.rates[1:]}


def test_one_device_leaves_nothing_over():
    for column in scaling.COLUMNS[:2]:
        assert abs(scaling.excess(column)[1] - 1) < 1e-9
