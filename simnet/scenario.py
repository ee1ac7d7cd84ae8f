"""What is asked: a training job on a cluster, as one record that a user can write as a TOML file.

The catalogue's scenarios are the published systems; copy one, change a line, and ask "what if".
Quantities are written with their units; a key nobody knows is refused.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from simnet.catalog.loader import Folder, file_text
from simnet.catalog.loader import scenarios as catalogued
from simnet.errors import InvalidInput
from simnet.hardware import Precision
from simnet.recipe import OwnRun
from simnet.slow import Slow
from simnet.table_values import is_table, read_table, read_value, refuse_unknown, require_types

Option = int | float | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """What is trained on what: names of the catalogue, the devices used, and the samples per device and step.

    `framework` names a stack whose single-device speed is known ("mxnet-2018"), a framework ("mxnet") or any
    other word, which widens the interval. `recipe` is a published recipe by name, or empty. `model_options` go to the
    builder of the layer table, such as another resolution or sequence length. `layer_times` is a file that
    `realrun probe --model` wrote on such a device: its times take the place of those that are known of the framework.
    """

    cluster: str
    devices: int
    model: str
    per_device_batch: int
    precision: str = "fp32"
    framework: str = ""
    recipe: str = ""
    accumulation: int = 1
    model_options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    layer_times: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """How gradients are summed: schedule, buckets, number format, and how far it overlaps with the backward pass.

    `lanes` all-reduces may be in flight at once: their latencies overlap, their bytes do not. Where the root is another
    rank for every bucket (`rotating`), each bucket holds up a port of its own. `compression` divides the bytes.
    `interference` is the fraction of compute speed lost while a message is in flight; left out, that of kernels which
    share the device with collectives. `profile` is a file that `simnet calibrate` wrote, in place of `cost`; the
    algorithm "nccl" is whatever NCCL runs, by a profile that holds its fit.
    """

    algorithm: str = "ring"
    options: Mapping[str, Option] = field(default_factory=dict)
    cost: str = "alpha_beta"
    cost_options: Mapping[str, float | str] = field(default_factory=dict)
    profile: str = ""
    buckets: str = "ddp"
    bucket_options: Mapping[str, float] = field(default_factory=dict)
    gradient_dtype: str = "float32"
    overlap: bool = True
    lanes: int = 1
    rotating: bool = False
    compression: float = 1.0
    interference: float | None = None


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Distributed batch normalisation: statistics are shared by groups of `group` devices; 1 is the usual local one.

    Groups are blocks of neighbouring ranks, or tiles of a `grid` of ranks, `tile` wide and group / tile high.
    """

    group: int = 1
    grid: tuple[int, ...] = ()
    tile: int = 0

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks of the first group in the order of their ring, rank y * X + x in column x of row y.

        Neighbours in the ring are neighbours in the grid. None where groups are blocks of ranks.
        """
        if not self.grid:
            return ()
        places = _around(self.tile, self.group // self.tile)
        return tuple(y * self.grid[0] + x for x, y in places)

    def require(self, devices: int, *, where: str) -> None:
        """Raise InvalidInput where groups do not divide the devices, or tiles do not fit the grid."""
        if devices % self.group:
            raise InvalidInput(f"batch_norm.group {where} divide {devices} devices, got {self.group}")
        if not self.grid:
            if self.tile:
                raise InvalidInput(f"batch_norm.tile {where} have a batch_norm.grid to lie in, got {self.tile} without")
            return
        if len(self.grid) != 2 or self.grid[0] * self.grid[1] != devices:
            raise InvalidInput(f"batch_norm.grid {where} be X and Y with X * Y = {devices}, got {list(self.grid)}")
        rows = self.group // self.tile if self.tile > 0 else 0
        if not rows or self.group % self.tile or self.grid[0] % self.tile or self.grid[1] % rows:
            raise InvalidInput(
                f"batch_norm.tile {where} be a width that divides the group of {self.group} and tiles the grid "
                f"{self.grid[0]} x {self.grid[1]}, got {self.tile}"
            )


def _around(columns: int, rows: int) -> list[tuple[int, int]]:
    """Every place (x, y) of a tile once, each beside the one before; the last beside the first where one side is even.

    Out along row after row, all but their first column, and back along that column.
    """
    if rows % 2 and not columns % 2:
        return [(x, y) for y, x in _around(rows, columns)]
    if rows % 2 or columns == 1:
        return [(x if y % 2 == 0 else columns - 1 - x, y) for y in range(rows) for x in range(columns)]
    first = [(x, 0) for x in range(columns)]
    out = [(x if y % 2 == 0 else columns - x, y) for y in range(1, rows) for x in range(1, columns)]
    return [*first, *out, *((0, y) for y in range(rows - 1, 0, -1))]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Terms of the update that can be switched off."""

    lars: bool = False
    loss_scaling: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """Images on their way to the devices of one host: its cores, its share of the storage, what it has cached.

    `cached` of the reads, a fraction, come from memory; `fused` decodes only what the crop keeps; `devices_per_host`
    is the node's number of devices where it is not given. A scenario without it never waits for data.
    """

    cores: int
    storage_bandwidth: float
    cached: float = 0.0
    fused: bool = False
    pixel_bytes: int = 4
    devices_per_host: int | None = None

    def __post_init__(self) -> None:
        hosted = 1 if self.devices_per_host is None else self.devices_per_host
        for key, value in (("cores", self.cores), ("pixel_bytes", self.pixel_bytes), ("devices_per_host", hosted)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInput(f"input.{key} must be 1 or more whole ones, got {value!r}")
        if not 0 <= self.cached <= 1 or not self.storage_bandwidth > 0:
            raise InvalidInput(
                "input.cached must be a fraction from 0 to 1 and input.storage_bandwidth above 0, got "
                f"{self.cached} and {self.storage_bandwidth} bytes/s"
            )


@dataclass(frozen=True, slots=True)
class Variation:
    """What makes ranks late, as fractions of the compute time; left out, each is that of the catalogue.

    `between_ranks` is the sd of the compute time over ranks, which lasts, `between_steps` that of fresh noise.
    `node_contention` is what eight devices of a node take from each other (host, input, clocks; fewer take less),
    `network_contention` what a second node adds: both beyond what the model counts.
    """

    between_ranks: float | None = None
    between_steps: float | None = None
    node_contention: float | None = None
    network_contention: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A training job on a cluster; `bandwidth` and `latency` scale its wires, by name or all "inter" or "intra"."""

    name: str
    job: Job
    exchange: Exchange = Exchange()
    batch_norm: BatchNorm = BatchNorm()
    optimizer: Optimizer = Optimizer()
    variation: Variation = Variation()
    slow: Slow = field(default_factory=Slow)
    run: OwnRun = field(default_factory=OwnRun)
    input: Input | None = None
    bandwidth: Mapping[str, float] = field(default_factory=dict)
    latency: Mapping[str, float] = field(default_factory=dict)
    summary: str = ""
    source: str = ""
    assumed: tuple[str, ...] = ()
    draws: int = 1000
    seed: int = 2018

    def __post_init__(self) -> None:
        job, exchange = self.job, self.exchange
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InvalidInput(f"seed of scenario {self.name!r} must be a whole number of 0 or more, got {self.seed!r}")
        if job.precision not in list(Precision):
            known = ", ".join(Precision)
            raise InvalidInput(f"job.precision of scenario {self.name!r} must be one of {known}, got {job.precision!r}")
        for field_ in fields(Variation):
            value = getattr(self.variation, field_.name)
            if value is not None and not 0 <= value < 1:
                raise InvalidInput(
                    f"variation.{field_.name} of scenario {self.name!r} must be from 0 to below 1, got {value}"
                )
        counts = {
            "job.devices": job.devices, "job.per_device_batch": job.per_device_batch, "draws": self.draws,
            "job.accumulation": job.accumulation, "exchange.lanes": exchange.lanes,
            "batch_norm.group": self.batch_norm.group,
        }  # fmt: skip
        where = f"of scenario {self.name!r} must"
        for key, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInput(f"{key} {where} be 1 or more whole ones, got {value!r}")
        if not 1 <= exchange.compression < math.inf:
            raise InvalidInput(f"exchange.compression {where} be 1 or more and finite, got {exchange.compression}")
        if exchange.interference is not None and not 0 <= exchange.interference < 1:
            raise InvalidInput(f"exchange.interference {where} be from 0 to below 1, got {exchange.interference}")
        self.batch_norm.require(job.devices, where=where)

    @property
    def global_batch(self) -> int:
        """Samples of one step over all devices."""
        return self.job.devices * self.job.per_device_batch * self.job.accumulation

    @property
    def normalisation_batch(self) -> int:
        """Samples whose statistics batch normalisation shares."""
        return self.job.per_device_batch * self.batch_norm.group

    def with_job(self, **changes: Any) -> Scenario:
        """Return the scenario with fields of its job changed."""
        return replace(self, job=replace(self.job, **changes))

    def with_exchange(self, **changes: Any) -> Scenario:
        """Return the scenario with fields of its gradient exchange changed."""
        return replace(self, exchange=replace(self.exchange, **changes))


_TABLES = {
    "job": Job, "exchange": Exchange, "batch_norm": BatchNorm, "optimizer": Optimizer, "variation": Variation,
    "slow": Slow, "run": OwnRun, "input": Input,
}  # fmt: skip
_PLAIN = ("name", "summary", "source", "assumed", "draws", "seed", "bandwidth", "latency")


def parse_scenario(values: Mapping[str, Any], *, where: str) -> Scenario:
    """Build a scenario from the tables of its file.

    Raises
    ------
    InvalidInput : an unknown or missing key, a value of the wrong type, or a quantity without its unit.
    """
    refuse_unknown(values, (*_TABLES, *_PLAIN), where)
    for key in ("name", "job"):
        if key not in values:
            raise InvalidInput(f"{where} has no {key!r}; every scenario needs a name and a table [job]")
    tables = {key: read_table(kind, values[key], f"{where}, [{key}]") for key, kind in _TABLES.items() if key in values}
    plain = {key: values[key] for key in _PLAIN if key in values}
    require_types(Scenario, plain, where)
    for key in ("bandwidth", "latency"):
        if not is_table(plain.get(key, {}), (int, float)):
            raise InvalidInput(f"{where} needs [{key}] as factors by wire, such as inter = 2.0, got {plain[key]!r}")
    plain["assumed"] = tuple(plain.get("assumed", ()))
    return Scenario(**plain, **tables)


def changed(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """Return the scenario with fields changed by dotted name: {"job.devices": 64, "bandwidth.inter": 2.0}.

    Raises
    ------
    InvalidInput : a name the scenario does not have, or a value it does not take.
    """
    for name, value in changes.items():
        table, _, key = name.partition(".")
        part = getattr(scenario, table, None) if table in {f.name for f in fields(scenario)} else None
        if part is None or bool(key) != (is_dataclass(part) or isinstance(part, Mapping)):
            raise InvalidInput(
                f"a scenario has no field {name!r}; write job.devices, exchange.algorithm, bandwidth.inter"
            )
        scenario = replace(scenario, **{table: _with_key(part, key, value, name) if key else _plain(name, value)})
    return scenario


def _plain(name: str, value: Any) -> Any:
    """Value of a field that is in no table."""
    return read_value(Scenario, name, value, "a scenario")


def _with_key(part: Any, key: str, value: Any, name: str) -> Any:
    if isinstance(part, Mapping):
        if not is_table({key: value}, (int, float)):
            raise InvalidInput(f"{name} must be a factor such as 2.0, got {value!r}")
        return {**part, key: value}
    refuse_unknown({key: value}, tuple(f.name for f in fields(part)), f"table {type(part).__name__}")
    return replace(part, **{key: read_value(type(part), key, value, name.partition(".")[0])})


def scenarios(folder: Folder = None) -> dict[str, str]:
    """Return names and summaries of the catalogue's scenarios, those of a folder of your own among them."""
    found = {name: _parsed(file_text("scenarios", name, folder), name) for name in catalogued(folder)}
    return {name: str(values.get("summary", "")) for name, values in found.items()}


def load_scenario(name: str, folder: Folder = None) -> Scenario:
    """Read a scenario of the catalogue by name, or a TOML file by path; a folder of your own comes first.

    Raises
    ------
    InvalidInput : no such scenario or file, or the file is no scenario.
    """
    if name.endswith(".toml") or "/" in name:
        text = _read(Path(name))
    elif name in (known := catalogued(folder)):
        text = file_text("scenarios", name, folder)
    else:
        raise InvalidInput(f"unknown scenario {name!r}; name a .toml file or one of {', '.join(known)}")
    return parse_scenario(_parsed(text, name), where=name)


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{name} is no TOML file: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read the scenario {path}: {error}; name a TOML file") from error
