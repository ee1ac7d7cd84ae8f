"""Layer tables as TOML text: the form in which a user adds a model, and in which a measured module is saved.

name = "lenet"
sample = "image"
source = "LeCun et al., 1998"

[[layer]]
name = "conv1"
kind = "conv"
forward_flop = 235200      # of one sample, two per multiply-add
reads = 1024               # elements of one sample
writes = 4704
saves = 4704               # elements kept until the backward pass
parameters = [{ name = "weight", shape = [6, 1, 5, 5] }, { name = "bias", shape = [6] }]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from simnet.errors import InvalidInput
from simnet.workload import Layer, Model, Tensor

_COUNTS = ("forward_flop", "reads", "writes", "saves")


def dumps(model: Model) -> str:
    """Write a layer table as TOML; `loads` gives the same table back, with its options left out."""
    import tomli_w

    head = {"name": model.name, "sample": model.sample, "source": model.source}
    return tomli_w.dumps({**head, "layer": [_row(layer) for layer in model.layers]})


def _row(layer: Layer) -> dict[str, Any]:
    row: dict[str, Any] = {"name": layer.name, "kind": layer.kind}
    row |= {count: int(getattr(layer, count)) for count in _COUNTS}
    row["parameters"] = [{"name": tensor.name, "shape": list(tensor.shape)} for tensor in layer.parameters]
    return row


def loads(text: str, *, place: str = "model file") -> Model:
    """Read a layer table.

    Raises
    ------
    InvalidInput : not TOML, or a key is missing, misspelt or of the wrong kind; the text names the layer.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{place} is no valid TOML: {error}") from error
    _only(table, ("name", "sample", "source", "layer"), place)
    rows = table.get("layer")
    if not isinstance(rows, list) or not rows:
        raise InvalidInput(f"{place} has no layers; write one [[layer]] table for each")
    layers = tuple(_layer(row, f"{place}, layer {index}") for index, row in enumerate(rows, start=1))
    name, sample, source = (_text(table, key, place) for key in ("name", "sample", "source"))
    return Model(name, layers, sample, source)


def _layer(row: Any, place: str) -> Layer:
    if not isinstance(row, dict):
        raise InvalidInput(f"{place} must be a table, got {row!r}")
    _only(row, ("name", "kind", *_COUNTS, "parameters"), place)
    name, kind = _text(row, "name", place), _text(row, "kind", place)
    counts = {count: _count(row.get(count, 0), f"{place} ({name}), {count}") for count in _COUNTS}
    parameters = row.get("parameters", [])
    if not isinstance(parameters, list):
        raise InvalidInput(f"{place} ({name}), parameters must be a list of tables, got {parameters!r}")
    return Layer(name, kind, tuple(_tensor(p, f"{place} ({name})") for p in parameters), **counts)


def _tensor(row: Any, place: str) -> Tensor:
    if not isinstance(row, dict) or not isinstance(row.get("shape"), list):
        raise InvalidInput(f'{place}, a parameter is written {{ name = "weight", shape = [6, 1, 5, 5] }}, got {row!r}')
    _only(row, ("name", "shape"), place)
    shape = tuple(_count(n, f"{place}, shape") for n in row["shape"])
    return Tensor(_text(row, "name", place), shape)


def _only(row: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in row:
        if key not in known:
            raise InvalidInput(f"{place} has an unknown key {key!r}; keys are {', '.join(known)}")


def _text(row: Mapping[str, Any], key: str, place: str) -> str:
    if not isinstance(row.get(key), str):
        raise InvalidInput(f"{place} needs {key} as text, got {row.get(key)!r}")
    return str(row[key])


def _count(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"{place} must be a whole number, 0 or more, got {value!r}")
    return value
