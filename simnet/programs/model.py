"""What a thread-block program is: every rank's blocks, each a list of instructions done in order.

A block may send to one rank and receive from one rank, over one channel; the k-th send of a
connection meets its k-th receive. Blocks of a rank run at the same time, held back by dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simnet.collective import Collective
from simnet.errors import InvalidSchedule

Link = tuple[int, int, int]


class Action(StrEnum):
    """What an instruction does, in MSCCL's words: r receive, s send, rc... and copy, rr... and reduce."""

    NOTHING = "nop"
    SEND = "s"
    RECEIVE = "r"
    RECEIVE_SEND = "rcs"
    REDUCE_SEND = "rrs"
    REDUCE = "rrc"
    REDUCE_COPY_SEND = "rrcs"
    LOCAL_COPY = "cpy"
    LOCAL_REDUCE = "re"

    @property
    def sends(self) -> bool:
        """Whether data leave the rank."""
        return self.value in ("s", "rcs", "rrs", "rrcs")

    @property
    def receives(self) -> bool:
        """Whether data arrive."""
        return self.value in ("r", "rcs", "rrs", "rrc", "rrcs")

    @property
    def adds(self) -> bool:
        """Whether what arrives, or the local source, is added to what is there."""
        return self.value in ("rrs", "rrc", "rrcs", "re")

    @property
    def reads(self) -> bool:
        """Whether the source cells are read."""
        return self.value in ("s", "rrs", "rrc", "rrcs", "cpy", "re")

    @property
    def writes(self) -> bool:
        """Whether the destination cells are written."""
        return self.value in ("r", "rcs", "rrc", "rrcs", "cpy", "re")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a block; src and dst are first cells of the rank, see `Program`. after is (block, step) or empty."""

    action: Action
    src: int
    dst: int
    count: int
    after: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One thread block: at most one rank to send to and one to receive from, over one channel."""

    rank: int
    number: int
    send_to: int | None
    receive_from: int | None
    channel: int
    instructions: tuple[Instruction, ...]

    @property
    def key(self) -> tuple[int, int]:
        """Rank and number, which no two blocks share."""
        return self.rank, self.number

    @property
    def outward(self) -> Link:
        """Source, destination and channel of what it sends."""
        if self.send_to is None:
            raise InvalidSchedule(f"{self} sends, but names no rank to send to")
        return self.rank, self.send_to, self.channel

    @property
    def inward(self) -> Link:
        """Source, destination and channel of what it receives."""
        if self.receive_from is None:
            raise InvalidSchedule(f"{self} receives, but names no rank to receive from")
        return self.receive_from, self.rank, self.channel

    def __str__(self) -> str:
        return f"rank {self.rank}, block {self.number}"


@dataclass(frozen=True, slots=True)
class Program:
    """A collective as thread blocks.

    Cells of every rank are numbered through: num_inputs cells that hold the input, then cells for the output
    unless the program works in place, then scratch. input_cells[rank][chunk] and output_cells[rank][chunk] say where
    chunks start and end up; a chunk the rank does not have is at cell None.
    """

    name: str
    collective: Collective
    world_size: int
    num_chunks: int
    num_cells: int
    input_cells: tuple[tuple[int | None, ...], ...]
    output_cells: tuple[tuple[int | None, ...], ...]
    blocks: tuple[Block, ...]

    def connections(self) -> dict[Link, tuple[Block, Block]]:
        """Sending and receiving block of each connection, matched.

        Raises
        ------
        InvalidSchedule : a connection has two senders, no receiver, or messages that do not match.
        """
        senders: dict[Link, Block] = {}
        receivers: dict[Link, Block] = {}
        for block in self.blocks:
            if any(i.action.sends for i in block.instructions):
                _claim(senders, block.outward, block)
            if any(i.action.receives for i in block.instructions):
                _claim(receivers, block.inward, block)
        for link in sorted(senders.keys() | receivers.keys()):
            _require_match(self.name, link, senders.get(link), receivers.get(link))
        return {link: (senders[link], receivers[link]) for link in senders}


def _claim(users: dict[Link, Block], link: Link, block: Block) -> None:
    if link in users:
        raise InvalidSchedule(
            f"{users[link]} and block {block.number} share the connection {link[0]} to {link[1]}, channel {link[2]}; "
            "give each a channel of its own"
        )
    users[link] = block


def _require_match(name: str, key: Link, sender: Block | None, receiver: Block | None) -> None:
    where = f"{name}: connection {key[0]} to {key[1]}, channel {key[2]}"
    if sender is None or receiver is None:
        raise InvalidSchedule(f"{where}: rank {key[1] if sender else key[0]} has no block for it")
    sent = [i.count for i in sender.instructions if i.action.sends]
    received = [i.count for i in receiver.instructions if i.action.receives]
    if len(sent) != len(received):
        raise InvalidSchedule(f"{where}: {len(sent)} messages are sent and {len(received)} received")
    for k, (out, into) in enumerate(zip(sent, received, strict=True)):
        if out != into:
            raise InvalidSchedule(f"{where}: message {k} is sent with {out} chunks and received with {into}")
