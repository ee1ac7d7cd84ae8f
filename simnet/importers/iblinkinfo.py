"""Fabrics as `iblinkinfo` prints them: one line per port under a heading per switch or adapter, or with -l alone.

A line tells the local identifier (LID) and the port of both ends, the width, and the signalling rate of *one lane*:
"4X 25.78125 Gbps" are 100 Gbit/s. A switch has one LID, an adapter one per port, so a LID that shows several ports is a
switch. Ports in other states than Active are no cables.

Source: iblinkinfo(8) of rdma-core; lane rates of the InfiniBand Trade Association's road map.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from simnet.errors import InvalidInput
from simnet.importers.infiniband import Found, machine
from simnet.importers.machine import Machine, Remarks

FORMAT = "iblinkinfo"

_HEADING = re.compile(r"^\s*(CA|Switch|Router):?\s+(?:(0x[0-9a-fA-F]{16})\s+)?(.*?)\s*:\s*$")
_PORT = re.compile(
    r'^\s*(?:(0x[0-9a-fA-F]{16})\s+)?(?:"([^"]*)"\s+)?(\d+)\s+(\d+)\[[^\]]*\]\s*==\(\s*(.*?)\s*\)==>'
    r'\s*(?:(0x[0-9a-fA-F]{16})\s+)?(?:(\d+)\s+(\d+))?\s*\[[^\]]*\]\s*"([^"]*)"\s*\(\s*(.*?)\s*\)\s*$'
)
_LOOKS_LIKE_PORT = re.compile(r"==\(|\)==>")
_LINK = re.compile(r"(\d+)X\s+(\d+(?:\.\d+)?)\s*Gbps\s+(\w+)\s*/\s*(\w+)", re.IGNORECASE)
_SWITCH_NAME = re.compile(r"^MF0;|switch|quantum|infiniscale", re.IGNORECASE)
_MOST_ADAPTER_PORTS = 4
# Gbit/s a lane signals at.
_LANES = {
    "SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.3125, "FDR": 14.0625, "EDR": 25.78125, "HDR": 53.125,
    "NDR": 106.25, "XDR": 212.5,
}  # fmt: skip


def detect(text: str) -> bool:
    """Whether a line about a port stands in the text."""
    return "==(" in text and any(_PORT.match(line) for line in text.splitlines())


@dataclass(slots=True)
class _Lines:
    """Cables by LIDs and ports before it is known which LIDs are switches."""

    ends: dict[int, set[int]] = field(default_factory=dict)
    listed: dict[int, None] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    cables: list[tuple[int, int, int, int, str, str]] = field(default_factory=list)
    down: int = 0

    def name(self, lid: int, text: str, where: str) -> None:
        """Remember what a LID is called; two names are two files."""
        known = self.names.setdefault(lid, text.strip()) if text.strip() else ""
        if known != text.strip():
            raise InvalidInput(f"{where}: LID {lid} is called {text.strip()!r} and {known!r}; give one fabric a file")


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read the one fabric of the file.

    Raises
    ------
    InvalidInput : a port line that cannot be read, a LID with two names, a port with two other ends, a cable whose ends
        contradict.
    """
    remarks = Remarks()
    lines = _read(text.splitlines(), name, remarks)
    found = Found(FORMAT, unconnected=lines.down)
    kinds = {lid: lines.kinds.get(lid) or _guess(lines.names.get(lid, ""), ports) for lid, ports in lines.ends.items()}
    alone = not any(kinds[lid] == "Ca" for lid in lines.listed)
    if alone:
        remarks.assume("adapters are not listed by themselves: those that switches lead to were taken")
    for lid, kind in kinds.items():
        found.kinds[_vertex(lid)] = kind
        found.names[_vertex(lid)] = lines.names.get(lid, "")
        if lid in lines.listed or (alone and kind == "Ca"):
            found.described[_vertex(lid)] = None
    for lid, port, far, far_port, rate, where in lines.cables:
        found.connect((_vertex(lid), port), (_vertex(far), far_port), rate, where)
    return [machine(found, name, device, remarks)]


def _guess(name: str, ports: set[int]) -> str:
    """What a LID without a heading is: a switch where it shows several ports, a high one, or calls itself so."""
    return "Switch" if len(ports) > 1 or max(ports) > _MOST_ADAPTER_PORTS or _SWITCH_NAME.search(name) else "Ca"


def _vertex(lid: int) -> str:
    return f"LID-{lid}"


def _read(lines: Sequence[str], name: str, remarks: Remarks) -> _Lines:
    found, heading = _Lines(), ("", "")
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        if head := _HEADING.match(line):
            heading = {"CA": "Ca", "Switch": "Switch", "Router": "Rt"}[head[1]], head[3]
        elif port := _PORT.match(line):
            _port(port, heading, found, remarks, where)
        elif _LOOKS_LIKE_PORT.search(line):
            raise InvalidInput(
                f"{where}: a port that cannot be read, {line.strip()[:60]!r}; the file was cut or damaged"
            )
        elif line.strip() and not line.lstrip().startswith("#"):
            remarks.skip(f"line {number}: {line.strip()[:60]!r}")
    return found


def _port(port: re.Match[str], heading: tuple[str, str], found: _Lines, remarks: Remarks, where: str) -> None:
    """Take one line; without -l its kind and name stand in the heading, or, where that is gone, in its form."""
    lid, number, state, comment = int(port[3]), int(port[4]), port[5], port[10]
    if port[2] is None:
        found.kinds[lid] = heading[0] or ("Ca" if port[1] else "Switch")
    found.name(lid, heading[1] if port[2] is None else port[2], where)
    found.listed[lid] = None
    found.ends.setdefault(lid, set()).add(number)
    link = _LINK.search(state)
    if link is None or link[3].lower() != "active" or port[7] is None:
        found.down += 1
        return
    far, far_port, rate = int(port[7]), int(port[8]), _rate(int(link[1]), float(link[2]))
    found.ends.setdefault(far, set()).add(far_port)
    found.name(far, port[9], where)
    found.cables.append((lid, number, far, far_port, rate, where))
    if "could be" in comment.lower():
        words = " ".join(comment.split())
        remarks.warn(
            f"port {number} of {found.names.get(lid, lid)} runs at {link[1]}X {link[2]} Gbit/s a lane: {words}"
        )


def _rate(width: int, lane: float) -> str:
    """Width and generation as "4xEDR"; the bare figures where no generation signals at that rate."""
    word = next((word for word, rate in _LANES.items() if abs(lane - rate) < 0.01 * rate), None)
    return f"{width}x{word}" if word else f"{width}X {lane:g} Gbit/s a lane"
