"""One training step with overlapped buckets in the lab, beside what `simnet.training` makes of its parts.

The parts are the computation alone, the time each bucket takes by the calibrated links, and how much an exchange
slows a computation beside it, measured on another exchange. The step itself is not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from realrun.lab.step_trial import StepAnswer
from simnet.training import StepWork, step
from simnet.units import Bytes, Seconds
from simnet.workload import Bucket


def work_of(answer: StepAnswer, exchange: Callable[[Bytes], Seconds], *, overlap: bool) -> StepWork:
    """Return the step's parts: one layer per bucket, ready when its gradients were, and one for what follows.

    Parameters
    ----------
    exchange : predicted time of an all-reduce of so many bytes, s
    """
    count = len(answer.ready)
    passed = np.diff(np.array([*answer.ready, answer.backward]), prepend=0.0)
    buckets = [Bucket((i,), size, "float32", count - i) for i, size in enumerate(answer.bucket_bytes)]
    nothing = np.zeros(count + 1)
    forward = nothing.copy()
    forward[0] = answer.forward
    return StepWork(
        forward, passed[::-1].copy(), answer.update, buckets, np.zeros(count),
        np.array([exchange(size) for size in answer.bucket_bytes]), nothing, nothing,
        overlap=overlap, interference=answer.interference if overlap else 0.0,
    )  # fmt: skip


def rows_of(answer: StepAnswer, exchange: Callable[[Bytes], Seconds]) -> list[dict[str, Any]]:
    """Return a row for the step with overlapped buckets and one for the same step without overlap."""
    rows = []
    for name, samples, overlap in (("overlapped", answer.samples_s, True), ("serial", answer.serial_s, False)):
        predicted = float(step(work_of(answer, exchange, overlap=overlap)).total[0])
        low, high = (float(q) for q in np.quantile(samples, (0.25, 0.75)))
        rows.append({
            "id": f"step-{name}", "system": "lab star of 2", "quantity": f"training step, {name} buckets", "unit": "s",
            "size_bytes": sum(answer.bucket_bytes), "published": median(samples), "predicted": predicted,
            "low": predicted, "high": predicted, "error": predicted / median(samples) - 1,
            "measured_q25": low, "measured_q75": high, "samples_s": list(samples), "kind": "measured here",
            "basis": f"computation alone {median(answer.alone_s):.4g} s, slowed by {answer.interference:.0%} "
            "while an exchange runs beside it; links calibrated by ping-pong alone",
        })  # fmt: skip
    return rows
