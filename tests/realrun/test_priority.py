from __future__ import annotations

import os
import subprocess
import sys

import pytest

from realrun.priority import real_time

_ASK = "import os; print(os.sched_getscheduler(0))"


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="no real-time scheduling here")
def test_processes_started_inside_run_at_real_time_priority_and_it_ends_with_the_block() -> None:
    before = os.sched_getscheduler(0)
    with real_time() as raised:
        inside = int(subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True).stdout)
    assert (inside == os.SCHED_RR) is raised
    assert os.sched_getscheduler(0) == before


def test_who_may_not_ask_for_it_keeps_the_usual_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    with real_time() as raised:
        assert not raised
