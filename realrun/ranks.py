"""Ranks as processes of this machine: forked from a server that has torch loaded already.

Starting torch takes seconds; forking a process that holds it takes a tenth of one. A `RankPool`
keeps its ranks for many tasks. Ranks end with the pool, when the process that made the pool is
gone, and when any of them fails: what a failed rank leaves behind cannot be used again.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

from realrun.rank_process import Task, reference, start
from realrun.stall import account, circle, culprits
from simnet.errors import Incomplete, InvalidInput
from simnet.units import Seconds

GRACE: Seconds = 2.0
_LONGEST_GRACE: Seconds = 10.0


class RankPool:
    """`ranks` local processes joined in one process group over the loopback interface.

    Use it as a context manager, or call `close`.

    Raises
    ------
    InvalidInput : fewer than one rank.
    """

    def __init__(self, ranks: int, *, backend: str = "gloo", timeout: Seconds = 60.0) -> None:
        if ranks < 1:
            raise InvalidInput(f"ranks must be 1 or more, got {ranks}")
        self.ranks, self.timeout = ranks, timeout
        self._pipes: list[Connection] = []
        self._processes: list[ForkServerProcess] = []
        try:
            for rank in range(ranks):
                process, pipe = start(rank, ranks, backend, timeout)
                self._processes.append(process)
                self._pipes.append(pipe)
        except (OSError, EOFError) as error:
            self._fail({}, f"rank {len(self._processes)} of {ranks} could not be started: {error or 'no answer'}")
        self._rendezvous()

    @property
    def alive(self) -> bool:
        """Whether the pool can take a task."""
        return bool(self._processes)

    @property
    def process_ids(self) -> list[int]:
        """Process id of every rank."""
        return [p.pid or 0 for p in self._processes]

    def run(self, function: Task, *args: Any, timeout: Seconds | None = None) -> list[Any]:
        """Call `function(*args)` on every rank and return the results by rank.

        Parameters
        ----------
        function : defined at the top level of a module, or named as "package.module:function", which spares
            this process the import; torch.distributed is initialised when it runs.
        timeout : s for the whole call; without one, the pool's own for every step still holds.

        Raises
        ------
        Incomplete : a rank died, or did not answer in time; names it. The pool is closed.
        Exception : what the ranks raised, where all raised alike; the pool lives on.
        """
        for _ in self._answers(function, args, timeout):
            pass
        return self._results

    def stream(self, function: Task, *args: Any, timeout: Seconds | None = None) -> Iterator[Any]:
        """Call a generator function on every rank and yield what rank 0 yields, as soon as it does."""
        yield from self._answers(function, args, timeout)

    def close(self) -> None:
        """End all ranks; returns when they are gone."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send_bytes(b"")
            pipe.close()
        deadline = time.monotonic() + GRACE
        for process in self._processes:
            process.join(max(deadline - time.monotonic(), 0.0))
        self._kill()

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kill(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.kill()
        for process in self._processes:
            process.join()
        self._processes, self._pipes = [], []

    def _rendezvous(self) -> None:
        try:
            kind, port = self._pipes[0].recv()
            if kind != "port":
                self._end()
                raise port
            for pipe in self._pipes[1:]:
                pipe.send(port)
        except (OSError, EOFError):
            self._fail({}, "the ranks did not start")
        for _ in self._collect(self.timeout):
            pass

    def _answers(self, function: Task, args: tuple[Any, ...], timeout: Seconds | None) -> Iterator[Any]:
        if not self._processes:
            raise Incomplete("the ranks are gone after an earlier failure; start a new RankPool")
        task = pickle.dumps((reference(function), pickle.dumps(args)))
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send_bytes(task)
        try:
            yield from self._collect(timeout)
        except GeneratorExit:
            self._end()  # ranks are in the middle of a task whose answers nobody waits for
            raise

    def _collect(self, timeout: Seconds | None) -> Iterator[Any]:
        began = time.monotonic()
        limit = None if timeout is None else began + timeout
        self._results = [None] * self.ranks
        errors: dict[int, BaseException] = {}
        waiting = dict(enumerate(self._pipes))
        while waiting:
            ready = self._ready(waiting, limit)
            if not ready and (not errors or not self._release(errors)):
                limits = "after the others failed" if errors else f"within {timeout:g} s"
                self._fail(errors, f"no answer from rank {', '.join(map(str, waiting))} {limits}")
            for rank in ready:
                kind, value = self._receive(rank)
                if kind == "row":
                    yield value
                    continue
                del waiting[rank]
                if kind == "result":
                    self._results[rank] = value
                else:
                    errors[rank] = value
            if errors:
                limit = time.monotonic() + _grace(errors, time.monotonic() - began)
        if errors:
            self._raise(errors)

    def _release(self, errors: dict[int, BaseException]) -> bool:
        """End the ranks that failed, so that those that wait for them notice; False where that was done before."""
        failed = [self._processes[rank] for rank in errors if self._processes[rank].is_alive()]
        for process in failed:
            process.kill()
        return bool(failed)

    def _ready(self, waiting: dict[int, Connection], deadline: float | None) -> list[int]:
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        found = wait(list(waiting.values()), left)
        return [rank for rank, pipe in waiting.items() if pipe in found]

    def _receive(self, rank: int) -> tuple[str, Any]:
        try:
            return self._pipes[rank].recv()
        except (EOFError, OSError):
            return "death", Incomplete(self._obituary(rank))

    def _obituary(self, rank: int) -> str:
        self._processes[rank].join(GRACE)
        code = self._processes[rank].exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        return f"rank {rank}, process {self._processes[rank].pid}: {how} in the middle of a task"

    def _raise(self, errors: dict[int, BaseException]) -> None:
        alike = {(type(e), str(e)) for e in errors.values()}
        first = errors[min(errors)]
        if len(errors) == self.ranks and len(alike) == 1 and not isinstance(first, Incomplete):
            raise first
        self._fail(errors, "")

    def _fail(self, errors: dict[int, BaseException], reason: str) -> None:
        self._end()
        accounts = [account(rank, errors[rank]) for rank in sorted(errors)]
        blamed = culprits(errors)
        head = [f"the others wait for rank {', '.join(map(str, blamed))}"] if blamed else []
        if ring := circle(errors):
            head = [f"ranks wait in a circle, each for the next: {', '.join(map(str, ring))}"]
        raise Incomplete("; ".join([*head, *([reason] if reason else []), *accounts]))

    def _end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._kill()


def _grace(errors: Mapping[int, BaseException], taken: Seconds) -> Seconds:
    """How long to wait for the other ranks: those that may fail alike take longer where many share few cores."""
    alike = not any(isinstance(error, Incomplete) for error in errors.values())
    return min(max(GRACE, 2 * taken), _LONGEST_GRACE) if alike else GRACE
