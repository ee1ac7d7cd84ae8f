"""Numbers with their 80 % intervals, and the random numbers that give them."""

from __future__ import annotations

import tomllib
import zlib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from simnet.exchange import SIGMAS

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted number and its 80 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, draws: FloatArray) -> Interval:
        """Central value, with the interval stretched to hold it."""
        low, high = np.quantile(draws, [0.1, 0.9])
        return cls(value, float(min(low, value)), float(max(high, value)))

    def columns(self, name: str) -> dict[str, float]:
        """Columns of a row: the value under its name, its ends with `_low` and `_high` added."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


@dataclass(frozen=True, slots=True)
class Inputs:
    """Random numbers by the name of what they stand for; the same name gives the same draws.

    Names in `others` stand for something else here than elsewhere, and have draws of their own.
    """

    seed: int
    size: int
    others: tuple[str, ...] = ()

    def apart(self, *names: str) -> Inputs:
        """Return the same numbers but for those of some names, which are drawn by themselves."""
        return replace(self, others=(*self.others, *names))

    def normal(self, name: str) -> FloatArray:
        """Standard normal numbers, (size,)."""
        return self._generator(name).standard_normal(self.size)

    def lognormal(self, name: str, interval: Interval) -> FloatArray:
        """Numbers whose logs are normal, 80 % of them in the interval; all equal where it has no width."""
        if interval.low == interval.high:
            return np.full(self.size, interval.value)
        middle, width = np.log(interval.low * interval.high) / 2, np.log(interval.high / interval.low) / SIGMAS
        return np.exp(middle + width * self.normal(name))

    def uniform(self, name: str) -> FloatArray:
        """Numbers from 0 to 1, (size,)."""
        return self._generator(name).random(self.size)

    def _generator(self, name: str) -> np.random.Generator:
        own = f"another {name}" if name in self.others else name
        return np.random.default_rng([self.seed, zlib.crc32(own.encode())])


@cache
def known_variation() -> dict[str, Interval]:
    """What the catalogue says about ranks and runs that differ, by name."""
    text = resources.files("simnet").joinpath("catalog/profiles/variation.toml").read_text(encoding="utf-8")
    tables = {name: table for name, table in tomllib.loads(text).items() if isinstance(table, dict)}
    return {name: Interval(table["value"], table["low"], table["high"]) for name, table in tables.items()}
