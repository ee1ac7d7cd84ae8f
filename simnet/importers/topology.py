"""Topology files of every format: which one it is, and the machines in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from simnet.errors import InvalidInput
from simnet.importers import (
    astra_sim_network,
    iblinkinfo,
    ibnetdiscover,
    nccl_topology,
    nvidia_smi_topology,
    rocm_smi_topology,
    simgrid,
)
from simnet.importers.lines import open_text
from simnet.importers.machine import Imported, Machine
from simnet.importers.prefixes import without_common_prefix

# The more telling marks first: a matrix of rocm-smi also has rows that begin with GPU0.
_READERS = (
    nccl_topology,
    simgrid,
    rocm_smi_topology,
    ibnetdiscover,
    iblinkinfo,
    astra_sim_network,
    nvidia_smi_topology,
)

LARGEST = 24 * 2**20
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def formats() -> list[str]:
    """Names of the formats that can be read."""
    return [reader.FORMAT for reader in _READERS]


def detect(text: str) -> str | None:
    """Name of the format a text is in, or None."""
    found = _reader(text)
    return None if found is None else found.FORMAT


def _reader(text: str) -> ModuleType | None:
    return next((reader for reader in _READERS if reader.detect(text)), None)


def is_topology(path: str | Path) -> bool:
    """Whether the first MiB of the file is text in one of the formats."""
    text = _text(Path(path), most=2**20)
    return detect(text) is not None or detect(without_common_prefix(text) or "") is not None


def read_topology(path: str | Path, *, device: str | None = None) -> Imported:
    """Read the machines of a topology file; `device` names what the file leaves open.

    Raises
    ------
    InvalidInput : not readable, none of the formats, another kind of file of a known tool, or damaged.
    """
    path = Path(path)
    text = _text(path)
    try:
        return _read(path, text, device)
    except InvalidInput:
        plain = without_common_prefix(text)
        if plain is None or _reader(plain) is None:
            raise
    return _read(path, plain, device)


def _read(path: Path, text: str, device: str | None) -> Imported:
    reader = _reader(text)
    if reader is None:
        raise InvalidInput(f"{path} is no log and none of the topology files read here ({', '.join(formats())})")
    machines: list[Machine] = reader.read(text, path.stem, device=device)
    lost = text.count("\ufffd")
    if lost:
        machines = [replace(m, skipped=(*m.skipped, f"{lost} bytes of the file that are no text")) for m in machines]
    return Imported(reader.FORMAT, str(path), tuple(machines))


def _text(path: Path, *, most: int = LARGEST + 1) -> str:
    try:
        with open_text(path) as file:
            text = file.read(most)
    except (OSError, EOFError, UnicodeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}; give a topology file that exists") from error
    if len(text) > LARGEST:
        raise InvalidInput(f"{path} is larger than {LARGEST // 2**20} MiB, which no topology file is")
    if not text.strip():
        raise InvalidInput(f"{path} is empty; give a topology file")
    return _COLOURS.sub("", text)
