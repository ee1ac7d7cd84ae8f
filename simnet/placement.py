"""Which rank sits on which vertex: a separate object, so that the same schedule can be laid out anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simnet.errors import InvalidInput
from simnet.fabric import Vertex


@dataclass(frozen=True, slots=True)
class Placement:
    """vertices[rank] is where that rank runs; each vertex holds at most one rank."""

    vertices: tuple[Vertex, ...]

    def __post_init__(self) -> None:
        if len(set(self.vertices)) != len(self.vertices):
            raise InvalidInput("a placement puts two ranks on one vertex; give every rank its own device")

    @property
    def world_size(self) -> int:
        """Number of ranks placed."""
        return len(self.vertices)


def linear(devices: Sequence[Vertex], world_size: int) -> Placement:
    """Ranks in the order of the devices, node after node.

    Raises
    ------
    InvalidInput : there are fewer devices than ranks.
    """
    if not 1 <= world_size <= len(devices):
        raise InvalidInput(
            f"ranks must be 1 to {len(devices)} on this cluster, got {world_size}; name a larger cluster"
        )
    return Placement(tuple(devices[:world_size]))
