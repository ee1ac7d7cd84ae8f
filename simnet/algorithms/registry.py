"""Find the algorithms of this package: add a file with an `@algorithm` function, and it is there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy.typing as npt

from simnet.algorithms.grid import node_grid
from simnet.collective import Kind
from simnet.errors import InvalidInput, Unsupported
from simnet.schedule import Schedule

Builder = Callable[..., Schedule]
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What every rank sends, in closed form; a plain number where all ranks send the same.

    Parameters
    ----------
    messages : messages sent, shape () or (world_size,)
    share : bytes sent over bytes in the buffer, shape () or (world_size,)
    """

    messages: int | npt.NDArray[Any]
    share: float | npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A named way to do a collective: `build(world_size, **options) -> Schedule`."""

    name: str
    kind: Kind
    build: Builder
    variants: Callable[[int], Iterable[Options]]
    traffic: Callable[..., Traffic]
    rows: bool = False

    @property
    def summary(self) -> str:
        """First line of the builder's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def states_traffic(self) -> bool:
        """Whether the algorithm was registered with a closed form of its traffic."""
        return self.traffic is not _unknown

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword-only options the builder takes."""
        parameters = inspect.signature(self.build).parameters.values()
        return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


_registry: dict[str, Algorithm] = {}


def _unknown(world_size: int, **options: Any) -> Traffic:
    raise Unsupported("this algorithm states no closed form of its traffic; give one with @algorithm(traffic=...)")


def _plain(world_size: int) -> Iterable[Options]:
    return ({},)


def algorithm(
    kind: Kind,
    *,
    traffic: Callable[..., Traffic] = _unknown,
    variants: Callable[[int], Iterable[Options]] = _plain,
    rows: bool = False,
) -> Callable[[Builder], Builder]:
    """Register a builder under its own name.

    Parameters
    ----------
    traffic : the closed form of what every rank sends, `traffic(world_size, **options)`; tests hold the schedule to it.
    variants : option sets worth testing at a world size (every grid, every group size, ...).
    rows : whether its `grid` has rows that a machine should hold inside its nodes.
    """

    def register(build: Builder) -> Builder:
        _registry[build.__name__] = Algorithm(build.__name__, kind, build, variants, traffic, rows)
        return build

    return register


@cache
def _load() -> None:
    package = importlib.import_module("simnet.algorithms")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"simnet.algorithms.{module.name}")


def algorithms(kind: Kind | None = None) -> dict[str, Algorithm]:
    """Return all algorithms by name, or those of one collective."""
    _load()
    return {name: a for name, a in sorted(_registry.items()) if kind is None or a.kind == kind}


def find(name: str) -> Algorithm:
    """Return the algorithm of that name.

    Raises
    ------
    InvalidInput : there is none; the text lists those there are.
    """
    known = algorithms()
    if name not in known:
        raise InvalidInput(f"unknown algorithm {name!r}; choose one of {', '.join(known)}")
    return known[name]


def build(name: str, world_size: int, **options: Any) -> Schedule:
    """Build the named algorithm at a world size; options that are None are left to their defaults.

    Raises
    ------
    InvalidInput : unknown name, an option the algorithm does not take, or a world size it does not admit.
    """
    chosen = find(name)
    if world_size < 1:
        raise InvalidInput(f"world_size must be 1 or more ranks, got {world_size}")
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        if key not in chosen.options:
            takes = ", ".join(chosen.options) or "no options"
            raise InvalidInput(f"{name} takes no option {key!r}, got {value!r}; it takes {takes}")
        _require_kind(chosen, key, value)
    return chosen.build(world_size, **given)


def on_nodes(name: str, world_size: int, ranks_per_node: int, given: Options) -> dict[str, Any]:
    """Return the options given; groups and grids that are not given are those of nodes of so many ranks."""
    chosen, options = find(name), {key: value for key, value in given.items() if value is not None}
    if "ranks_per_node" in chosen.options and world_size % ranks_per_node == 0:
        options.setdefault("ranks_per_node", ranks_per_node)
    if chosen.rows:
        options.setdefault("grid", node_grid(world_size, ranks_per_node))
    return options


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "str": ("a word", lambda v: isinstance(v, str)),
    "Grid": (
        "whole numbers such as (4, 4)",
        lambda v: isinstance(v, tuple | list) and all(isinstance(x, int) for x in v),
    ),
}


def _require_kind(chosen: Algorithm, option: str, value: Any) -> None:
    named = str(inspect.signature(chosen.build).parameters[option].annotation).partition(" |")[0]
    wanted, holds = _KINDS.get(named, ("", bool))
    if wanted and not holds(value):
        raise InvalidInput(f"{option} of {chosen.name} must be {wanted}, got {value!r}")
