"""Parts of a machine that are slower than the others: nodes, ranks and links."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simnet.errors import InvalidInput
from simnet.units import Seconds


@dataclass(frozen=True, slots=True)
class Slow:
    """Parts that are slower than the others for as long as the job runs, by number or name.

    `nodes` and `ranks` compute so many times as long; `late` ranks take so many s more a step; `links`, named as
    `simnet step` and `explain` name them ("n3/nic0 -> leaf0"), have their bandwidth divided by the factor.
    """

    nodes: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    links: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, least, wanted in (
            ("nodes", 1, "a factor of 1 or more"), ("ranks", 1, "a factor of 1 or more"), ("late", 0, "0 s or more"),
            ("links", 1e-9, "a factor above 0; 4 leaves a quarter of the bandwidth"),
        ):  # fmt: skip
            for name, value in getattr(self, key).items():
                _require(key, name, value, least, wanted)

    def __bool__(self) -> bool:
        return any((self.nodes, self.ranks, self.late, self.links))

    def factors(self, computed: Seconds, ranks_per_node: int, devices: int) -> dict[int, float]:
        """How many times as long slow ranks compute what takes a healthy one `computed` s, by rank.

        Raises
        ------
        InvalidInput : a node or a rank that the job does not use.
        """
        found: dict[int, float] = {}
        for key, table, size in (("nodes", self.nodes, ranks_per_node), ("ranks", self.ranks, 1)):
            for name, factor in table.items():
                first = _first(key, name, size, devices)
                for rank in range(first, min(first + size, devices)):
                    found[rank] = found.get(rank, 1.0) * factor
        for name, late in self.late.items():
            rank = _first("late", name, 1, devices)
            found[rank] = found.get(rank, 1.0) + late / computed
        return found


def _require(key: str, name: str, value: Any, least: float, wanted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise InvalidInput(f"slow.{key} needs {wanted}, got {name} = {value!r}")
    if key != "links" and not (name.isascii() and name.isdecimal()):
        raise InvalidInput(f"slow.{key} names them by number, such as 3, got {name!r}")


def _first(key: str, name: str, size: int, devices: int) -> int:
    first = int(name) * size
    if first >= devices:
        raise InvalidInput(f"slow.{key} names {name}, and those of {devices} devices end with {(devices - 1) // size}")
    return first
