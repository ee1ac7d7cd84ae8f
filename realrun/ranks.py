"""Ranks as processes of this machine: forked from a server that has torch loaded already.

Starting torch takes seconds; forking a process that holds it takes a tenth of one. A `RankPool`
keeps its ranks for many tasks. Ranks end with the pool, when the process that made the pool is
gone, and when any of them fails: what a failed rank leaves behind cannot be used again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import multiprocessing as mp
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, TypeAlias

from realrun.stall import account, circle, culprits
from simnet.errors import Incomplete, InvalidInput
from simnet.units import Seconds

GRACE: Seconds = 2.0
Task: TypeAlias = Callable[..., Any] | str
_preloaded = ["torch", "torch.distributed", "realrun.ranks", "realrun.executor"]


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
        context = _context()
        self._pipes: list[Connection] = []
        self._processes: list[ForkServerProcess] = []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, ranks, theirs, backend, timeout), daemon=True)
            with _main_module_hidden():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
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
        limit = None if timeout is None else time.monotonic() + timeout
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
                limit = time.monotonic() + GRACE
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


def preload(*modules: str) -> None:
    """Load more modules in the fork server, so that ranks have them at once; before the first pool starts."""
    _preloaded.extend(m for m in modules if m not in _preloaded)


def _context() -> ForkServerContext:
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(_preloaded)
    return context


def reference(function: Task) -> tuple[str, str, str]:
    """Module, file and name of a function, by which another process finds it."""
    if isinstance(function, str):
        module, _, name = function.partition(":")
        return module, "", name
    if "." in function.__qualname__:
        raise InvalidInput(f"{function.__qualname__} must be a function at the top level of a module to run on ranks")
    return function.__module__, inspect.getfile(function), function.__name__


def resolve(module: str, file: str, name: str) -> Callable[..., Any]:
    """Find a function by its module's name, or, for scripts and tests outside the path, by its file."""
    if not file:
        return getattr(importlib.import_module(module), name)
    if module == "__main__":
        module = "__mp_main__"
    if module not in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, file)
        if spec is None or spec.loader is None:
            raise InvalidInput(f"{file} cannot be imported by the ranks; put {name} into a Python file")
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return getattr(sys.modules[module], name)


@contextlib.contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Keep multiprocessing from importing the user's script again in every rank."""
    import __main__

    names = vars(__main__)
    kept: dict[str, Any] = {key: names[key] for key in ("__file__", "__spec__") if key in names}
    try:
        names.update(dict.fromkeys(kept))
        yield
    finally:
        names.update(kept)


def _serve(rank: int, ranks: int, pipe: Connection, backend: str, timeout: Seconds) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _join(rank, ranks, pipe, backend, timeout)
        pipe.send(("result", None))
    except Exception as error:
        pipe.send(("error", _portable(error)))
    with contextlib.suppress(EOFError, OSError):
        while task := pipe.recv_bytes():
            kind, value = _perform(task, rank, pipe)
            pipe.send((kind, value))
            if isinstance(value, Incomplete):
                break
    os._exit(0)


def _end_with_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _join(rank: int, ranks: int, pipe: Connection, backend: str, timeout: Seconds) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    limit = timedelta(seconds=timeout)
    store = TCPStore("127.0.0.1", 0 if rank == 0 else pipe.recv(), ranks, rank == 0, limit, wait_for_workers=False)
    if rank == 0:
        pipe.send(("port", store.port))
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=limit)


def _perform(task: bytes, rank: int, pipe: Connection) -> tuple[str, Any]:
    try:
        reference, args = pickle.loads(task)
        result = resolve(*reference)(*pickle.loads(args))
        if isinstance(result, Iterator):
            for row in result:
                if rank == 0:
                    pipe.send(("row", row))
            result = None
        return "result", result
    except Exception as error:
        return "error", _portable(error)


def _portable(error: Exception) -> Exception:
    """Return the error itself where it survives pickling, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
