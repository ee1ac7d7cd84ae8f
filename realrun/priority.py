"""Real-time priority while something is measured, so that the scheduler's own choices do not decide the times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def raise_priority(priority: int) -> bool:
    """Ask for a real-time priority; whether it was given.

    Systems without real-time scheduling have none, and a container may refuse it even to root.
    """
    if not hasattr(os, "sched_setscheduler"):
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except OSError:
        return False
    return True


@contextmanager
def real_time() -> Iterator[bool]:
    """Run at the lowest real-time priority inside the block, and so every process started there; yields whether."""
    before = (os.sched_getscheduler(0), os.sched_getparam(0)) if hasattr(os, "sched_getscheduler") else None
    raised = raise_priority(1)
    try:
        yield raised
    finally:
        if raised and before is not None:
            os.sched_setscheduler(0, *before)
