"""What is asked: a training job on a cluster, as one record that a user can write as a TOML file.

The catalogue's scenarios are the published systems; copy one, change a line, and ask "what if".
Quantities are written with their units; a key nobody knows is refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from simnet.catalog.loader import Folder, file_text
from simnet.catalog.loader import scenarios as catalogued
from simnet.errors import InvalidInput
from simnet.hardware import Precision
from simnet.units import Dimension, parse, parse_size

Option = int | float | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """What is trained on what: names of the catalogue, the devices used, and the samples per device and step.

    `framework` names a stack whose single-device speed is known ("mxnet-2018"), a framework ("mxnet") or any
    other word, which widens the interval. `recipe` is a published recipe by name, or empty. `model_options` go to the
    builder of the layer table, such as another resolution or sequence length.
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
        """Ranks of the first group, rank y * X + x in column x of row y; none where groups are blocks of ranks."""
        if not self.grid:
            return ()
        rows = self.group // self.tile
        return tuple(y * self.grid[0] + x for y in range(rows) for x in range(self.tile))

    def require(self, devices: int, *, where: str) -> None:
        """Raise InvalidInput where groups do not divide the devices, or tiles do not fit the grid."""
        if devices % self.group:
            raise InvalidInput(f"batch_norm.group {where} divide {devices} devices, got {self.group}")
        if not self.grid:
            return
        if len(self.grid) != 2 or self.grid[0] * self.grid[1] != devices:
            raise InvalidInput(f"batch_norm.grid {where} be X and Y with X * Y = {devices}, got {list(self.grid)}")
        rows = self.group // self.tile if self.tile > 0 else 0
        if not rows or self.group % self.tile or self.grid[0] % self.tile or self.grid[1] % rows:
            raise InvalidInput(
                f"batch_norm.tile {where} be a width that divides the group of {self.group} and tiles the grid "
                f"{self.grid[0]} x {self.grid[1]}, got {self.tile}"
            )


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
        if not exchange.compression >= 1:
            raise InvalidInput(f"exchange.compression {where} be 1 or more, got {exchange.compression}")
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
    "input": Input,
}  # fmt: skip
_PLAIN = ("name", "summary", "source", "assumed", "draws", "seed", "bandwidth", "latency")
_BYTES = ("cap", "first", "threshold")
_TIMES = ("cycle",)


def parse_scenario(values: Mapping[str, Any], *, where: str) -> Scenario:
    """Build a scenario from the tables of its file.

    Raises
    ------
    InvalidInput : an unknown or missing key, a value of the wrong type, or a quantity without its unit.
    """
    _refuse_unknown(values, (*_TABLES, *_PLAIN), where)
    for key in ("name", "job"):
        if key not in values:
            raise InvalidInput(f"{where} has no {key!r}; every scenario needs a name and a table [job]")
    tables = {key: _table(kind, values[key], f"{where}, [{key}]") for key, kind in _TABLES.items() if key in values}
    plain = {key: values[key] for key in _PLAIN if key in values}
    _require_types(Scenario, plain, where)
    for key in ("bandwidth", "latency"):
        if not _is_table(plain.get(key, {}), (int, float)):
            raise InvalidInput(f"{where} needs [{key}] as factors by wire, such as inter = 2.0, got {plain[key]!r}")
    plain["assumed"] = tuple(plain.get("assumed", ()))
    return Scenario(**plain, **tables)


def _refuse_unknown(values: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(values, Mapping):
        raise InvalidInput(f"{where} must be a table, got {values!r}")
    for key in values:
        if key not in known:
            raise InvalidInput(f"{where} has an unknown key {key!r}; it takes {', '.join(known)}")


def _table(kind: type[Any], values: Any, where: str) -> Any:
    _refuse_unknown(values, tuple(f.name for f in fields(kind)), where)
    given = dict(values)
    _require_types(kind, given, where)
    if "bucket_options" in given:
        given["bucket_options"] = {key: _quantity(key, value, where) for key, value in given["bucket_options"].items()}
    if "storage_bandwidth" in given:
        given["storage_bandwidth"] = _bandwidth(given["storage_bandwidth"], where)
    if "cost_options" in given:
        given["cost_options"] = {key: _cost(key, value, where) for key, value in given["cost_options"].items()}
    for key in ("options", "model_options"):
        if key in given:
            given[key] = _frozen(given[key])
    if "grid" in given:
        given["grid"] = tuple(given["grid"])
    try:
        return kind(**given)
    except TypeError as error:
        missing = [f.name for f in fields(kind) if f.name not in given]
        raise InvalidInput(f"{where} lacks a key; it takes {', '.join(missing)} as well") from error


def _is_table(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, Mapping) and all(isinstance(v, kinds) for v in value.values())


def _is_options(value: Any) -> bool:
    lists = [v for v in value.values() if isinstance(v, list | tuple)] if isinstance(value, Mapping) else []
    return _is_table(value, (int, float, str, list, tuple)) and all(isinstance(v, int) for one in lists for v in one)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda v: isinstance(v, str)),
    "int": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "float": ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool)),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "Mapping[str, float]": ("a table of numbers", lambda v: _is_table(v, (int, float, str))),
    "Mapping": ("a table of numbers, words and lists of whole numbers", _is_options),
    "tuple": ("a list", lambda v: isinstance(v, list | tuple)),
}


def _require_types(kind: type[Any], given: Mapping[str, Any], where: str) -> None:
    for entry in fields(kind):
        if entry.name not in given or entry.name == "storage_bandwidth":
            continue
        named = str(entry.type)
        wanted, holds = next((known for start, known in _TYPES.items() if named.startswith(start)), ("", bool))
        if wanted and not holds(given[entry.name]):
            raise InvalidInput(f"{where} needs {entry.name} as {wanted}, got {given[entry.name]!r}")


def _cost(key: str, value: Any, where: str) -> Any:
    """Options of a cost model: rates and times with their units, counts and names as they are."""
    name = f"{key} in {where}"
    if key.endswith("bandwidth"):
        return parse(str(value), Dimension.BANDWIDTH, name=name)
    if key.endswith("_bytes") and isinstance(value, str):
        return parse_size(value, name=name)
    return parse(str(value), Dimension.TIME, name=name) if key in ("overhead", "gap", "stall") else value


def _quantity(key: str, value: Any, where: str) -> float:
    if key in _BYTES and isinstance(value, str):
        return int(parse(value, Dimension.INFORMATION, name=f"{key} in {where}"))
    if key in _TIMES and isinstance(value, str):
        return parse(value, Dimension.TIME, name=f"{key} in {where}")
    raise InvalidInput(f'{where} needs {key} as text with a unit, such as "25 MiB" or "5 ms", got {value!r}')


def _bandwidth(value: Any, where: str) -> float:
    if isinstance(value, str):
        return parse(value, Dimension.BANDWIDTH, name=f"storage_bandwidth in {where}")
    raise InvalidInput(f'{where} needs storage_bandwidth as text with a unit, such as "1.25 GB/s", got {value!r}')


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
        given = _frozen(value)
        scenario = replace(scenario, **{table: _with_key(part, key, given) if key else given})
    return scenario


def _frozen(value: Any) -> Any:
    """Lists as tuples, also inside a table, as schedules are cached by their options."""
    if isinstance(value, Mapping):
        return {key: _frozen(one) for key, one in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _with_key(part: Any, key: str, value: Any) -> Any:
    if isinstance(part, Mapping):
        return {**part, key: value}
    _refuse_unknown({key: value}, tuple(f.name for f in fields(part)), f"table {type(part).__name__}")
    return replace(part, **{key: value})


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
