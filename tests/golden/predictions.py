"""What the golden file holds: a few collectives and every scenario's step, to six digits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import simnet as sn
from simnet.scenario import scenarios

FILE = Path(__file__).with_name("predictions.json")

COLLECTIVES = (
    {"cluster": "uniform", "bandwidth": "12.5 GB/s", "latency": "1 us", "ranks": 1024, "algorithm": "ring"},
    {"cluster": "uniform", "bandwidth": "12.5 GB/s", "latency": "1 us", "ranks": 2176, "algorithm": "torus2d",
     "grid": "64x34"},
    {"cluster": "abci", "ranks": 64, "algorithm": "torus2d", "engine": "simulate"},
    {"cluster": "abci", "ranks": 1088, "algorithm": "hierarchical"},
    {"cluster": "big-basin", "ranks": 64, "algorithm": "halving_doubling"},
    {"cluster": "tpu-v3-pod", "ranks": 64, "algorithm": "ring"},
)  # fmt: skip


def predictions() -> dict[str, float]:
    """Seconds by what they are the time of."""
    found = {}
    for settings in COLLECTIVES:
        row = sn.predict_collective(sizes=51_200_000, **settings).iloc[0]
        found[" ".join(str(value) for value in settings.values())] = _rounded(row.time_s)
    for name in scenarios():
        step = sn.predict(name).step_s
        found |= {f"{name} {end}": _rounded(getattr(step, end)) for end in ("value", "low", "high")}
    return found


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def write(found: dict[str, float]) -> None:
    """Replace the golden file."""
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def digest() -> str:
    """First digits of the golden file's sha256."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()[:12]
