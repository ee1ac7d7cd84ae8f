"""Real-time priority while something is measured, so that the scheduler's own choices do not decide the times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def real_time() -> Iterator[bool]:
    """Run at the lowest real-time priority inside the block, and so every process started there; yields whether.

    Systems without real-time scheduling, and users or containers that may not ask for it, get their usual priority.
    """
    raised, before = False, None
    if hasattr(os, "sched_setscheduler"):
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
            raised = True
        except PermissionError:
            pass
    try:
        yield raised
    finally:
        if raised and before is not None:
            os.sched_setscheduler(0, *before)
