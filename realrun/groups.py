"""The process groups behind a user's group: one per channel and one on the host for control messages."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from realrun.lanes import HostLane, StreamLane
from realrun.signature import Court
from realrun.stall import Stall, Stalled
from simnet.errors import InvalidInput
from simnet.units import Seconds

_ABSENT = re.compile(r"wait timeout .*keys: \S*/(\d+)")


class Channels:
    """Lanes of a group, made when first needed; every rank of the group needs them at the same point."""

    def __init__(self, group: dist.ProcessGroup, timeout: Seconds) -> None:
        self.ranks = dist.get_process_group_ranks(group)
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        config = dist.get_backend_config(group)
        self._backends = dict(part.split(":") for part in config.split(","))
        self._timeout = timeout
        self._host_backend = self._backends.get("cpu", "gloo")
        self.control = self._new_group(self._host_backend)
        self.court = Court(self.control, self._new_group(self._host_backend))
        self._host: list[HostLane] = []
        self._stream: list[StreamLane] = []

    def on_stream(self, device: torch.device) -> bool:
        """Whether tensors of that device travel without a copy in host memory, queued on a stream."""
        return self._backends.get(device.type) == "nccl"

    def host_lanes(self, number: int) -> list[HostLane]:
        """Return `number` lanes whose waits block the host."""
        while len(self._host) < number:
            self._host.append(HostLane(self._new_group(self._host_backend), self._timeout))
        return self._host[:number]

    def stream_lanes(self, number: int, device: torch.device) -> list[StreamLane]:
        """Return `number` lanes that only enqueue on `device`, their communicators set up."""
        while len(self._stream) < number:
            self._stream.append(StreamLane(self._new_group("nccl"), self._timeout, device))
        return self._stream[:number]

    def _new_group(self, backend: str) -> dist.ProcessGroup:
        whole = len(self.ranks) == dist.get_world_size()
        began, limit = time.monotonic(), timedelta(seconds=self._timeout)
        try:
            return dist.new_group(self.ranks, limit, backend, use_local_synchronization=not whole)
        except (RuntimeError, dist.DistError) as error:
            absent = _ABSENT.search(str(error))
            if absent is None:
                raise
            waited = time.monotonic() - began
            stall = Stall(self.rank, int(absent[1]), 0, "setting up a channel", waited, lost=False)
            raise Stalled(stall) from error


_known: WeakKeyDictionary[dist.ProcessGroup, dict[Seconds, Channels]] = WeakKeyDictionary()


def group_of(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return the group itself, or the one of all ranks for None.

    Raises
    ------
    InvalidInput : torch.distributed is not initialised, or this rank is not in the group.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidInput(
            "torch.distributed is not initialised in this process; call torch.distributed.init_process_group first, "
            "or start the script with torchrun"
        )
    parent = group if group is not None else dist.group.WORLD
    if parent is None or dist.get_rank(parent) < 0:
        raise InvalidInput("this rank is not in the group; call it on the group's ranks only")
    return parent


def channels_of(group: dist.ProcessGroup | None, timeout: Seconds) -> Channels:
    """Return the lanes of a group (None for all ranks); executors of one group and time limit share them."""
    parent = group_of(group)
    known = _known.setdefault(parent, {})
    if timeout not in known:
        known[timeout] = Channels(parent, timeout)
    return known[timeout]
