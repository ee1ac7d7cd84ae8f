"""Find the models of this package: add a file with a `@model` function, and it is there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from simnet.errors import InvalidInput
from simnet.workload import Layer, Model

Layers = tuple[Layer, ...]
Build = Callable[..., Layers]


@dataclass(frozen=True, slots=True)
class Entry:
    """A named layer table: `build(**options) -> layers`, with the names people use for it."""

    name: str
    build: Build
    sample: str
    source: str
    aliases: tuple[str, ...]

    @property
    def summary(self) -> str:
        """First line of the builder's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """Keyword-only options the builder takes, with their defaults."""
        parameters = inspect.signature(self.build).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


_registry: dict[str, Entry] = {}


def model(*, source: str, sample: str = "image", aliases: tuple[str, ...] = ()) -> Callable[[Build], Build]:
    """Register a builder of layers under its own name.

    Parameters
    ----------
    source : where the architecture is defined.
    aliases : other names; capitals, blanks and punctuation do not matter in any of them.
    """

    def register(build: Build) -> Build:
        _registry[build.__name__] = Entry(build.__name__, build, sample, source, aliases)
        return build

    return register


@cache
def _load() -> None:
    package = importlib.import_module("simnet.models")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"simnet.models.{module.name}")


def models() -> dict[str, Entry]:
    """Return all models by name."""
    _load()
    return dict(sorted(_registry.items()))


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def find(name: str) -> Entry:
    """Return the model of that name or alias; "ResNet-50" finds resnet50.

    Raises
    ------
    InvalidInput : there is none; the text lists those there are.
    """
    known = models()
    for entry in known.values():
        if _plain(name) in {_plain(n) for n in (entry.name, *entry.aliases)}:
            return entry
    raise InvalidInput(f"unknown model {name!r}; choose one of {', '.join(known)}")


def build(name: str, /, **options: Any) -> Model:
    """Build the layer table of a model; options that are None are left to their defaults.

    Raises
    ------
    InvalidInput : unknown name, an option the model does not take, or a value it does not admit.
    """
    entry = find(name)
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        if key not in entry.options:
            takes = ", ".join(entry.options) or "no options"
            raise InvalidInput(f"{entry.name} takes no option {key!r}, got {value!r}; it takes {takes}")
        _require_kind(f"option {key} of {entry.name}", entry.options[key], value)
    used = {**entry.options, **given}
    table = Model(entry.name, entry.build(**given), entry.sample, entry.source)
    return replace(table, options=tuple(used.items()))


def _require_kind(name: str, default: Any, value: Any) -> None:
    """Raise InvalidInput where a value is of another kind than the option's default; a float may be whole."""
    for kind, word in ((bool, "true or false"), (int, "a whole number"), (float, "a number")):
        if isinstance(default, kind):
            accepted = (float, int) if kind is float else kind
            if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
                raise InvalidInput(f"{name} must be {word}, got {value!r}")
            return
