"""One local rank: forked from a server that holds torch, it joins the others and performs tasks until told to end."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import multiprocessing as mp
import os
import pickle
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import ModuleType
from typing import Any, TypeAlias

from simnet.errors import Incomplete, InvalidInput
from simnet.units import Seconds

Task: TypeAlias = Callable[..., Any] | str
# A socket's path may have 103 characters; multiprocessing puts 31 after the folder.
_LONGEST_FOLDER = 70
_preloaded = ["torch", "torch.distributed", "realrun.rank_process", "realrun.executor"]


def preload(*modules: str) -> None:
    """Load more modules in the fork server, so that ranks have them at once; before the first pool starts."""
    _preloaded.extend(m for m in modules if m not in _preloaded)


def start(rank: int, ranks: int, backend: str, timeout: Seconds) -> tuple[ForkServerProcess, Connection]:
    """Start a rank; the pipe takes tasks and gives answers."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(_preloaded)
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(rank, ranks, theirs, backend, timeout), daemon=True)
    with _main_module_hidden(), _short_temporary_folder():
        process.start()
    theirs.close()
    return process, ours


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


@contextlib.contextmanager
def _short_temporary_folder() -> Iterator[None]:
    """Have the server's socket where its path fits, as a job's TMPDIR may be long."""
    before = tempfile.tempdir
    if len(tempfile.gettempdir()) > _LONGEST_FOLDER:
        tempfile.tempdir = "/tmp"
    try:
        yield
    finally:
        tempfile.tempdir = before


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
        return getattr(_script(file), name)
    if module not in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    found = sys.modules[module] if module in sys.modules else _loaded(module, file)
    return getattr(found, name)


def _script(file: str) -> ModuleType:
    """Return the user's script as a module, under the names by which multiprocessing's pickles know it."""
    known = sys.modules.get("__mp_main__")
    if getattr(known, "__file__", None) != file:
        known = sys.modules["__main__"] = _loaded("__mp_main__", file)
    assert known is not None
    return known


def _loaded(module: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{file} cannot be imported by the ranks; put the function into a Python file")
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


def _serve(rank: int, ranks: int, pipe: Connection, backend: str, timeout: Seconds) -> None:
    """Answer tasks until the pipe is closed or a peer was lost; then end without taking the interpreter down.

    Threads may be in torch's code then, and the process that asked may be gone.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with contextlib.suppress(EOFError, OSError):
            _answer(pipe, _joined(rank, ranks, pipe, backend, timeout))
            while task := pipe.recv_bytes():
                kind, value = _perform(task, rank, pipe)
                _answer(pipe, (kind, value))
                if isinstance(value, Incomplete):
                    break
    finally:
        os._exit(0)


def _end_with_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _joined(rank: int, ranks: int, pipe: Connection, backend: str, timeout: Seconds) -> tuple[str, Any]:
    try:
        _join(rank, ranks, pipe, backend, timeout)
    except Exception as error:
        return "error", _portable(error)
    return "result", None


def _join(rank: int, ranks: int, pipe: Connection, backend: str, timeout: Seconds) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = _loopback()
    limit = timedelta(seconds=timeout)
    store = TCPStore("127.0.0.1", 0 if rank == 0 else pipe.recv(), ranks, rank == 0, limit, wait_for_workers=False)
    if rank == 0:
        pipe.send(("port", store.port))
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=limit)


def _loopback() -> str:
    """Name of the loopback interface: lo on Linux, lo0 on macOS."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")


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


def _answer(pipe: Connection, answer: tuple[str, Any]) -> None:
    """Send an answer, or what is wrong with it."""
    try:
        content = pickle.dumps(answer)
    except Exception as error:
        content = pickle.dumps(("error", InvalidInput(f"what the task returns cannot leave its rank: {error}")))
    pipe.send_bytes(content)


def _portable(error: Exception) -> Exception:
    """Return the error itself where it survives pickling, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
