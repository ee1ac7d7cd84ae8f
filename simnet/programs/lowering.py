"""Turn a thread-block program into a schedule, so that every engine can time it and torch can run it.

Messages are put into steps by what they need: data must have arrived in an earlier step, and a chunk
may be overwritten no earlier than in the step that reads it. Input and output are one buffer, as in
every schedule; what is received into scratch only to be added is added as it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simnet.errors import Unsupported
from simnet.programs.model import Instruction, Link, Program
from simnet.programs.rendezvous import Event, Half, run
from simnet.schedule import Op, Schedule, Step, Transfer

Cell = tuple[int, int]


@dataclass(slots=True)
class _Message:
    """One transfer in the making; `strong` must be in earlier steps, `weak` not in later ones."""

    src: int
    dst: int
    src_cell: int
    count: int
    dst_cell: int = 0
    op: Op = Op.COPY
    strong: set[int] = field(default_factory=set)
    weak: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Use:
    """Messages that wrote a cell, and those that read it since the last write, and ever."""

    writers: list[int] = field(default_factory=list)
    readers: set[int] = field(default_factory=set)
    ever: set[int] = field(default_factory=set)


def to_schedule(program: Program, *, slots: int = 1) -> Schedule:
    """Return the program as a schedule on one channel; messages between two ranks in one step travel together.

    It is the caller's to `check` the result: a program whose input and output do not fit one buffer fails there.

    Raises
    ------
    Unsupported : the program moves data inside a rank in a way no transfer can stand for.
    Deadlock, InvalidSchedule : see `rendezvous.run`.
    """
    lowering = _Lowering(program)
    for event in run(program, slots=slots):
        lowering.add(event)
    steps = lowering.steps()
    used = max((int(max(s.src_chunk.max(), s.dst_chunk.max())) for s in steps), default=0) >= program.num_chunks
    scratch = program.num_cells - lowering.first_scratch if used else 0
    size = program.world_size, program.num_chunks
    return Schedule(program.name, program.collective, *size, lambda: iter(steps), num_scratch=scratch)


class _Lowering:
    def __init__(self, program: Program) -> None:
        self.program = program
        sides = (*program.input_cells, *program.output_cells)
        self.first_scratch = 1 + max(cell for row in sides for cell in row if cell is not None)
        self.messages: list[_Message] = []
        self.flying: dict[tuple[Link, int], int] = {}
        self.pending: dict[Cell, int] = {}
        self.last: dict[Link, int] = {}
        self.use: dict[Cell, _Use] = {}

    def add(self, event: Event) -> None:
        """Note what one event reads and writes."""
        do = event.instruction
        if event.half is Half.LEAVE:
            assert event.message is not None
            self.flying[event.message] = self._send(event.message[0], do)
        elif event.message is not None:
            self._receive(self.flying.pop(event.message), event.block.rank, do)
        elif do.action.value in ("cpy", "re"):
            self._move(event.block.rank, do)

    def _send(self, link: Link, do: Instruction) -> int:
        number, cell = len(self.messages), do.dst if do.action.value in ("rcs", "rrcs") else do.src
        message = _Message(link[0], link[1], cell, do.count)
        self.messages.append(message)
        if link in self.last:
            message.strong.add(self.last[link])
        self.last[link] = number
        self._read(number, [(link[0], cell + k) for k in range(do.count)])
        return number

    def _receive(self, number: int, rank: int, do: Instruction) -> None:
        message = self.messages[number]
        message.dst_cell = do.src if do.action.value == "rrs" else do.dst
        message.op = Op.REDUCE if do.action.adds else Op.COPY
        cells = [(rank, message.dst_cell + k) for k in range(do.count)]
        if do.action.value in ("rrc", "rrcs") and do.src != do.dst:
            if self._chunk(rank, do.src) != self._chunk(rank, do.dst):
                raise Unsupported(f"{self.program.name}: rank {rank} adds chunks and puts the sum elsewhere; {UNTIMED}")
            self._read(number, [(rank, do.src + k) for k in range(do.count)])
        if do.action.value == "r" and do.dst >= self.first_scratch:
            self.pending |= dict.fromkeys(cells, number)
        else:
            self._write(number, cells)

    def _read(self, number: int, cells: list[Cell]) -> None:
        for cell in cells:
            self._settle(cell)
            use = self.use.setdefault(cell, _Use())
            self.messages[number].strong.update(use.writers[-1:])
            use.readers.add(number)
            use.ever.add(number)

    def _write(self, number: int, cells: list[Cell]) -> None:
        for cell in cells:
            self.pending.pop(cell, None)
            use = self.use.setdefault(cell, _Use())
            self.messages[number].strong.update(use.writers[-1:])
            self.messages[number].weak |= use.readers - {number}
            use.writers.append(number)
            use.readers = set()

    def _settle(self, cell: Cell) -> None:
        """Write what arrived in scratch, now that somebody reads it."""
        if cell in self.pending:
            number = self.pending[cell]
            message = self.messages[number]
            self._write(number, [(cell[0], message.dst_cell + k) for k in range(message.count)])

    def _move(self, rank: int, do: Instruction) -> None:
        """Fold a local copy or addition into the message that brought its source."""
        if do.action.value == "cpy" and self._chunk(rank, do.src) == self._chunk(rank, do.dst):
            return
        number = self.pending.get((rank, do.src))
        if number is None or (self.messages[number].dst_cell, self.messages[number].count) != (do.src, do.count):
            raise Unsupported(f"{self.program.name}: rank {rank} moves cell {do.src} to {do.dst} of its own; {UNTIMED}")
        for k in range(do.count):
            del self.pending[rank, do.src + k]
        self.messages[number].dst_cell = do.dst
        self.messages[number].op = Op.REDUCE if do.action.adds else Op.COPY
        self._write(number, [(rank, do.dst + k) for k in range(do.count)])

    def _chunk(self, rank: int, cell: int) -> int:
        """Chunk of the schedule that stands for a cell: input and output of a chunk are one."""
        if cell >= self.first_scratch:
            return self.program.num_chunks + cell - self.first_scratch
        sides = (self.program.input_cells[rank], self.program.output_cells[rank])
        return next((side.index(cell) for side in sides if cell in side), cell % self.program.num_chunks)

    def steps(self) -> list[Step]:
        """Put every message into the first step its needs allow."""
        for cell in list(self.pending):
            self._settle(cell)
        self._keep_inputs()
        level = self._levels()
        rows: list[list[Transfer]] = [[] for _ in range(max(level, default=-1) + 1)]
        for number, m in enumerate(self.messages):
            src, dst = self._chunk(m.src, m.src_cell), self._chunk(m.dst, m.dst_cell)
            rows[level[number]].append(Transfer(m.src, m.dst, src, dst, m.count, m.op))
        return [Step.of(step) for step in rows]

    def _keep_inputs(self) -> None:
        """Let no output overwrite an input of the same chunk that is still to be read."""
        for rank in range(self.program.world_size):
            for source, target in zip(self.program.input_cells[rank], self.program.output_cells[rank], strict=True):
                if source is not None and target is not None and source != target:
                    readers = self.use.get((rank, source), _Use()).ever
                    for writer in self.use.get((rank, target), _Use()).writers:
                        self.messages[writer].weak |= readers - {writer}

    def _levels(self) -> list[int]:
        level = [0] * len(self.messages)
        for _ in range(len(self.messages) + 1):
            before = list(level)
            for number, message in enumerate(self.messages):
                strong = max((level[m] + 1 for m in message.strong), default=0)
                level[number] = max(level[number], strong, *(level[m] for m in message.weak))
            if level == before:
                return level
        raise Unsupported(f"{self.program.name}: its messages need each other in a circle of steps; {UNTIMED}")


UNTIMED = "no transfer stands for that, so the program can be verified but not timed"
