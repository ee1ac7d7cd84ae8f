"""How long one device computes: a roofline per layer, an efficiency fitted on single-device rows, and launches.

    time of a pass over a layer = max(flop / peak, bytes / memory bandwidth) / efficiency + kernels * launch

Both constants come from a `ComputeProfile`, never from the code: `efficiency` is achieved over the roofline
(above 1 where an algorithm such as Winograd's saves operations), `launch` the cost of starting one kernel.
The launch term is what makes small batches slow: a step of batch 1 and one of batch 4 launch the same kernels.

Source: Williams, Waterman & Patterson, CACM 52(4), 2009.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.hardware import Device, Precision
from simnet.units import Bytes, Seconds
from simnet.workload import BACKWARD_FACTOR, Model

FloatArray = npt.NDArray[np.float64]

MASTER_BYTES = 4
OPTIMIZER_STREAMS = 5
RESERVED_BYTES = 500_000_000
TRIED_PARTS = 1000


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds on one device at one batch: s per layer of each pass, each (num_layers,), and kernels."""

    forward: FloatArray
    backward: FloatArray
    update: Seconds
    forward_kernels: npt.NDArray[np.int64]
    backward_kernels: npt.NDArray[np.int64]
    update_kernels: int

    @property
    def time(self) -> Seconds:
        """Of a whole step, s."""
        return float(self.forward.sum() + self.backward.sum() + self.update)

    @property
    def kernels(self) -> int:
        """Of a whole step."""
        return int(self.forward_kernels.sum() + self.backward_kernels.sum()) + self.update_kernels


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Constants a profile gives one device, framework, precision and model, with the sds of their logs."""

    efficiency: float
    launch: Seconds
    sd: float
    launch_sd: float
    match: str
    basis: str

    def step_time(self, roofline: Roofline) -> Seconds:
        """Time of a step that shares nothing, s."""
        return roofline.time / self.efficiency + roofline.kernels * self.launch


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants of one group of single-device rows, and the rows (ids with hashes) they were fitted to.

    Where the rows have one batch only, `launch` is that of the nearest fit with several, and `launch_fitted` is false.
    """

    device: str
    framework: str
    stack: str
    unit: str
    model: str
    efficiency: float
    launch: Seconds
    launch_fitted: bool
    sd: float
    points: tuple[str, ...]
    residuals: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """Fits, and how far apart such fits lie: by unit and by what differs, the sd of the log of the efficiency.

    `launches` gives devices that no host feeds kernel by kernel a launch cost of their own, s, and the sd of its log.
    """

    name: str
    fits: tuple[Fit, ...]
    spread: Mapping[str, Mapping[str, float]]
    launches: Mapping[str, tuple[Seconds, float]] = field(default_factory=dict)
    source: str = ""


def unit_of(device: Device, precision: Precision | str) -> str:
    """Class of arithmetic a precision runs in: "matrix" units with 16-bit factors, "tf32" ones, or plain "fp32".

    Tensor cores and TPU matrix units are one class; a 16-bit precision that the device's do not take (bf16 on a V100),
    or on a device without them, runs in the other.
    """
    wanted = Precision(precision)
    if wanted is Precision.TF32 and wanted in device.peaks:
        return "tf32"
    units = [device.peaks[unit].value for unit in (Precision.MIXED, Precision.BF16) if unit in device.peaks]
    return "matrix" if not _is_wide(wanted) and device.peak(wanted).value in units else "fp32"


def _is_wide(precision: Precision) -> bool:
    """Whether numbers lie in memory with 32 bits."""
    return precision in (Precision.FP32, Precision.TF32)


def roofline(model: Model, device: Device, precision: Precision | str, batch: int) -> Roofline:
    """Bounds of one step of `batch` samples, every layer at peak.

    Layers with flop count their products (one forward, two backward); the others count memory traffic:
    what they read and write, backward with the saved input and the gradient of the output.
    """
    item = 4 if _is_wide(Precision(precision)) else 2
    peak, bandwidth = device.peak(precision).value, device.memory_bandwidth.value
    flop = np.array([layer.forward_flop for layer in model.layers], float) * batch
    reads = np.array([layer.reads for layer in model.layers], float) * batch * item
    writes = np.array([layer.writes for layer in model.layers], float) * batch * item
    weights = np.array([layer.num_parameters for layer in model.layers], float) * item
    dense = flop > 0
    forward = np.maximum(flop / peak, (reads + writes + weights) / bandwidth)
    backward = np.where(dense, BACKWARD_FACTOR * forward, (reads + 2 * writes + weights) / bandwidth)
    kernels = np.ones(len(flop), np.int64)
    update = OPTIMIZER_STREAMS * MASTER_BYTES * model.num_parameters / bandwidth
    return Roofline(forward, backward, update, kernels, np.where(dense, 2, 1), len(model.parameters))


def memory_bytes(model: Model, precision: Precision | str, batch: int) -> Bytes:
    """Bytes one device needs: weights, gradients and momentum in fp32, 16-bit copies, activations, workspace."""
    reduced = not _is_wide(Precision(precision))
    state = model.num_parameters * (3 * MASTER_BYTES + (4 if reduced else 0))
    dtype = "float16" if reduced else "float32"
    return state + batch * model.activation_bytes(dtype) + RESERVED_BYTES


def largest_batch(model: Model, device: Device, precision: Precision | str) -> int:
    """Largest batch whose predicted memory fits the device; 0 where not even one sample does."""
    fixed = memory_bytes(model, precision, 0)
    each = memory_bytes(model, precision, 1) - fixed
    return max(0, int((device.memory.value - fixed) // each))


def require_fit(
    model: Model, device: Device, precision: Precision | str, batch: int, *, accumulation: int = 1
) -> Bytes:
    """Return the predicted memory of a batch on a device; `accumulation` such batches make a step.

    Raises
    ------
    InvalidInput : it does not fit; the text names the largest batch that does, and the accumulation that makes as many
        samples a step out of smaller ones.
    """
    need, has = memory_bytes(model, precision, batch), device.memory.value
    if need > has:
        instead = _instead(batch, largest_batch(model, device, precision), accumulation)
        raise InvalidInput(
            f"per_device_batch {batch} of {model.name} in {precision} needs {need / 1e9:.1f} GB and {device.name} has "
            f"{has / 1e9:.1f} GB; {instead}"
        )
    return need


def _instead(batch: int, most: int, accumulation: int) -> str:
    """What to ask for in place of a batch that does not fit."""
    if most < 1:
        return "not even one sample fits, so take a device with more memory, a 16-bit precision or a smaller model"
    parts = parts_that_fit(batch, most)
    smaller = -(-batch // parts)
    as_many = "as many" if smaller * parts == batch else f"{smaller * parts} in place of {batch}"
    return (
        f"use {most} or fewer, or {smaller} with accumulation {parts * accumulation}, which makes {as_many} samples "
        "a step"
    )


def parts_that_fit(batch: int, most: int) -> int:
    """Return the fewest equal parts of at most `most` samples; unequal ones where equal ones are twice as many."""
    fewest = -(-batch // most)
    tried = range(fewest, min(2 * fewest, fewest + TRIED_PARTS))
    return next((parts for parts in tried if batch % parts == 0), fewest)


def efficiency(
    profile: ComputeProfile, device: Device, framework: str, precision: Precision | str, model: str
) -> Efficiency:
    """Return the closest fits of a profile: own stack, own framework, own device, or the spread of all devices.

    `framework` is the name of a stack ("mxnet-nvidia-2020"), the beginning of one ("mxnet-nvidia", any year of that
    line) or a framework ("mxnet"). The further the match, the wider the interval; `basis` says what was used.
    """
    unit = unit_of(device, precision)
    same_unit = [fit for fit in profile.fits if fit.unit == unit]
    own = [fit for fit in same_unit if fit.device == device.name]
    family = [fit for fit in own if fit.framework == framework.partition("-")[0]]
    stack = [fit for fit in family if fit.stack == framework]
    line = [fit for fit in family if fit.stack.startswith(f"{framework}-")]
    found = (("stack", stack), ("framework", line or family), ("device", own), ("class", same_unit))
    for match, fits in found:
        if fits:
            return _combined(profile, match, fits, Wanted(device.name, framework, unit, model))
    raise InvalidInput(
        f"profile {profile.name} has no row for {unit} arithmetic, needed for {device.name} in {precision}; "
        "name a profile fitted on such devices"
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an efficiency is asked for."""

    device: str
    framework: str
    unit: str
    model: str

    @property
    def asked(self) -> str:
        """The framework, in words."""
        return self.framework or "a framework without a name"

    @property
    def family(self) -> str:
        """Model without its variant: resnet50_v1 counts as resnet50."""
        return family(self.model)


def family(model: str) -> str:
    """Name of a model without its variant, which a fit does not tell apart."""
    return model.partition("_")[0]


def _combined(profile: ComputeProfile, match: str, fits: Sequence[Fit], wanted: Wanted) -> Efficiency:
    same_model = [fit for fit in fits if family(fit.model) == wanted.family]
    used = same_model or list(fits)
    spread = profile.spread[wanted.unit]
    own = max(fit.sd for fit in used) if match == "stack" else math.hypot(spread["row"], spread[match])
    sd = math.hypot(own, 0.0 if same_model else spread["model"])
    launch, launch_sd = _launch(profile, match, used, wanted)
    return Efficiency(
        _geometric([fit.efficiency for fit in used]), launch, sd, launch_sd, match,
        _basis(match, used, wanted, bool(same_model)),
    )  # fmt: skip


def _launch(profile: ComputeProfile, match: str, used: Sequence[Fit], wanted: Wanted) -> tuple[Seconds, float]:
    """Launch cost in s and the sd of its log, from sweeps over the batch where there are some."""
    if match == "class" and wanted.device in profile.launches:
        return profile.launches[wanted.device]
    spread = profile.spread[wanted.unit]
    fitted = [fit for fit in used if fit.launch_fitted]
    launch = _geometric([fit.launch for fit in fitted or used])
    return launch, spread["row"] if fitted and match == "stack" else spread["launch"]


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


_MATCH = {
    "stack": "single-device rows of the same stack",
    "framework": "single-device rows of the same framework, other versions",
    "device": "single-device rows of other frameworks; no row of {0.asked} on {0.device}",
    "class": "no single-device row of {0.device}: spread of achieved over roofline, all devices in {0.unit} units",
}


def _basis(match: str, used: Sequence[Fit], wanted: Wanted, same_model: bool) -> str:
    stacks = sorted({f"{fit.device} {fit.stack}" for fit in used})
    shown = ", ".join(stacks[:4]) + (f" and {len(stacks) - 4} more" if len(stacks) > 4 else "")
    return f"{_MATCH[match].format(wanted)} ({shown})" + (
        "" if same_model else f"; of other models than {wanted.model}"
    )


@cache
def load_profile(name: str = "compute") -> ComputeProfile:
    """Read a committed compute profile of the catalogue.

    Raises
    ------
    InvalidInput : there is none of that name.
    """
    file = resources.files("simnet").joinpath(f"catalog/profiles/{name}.toml")
    if not file.is_file():
        raise InvalidInput(f"unknown compute profile {name!r}; the catalogue has 'compute'")
    return parse_profile(tomllib.loads(file.read_text(encoding="utf-8")))


def parse_profile(values: dict[str, Any]) -> ComputeProfile:
    """Build a profile from the tables of its file."""
    fits = tuple(
        Fit(
            row["device"], row["framework"], row["stack"], row["unit"], row["model"], row["efficiency"],
            row["launch_s"], row["launch_fitted"], row["sd"], tuple(row["points"]), tuple(row["residuals"]),
        )
        for row in values["fit"]
    )  # fmt: skip
    launches = {row["device"]: (row["launch_s"], row["sd"]) for row in values.get("launch", ())}
    return ComputeProfile(values["name"], fits, values["spread"], launches, values["source"])
