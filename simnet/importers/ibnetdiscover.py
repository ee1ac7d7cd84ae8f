"""Fabrics as `ibnetdiscover` prints them: records of switches and adapters, or with -p one line per port.

Every cable is listed from both ends.

Source: ibnetdiscover(8) of rdma-core, sections TOPOLOGY FILE FORMAT and -p.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from simnet.errors import InvalidInput
from simnet.importers.infiniband import Found, machine
from simnet.importers.machine import Machine, Remarks

FORMAT = "ibnetdiscover"

_HEAD = re.compile(r'^(Switch|Ca|Rt)\s+(\d+)\s+"([SHR]-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(
    r'^\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[(\d+)\](?:\([0-9a-fA-F]+\))?\s*#\s*(.*?)'
    r"\s(\d+x[A-Z]+\d*)((?:\s+\w=\d+)*)\s*$"
)
_LOOKS_LIKE_PORT = re.compile(r"^\s*\[\d*\]?")
_REPORT = re.compile(r"^\s*(CA|SW|RT)\s+(\d+)\s+(\d+)\s+(0x[0-9a-fA-F]{16})\s+(\d+x)\s+(\S+)\s*(.*?)\s*$")
_REMOTE = re.compile(r"^-\s+(CA|SW|RT)\s+(\d+)\s+(\d+)\s+(0x[0-9a-fA-F]{16})\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)$")
_OTHER_LINES = re.compile(r"^\s*(#.*|(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=\S*.*)?$")


def detect(text: str) -> bool:
    """Whether a record, or a line of a -p report, stands in the text."""
    return any(_HEAD.match(line) or _REPORT.match(line) for line in text.splitlines())


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read the one fabric of the file.

    Raises
    ------
    InvalidInput : a port line that cannot be read, a port with two other ends, a cable whose ends contradict.
    """
    lines = text.splitlines()
    report = any(_REPORT.match(line) for line in lines)
    remarks = Remarks()
    found = (_read_report if report else _read_records)(lines, name, remarks)
    return [machine(found, name, device, remarks)]


def _read_records(lines: Sequence[str], name: str, remarks: Remarks) -> Found:
    found, here = Found(FORMAT), ""
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        if head := _HEAD.match(line):
            here = head[3]
            if here in found.described:
                raise InvalidInput(f"{where}: a second record of {here}; lines were doubled or files joined")
            found.describe(here, head[1], head[4] or "")
        elif port := _PORT.match(line):
            if not here:
                raise InvalidInput(f"{where}: a port before any switch or adapter; lines were lost or mixed up")
            found.connect((here, int(port[1])), (port[2], int(port[3])), port[5], where)
            _remember(found, port[2], port[4])
        elif _LOOKS_LIKE_PORT.match(line) and line.strip():
            raise InvalidInput(
                f"{where}: a port that cannot be read, {line.strip()[:60]!r}; the file was cut or damaged"
            )
        elif not _OTHER_LINES.match(line):
            remarks.skip(f"line {number}: {line.strip()[:60]!r}")
    return found


def _remember(found: Found, vertex: str, comment: str) -> None:
    quoted = re.search(r'"([^"]*)"', comment)
    found.kinds.setdefault(vertex, {"S": "Switch", "H": "Ca", "R": "Rt"}[vertex[0]])
    if quoted and vertex.startswith("H-"):
        found.names.setdefault(vertex, quoted[1].strip())


def _read_report(lines: Sequence[str], name: str, remarks: Remarks) -> Found:
    found = Found(FORMAT)
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        row = _REPORT.match(line)
        if row is None:
            if line.strip() and not line.lstrip().startswith("#"):
                remarks.skip(f"line {number}: {line.strip()[:60]!r}")
            continue
        here = (_guid(row[1], row[4]), int(row[3]))
        if not row[7].startswith("-"):
            found.describe(here[0], _KINDS[row[1]], row[7].strip("' "))
            found.unconnected += 1
            continue
        remote = _REMOTE.match(row[7])
        if remote is None:
            raise InvalidInput(f"{where}: the other end cannot be read, {row[7][:60]!r}; the file was cut or damaged")
        there = (_guid(remote[1], remote[4]), int(remote[3]))
        found.describe(here[0], _KINDS[row[1]], remote[5])
        found.kinds.setdefault(there[0], _KINDS[remote[1]])
        found.names.setdefault(there[0], remote[6].strip())
        found.connect(here, there, row[5] + row[6], where)
    return found


_KINDS = {"CA": "Ca", "SW": "Switch", "RT": "Rt"}


def _guid(kind: str, text: str) -> str:
    return f"{'H' if kind == 'CA' else 'S'}-{text[2:]}"
