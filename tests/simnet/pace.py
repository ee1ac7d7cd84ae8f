"""How fast this machine is, for tests that hold a computation to seconds of CPU time."""

from __future__ import annotations

import time

LOOP: float = 0.06


def slowness() -> float:
    """How many times longer than where the limits were set this machine takes for a loop, at least once."""
    begin = time.process_time()
    sum(number * number for number in range(1_000_000))
    return max(1.0, (time.process_time() - begin) / LOOP)
