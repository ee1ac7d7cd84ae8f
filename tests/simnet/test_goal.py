from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from simnet.algorithms.registry import algorithms, build
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import InvalidInput
from simnet.exporters.goal import write_goal
from simnet.interpreters.simulate import simulate
from simnet.paths import UniformPaths
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


def _seconds(lines: list[str]) -> float:
    """When the last rank is done if only calcs take time, as the text's dependencies say."""
    needs: dict[tuple[int, int], set[int]] = {}
    spent: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    rank = -1
    for line in lines[1:]:
        if line.startswith("rank"):
            rank += 1
        elif match := re.fullmatch(r"l(\d+) requires l(\d+)", line):
            needs[rank, int(match[1])].add(int(match[2]))
        elif match := re.fullmatch(r"l(\d+): calc (\d+)", line):
            needs[rank, int(match[1])], spent[rank, int(match[1])] = set(), int(match[2])
        elif match := LINE.fullmatch(line):
            needs[rank, int(match[1])] = set()
            pair = (rank, int(match[4])) if match[2] == "send" else (int(match[4]), rank)
            ends.setdefault((*pair, int(match[5])), []).append((rank, int(match[1])))
    other = {a: b for one, two in ends.values() for a, b in ((one, two), (two, one))}
    done: dict[tuple[int, int], int] = {}
    while len(done) < len(needs):
        for place in needs:
            both = [place, other[place]] if place in other else [place]
            if all((r, need) in done for r, label in both for need in needs[r, label]):
                ready = max((done[r, need] for r, label in both for need in needs[r, label]), default=0)
                done[place] = ready + spent.get(place, 0)
    return max(done.values()) * 1e-9


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "torus2d", "double_binary_tree", "direct"])
def test_additions_are_calcs_that_take_what_the_engine_says(name: str) -> None:
    schedule, gamma = build(name, 6), 1e-9 / 4
    count = 1000 * schedule.num_chunks
    free = UniformPaths(6, 0.0, 1e18)
    timed = simulate(schedule, count, free, AlphaBeta(), gamma=gamma).time
    assert _seconds(list(write_goal(schedule, count, gamma=gamma))) == pytest.approx(timed, rel=1e-6)
    assert not any("calc" in line for line in write_goal(schedule, count))


def test_a_negative_time_to_add_is_refused() -> None:
    with pytest.raises(InvalidInput, match="gamma must be 0 s per byte added or more, got -1"):
        list(write_goal(build("ring", 2), 4, gamma=-1.0))
