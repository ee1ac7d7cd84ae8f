"""Write a schedule as an MSCCL algorithm: one thread block per rank, peer, direction and channel.

Blocks of a rank wait for each other where they touch the same chunk. What arrives for a chunk that the
rank still sends in the same step is received into scratch and moved after the send, so that the program
needs no buffering: it also runs under rendezvous.

Source of the format: msccl-tools, language/ir.py; minBytes and maxBytes are required by Azure's executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from simnet.collective import Kind
from simnet.errors import InvalidInput, Unsupported
from simnet.schedule import Op, Schedule, Step, Transfer

WORDS = {
    Kind.ALL_REDUCE: "allreduce",
    Kind.ALL_GATHER: "allgather",
    Kind.REDUCE_SCATTER: "reduce_scatter",
    Kind.ALL_TO_ALL: "alltoall",
    Kind.BROADCAST: "broadcast",
    Kind.REDUCE: "reduce",
}
MOST_TRANSFERS = 2_000_000

Place = tuple[int, int]
Peer = tuple[str, int, int]


def write_msccl(
    schedule: Schedule, *, min_bytes: int = 0, max_bytes: int = 1 << 40, proto: str = "Simple"
) -> Iterator[str]:
    """Yield the lines of an MSCCL file, in place, for messages of min_bytes to max_bytes.

    Raises
    ------
    InvalidInput : min_bytes is above max_bytes or below 0.
    Unsupported : a root other than rank 0, or too many transfers for a text format.
    """
    if not 0 <= min_bytes <= max_bytes:
        raise InvalidInput(f"minBytes must be 0 to maxBytes, got {min_bytes} and {max_bytes}")
    if schedule.collective.root:
        root = schedule.collective.root
        raise Unsupported(f"MSCCL's {schedule.collective.kind} starts at rank 0, not {root}; relabel the schedule")
    ranks = [_Rank(schedule) for _ in range(schedule.world_size)]
    transfers = 0
    for step in schedule.expand():
        transfers += len(step)
        if transfers > MOST_TRANSFERS:
            raise Unsupported(f"{schedule.name} has over {MOST_TRANSFERS} transfers; export it for fewer ranks")
        _add(ranks, step)
    return _lines(schedule, ranks, f'proto={quoteattr(proto)} minBytes="{min_bytes}" maxBytes="{max_bytes}"')


@dataclass(slots=True)
class _Line:
    """One step of a block; cells of num_chunks and more are scratch."""

    word: str
    src: int
    dst: int
    count: int
    after: Place | None = None
    awaited: bool = False


@dataclass(slots=True)
class _Use:
    writer: Place | None = None
    readers: list[Place] = field(default_factory=list)


class _Rank:
    """Thread blocks of one rank in the making, and who used each of its chunks last."""

    def __init__(self, schedule: Schedule) -> None:
        self.blocks: dict[Peer, list[_Line]] = {}
        self.use: dict[int, _Use] = {}
        self.num_chunks = schedule.num_chunks
        self.first_free = schedule.num_chunks + schedule.num_scratch
        self.scratch = schedule.num_scratch

    def send(self, t: Transfer) -> None:
        cells = range(t.src_chunk, t.src_chunk + t.count)
        needs = [self._of(cell).writer for cell in cells]
        place = self._put(("send", t.dst, t.channel), _Line("s", t.src_chunk, t.src_chunk, t.count), needs)
        for cell in cells:
            self._of(cell).readers.append(place)

    def receive(self, t: Transfer) -> None:
        """Receive a transfer where it belongs."""
        cells = range(t.dst_chunk, t.dst_chunk + t.count)
        word = "rrc" if t.op == Op.REDUCE else "r"
        line = _Line(word, t.dst_chunk, t.dst_chunk, t.count)
        self._wrote(cells, self._put(("recv", t.src, t.channel), line, self._users(cells)))

    def land(self, t: Transfer, staged: int) -> None:
        """Receive a transfer into free scratch, `staged` places on."""
        first = self.first_free + staged
        self.scratch = max(self.scratch, first + t.count - self.num_chunks)
        landing = range(first, first + t.count)
        line = _Line("r", first, first, t.count)
        self._wrote(landing, self._put(("recv", t.src, t.channel), line, self._users(landing)))

    def move(self, t: Transfer, staged: int) -> None:
        """Bring what landed to its place."""
        first = self.first_free + staged
        cells, landing = range(t.dst_chunk, t.dst_chunk + t.count), range(first, first + t.count)
        needs = [self._of(cell).writer for cell in landing]
        line = _Line("re" if t.op == Op.REDUCE else "cpy", first, t.dst_chunk, t.count)
        place = self._put(("recv", t.src, t.channel), line, [*needs, *self._users(cells)])
        for cell in landing:
            self._of(cell).readers.append(place)
        self._wrote(cells, place)

    def _users(self, cells: range) -> list[Place | None]:
        return [use for cell in cells for use in (self._of(cell).writer, *self._of(cell).readers)]

    def _of(self, cell: int) -> _Use:
        return self.use.setdefault(cell, _Use())

    def _wrote(self, cells: range, place: Place) -> None:
        for cell in cells:
            self.use[cell] = _Use(place)

    def _put(self, peer: Peer, line: _Line, needs: list[Place | None]) -> Place:
        """Append a step to a block, after one empty step for each further block it must wait for."""
        block = self.blocks.setdefault(peer, [])
        number = list(self.blocks).index(peer)
        latest: dict[int, int] = {}
        for need in needs:
            if need is not None and need[0] != number:
                latest[need[0]] = max(latest.get(need[0], 0), need[1])
        waits: list[Place | None] = [*latest.items()] or [None]
        block += [_Line("nop", 0, 0, 0, wait) for wait in waits[:-1]]
        line.after = waits[-1]
        block.append(line)
        lists = list(self.blocks.values())
        for other, step in latest.items():
            lists[other][step].awaited = True
        return number, len(block) - 1


def _add(ranks: list[_Rank], step: Step) -> None:
    sent: set[tuple[int, int]] = set()
    for t in step.transfers():
        ranks[t.src].send(t)
        sent |= {(t.src, chunk) for chunk in range(t.src_chunk, t.src_chunk + t.count)}
    staged = [0] * len(ranks)
    landed: list[tuple[Transfer, int]] = []
    for t in step.transfers():
        if any((t.dst, chunk) in sent for chunk in range(t.dst_chunk, t.dst_chunk + t.count)):
            landed.append((t, staged[t.dst]))
            ranks[t.dst].land(*landed[-1])
            staged[t.dst] += t.count
        else:
            ranks[t.dst].receive(t)
    for t, place in landed:
        ranks[t.dst].move(t, place)


def _lines(schedule: Schedule, ranks: list[_Rank], limits: str) -> Iterator[str]:
    chunks, kind = schedule.num_chunks, schedule.collective.kind
    buffer = "o" if kind is Kind.ALL_GATHER else "i"
    yield (
        f'<algo name={quoteattr(schedule.name)} {limits} nchannels="{schedule.num_channels}" nchunksperloop="{chunks}" '
        f'ngpus="{schedule.world_size}" coll="{WORDS[kind]}" inplace="1" outofplace="0">'
    )
    for number, rank in enumerate(ranks):
        inputs, outputs = (0, chunks) if buffer == "o" else (chunks, 0)
        yield f'  <gpu id="{number}" i_chunks="{inputs}" o_chunks="{outputs}" s_chunks="{rank.scratch}">'
        for block, ((direction, peer, channel), lines) in enumerate(rank.blocks.items()):
            send, receive = (peer, -1) if direction == "send" else (-1, peer)
            yield f'    <tb id="{block}" send="{send}" recv="{receive}" chan="{channel}">'
            yield from (_format(index, line, chunks, buffer) for index, line in enumerate(lines))
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"


def _format(index: int, line: _Line, chunks: int, buffer: str) -> str:
    (src, src_at), (dst, dst_at) = (("s", c - chunks) if c >= chunks else (buffer, c) for c in (line.src, line.dst))
    block, step = line.after or (-1, -1)
    return (
        f'      <step s="{index}" type="{line.word}" srcbuf="{src}" srcoff="{src_at}" dstbuf="{dst}" dstoff="{dst_at}" '
        f'cnt="{line.count}" depid="{block}" deps="{step}" hasdep="{int(line.awaited)}"/>'
    )
