"""What every link carries while a collective runs, and which links carry most of what they could."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simnet.interpreters.messages import repeated
from simnet.paths import FabricPaths, FloatArray, Paths, link_name
from simnet.schedule import Schedule
from simnet.units import Seconds

ALIKE = 0.01
"""Links whose loads differ by less than this, relative, are equally loaded."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The first of the links of its kind that are loaded most, and how many of the kind are as loaded.

    `load` is bytes carried over what the link could have carried in the whole time, a fraction.
    """

    link: str
    kind: str
    load: float
    alike: int
    of_kind: int


def carried_bytes(schedule: Schedule, paths: Paths, num_bytes: float) -> FloatArray:
    """Bytes each link carries, (num_links,), with all chunks of the buffer of num_bytes taken as equally large."""
    num_links = len(paths.link_bandwidth)
    chunks = np.zeros(num_links)
    for step, times in map(repeated, schedule.steps()):
        routes = paths.routes(step.src, step.dst)
        moved = np.repeat(step.count * times, np.diff(routes.first))
        chunks += np.bincount(routes.links, weights=moved, minlength=num_links)
    return chunks * num_bytes / max(1, schedule.num_chunks)


def busiest(schedule: Schedule, paths: Paths, num_bytes: float, time: Seconds, *, kind: str | None = None) -> LinkLoad:
    """Most loaded link of a kind, or of all kinds, during a collective of num_bytes that takes `time` s."""
    kinds = _kinds(paths)
    wanted = np.flatnonzero(kinds == kind) if kind is not None and (kinds == kind).any() else np.arange(len(kinds))
    load = carried_bytes(schedule, paths, num_bytes) / (paths.link_bandwidth * time)
    most = int(wanted[np.argmax(load[wanted])])
    same = kinds == kinds[most]
    alike = int(np.count_nonzero(load[same] >= load[most] * (1 - ALIKE)))
    return LinkLoad(link_name(paths, most), str(kinds[most]), float(load[most]), alike, int(np.count_nonzero(same)))


def _kinds(paths: Paths) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    if isinstance(paths, FabricPaths):
        return np.array([link.kind for link in paths.fabric.links])
    return np.full(len(paths.link_bandwidth), "port")
