"""The process groups behind a user's group: one per channel and one on the host for control messages."""

from __future__ import annotations

from datetime import timedelta
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from realrun.lanes import HostLane, StreamLane
from simnet.errors import InvalidInput
from simnet.units import Seconds


class Channels:
    """Lanes of a group, made when first needed; every rank of the group needs them at the same point."""

    def __init__(self, group: dist.ProcessGroup, timeout: Seconds) -> None:
        self.ranks = dist.get_process_group_ranks(group)
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        self.backend = str(dist.get_backend(group))
        self.on_stream = "nccl" in self.backend
        self._timeout = timeout
        self.control = self._new_group("gloo")
        self._host: list[HostLane] = []
        self._stream: list[StreamLane] = []

    def host_lanes(self, number: int) -> list[HostLane]:
        """Return `number` lanes whose waits block the host."""
        while len(self._host) < number:
            self._host.append(HostLane(self._new_group(self.backend), self._timeout))
        return self._host[:number]

    def stream_lanes(self, number: int, device: torch.device) -> list[StreamLane]:
        """Return `number` lanes that only enqueue on `device`, their communicators set up."""
        while len(self._stream) < number:
            self._stream.append(StreamLane(self._new_group(self.backend), self._timeout, device))
        return self._stream[:number]

    def _new_group(self, backend: str) -> dist.ProcessGroup:
        whole = len(self.ranks) == dist.get_world_size()
        limit = timedelta(seconds=self._timeout)
        return dist.new_group(self.ranks, limit, backend, use_local_synchronization=not whole)


_known: WeakKeyDictionary[dist.ProcessGroup, dict[Seconds, Channels]] = WeakKeyDictionary()


def channels_of(group: dist.ProcessGroup | None, timeout: Seconds) -> Channels:
    """Return the lanes of a group (None for all ranks); executors of one group and time limit share them.

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
    known = _known.setdefault(parent, {})
    if timeout not in known:
        known[timeout] = Channels(parent, timeout)
    return known[timeout]
