"""What a topology reader hands out: machines, what it counted, what looks wrong, what the file does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simnet.hardware import Cluster


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a file.

    Parameters
    ----------
    cluster : the machine to predict on, or None where the file does not hold enough; `reason` then says what lacks.
    facts : what was counted, by stable names.
    warnings : links that look broken or badly placed, each named.
    assumed : what the file does not tell and what was taken instead.
    skipped : lines or elements that were not understood.
    """

    name: str
    cluster: Cluster | None
    facts: Mapping[str, Any]
    reason: str = ""
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """A file and the machines in it."""

    format: str
    path: str
    machines: tuple[Machine, ...]


@dataclass(slots=True)
class Remarks:
    """Remarks gathered while a file is read; each is kept once."""

    warnings: dict[str, None] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        """Keep a remark about something that looks wrong."""
        self.warnings[text] = None

    def assume(self, text: str) -> None:
        """Keep a remark about something taken for granted."""
        self.assumed[text] = None

    def skip(self, text: str) -> None:
        """Keep a remark about something left out."""
        self.skipped[text] = None

    def machine(self, name: str, cluster: Cluster | None, facts: Mapping[str, Any], reason: str = "") -> Machine:
        """Return the machine with the remarks."""
        return Machine(name, cluster, facts, reason, tuple(self.warnings), tuple(self.assumed), tuple(self.skipped))
