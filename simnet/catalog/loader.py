"""Find catalogue files, those of this package and those of a folder of your own, and read them.

A folder of your own has `devices/`, `links/`, `clusters/` and `scenarios/` like this package; its files come first,
so that one named like a file of the package replaces it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from simnet.catalog import files as forms
from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Device, LinkType, Quantity
from simnet.units import Dimension, parse

FOLDER_VARIABLE = "SIMNET_CATALOG"

Folder = str | Path | None


def devices(folder: Folder = None) -> list[str]:
    """Names of all devices."""
    return sorted(_found("devices", folder))


def links(folder: Folder = None) -> list[str]:
    """Names of all link types."""
    return sorted(_found("links", folder))


def clusters(folder: Folder = None) -> list[str]:
    """Names of all clusters."""
    return sorted(_found("clusters", folder))


def scenarios(folder: Folder = None) -> list[str]:
    """Names of all scenarios."""
    return sorted(_found("scenarios", folder))


def file_text(kind: str, name: str, folder: Folder = None) -> str:
    """Return a catalogue file as it stands, to copy and change; kind is devices, links, clusters or scenarios.

    Raises
    ------
    InvalidInput : entries of that kind are no files, or there is none of that name.
    """
    if kind not in ("devices", "links", "clusters", "scenarios"):
        raise InvalidInput(f"{kind} are not single files; those of devices, links, clusters and scenarios can be shown")
    return _entry(kind, name, folder).read_text(encoding="utf-8")


def load_device(name: str, folder: Folder = None) -> Device:
    """Read a device of the catalogue.

    Raises
    ------
    InvalidInput : there is none of that name, or its file is wrong.
    """
    table, place = _read("devices", name, folder)
    return forms.device(name, table, place)


def load_link(name: str, folder: Folder = None) -> LinkType:
    """Read a link type of the catalogue.

    Raises
    ------
    InvalidInput : there is none of that name, or its file is wrong.
    """
    table, place = _read("links", name, folder)
    return forms.link(name, table, place)


def load_cluster(name: str, folder: Folder = None) -> Cluster:
    """Read a cluster of the catalogue, or of a file if the name ends with .toml.

    Raises
    ------
    InvalidInput : there is none of that name, or its file is wrong.
    """
    if name.endswith(".toml"):
        table, place = _parsed(_file(Path(name)), name), name
        name = Path(name).stem
    else:
        table, place = _read("clusters", name, folder)
    return forms.cluster(
        name, table, place, device=lambda n: load_device(n, folder), link=lambda n: load_link(n, folder)
    )


def uniform(bandwidth: str | float, latency: str | float, *, folder: Folder = None) -> Cluster:
    """Return the cluster `uniform` with its ports' bandwidth and latency given, as text with units or in SI.

    Both are taken as exact.
    """
    cluster = load_cluster("uniform", folder)
    link = cluster.network.wires["port"].link
    given = replace(
        link,
        bandwidth=_given(bandwidth, Dimension.BANDWIDTH, "bandwidth"),
        latency=_given(latency, Dimension.TIME, "latency"),
    )
    return cluster.with_links({"network.port": given})


def _given(value: str | float, dimension: Dimension, name: str) -> Quantity:
    number = parse(value, dimension, name=name) if isinstance(value, str) else float(value)
    if number < 0 or (dimension is Dimension.BANDWIDTH and number == 0):
        least = "above 0" if dimension is Dimension.BANDWIDTH else "0 or more"
        raise InvalidInput(f"{name} must be {least}, got {value}; write 12.5 GB/s and 1 us")
    return Quantity(number, number, number, "given")


def _found(kind: str, folder: Folder) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for root in (files("simnet.catalog") / kind, *_own(kind, folder)):
        if root.is_dir():
            found |= {
                entry.name.removesuffix(".toml"): entry for entry in root.iterdir() if entry.name.endswith(".toml")
            }
    return found


def _own(kind: str, folder: Folder) -> list[Traversable]:
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        return []
    root = Path(chosen)
    if not root.is_dir():
        raise InvalidInput(f"the catalogue folder {chosen} is no folder; correct --catalog or {FOLDER_VARIABLE}")
    return [root / kind]


def _read(kind: str, name: str, folder: Folder) -> tuple[Mapping[str, Any], str]:
    place = f"{kind}/{name}.toml"
    return _parsed(_entry(kind, name, folder), place), place


def _entry(kind: str, name: str, folder: Folder) -> Traversable:
    found = _found(kind, folder)
    if name not in found:
        word = kind.removesuffix("s")
        raise InvalidInput(f"unknown {word} {name!r}; choose one of {', '.join(sorted(found)) or 'none'}")
    return found[name]


def _file(path: Path) -> Traversable:
    if not path.is_file():
        raise InvalidInput(f"no cluster file {path}; give a .toml file or a name of the catalogue")
    return path


def _parsed(file: Traversable, place: str) -> Mapping[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{place} cannot be read as UTF-8 text: {error}") from error
    return _toml(text, place)


@cache
def _toml(text: str, place: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{place} is not valid TOML: {error}") from error
