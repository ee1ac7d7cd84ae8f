"""Settings shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["realrun.testing"]

settings.register_profile("default", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the second tier may take minutes on a loaded machine; what hangs still ends."""
    for item in items:
        second_tier = any(item.get_closest_marker(name) for name in ("slow", "lab", "browser"))
        if second_tier and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def samples() -> Path:
    """Folder of real logs, topologies and traces, where SIMNET_SAMPLES names one."""
    folder = os.environ.get("SIMNET_SAMPLES")
    if not folder:
        pytest.skip("SIMNET_SAMPLES does not name a folder of real samples")
    return Path(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI=true, a lab or browser test that is skipped has failed: the machine lacks what it needs."""
    report = yield
    demanded = any(item.get_closest_marker(name) for name in ("lab", "browser"))
    if report.skipped and demanded and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} may not be skipped where CI=true: {report.longrepr}"
    return report
