"""Predictions move only on purpose, and the changelog says why."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.golden.predictions import FILE, digest, predictions

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def test_predictions_are_the_golden_ones() -> None:
    assert predictions() == pytest.approx(json.loads(FILE.read_text(encoding="utf-8")), rel=2e-5)


def test_the_changelog_says_why_the_golden_predictions_are_what_they_are() -> None:
    reasons = re.findall(r"^- \[NUMBERS\] (\w+): \S.*$", CHANGELOG.read_text(encoding="utf-8"), flags=re.M)
    assert reasons, "no [NUMBERS] line"
    assert reasons[0] == digest(), "the newest [NUMBERS] line is of other predictions; see python -m tests.golden"
