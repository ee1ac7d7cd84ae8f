"""What must hold before and after a collective, independent of how it is done.

A collective is stated over chunks: the buffer of every rank is cut into `num_chunks` equal
chunks (see `schedule.chunk_bounds`). Where ranks own parts (reduce_scatter, all_gather), rank r
owns the chunks c with c * world_size // num_chunks == r. In all_to_all chunk j of rank r ends as
chunk r of rank j, for blocks of num_chunks / world_size chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


class Kind(StrEnum):
    """The collectives, spelt as torch and NCCL spell them."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "all_to_all"


_PARTITIONED = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL)
_REDUCING = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.REDUCE)


@dataclass(frozen=True, slots=True)
class Collective:
    """A kind and, for broadcast and reduce, its root rank."""

    kind: Kind
    root: int = 0

    @property
    def reduces(self) -> bool:
        """Whether results are sums over all ranks."""
        return self.kind in _REDUCING

    def require(self, world_size: int, num_chunks: int) -> None:
        """Raise InvalidInput where the collective is not defined for this many ranks and chunks."""
        if not 0 <= self.root < world_size:
            raise InvalidInput(f"root must be a rank below {world_size}, got {self.root}")
        if self.kind in _PARTITIONED and num_chunks % world_size:
            raise InvalidInput(
                f"num_chunks must be a multiple of the world size {world_size} for {self.kind}, got {num_chunks}"
            )

    def holds(self, world_size: int, num_chunks: int) -> BoolArray:
        """Which chunks of which rank hold data before, shape (world_size, num_chunks)."""
        match self.kind:
            case Kind.ALL_GATHER:
                return owner(world_size, num_chunks)[None, :] == np.arange(world_size)[:, None]
            case Kind.BROADCAST:
                return np.broadcast_to(np.arange(world_size)[:, None] == self.root, (world_size, num_chunks))
            case _:
                return np.ones((world_size, num_chunks), bool)

    def wants(self, world_size: int, num_chunks: int) -> BoolArray:
        """Which chunks of which rank must hold a result after, shape (world_size, num_chunks)."""
        match self.kind:
            case Kind.REDUCE_SCATTER:
                return owner(world_size, num_chunks)[None, :] == np.arange(world_size)[:, None]
            case Kind.REDUCE:
                return np.broadcast_to(np.arange(world_size)[:, None] == self.root, (world_size, num_chunks))
            case _:
                return np.ones((world_size, num_chunks), bool)

    def origin(self, world_size: int, num_chunks: int) -> tuple[IntArray, IntArray]:
        """Rank and chunk whose initial data each result is a copy of, each (world_size, num_chunks).

        Raises
        ------
        InvalidInput : the collective reduces, so a result has no single origin.
        """
        ranks = np.broadcast_to(np.arange(world_size)[:, None], (world_size, num_chunks))
        chunks = np.broadcast_to(np.arange(num_chunks)[None, :], (world_size, num_chunks))
        match self.kind:
            case Kind.ALL_GATHER:
                return np.broadcast_to(owner(world_size, num_chunks)[None, :], ranks.shape), chunks
            case Kind.BROADCAST:
                return np.full_like(ranks, self.root), chunks
            case Kind.ALL_TO_ALL:
                block = num_chunks // world_size
                return chunks // block, ranks * block + chunks % block
            case _:
                raise InvalidInput(f"{self.kind} sums over all ranks; its results have no single origin")


def owner(world_size: int, num_chunks: int) -> IntArray:
    """Rank that owns each chunk where ranks own equal parts, shape (num_chunks,)."""
    return np.arange(num_chunks) * world_size // num_chunks
