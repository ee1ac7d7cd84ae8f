"""Layer times that `realrun probe --model` measured on a device, in place of roofline and compute profile.

Layers with parameters must all be there. Those that were not timed because they are no modules (additions, rectifiers
called as functions) move data at the rate of the timed ones that do no products. Batches between two measured ones are
interpolated layer by layer; others are refused, since nobody measured how they would go.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.compute import Efficiency, Roofline
from simnet.errors import InvalidInput
from simnet.units import Seconds
from simnet.workload import Model

FloatArray = npt.NDArray[np.float64]
Passes = tuple[FloatArray, FloatArray, Seconds]

ALONE_SD = 0.09
"""How far layers timed alone are from the network whole, as the sd of a log: 13 % above for ResNet-50, 1 % for AlexNet,
by `realrun.compute` and by torch on one core of a Xeon."""

_MEASURED_IN = {"mixed": ("fp16", "bf16")}


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Medians of one layer, s, and every sample of its passes together."""

    forward: Seconds
    backward: Seconds
    update: Seconds
    samples: tuple[Seconds, ...]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Times of a model's layers by batch and name, on one device in one precision."""

    place: str
    model: str
    precision: str
    device: str
    batches: Mapping[int, Mapping[str, LayerTime]]

    def require(self, model: str, precision: str) -> None:
        """Raise InvalidInput where another model or precision is asked for."""
        if self.model != model:
            raise InvalidInput(f"{self.place} has layer times of {self.model}, not of {model}; measure {model}")
        if self.precision not in _MEASURED_IN.get(precision, (precision,)):
            raise InvalidInput(f"{self.place} has layer times in {self.precision}, not in {precision}; measure those")

    @property
    def efficiency(self) -> Efficiency:
        """What takes the place of a fit: nothing is scaled, and samples say how sure it is."""
        words = " and ".join(str(batch) for batch in sorted(self.batches))
        basis = f"layers measured on {self.device} at batch {words} ({self.place})"
        sd = math.hypot(ALONE_SD, max(map(_sd, self.batches.values())))
        return Efficiency(1.0, 0.0, sd, 0.0, "measured", basis)

    def passes(self, model: Model, bound: Roofline, batch: int) -> Passes:
        """Forward and backward time of each layer of a model, each (num_layers,), and of the update, s.

        Raises
        ------
        InvalidInput : a layer with parameters, or the batch, was not measured.
        """
        known = sorted(self.batches)
        if not known[0] <= batch <= known[-1]:
            raise InvalidInput(
                f"{self.place} was measured at batch {', '.join(map(str, known))} and {batch} lies outside; measure "
                "that, or one below and one above"
            )
        high = next(one for one in known if one >= batch)
        low = max(one for one in known if one <= batch)
        ends = [_passes(self.batches[one], model, bound, self.place) for one in (low, high)]
        share = (batch - low) / (high - low) if high > low else 0.0
        (forward, backward, update), (more, longer, later) = ends
        return (
            forward + share * (more - forward), backward + share * (longer - backward),
            update + share * (later - update),
        )  # fmt: skip


def _passes(times: Mapping[str, LayerTime], model: Model, bound: Roofline, place: str) -> Passes:
    found = [times.get(layer.name) for layer in model.layers]
    for layer, time in zip(model.layers, found, strict=True):
        if time is None and layer.parameters:
            raise InvalidInput(f"{place} lacks layer {layer.name} of {model.name}; measure that network")
    timed = np.array([time is not None for time in found])
    moves = timed & np.array([layer.forward_flop == 0 for layer in model.layers])
    like = moves if moves.any() else timed
    forward = _filled([None if time is None else time.forward for time in found], bound.forward, like)
    backward = _filled([None if time is None else time.backward for time in found], bound.backward, like)
    return forward, backward, sum(time.update for time in found if time is not None)


def _filled(times: list[Seconds | None], bound: FloatArray, like: npt.NDArray[np.bool_]) -> FloatArray:
    """Times of all layers: those without one move their data as fast as the layers `like` do."""
    known = np.array([0.0 if time is None else time for time in times])
    rate = known[like].sum() / bound[like].sum()
    return np.where([time is None for time in times], rate * bound, known)


def _sd(times: Mapping[str, LayerTime]) -> float:
    """Sd of the log of a step's time over its samples."""
    fewest = min(len(time.samples) for time in times.values())
    totals = np.sum([time.samples[:fewest] for time in times.values()], axis=0)
    return float(np.std(np.log(totals), ddof=1)) if fewest > 1 else 0.0


def read_layer_times(path: str | Path) -> LayerTimes:
    """Read what `realrun probe --model` wrote; rows of other quantities in the file are passed over.

    Raises
    ------
    InvalidInput : no such file, no layers in it, a damaged row, or layers of several models or precisions.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"cannot read the layer times {path}: {error}; name a file of realrun probe --model"
        ) from error
    return _parsed(text, str(path))


@lru_cache(maxsize=8)
def _parsed(text: str, place: str) -> LayerTimes:
    rows = list(_rows(text, place))
    if not rows:
        raise InvalidInput(f"{place} has no layer times; write some with realrun probe --model resnet50 --out {place}")
    for key in ("model", "precision"):
        several = sorted({str(row.get(key)) for row in rows})
        if len(several) > 1:
            raise InvalidInput(f"{place} has layer times of several {key}s, {' and '.join(several)}; keep one a file")
    batches: dict[int, dict[str, LayerTime]] = {}
    for row in rows:
        batches.setdefault(row["batch"], {})[row["name"]] = _layer(row, place)
    first = rows[0]
    device = f"{first.get('device', 'a device')} of {first.get('src', 'some host')}"
    return LayerTimes(place, str(first.get("model")), str(first.get("precision")), device, batches)


def _rows(text: str, place: str) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"{place}, line {number} is no JSON object: {error}; measure again") from error
        if isinstance(row, dict) and row.get("quantity") == "layer":
            whole = isinstance(row.get("batch"), int) and isinstance(row.get("name"), str)
            if not whole or row["batch"] < 1:
                raise InvalidInput(f"{place}, line {number} lacks the name or the batch of its layer; measure again")
            yield row


def _layer(row: Mapping[str, Any], place: str) -> LayerTime:
    passes = [_samples(row.get(f"{name}_s", ()), row["name"], place) for name in ("forward", "backward", "update")]
    if not passes[0]:
        raise InvalidInput(f"{place} has no forward time of layer {row['name']}; measure again")
    given = [samples for samples in passes if samples]
    together = tuple(float(sum(one)) for one in zip(*given, strict=False))
    forward, backward, update = (median(samples) if samples else 0.0 for samples in passes)
    return LayerTime(forward, backward, update, together)


def _samples(values: Any, name: str, place: str) -> tuple[Seconds, ...]:
    good = isinstance(values, list | tuple) and all(isinstance(v, int | float) for v in values)
    if not good or any(not 0 < v < math.inf for v in values):
        raise InvalidInput(f"{place} has a time of layer {name} that is no time above 0 s; measure again")
    return tuple(values)
