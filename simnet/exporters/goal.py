"""Write a schedule as a GOAL file for LogGOPSim, line by line: text of many ranks is too large to hold.

Every message of a step requires the rank's messages of its step before on the same channel, and what they
brought to have been added: a calc of whole nanoseconds, where additions take time at all.

Source of the format: Hoefler, Siebert & Lumsdaine, "Group Operation Assembly Language", ICPP 2009; LogGOPSim's txt2bin.
"""

from __future__ import annotations

from collections.abc import Iterator

from simnet.exporters.rank_steps import rank_steps, require_gamma
from simnet.schedule import Schedule
from simnet.units import SecondsPerByte

NS = 1e-9


def write_goal(schedule: Schedule, count: int, *, itemsize: int = 4, gamma: SecondsPerByte = 0.0) -> Iterator[str]:
    """Yield the lines of a GOAL file.

    Parameters
    ----------
    count : elements per rank; itemsize : bytes per element
    gamma : s per byte that a rank adds; at 0 the file has no calc

    Raises
    ------
    InvalidInput : gamma below 0; and as for `rank_steps`.
    """
    require_gamma(gamma)
    yield f"num_ranks {schedule.world_size}"
    for rank in range(schedule.world_size):
        yield ""
        yield f"rank {rank} {{"
        yield from _rank(schedule, count, rank, itemsize, gamma)
        yield "}"


def _rank(schedule: Schedule, count: int, rank: int, itemsize: int, gamma: SecondsPerByte) -> Iterator[str]:
    label = 0
    before: dict[int, list[int]] = {}
    for exchanges in rank_steps(schedule, count, rank, itemsize=itemsize):
        now: dict[int, list[int]] = {}
        for one in exchanges:
            label += 1
            verb, way = ("send", "to") if one.sends else ("recv", "from")
            tag = one.tag * schedule.num_channels + one.channel
            yield f"l{label}: {verb} {one.num_bytes}b {way} {one.peer} tag {tag}"
            yield from (f"l{label} requires l{earlier}" for earlier in before.get(one.channel, ()))
            if one.added and gamma:
                label += 1
                yield f"l{label}: calc {max(1, round(one.added * gamma / NS))}"
                yield f"l{label} requires l{label - 1}"
            now.setdefault(one.channel, []).append(label)
        before |= now
