"""Handles of running collectives, used like torch.distributed's Work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from realrun.lanes import StreamLane
from realrun.stall import Stall, Stalled
from simnet.errors import Incomplete
from simnet.units import Seconds


class Handle:
    """What `wait`, `is_completed` and `get_future` mean for torch.distributed's Work, they mean here."""

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Return once the result may be used; raise what went wrong."""
        raise NotImplementedError

    def is_completed(self) -> bool:
        """Whether the result is there, or the run has failed."""
        raise NotImplementedError

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that holds the tensor."""
        raise NotImplementedError


class HostHandle(Handle):
    """A collective whose channels run in host threads; the last one to end finishes it."""

    def __init__(self, tensor: torch.Tensor, finish: Callable[[], None], parts: int) -> None:
        self._tensor, self._finish = tensor, finish
        self._left = parts
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._future: torch.futures.Future[Any] | None = None
        if parts == 0:
            self._conclude()

    def call(self, task: Callable[[], None]) -> None:
        """Run one channel's part; an error ends the whole, a success only its part."""
        try:
            task()
        except BaseException as error:
            self._error = self._error or error
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._conclude()

    def _conclude(self) -> None:
        try:
            if self._error is None:
                self._finish()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._done.set()
            future = self._future
        if future is not None:
            self._settle(future)

    def _settle(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._tensor)
        else:
            future.set_exception(self._error)

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the tensor holds the result.

        Raises
        ------
        Stalled : a peer was lost or silent for longer than the executor's time limit.
        Incomplete : `timeout`, s, passed first.
        """
        if not self._done.wait(timeout):
            raise Incomplete(f"the collective is not complete after {timeout} s; wait longer, it is still running")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether the result is there, or the run has failed."""
        return self._done.is_set()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that holds the tensor, or the error."""
        with self._lock:
            if self._future is not None:
                return self._future
            future = self._future = torch.futures.Future()
            done = self._done.is_set()
        if done:
            self._settle(future)
        return future


class StreamHandle(Handle):
    """A collective queued on CUDA streams; `wait` makes the current stream wait, `synchronize` the host."""

    def __init__(
        self, tensor: torch.Tensor, finish: Callable[[], None], lanes: Sequence[StreamLane], name: str, timeout: Seconds
    ) -> None:
        self._tensor, self._lanes, self._name, self._timeout = tensor, lanes, name, timeout
        self._event = torch.cuda.Event()
        self._future: torch.futures.Future[Any] = torch.futures.Future(devices=[tensor.device])
        first = lanes[0].stream
        tensor.record_stream(first)
        for lane in lanes[1:]:
            first.wait_stream(lane.stream)
        with torch.cuda.stream(first):
            finish()
            self._event.record(first)
            self._future.set_result(tensor)

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Queue what follows on the current stream behind the result; with a time limit, block for it."""
        torch.cuda.current_stream(self._tensor.device).wait_event(self._event)
        if timeout is not None:
            self.synchronize(timeout)
        return True

    def synchronize(self, timeout: Seconds | None = None) -> None:
        """Block the host until the device has the result.

        Raises
        ------
        Stalled : the device did not finish within the time limit; names the first unfinished step.
        """
        began, limit = time.monotonic(), self._timeout if timeout is None else timeout
        while not self._event.query():
            if time.monotonic() - began > limit:
                raise self._stall(limit)
            time.sleep(0)

    def _stall(self, waited: Seconds) -> Stalled:
        for lane in self._lanes:
            step = lane.waiting_for()
            if step is not None:
                peer = (step.receives or step.sends)[0].peer
                return Stalled(Stall(lane.rank, peer, step.index, self._name, waited, lost=False))
        rank = self._lanes[0].rank
        return Stalled(Stall(rank, rank, 0, self._name, waited, lost=False, action="finish the device work of"))

    def is_completed(self) -> bool:
        """Whether the device has finished."""
        return bool(self._event.query())

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of this device that holds the tensor."""
        return self._future
