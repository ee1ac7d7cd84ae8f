"""What a file leaves open: which NIC a device leaves by, and in which order ranks follow the direct links."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence


def nearest_ports(rows: Sequence[str], devices: Sequence[str], nics: Sequence[str]) -> tuple[str, ...]:
    """Return one port per device for links drawn as "from to wire"; devices themselves where no NIC is reached."""
    neighbours: dict[str, list[str]] = {}
    for row in rows:
        a, b = row.split()[:2]
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    used = dict.fromkeys(nics, 0)
    chosen = []
    for device in devices:
        distances = _distances(device, neighbours, set(devices))
        reached = [nic for nic in nics if nic in distances]
        best = min(reached, key=lambda nic: (distances[nic], used[nic]), default=device)
        used[best] = used.get(best, 0) + 1
        chosen.append(best)
    return tuple(chosen)


def _distances(start: str, neighbours: dict[str, list[str]], devices: set[str]) -> dict[str, int]:
    distances, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        if here in devices and here != start:
            continue
        for there in neighbours.get(here, ()):
            if there not in distances:
                distances[there] = distances[here] + 1
                queue.append(there)
    return distances


MOST_IN_CYCLE = 16


def ring_order(devices: Sequence[str], pairs: Mapping[tuple[str, str], int]) -> tuple[str, ...]:
    """Devices along a cycle of direct links, the widest there is; as given where there is none.

    A ring over ranks in order then stays on direct links, as communication libraries see to.
    """
    given = tuple(devices)
    if not 2 < len(given) <= MOST_IN_CYCLE:
        return given
    for least in sorted(set(pairs.values()), reverse=True):
        joined = {end for pair, count in pairs.items() if count >= least for end in (pair, pair[::-1])}
        cycle = _cycle([given[0]], given, joined)
        if cycle:
            return tuple(cycle)
    return given


def _cycle(path: list[str], devices: Sequence[str], joined: set[tuple[str, str]]) -> list[str]:
    if len(path) == len(devices):
        return path if (path[-1], path[0]) in joined else []
    for device in devices:
        if device not in path and (path[-1], device) in joined:
            found = _cycle([*path, device], devices, joined)
            if found:
                return found
    return []
