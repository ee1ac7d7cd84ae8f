from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from simnet.algorithms.registry import algorithms, build
from simnet.exporters.goal import write_goal
from simnet.schedule import Schedule
from simnet.verification import schedules, sent

LINE = re.compile(r"l(\d+): (send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)")

Rank = list[tuple[str, int, int, int, set[int]]]


def _read(lines: list[str]) -> list[Rank]:
    """Operations of every rank as (verb, bytes, peer, tag, labels it requires)."""
    ranks: list[Rank] = []
    for line in lines[1:]:
        if line.startswith("rank"):
            ranks.append([])
        elif match := LINE.fullmatch(line):
            assert int(match[1]) == len(ranks[-1]) + 1
            ranks[-1].append((match[2], int(match[3]), int(match[4]), int(match[5]), set()))
        elif match := re.fullmatch(r"l(\d+) requires l(\d+)", line):
            ranks[-1][int(match[1]) - 1][4].add(int(match[2]))
        else:
            assert line in ("", "}")
    return ranks


def _replay(ranks: list[Rank]) -> int:
    """Run all operations in an order their needs allow, sends and receives meeting by tag; return the messages."""
    done: list[set[int]] = [set() for _ in ranks]
    offered: dict[tuple[int, int, int], tuple[int, int]] = {}
    moved, met = True, 0
    while moved:
        moved = False
        for rank, operations in enumerate(ranks):
            for label, (verb, size, peer, tag, needs) in enumerate(operations, 1):
                key = (rank, peer, tag) if verb == "send" else (peer, rank, tag)
                if (
                    label in done[rank]
                    or not needs <= done[rank]
                    or (offered.get(key, (rank, label)) == (rank, label) and key in offered)
                ):
                    continue
                moved = True
                if key not in offered:
                    offered[key] = (rank, label)
                    continue
                other, its = offered.pop(key)
                assert ranks[other][its - 1][0] != verb
                assert ranks[other][its - 1][1] == size
                done[rank].add(label)
                done[other].add(its)
                met += 1
    assert [len(d) for d in done] == [len(operations) for operations in ranks], "deadlock"
    return met


def _written(schedule: Schedule, count: int) -> list[Rank]:
    lines = list(write_goal(schedule, count))
    assert lines[0] == f"num_ranks {schedule.world_size}"
    return _read(lines)


@pytest.mark.parametrize("name", algorithms())
def test_every_message_is_written_at_both_ends_and_the_file_runs(name: str) -> None:
    for schedule in schedules(algorithms()[name], max_ranks=5):
        ranks = _written(schedule, 3 * schedule.num_chunks)
        messages, chunks = sent(schedule)
        assert [sum(verb == "send" for verb, *_ in rank) for rank in ranks] == messages.tolist()
        assert [sum(s for v, s, *_ in rank if v == "send") for rank in ranks] == (chunks * 12).tolist()
        assert _replay(ranks) == messages.sum()


def test_messages_of_no_bytes_are_not_written() -> None:
    ranks = _written(build("ring", 4), 1)
    assert Counter(verb for rank in ranks for verb, *_ in rank) == {"send": 6, "recv": 6}
    assert _replay(ranks) == 6


def test_a_file_of_a_thousand_ranks_is_written_as_it_is_read() -> None:
    head = list(islice(write_goal(build("ring", 1024), 1 << 20), 4))
    assert head[2:] == ["rank 0 {", "l1: send 4096b to 1 tag 0"]


def test_steps_of_a_channel_follow_each_other() -> None:
    ranks = _written(build("bidirectional_ring", 3), 6)
    for operations in ranks:
        for label, (_, _, _, tag, needs) in enumerate(operations, 1):
            assert all(operations[need - 1][3] == tag - 2 for need in needs), label
        assert np.mean([bool(o[4]) for o in operations]) > 0.5
