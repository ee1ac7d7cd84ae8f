"""Ranks start fast, answer in order, and a fault ends in an error that names the rank and leaves no process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from realrun.executor import Executor
from realrun.ranks import RankPool
from realrun.stall import Stall, Stalled, circle, culprits
from simnet.algorithms import registry
from simnet.errors import Incomplete, InvalidInput

PATIENCE = 3.0


def place() -> tuple[int, int, int]:
    return dist.get_rank(), dist.get_world_size(), torch.get_num_threads()


def double(value: int) -> int:
    return 2 * value


def count_to(limit: int) -> Iterator[tuple[int, int]]:
    for i in range(limit):
        yield dist.get_rank(), i


def refuse() -> None:
    raise InvalidInput("no such thing; ask for another")


def fail_on(rank: int) -> None:
    if dist.get_rank() == rank:
        raise ValueError("a bug")
    dist.barrier()


def ring(timeout: float) -> Executor:
    """A ring that ran once. Ranks come to it together: importing this file takes each a time of its own."""
    dist.barrier()
    executor = Executor(registry.build("ring", dist.get_world_size()), timeout=timeout)
    executor.run(torch.zeros(100))
    return executor


def die_on(rank: int) -> None:
    executor = ring(60.0)
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    executor.run(torch.zeros(100))


def stay_away_on(rank: int) -> None:
    executor = ring(PATIENCE)
    if dist.get_rank() == rank:
        time.sleep(600)
    executor.run(torch.zeros(100))


def gone(process_ids: list[int]) -> bool:
    deadline = time.monotonic() + 30
    while any(_runs(pid) for pid in process_ids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _runs(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_rank_knows_its_place_and_computes_on_one_thread(rank_pool):
    assert rank_pool(3).run(place) == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]


def test_a_generator_streams_what_rank_0_yields(rank_pool):
    assert list(rank_pool(3).stream(count_to, 4)) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_an_error_that_all_ranks_raise_is_raised_here_and_the_pool_lives_on(rank_pool):
    pool = rank_pool(2)
    with pytest.raises(InvalidInput, match="no such thing"):
        pool.run(refuse)
    assert pool.run(double, 4) == [8, 8]


def refuse_in_turn(apart: float) -> None:
    time.sleep(1.0 + apart * dist.get_rank())
    raise InvalidInput("no such thing; ask for another")


def test_ranks_that_fail_alike_one_after_another_raise_that_error(rank_pool, monkeypatch):
    """As they do where many ranks share few cores."""
    monkeypatch.setattr("realrun.ranks.GRACE", 0.1)
    with pytest.raises(InvalidInput, match="no such thing"):
        rank_pool(3).run(refuse_in_turn, 0.5)


def test_a_function_inside_a_function_is_refused(rank_pool):
    with pytest.raises(InvalidInput, match="top level"):
        rank_pool(2).run(lambda: None)


def test_no_ranks_at_all_are_refused():
    with pytest.raises(InvalidInput, match="ranks must be 1 or more, got 0"):
        RankPool(0)


def test_a_killed_rank_is_named_at_once_and_no_process_is_left():
    with RankPool(4, timeout=60) as pool:
        ids = pool.process_ids
        with pytest.raises(
            Incomplete, match=r"the others wait for rank 2; .*rank 2, process \d+: was killed by SIGKILL"
        ) as lost:
            pool.run(die_on, 2)
        assert "then its connection broke" in str(lost.value)
        assert "the time limit" not in str(lost.value)
        assert gone(ids)
        with pytest.raises(Incomplete, match="start a new RankPool"):
            pool.run(place)


def test_a_rank_that_stays_away_is_named_with_step_peer_and_time():
    with RankPool(3, timeout=60) as pool:
        ids = pool.process_ids
        with pytest.raises(Incomplete) as lost:
            pool.run(stay_away_on, 1, timeout=120)
        told = re.search(
            r"wait for rank 1; .*rank 2, step 0 of ring: could not hear from rank 1 for (\d+\.\d+) s, the time limit",
            str(lost.value),
        )
        assert told, lost.value
        assert PATIENCE - 0.1 <= float(told[1]) < 60
        assert gone(ids)


def test_a_bug_on_one_rank_ends_the_run_and_names_the_rank():
    with RankPool(2, timeout=60) as pool:
        ids = pool.process_ids
        with pytest.raises(Incomplete, match="rank 1: ValueError: a bug"):
            pool.run(fail_on, 1)
        assert gone(ids)


_ABANDONED = """
import os, time
from realrun.ranks import RankPool
pool = RankPool(2)
print(*pool.process_ids, flush=True)
pool.run(time.sleep, 60)
"""


def test_ranks_end_when_the_process_that_started_them_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", _ABANDONED], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    ids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    assert len(ids) == 2
    assert gone(ids)


_SCRIPT = """
from dataclasses import dataclass
import torch.distributed as dist
from realrun import RankPool

@dataclass
class Place:
    rank: int

def place(first):
    return Place(first.rank + dist.get_rank())

def thread(_):
    import threading
    return threading.Lock()

if __name__ == "__main__":
    with RankPool(2) as pool:
        print(pool.run(place, Place(3)))
        try:
            pool.run(thread, Place(0))
        except ValueError as error:
            print(error)
"""


def test_a_script_runs_its_own_functions_on_ranks_wherever_temporary_files_go(tmp_path):
    """A job's TMPDIR may be longer than the path of a socket may be."""
    script, folder = tmp_path / "script.py", tmp_path / ("x" * 90)
    script.write_text(_SCRIPT)
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    places, refusal = ended.stdout.splitlines()
    assert places == "[Place(rank=3), Place(rank=4)]"
    assert "what the task returns cannot leave its rank" in refusal


def test_everyone_waiting_for_the_next_is_a_circle():
    waits = {0: 1, 1: 2, 2: 0, 3: 0}
    errors = {rank: Stalled(Stall(rank, peer, 0, "ring", 1.0, lost=False)) for rank, peer in waits.items()}
    assert circle(errors) == [0, 1, 2]
    assert culprits(errors) == []
    assert circle({0: errors[0]}) == []


def test_a_stream_that_is_left_early_ends_the_ranks():
    with RankPool(2) as pool:
        ids = pool.process_ids
        for row in pool.stream(count_to, 1_000_000):
            assert row == (0, 0)
            break
        assert gone(ids)
        assert not pool.alive


def test_the_end_of_a_chain_of_waits_is_the_culprit():
    waits = {0: 3, 1: 2, 3: 2}
    errors = {rank: Stalled(Stall(rank, peer, 0, "ring", 1.0, lost=False)) for rank, peer in waits.items()}
    assert culprits(errors) == [2]
