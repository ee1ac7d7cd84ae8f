"""Find the cost models of this package: add a file with a `@cost_model` class, and it is there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

from simnet.costs.model import CostModel
from simnet.errors import InvalidInput
from simnet.units import Dimension, parse, parse_size


@dataclass(frozen=True, slots=True)
class Entry:
    """A cost model by name: `build(**options) -> CostModel`.

    `required` options differ from machine to machine and have no sourced default: whoever names the model states them.
    """

    name: str
    build: Callable[..., CostModel]
    source: str
    required: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """First line of the class's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """Options with their defaults."""
        return {f.name: f.default for f in fields(self.build) if f.name != "name"}  # type: ignore[arg-type]


_registry: dict[str, Entry] = {}
_Class = TypeVar("_Class", bound=type[Any])


def cost_model(name: str, *, source: str, required: tuple[str, ...] = ()) -> Callable[[_Class], _Class]:
    """Register a frozen dataclass as the cost model of that name.

    Parameters
    ----------
    source : where its formulas and the defaults of its options come from
    required : options without such a default, which a request must state
    """

    def register(build: _Class) -> _Class:
        _registry[name] = Entry(name, build, source, required)
        return build

    return register


@cache
def _load() -> None:
    package = importlib.import_module("simnet.costs")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"simnet.costs.{module.name}")


def cost_models() -> dict[str, Entry]:
    """Return all cost models by name."""
    _load()
    return dict(sorted(_registry.items()))


def find(name: str) -> Entry:
    """Return the cost model of that name; "alpha-beta" and "alpha_beta" are the same.

    Raises
    ------
    InvalidInput : there is none; the text lists those there are.
    """
    known = cost_models()
    plain = name.lower().replace("-", "_")
    if plain not in known:
        raise InvalidInput(f"unknown cost model {name!r}; choose one of {', '.join(known)}")
    return known[plain]


def of_text(text: str) -> CostModel:
    """Build the cost model a human wrote: "infiniband", or "tcp:overhead=20 us,flows=4".

    Times and bandwidths need units; bytes follow nccl-tests' grammar (1500, 64K).

    Raises
    ------
    InvalidInput : unknown name or option, a value of another form, or a required option missing.
    """
    name, _, rest = text.partition(":")
    chosen = find(name)
    options = {}
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = part.partition("=")
        if not equals or key.strip() not in chosen.options:
            takes = ", ".join(f"{option}=..." for option in chosen.options)
            raise InvalidInput(f"{part!r} is no option of the cost model {chosen.name}; write {takes}")
        options[key.strip()] = _value(chosen, key.strip(), value.strip())
    return _built(chosen, options)


def _built(chosen: Entry, options: dict[str, Any]) -> CostModel:
    missing = [key for key in chosen.required if key not in options]
    if missing and any(_kind(chosen, key).startswith("tuple") for key in missing):
        raise InvalidInput(f"the cost model {chosen.name} needs {chosen.source}; give one with --profile FILE")
    if missing:
        form = ",".join(f"{key}=..." for key in chosen.required)
        raise InvalidInput(
            f"the cost model {chosen.name} needs {', '.join(missing)}, which no source gives for all machines; "
            f"write {chosen.name}:{form}"
        )
    for key, value in options.items():
        if isinstance(value, int | float) and not value >= 0:
            raise InvalidInput(f"{key} of {chosen.name} must be 0 or more, got {value:g}")
    return chosen.build(**options)


def _kind(chosen: Entry, key: str) -> str:
    return next(str(f.type) for f in fields(chosen.build) if f.name == key)  # type: ignore[arg-type]


def _value(chosen: Entry, key: str, text: str) -> Any:
    kind = _kind(chosen, key)
    name = f"{key} of {chosen.name}"
    if kind.startswith("tuple"):
        raise InvalidInput(f"{name} cannot be written on a command line; use a profile")
    if kind.startswith("Seconds"):
        return parse(text, Dimension.TIME, name=name)
    if kind.startswith("BytesPerSecond"):
        return parse(text, Dimension.BANDWIDTH, name=name)
    if kind.startswith("Bytes"):
        return parse_size(text, name=name)
    if kind != "int":
        return text
    if not text.isdigit():
        raise InvalidInput(f"{name} must be a whole number, got {text!r}")
    return int(text)


def build(name: str, **options: Any) -> CostModel:
    """Build the named cost model; options that are None are left to their defaults.

    Raises
    ------
    InvalidInput : unknown name, an option the model does not take, or a required one missing.
    """
    chosen = find(name)
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        if key not in chosen.options:
            takes = ", ".join(chosen.options) or "no options"
            raise InvalidInput(f"{chosen.name} takes no option {key!r}, got {value!r}; it takes {takes}")
    return _built(chosen, given)
