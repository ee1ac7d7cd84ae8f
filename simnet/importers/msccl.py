"""Read MSCCL algorithm files: other people's collectives as XML thread-block programs.

Source of the format: msccl-tools, language/ir.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simnet.collective import Collective, Kind
from simnet.errors import InvalidInput
from simnet.programs.model import Action, Block, Instruction, Program

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MOST_CELLS = 100_000_000
"""Chunks times ranks squared that a check may hold, some 800 MB."""

COLLECTIVES = {
    "allreduce": Kind.ALL_REDUCE,
    "allgather": Kind.ALL_GATHER,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "reducescatter": Kind.REDUCE_SCATTER,
    "alltoall": Kind.ALL_TO_ALL,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
}


def read_msccl(path: Path) -> Program:
    """Read one file as a program.

    Raises
    ------
    InvalidInput : the file cannot be read, is no MSCCL algorithm, or uses what this reader does not know; the text
        says where.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as text: {error}; name an MSCCL XML file") from error
    return parse_msccl(text, source=str(path))


def parse_msccl(text: str, *, source: str = "text") -> Program:
    """Read a program from XML text; raises InvalidInput as `read_msccl` does."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        root = fromstring(text)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise InvalidInput(f"{source} is no readable XML: {error}; give a whole MSCCL file") from error
    if root.tag != "algo":
        raise InvalidInput(f"{source} starts with <{root.tag}>, an MSCCL file with <algo>")
    return _Reader(source, root).program()


class _Reader:
    def __init__(self, source: str, root: Element) -> None:
        self.source, self.root = source, root
        self.ranks = self._number(root, "ngpus", least=1)
        self.chunks = self._number(root, "nchunksperloop", least=1)
        self.collective = self._collective()
        self.in_place = root.get("inplace", "0") == "1"
        self.output_at = 0 if self.in_place else self.chunks
        self.scratch_at = self.output_at + self.chunks
        self.gpus = {self._number(gpu, "id", least=0): gpu for gpu in root.iter("gpu")}
        if len(self.gpus) != self.ranks or sorted(self.gpus) != list(range(self.ranks)):
            raise InvalidInput(f"{source} says ngpus={self.ranks} but has gpus {sorted(self.gpus)}; is it cut off?")
        self.scratch = {rank: self._number(gpu, "s_chunks", least=0, default=0) for rank, gpu in self.gpus.items()}
        self.num_cells = self.scratch_at + max(self.scratch.values())
        if self.ranks**2 * self.num_cells > MOST_CELLS:
            raise InvalidInput(
                f"{source} has {self.num_cells} chunks on each of {self.ranks} ranks, more than can be checked; "
                "is a number damaged?"
            )

    def program(self) -> Program:
        blocks = tuple(self._block(rank, tb) for rank, gpu in sorted(self.gpus.items()) for tb in gpu.iter("tb"))
        self._require_distinct(blocks)
        return Program(
            name=self.root.get("name", self.source),
            collective=self.collective,
            world_size=self.ranks,
            num_chunks=self.chunks,
            num_cells=self.num_cells,
            input_cells=self._cells(self.collective.holds(self.ranks, self.chunks).tolist(), "i", Kind.ALL_GATHER),
            output_cells=self._cells(self.collective.wants(self.ranks, self.chunks).tolist(), "o", Kind.REDUCE_SCATTER),
            blocks=blocks,
        )

    def _collective(self) -> Collective:
        word = self._text(self.root, "coll").lower()
        if word not in COLLECTIVES:
            known = ", ".join(COLLECTIVES)
            raise InvalidInput(f"{self.source}: collective {word!r} has no known result; it must be one of {known}")
        collective = Collective(COLLECTIVES[word])
        collective.require(self.ranks, self.chunks)
        return collective

    def _cells(self, has: list[list[bool]], buffer: str, part: Kind) -> tuple[tuple[int | None, ...], ...]:
        """Cells of every rank's chunks in a buffer that, for the collective `part`, holds the rank's own part only."""
        own = self.chunks // self.ranks if self.collective.kind is part else 0

        def cells(rank: int, held: list[bool]) -> tuple[int | None, ...]:
            return tuple(self._cell(buffer, c - rank * own, rank) if holds else None for c, holds in enumerate(held))

        return tuple(cells(rank, held) for rank, held in enumerate(has))

    def _cell(self, buffer: str, offset: int, rank: int) -> int:
        """Cell of an offset in a buffer; in place, input and output are parts of one."""
        own = rank * self.chunks // self.ranks if self.in_place else 0
        match buffer:
            case "i":
                return offset + (own if self.collective.kind is Kind.ALL_GATHER else 0)
            case "o":
                return self.output_at + offset + (own if self.collective.kind is Kind.REDUCE_SCATTER else 0)
            case "s":
                return self.scratch_at + offset
            case _:
                raise InvalidInput(f"{self.source}: unknown buffer {buffer!r} on rank {rank}; it must be i, o or s")

    def _block(self, rank: int, tb: Element) -> Block:
        number = self._number(tb, "id", least=0)
        peers = [self._number(tb, key, least=-1, default=-1) for key in ("send", "recv")]
        if max(peers) >= self.ranks or rank in peers:
            raise InvalidInput(f"{self.source}: rank {rank}, block {number} talks to ranks {peers} of {self.ranks}")
        send, receive = (None if peer < 0 else peer for peer in peers)
        steps = sorted(tb.iter("step"), key=lambda step: self._number(step, "s", least=0))
        if [self._number(step, "s", least=0) for step in steps] != list(range(len(steps))):
            raise InvalidInput(f"{self.source}: rank {rank}, block {number} does not number its steps 0, 1, 2, ...")
        instructions = tuple(self._instruction(rank, step) for step in steps)
        return Block(rank, number, send, receive, self._number(tb, "chan", least=0, default=0), instructions)

    def _instruction(self, rank: int, step: Element) -> Instruction:
        word = self._text(step, "type")
        if word not in list(Action):
            known = ", ".join(Action)
            raise InvalidInput(f"{self.source}: rank {rank} has a step of unknown type {word!r}; known are {known}")
        action = Action(word)
        after = [self._number(step, key, least=-1, default=-1) for key in ("depid", "deps")]
        count = self._number(step, "cnt", least=0 if action is Action.NOTHING else 1, default=0)
        src = self._place(rank, step, "src", count) if action.reads else 0
        dst = self._place(rank, step, "dst", count) if action.writes else 0
        return Instruction(action, src, dst, count, (after[0], after[1]) if min(after) >= 0 else None)

    def _place(self, rank: int, step: Element, side: str, count: int) -> int:
        buffer, offset = self._text(step, f"{side}buf"), self._number(step, f"{side}off", least=0)
        first = self._cell(buffer, offset, rank)
        limits = {"i": self.chunks, "o": self.output_at + self.chunks, "s": self.scratch_at + self.scratch[rank]}
        if first + count > limits[buffer]:
            where = f"{buffer}[{offset}:{offset + count}]"
            raise InvalidInput(f"{self.source}: rank {rank} uses {where}, which is beyond its buffer")
        return first

    def _require_distinct(self, blocks: tuple[Block, ...]) -> None:
        known = {block.key: len(block.instructions) for block in blocks}
        if len(known) != len(blocks):
            raise InvalidInput(f"{self.source}: two blocks of a rank have one id; give every tb its own")
        for block in blocks:
            for after in (i.after for i in block.instructions if i.after):
                if after[1] >= known.get((block.rank, after[0]), 0):
                    raise InvalidInput(f"{self.source}: {block} waits for block and step {after}, which do not exist")

    def _text(self, element: Element, key: str) -> str:
        value = element.get(key)
        if value is None:
            raise InvalidInput(f"{self.source}: <{element.tag}> lacks the attribute {key}")
        return value

    def _number(self, element: Element, key: str, *, least: int, default: int | None = None) -> int:
        if element.get(key) is None and default is not None:
            return default
        text = self._text(element, key)
        try:
            value = int(text)
        except ValueError as error:
            raise InvalidInput(f"{self.source}: {key} of <{element.tag}> is no whole number: {text!r}") from error
        if value < least:
            raise InvalidInput(f"{self.source}: {key} of <{element.tag}> must be {least} or more, got {value}")
        return value
