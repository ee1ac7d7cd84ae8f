"""Settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["realrun.testing"]

settings.register_profile("default", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def samples() -> Path:
    """Folder of real logs, topologies and traces, where SIMNET_SAMPLES names one."""
    folder = os.environ.get("SIMNET_SAMPLES")
    if not folder:
        pytest.skip("SIMNET_SAMPLES does not name a folder of real samples")
    return Path(folder)
