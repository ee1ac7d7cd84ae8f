"""Tables of a TOML file as records: no unknown key, no value of the wrong type, no quantity without its unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from simnet.errors import InvalidInput
from simnet.recipe import Phase
from simnet.units import Dimension, parse, parse_size

_BYTES = ("cap", "first", "threshold")
_TIMES = ("cycle",)


def read_table(kind: type[Any], values: Any, where: str) -> Any:
    """Build a record of that kind; `where` says in messages which table it is.

    Raises
    ------
    InvalidInput : an unknown or missing key, a value of the wrong type, or a quantity without its unit.
    """
    refuse_unknown(values, tuple(f.name for f in fields(kind)), where)
    given = {key: _with_unit(key, value, where) for key, value in dict(values).items()}
    require_types(kind, given, where)
    given = {key: converted(key, value, where) for key, value in given.items()}
    missing = [f.name for f in fields(kind) if f.name not in given and f.default is f.default_factory is MISSING]
    if missing:
        raise InvalidInput(f"{where} lacks {' and '.join(missing)}; give {'them' if missing[1:] else 'it'} as well")
    return kind(**given)


def read_value(kind: type[Any], key: str, value: Any, where: str) -> Any:
    """Read one value of a record from Python, where numbers are SI and text has units; errors as for `read_table`."""
    given = _with_unit(key, value, where) if isinstance(value, str) else value
    require_types(kind, {key: given}, where)
    plain = isinstance(given, Mapping) and not any(isinstance(one, str) for one in given.values())
    return frozen(given) if plain else converted(key, given, where)


def refuse_unknown(values: Any, known: tuple[str, ...], where: str) -> None:
    """Raise InvalidInput where values are no table or hold a key that is not known."""
    if not isinstance(values, Mapping):
        raise InvalidInput(f"{where} must be a table, got {values!r}")
    for key in values:
        if key not in known:
            raise InvalidInput(f"{where} has an unknown key {key!r}; it takes {', '.join(known)}")


def require_types(kind: type[Any], given: Mapping[str, Any], where: str) -> None:
    """Raise InvalidInput where a value is not what the record's field holds."""
    for entry in fields(kind):
        named = str(entry.type)
        value = given.get(entry.name)
        if entry.name not in given or (value is None and named.endswith("None")):
            continue
        wanted, holds = next((known for start, known in _TYPES.items() if named.startswith(start)), ("", bool))
        if wanted and not holds(value):
            raise InvalidInput(f"{where} needs {entry.name} as {wanted}, got {value!r}")


def is_table(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value is a table of those kinds; true and false are no numbers."""
    return isinstance(value, Mapping) and all(isinstance(v, kinds) and not isinstance(v, bool) for v in value.values())


def _is_options(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    lists = [v for v in value.values() if isinstance(v, list | tuple)]
    plain = all(isinstance(v, int | float | str | list | tuple) for v in value.values())
    return plain and all(isinstance(v, int) for one in lists for v in one)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are(value: Any, kind: type) -> bool:
    """Whether a value is a list of that kind."""
    return isinstance(value, list | tuple) and all(isinstance(v, kind) and not isinstance(v, bool) for v in value)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda v: isinstance(v, str)),
    "int": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "float": ("a number", _is_number),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "Mapping[str, float]": ("a table of numbers", lambda v: is_table(v, (int, float, str, list, tuple))),
    "Mapping": ("a table of numbers, words and lists of whole numbers", _is_options),
    "tuple[int": ("a list of whole numbers", lambda v: _are(v, int)),
    "tuple[str": ("a list of texts", lambda v: _are(v, str)),
    "tuple[Phase": (
        "a list such as [{ epochs = 30, batch = 8192 }, ...]",
        lambda v: _are(v, Mapping) or _are(v, Phase),
    ),
}

_QUANTITIES = {"storage_bandwidth": (Dimension.BANDWIDTH, "1.25 GB/s"), "start_up": (Dimension.TIME, "20 s")}


def _with_unit(key: str, value: Any, where: str) -> Any:
    if key not in _QUANTITIES:
        return value
    dimension, example = _QUANTITIES[key]
    if not isinstance(value, str):
        raise InvalidInput(f'{where} needs {key} as text with a unit, such as "{example}", got {value!r}')
    return parse(value, dimension, name=f"{key} in {where}")


def converted(key: str, value: Any, where: str) -> Any:
    """The value of a key as its record holds it: quantities in SI, lists as tuples."""
    match key:
        case "bucket_options":
            return {name: _bucket_option(name, one, where) for name, one in value.items()}
        case "cost_options":
            return {name: _cost(name, one, where) for name, one in value.items()}
        case "late":
            return {name: _late(name, one, where) for name, one in value.items()}
        case "batches":
            return tuple(
                one if isinstance(one, Phase) else read_table(Phase, one, f"{where}, batches") for one in value
            )
    return frozen(value)


def _cost(key: str, value: Any, where: str) -> Any:
    """Options of a cost model: rates and times with their units, counts and names as they are."""
    name = f"{key} in {where}"
    if key.endswith("bandwidth"):
        return parse(str(value), Dimension.BANDWIDTH, name=name)
    if key.endswith("_bytes") and isinstance(value, str):
        return parse_size(value, name=name)
    return parse(str(value), Dimension.TIME, name=name) if key in ("overhead", "gap", "stall") else value


def _bucket_option(key: str, value: Any, where: str) -> Any:
    if key == "caps" and _are(value, str):
        return tuple(_bucket_option("cap", one, where) for one in value)
    if key in _BYTES and isinstance(value, str):
        return int(parse(value, Dimension.INFORMATION, name=f"{key} in {where}"))
    if key in _TIMES and isinstance(value, str):
        return parse(value, Dimension.TIME, name=f"{key} in {where}")
    known = (*_BYTES, *_TIMES, "caps")
    if key not in known:
        raise InvalidInput(f"{where} has no bucket option {key!r}; there are {', '.join(known)}")
    raise InvalidInput(f'{where} needs {key} as text with a unit, such as "25 MiB" or "5 ms", got {value!r}')


def _late(rank: str, value: Any, where: str) -> float:
    if isinstance(value, str):
        return parse(value, Dimension.TIME, name=f"late of rank {rank} in {where}")
    raise InvalidInput(f'{where} needs late as times with units, such as {{ 1 = "200 ms" }}, got {value!r}')


def frozen(value: Any) -> Any:
    """Lists as tuples, also inside a table, as schedules are cached by their options."""
    if isinstance(value, Mapping):
        return {key: frozen(one) for key, one in value.items()}
    return tuple(value) if isinstance(value, list) else value
