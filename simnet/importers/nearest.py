"""Which NIC a device leaves by, where the file does not say: the nearest, and the least used of equals."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


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
