"""How messages of one channel travel: one process group, one order, one thread or stream.

NCCL ignores tags, so a channel is a process group of its own. Within a channel, steps run in
order; channels run beside each other. Two kinds of lane run the same loop:

- gloo, MPI (`HostLane`): a thread posts a step, waits for it, applies it;
- NCCL (`StreamLane`): the host only enqueues, a CUDA stream of the lane does the waiting.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from weakref import WeakSet

import torch
import torch.distributed as dist

from realrun.program import ChannelProgram, RankStep
from realrun.stall import Stall, Stalled, is_connection_error, is_time_limit
from simnet.errors import Incomplete
from simnet.schedule import Op
from simnet.units import Seconds

Buffers = tuple[torch.Tensor, torch.Tensor]
EXIT_GRACE: Seconds = 5.0


class Lane:
    """A channel's process group and its landing buffers; `run` executes steps in order."""

    def __init__(self, group: dist.ProcessGroup, timeout: Seconds) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self._limit = timedelta(seconds=timeout)
        self._scraps: dict[tuple[str, torch.dtype, torch.device], torch.Tensor] = {}

    def run(self, name: str, program: ChannelProgram, buffers: Buffers) -> None:
        """Run steps on (data, scratch), in place.

        Raises
        ------
        Stalled : a peer is lost or silent for longer than the time limit.
        """
        landing = self._scrap("landing", program.landing, buffers[0])
        packing = self._scrap("packing", program.packing, buffers[0])
        for step in program.steps:
            self._exchange(name, step, _received(step, buffers, landing), _sent(step, buffers, packing))
            _apply(step, buffers, landing)

    def _scrap(self, use: str, elements: int, like: torch.Tensor) -> torch.Tensor:
        key = (use, like.dtype, like.device)
        held = self._scraps.get(key)
        if held is None or held.numel() < elements:
            held = self._scraps[key] = torch.empty(elements, dtype=like.dtype, device=like.device)
        return held

    def _exchange(self, name: str, step: RankStep, received: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
        raise NotImplementedError


class HostLane(Lane):
    """Point-to-point over a backend whose waits block the host; work runs in the lane's one thread."""

    def __init__(self, group: dist.ProcessGroup, timeout: Seconds) -> None:
        super().__init__(group, timeout)
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending = 0
        self._lock = threading.Lock()

    def submit(self, task: Callable[[], None], *, in_thread: bool) -> None:
        """Run a task after all earlier ones of this lane; in the caller's own thread where that may be."""
        with self._lock:
            busy = self._pending > 0
            self._pending += 1
            if (in_thread or busy) and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="realrun-lane", daemon=True)
                self._thread.start()
                _working.add(self)
        if in_thread or busy:
            self._tasks.put(task)
        else:
            self._finish(task)

    def close(self, timeout: Seconds) -> bool:
        """End the thread after the tasks it has; return whether it ended within `timeout`."""
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._finish(task)

    def _finish(self, task: Callable[[], None]) -> None:
        try:
            task()
        finally:
            with self._lock:
                self._pending -= 1

    def _exchange(self, name: str, step: RankStep, received: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
        posted: list[dist.Work] = []
        waited = 0
        began = time.monotonic()
        try:
            for message, tensor in zip(step.receives, received, strict=True):
                posted.append(self.group.recv([tensor], message.peer, 0))
            for message, tensor in zip(step.sends, sent, strict=True):
                posted.append(self.group.send([tensor], message.peer, 0))
            for work in posted:
                work.wait(self._limit)
                waited += 1
        except RuntimeError as error:
            if not is_connection_error(error):
                raise
            at = waited if len(posted) == len(step.messages) else len(posted)
            raise Stalled(self._stall(name, step, at, time.monotonic() - began, error)) from error

    def _stall(self, name: str, step: RankStep, at: int, waited: Seconds, error: RuntimeError) -> Stall:
        action = "hear from" if at < len(step.receives) else "send to"
        lost = not is_time_limit(error)
        return Stall(self.rank, step.messages[at].peer, step.index, name, waited, lost, action)


_working: WeakSet[HostLane] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End the threads of all lanes before the interpreter is taken down.

    A thread that comes back from torch's code after that aborts the process, so where one still waits for a
    peer after `EXIT_GRACE`, the process ends here. Registered at import, and so called after what the program
    itself registered.
    """
    deadline = time.monotonic() + EXIT_GRACE
    ended = [lane.close(max(deadline - time.monotonic(), 0.0)) for lane in list(_working)]
    if not all(ended):
        print(
            "error: the program ended while a collective had not: other ranks are silent; "
            "wait for every handle before the end", file=sys.stderr,
        )  # fmt: skip
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(Incomplete.exit_code)


class StreamLane(Lane):
    """Point-to-point over NCCL: every step is one group call enqueued on a stream of the lane."""

    def __init__(self, group: dist.ProcessGroup, timeout: Seconds, device: torch.device) -> None:
        super().__init__(group, timeout)
        self._peers = dist.get_process_group_ranks(group)
        self.stream = torch.cuda.Stream(device)
        self._marks: list[tuple[RankStep, torch.cuda.Event]] = []
        with torch.cuda.stream(self.stream):
            dist.all_reduce(torch.zeros(1, device=device), group=group)

    def enqueue(self, name: str, program: ChannelProgram, buffers: Buffers) -> None:
        """Queue the steps behind what the current stream has queued so far; returns at once."""
        self._marks = []
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            self.run(name, program, buffers)
        for buffer in buffers:
            buffer.record_stream(self.stream)

    def waiting_for(self) -> RankStep | None:
        """First step of the latest program that the device has not finished."""
        return next((step for step, mark in self._marks if not mark.query()), None)

    def _exchange(self, name: str, step: RankStep, received: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
        pairs = zip(step.receives, received, strict=True)
        ops = [dist.P2POp(dist.irecv, t, self._peers[m.peer], group=self.group) for m, t in pairs]
        pairs = zip(step.sends, sent, strict=True)
        ops += [dist.P2POp(dist.isend, t, self._peers[m.peer], group=self.group) for m, t in pairs]
        for work in dist.batch_isend_irecv(ops):
            work.wait()  # the stream waits, not the host
        mark = torch.cuda.Event()
        mark.record(self.stream)
        self._marks.append((step, mark))


def _view(buffers: Buffers, start: int, stop: int) -> torch.Tensor:
    data, scratch = buffers
    count = data.numel()
    return data[start:stop] if stop <= count else scratch[start - count : stop - count]


def _received(step: RankStep, buffers: Buffers, landing: torch.Tensor) -> list[torch.Tensor]:
    tensors, offset = [], 0
    for message in step.receives:
        if message.lands_in_place:
            tensors.append(_view(buffers, message.pieces[0].start, message.pieces[0].stop))
            continue
        tensors.append(landing[offset : offset + message.elements])
        offset += message.elements
    return tensors


def _sent(step: RankStep, buffers: Buffers, packing: torch.Tensor) -> list[torch.Tensor]:
    tensors, offset = [], 0
    for message in step.sends:
        views = [_view(buffers, p.start, p.stop) for p in message.pieces]
        if len(views) == 1:
            tensors.append(views[0])
            continue
        tensors.append(torch.cat(views, out=packing[offset : offset + message.elements]))
        offset += message.elements
    return tensors


def _apply(step: RankStep, buffers: Buffers, landing: torch.Tensor) -> None:
    for apply in step.applies:
        piece = apply.piece
        target = _view(buffers, piece.start, piece.stop)
        arrived = landing[apply.offset : apply.offset + piece.stop - piece.start]
        if piece.op == Op.REDUCE:
            target.add_(arrived)
        else:
            target.copy_(arrived)
