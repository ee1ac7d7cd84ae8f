"""The form of catalogue files, checked once at the border, and their translation into records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Device, Layout, LinkType, Node, Precision, Quantity, Wire
from simnet.topologies.registry import Scope, require
from simnet.units import Dimension, parse


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class QuantityForm(_Form):
    """A number with its unit, either +/- (percent, or in a unit) or a range, and a source."""

    value: str
    plus_minus: str | None = None
    range: tuple[str, str] | None = Field(default=None, strict=False)
    source: str


class DeviceForm(_Form):
    """A file in devices/."""

    summary: str
    sources: dict[str, str] = {}
    memory: QuantityForm
    memory_bandwidth: QuantityForm
    power: QuantityForm | None = None
    price: QuantityForm | None = None
    peaks: dict[str, QuantityForm]


class LinkForm(_Form):
    """A file in links/."""

    summary: str
    kind: str
    sources: dict[str, str] = {}
    bandwidth: QuantityForm
    latency: QuantityForm


class WireForm(_Form):
    """Links of a type side by side; bandwidth (of one link) and latency may replace the type's."""

    link: str
    width: float = Field(default=1.0, strict=False, gt=0)
    bandwidth: QuantityForm | None = None
    latency: QuantityForm | None = None


class NodeForm(_Form):
    """The table [node] of a cluster."""

    device: str
    num_devices: int = Field(ge=1)
    topology: str
    wires: dict[str, WireForm] = {}
    options: dict[str, Any] = {}
    power: QuantityForm | None = None
    price: QuantityForm | None = None


class NetworkForm(_Form):
    """The table [network] of a cluster."""

    topology: str
    wires: dict[str, WireForm] = {}
    options: dict[str, Any] = {}


class ClusterForm(_Form):
    """A file in clusters/."""

    summary: str
    num_nodes: int = Field(ge=1)
    sources: dict[str, str]
    node: NodeForm
    network: NetworkForm


_AnyForm = TypeVar("_AnyForm", bound=_Form)


def _checked(form: type[_AnyForm], table: Mapping[str, Any], place: str) -> _AnyForm:
    try:
        return form.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{place}: {where}: {first['msg'].lower()}, got {first['input']!r}") from error


class _Reader:
    """Turns quantities of one file into SI, with the file's own sources filled in."""

    def __init__(self, place: str, sources: Mapping[str, str]) -> None:
        self.place, self.sources = place, sources

    def quantity(self, form: QuantityForm, dimension: Dimension, name: str) -> Quantity:
        name = f"{self.place}: {name}"
        value = parse(form.value, dimension, name=name)
        if (form.plus_minus is None) == (form.range is None):
            raise InvalidInput(f"{name} needs either plus_minus or range, so that its uncertainty is known")
        if form.range is not None:
            low, high = (parse(text, dimension, name=name) for text in form.range)
        else:
            spread = self._spread(form.plus_minus or "", value, dimension, name)
            low, high = value - spread, value + spread
        if not 0 <= low <= value <= high:
            raise InvalidInput(f"{name} must be 0 or more and lie in its range, got {form.value} in [{low}, {high}] SI")
        return Quantity(value, low, high, self.sources.get(form.source, form.source))

    def optional(self, form: QuantityForm | None, dimension: Dimension, name: str) -> Quantity | None:
        return None if form is None else self.quantity(form, dimension, name)

    def _spread(self, text: str, value: float, dimension: Dimension, name: str) -> float:
        if not text.endswith("%"):
            return parse(text, dimension, name=f"{name}, plus_minus")
        try:
            return value * float(text[:-1]) / 100
        except ValueError as error:
            raise InvalidInput(f"{name}: plus_minus must be a percentage or a quantity, got {text!r}") from error

    def wire(self, form: WireForm, link: LinkType, name: str) -> Wire:
        bandwidth = self.optional(form.bandwidth, Dimension.BANDWIDTH, f"{name}.bandwidth") or link.bandwidth
        latency = self.optional(form.latency, Dimension.TIME, f"{name}.latency") or link.latency
        return Wire(LinkType(link.name, link.summary, link.kind, bandwidth, latency), form.width)


def device(name: str, table: Mapping[str, Any], place: str) -> Device:
    """Read a device from its file's table."""
    form = _checked(DeviceForm, table, place)
    reader = _Reader(place, form.sources)
    peaks = {
        _precision(key, place): reader.quantity(peak, Dimension.COMPUTE, f"peaks.{key}")
        for key, peak in form.peaks.items()
    }
    return Device(
        name=name,
        summary=form.summary,
        peaks=peaks,
        memory=reader.quantity(form.memory, Dimension.INFORMATION, "memory"),
        memory_bandwidth=reader.quantity(form.memory_bandwidth, Dimension.BANDWIDTH, "memory_bandwidth"),
        power=reader.optional(form.power, Dimension.POWER, "power"),
        price=reader.optional(form.price, Dimension.MONEY, "price"),
    )


def _precision(key: str, place: str) -> Precision:
    try:
        return Precision(key)
    except ValueError as error:
        raise InvalidInput(f"{place}: peaks.{key} is no precision; use one of {', '.join(Precision)}") from error


def link(name: str, table: Mapping[str, Any], place: str) -> LinkType:
    """Read a link type from its file's table."""
    form = _checked(LinkForm, table, place)
    reader = _Reader(place, form.sources)
    bandwidth = reader.quantity(form.bandwidth, Dimension.BANDWIDTH, "bandwidth")
    return LinkType(name, form.summary, form.kind, bandwidth, reader.quantity(form.latency, Dimension.TIME, "latency"))


def cluster(
    name: str,
    table: Mapping[str, Any],
    place: str,
    *,
    device: Callable[[str], Device],
    link: Callable[[str], LinkType],
) -> Cluster:
    """Read a cluster from its file's table; device and link look up what it names."""
    form = _checked(ClusterForm, table, place)
    reader = _Reader(place, form.sources)
    node = Node(
        device(form.node.device),
        form.node.num_devices,
        _layout(form.node, reader, link, Scope.NODE),
        power=reader.optional(form.node.power, Dimension.POWER, "node.power"),
        price=reader.optional(form.node.price, Dimension.MONEY, "node.price"),
    )
    network = _layout(form.network, reader, link, Scope.NETWORK)
    return Cluster(name, form.summary, node, form.num_nodes, network, form.sources)


def _layout(form: NodeForm | NetworkForm, reader: _Reader, link: Callable[[str], LinkType], scope: Scope) -> Layout:
    wires = {name: reader.wire(wire, link(wire.link), f"{scope}.wires.{name}") for name, wire in form.wires.items()}
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in form.options.items()}
    layout = Layout(form.topology, wires, options)
    require(layout, scope, place=reader.place)
    return layout
