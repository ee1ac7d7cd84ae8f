"""Run a program's blocks in an order their waits allow, and say who waits for whom where none can go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from simnet.errors import Deadlock
from simnet.programs.model import Block, Instruction, Link, Program


class Half(Enum):
    """Which half of an instruction: data arrive or are moved inside the rank, then data leave."""

    ARRIVE = 0
    LEAVE = 1


@dataclass(frozen=True, slots=True)
class Event:
    """Half of an instruction was done; `message` is what arrived or left: its link and its number there."""

    block: Block
    step: int
    half: Half
    message: tuple[Link, int] | None

    @property
    def instruction(self) -> Instruction:
        """The instruction it belongs to."""
        return self.block.instructions[self.step]


def run(program: Program, *, slots: int = 0) -> Iterator[Event]:
    """Yield what happens, in one order that the waits allow.

    Parameters
    ----------
    slots : messages a connection holds before its sender must wait for the receiver. 0 is rendezvous: a send
        is over only when it is received. The runtimes of NCCL and MSCCL hold several.

    Raises
    ------
    Deadlock : nothing can go on; the text names the cycle.
    InvalidSchedule : messages do not match.
    """
    machine = _Machine(program, slots)
    waiting, queued = deque(program.blocks), set(machine.blocks)
    while waiting:
        block = waiting.popleft()
        queued.discard(block.key)
        for event in machine.advance(block):
            yield event
            fresh = {other.key: other for other in machine.neighbours[event.block.key] if other.key not in queued}
            queued |= fresh.keys()
            waiting += fresh.values()
    stuck = [one for one in program.blocks if not machine.finished(one)]
    if stuck:
        raise Deadlock(f"{program.name}: {_cycle(machine, stuck[0])}{_advice(program, slots)}")


class _Machine:
    """Where every block stands, and what every connection has sent and received."""

    def __init__(self, program: Program, slots: int) -> None:
        self.slots = slots
        self.links = program.connections()
        self.blocks = {block.key: block for block in program.blocks}
        self.step = dict.fromkeys(self.blocks, 0)
        self.half = dict.fromkeys(self.blocks, Half.ARRIVE)
        self.sent = dict.fromkeys(self.links, 0)
        self.received = dict.fromkeys(self.links, 0)
        self.neighbours: dict[tuple[int, int], list[Block]] = {key: [] for key in self.blocks}
        for key in {(b.rank, i.after[0]) for b in program.blocks for i in b.instructions if i.after is not None}:
            self.neighbours[key] += [mate for mate in program.blocks if mate.rank == key[0]]
        for sender, receiver in self.links.values():
            self.neighbours[sender.key].append(receiver)
            self.neighbours[receiver.key].append(sender)

    def finished(self, block: Block) -> bool:
        return self.step[block.key] == len(block.instructions)

    def advance(self, block: Block) -> Iterator[Event]:
        """Do as much of a block as its waits allow."""
        while not self.finished(block) and self.waits_for(block) is None:
            instruction = block.instructions[self.step[block.key]]
            if self.half[block.key] is Half.LEAVE:
                yield self._leave(block)
                continue
            message = None
            if instruction.action.receives:
                link = block.inward
                if self.sent[link] == self.received[link]:
                    yield self._leave(self.links[link][0])
                message = (link, self.received[link])
                self.received[link] += 1
            event = Event(block, self.step[block.key], Half.ARRIVE, message)
            if instruction.action.sends:
                self.half[block.key] = Half.LEAVE
            else:
                self.step[block.key] += 1
            yield event

    def waits_for(self, block: Block) -> tuple[Block, str] | None:
        """Return the block that must move before this one can, and what is waited for; None where it can go on."""
        instruction = block.instructions[self.step[block.key]]
        if instruction.after is not None and self.step[block.rank, instruction.after[0]] <= instruction.after[1]:
            return self.blocks[block.rank, instruction.after[0]], f"step {instruction.after[1]} of"
        if self.half[block.key] is Half.LEAVE:
            full = self.sent[block.outward] - self.received[block.outward] >= self.slots
            return (self.links[block.outward][1], "a receive by") if full else None
        if instruction.action.receives and self.sent[block.inward] == self.received[block.inward]:
            sender = self.links[block.inward][0]
            offers = self.slots == 0 and not self.finished(sender) and self.half[sender.key] is Half.LEAVE
            return None if offers else (sender, "a send by")
        return None

    def _leave(self, block: Block) -> Event:
        event = Event(block, self.step[block.key], Half.LEAVE, (block.outward, self.sent[block.outward]))
        self.sent[block.outward] += 1
        self.step[block.key] += 1
        self.half[block.key] = Half.ARRIVE
        return event


def _cycle(machine: _Machine, block: Block) -> str:
    """Follow the waits from a block until they repeat, and write the cycle."""
    path: list[tuple[Block, str]] = []
    while block.key not in [seen.key for seen, _ in path]:
        reason = None if machine.finished(block) else machine.waits_for(block)
        if reason is None:
            return "; ".join(f"{one} waits for {what}" for one, what in path) + ", which has ended"
        path.append((block, f"{reason[1]} {reason[0]}"))
        block = reason[0]
    first = [seen.key for seen, _ in path].index(block.key)
    waits = (f"{one}, step {machine.step[one.key]}, waits for {what}" for one, what in path[first:])
    return "deadlock: " + "; ".join(waits)


def _advice(program: Program, slots: int) -> str:
    if slots:
        return ""
    try:
        for _ in run(program, slots=1):
            pass
    except Deadlock:
        return "; buffering does not help"
    return "; where a connection buffers one message (slots 1) it runs"
