"""Intel MPI Benchmarks: one block per benchmark and number of active processes.

The time of a row is t_max, when the last process is done; t_min and t_avg stay beside it. Sizes of
all-gather and all-to-all are per process in the table and totals here. Mbytes are 1e6 bytes.

Source: Intel MPI Benchmarks, IMB_output.c and user guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simnet.importers.prefixes import without_prefixes
from simnet.importers.record import Item, Line, Note, Skipped
from simnet.results import Measurement
from simnet.units import MB, US

FORMAT = "IMB"
MARKER = r"# Benchmarking \w|Intel ?\(R\) MPI Benchmarks|#bytes +#repetitions"
_NAMES = {
    "PingPong": "send", "PingPing": "exchange", "Sendrecv": "exchange", "Allreduce": "all_reduce", "Reduce": "reduce",
    "Reduce_scatter": "reduce_scatter", "Allgather": "all_gather", "Alltoall": "all_to_all", "Bcast": "broadcast",
    "Gather": "gather", "Scatter": "scatter", "Allgatherv": "all_gather_v", "Gatherv": "gather_v",
    "Scatterv": "scatter_v", "Alltoallv": "all_to_all_v", "Exchange": "neighbour_exchange",
}  # fmt: skip
_PER_PROCESS = ("all_gather", "all_to_all", "all_gather_v", "all_to_all_v")
_NAMED = ("#Benchmarking", "#procs")
_LONGEST_HEADING = 8
_TIMES = ("t[usec]", "t_max[usec]")
_BENCHMARK = re.compile(r"Benchmarking (\w+)")
_PROCESSES = re.compile(r"#processes = (\d+)")
_WAITING = re.compile(r"(\d+) additional process")


@dataclass(slots=True)
class _Block:
    """The benchmark whose rows come."""

    name: str = ""
    processes: int | None = None
    waiting: int = 0
    columns: tuple[str, ...] = ()
    begun: int = 0
    broken: bool = False
    rows: int = 0
    last: tuple[int, float] = (0, 0.0)
    drops: list[str] = field(default_factory=list)


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """Rows of every block, by its active processes; a drop of bandwidth above twofold is noted."""
    block = _Block()
    for line in without_prefixes(lines):
        text = line.text
        if match := _BENCHMARK.search(text):
            yield from _close(block)
            block = _Block(match[1], begun=line.number)
        elif match := _PROCESSES.search(text):
            if block.processes is not None or block.columns:
                yield from _close(block)
                block = _Block()
            block.processes = int(match[1])
        elif match := _WAITING.search(text):
            block.waiting = int(match[1])
        elif "#repetitions" in text:
            block.broken = bool(block.columns) or not block.begun or line.number - block.begun > _LONGEST_HEADING
            block.columns = tuple(text.split())
        elif block.columns and text.lstrip()[:1] != "#" and (cells := _cells(text, block)) and cells[0].isdigit():
            yield _row(line, cells, block, path)
    yield from _close(block)


def _close(block: _Block) -> Iterator[Note]:
    if block.name and block.rows == 0:
        yield Note(f"{block.name}: started, no result")
    yield from map(Note, block.drops)


def _columns(block: _Block) -> tuple[str, ...]:
    return block.columns[2:] if block.columns[:2] == _NAMED else block.columns


def _cells(text: str, block: _Block) -> list[str]:
    """Figures of a row; release 3 puts the benchmark and its processes before them."""
    cells = text.split()
    if block.columns[:2] != _NAMED:
        return cells
    return cells[2:] if cells[:2] == [block.name, str(block.processes)] else []


def _row(line: Line, cells: list[str], block: _Block, path: str) -> Item:
    figures = dict(zip(_columns(block), cells, strict=False))
    reason = _fault(block, cells, figures)
    if reason is None and block.rows and int(figures["#bytes"]) <= block.last[0]:
        reason = "size does not grow: a row or a heading is out of place"
    block.broken = block.broken or (reason is not None and block.name in _NAMES)
    if reason is None and not line.ended and block.columns[-1] not in ("#repetitions",):
        reason = None if re.search(r"\.\d\d$", cells[-1]) else "row is cut"
    if reason:
        return Skipped(line.number, reason, line.text[:60])
    name = _NAMES[block.name]
    time = float(next(figures[key] for key in _TIMES if key in figures)) * US
    size = int(figures["#bytes"])
    _watch(block, size, time)
    block.rows += 1
    factor = block.processes if block.processes and name in _PER_PROCESS else 1
    environment = {key: float(figures[f"{key}[usec]"]) * US for key in ("t_min", "t_avg") if f"{key}[usec]" in figures}
    if block.waiting:
        environment["waiting_processes"] = block.waiting
    return Measurement(name, size * factor, time, block.processes, source=path, environment=environment)


def _fault(block: _Block, cells: list[str], figures: dict[str, str]) -> str | None:
    """Say why a row cannot be used."""
    if block.name not in _NAMES:
        return f"benchmark {block.name or 'unknown'} has no message size or is not read"
    if block.broken or block.processes is None:
        return "row without the heading it belongs to"
    expected = len(_columns(block))
    if len(cells) != expected or "#bytes" not in figures or not any(key in figures for key in _TIMES):
        return "row is cut, or its header is damaged"
    if not all(re.fullmatch(r"\d+(?:\.\d+)?", cell) for cell in cells):
        return "a figure is not a number"
    times = [float(figures[key]) for key in ("t_min[usec]", "t_avg[usec]", "t_max[usec]") if key in figures]
    if times != sorted(times) or (times or [1.0])[-1] == 0 or figures.get("t[usec]") in ("0.00", "0"):
        return "t_min, t_avg and t_max contradict each other or are zero"
    return None if _rate_agrees(block, figures) else "Mbytes/sec is not bytes/time"


def _rate_agrees(block: _Block, figures: dict[str, str]) -> bool:
    if "Mbytes/sec" not in figures:
        return True
    moved = {"Sendrecv": 2, "Exchange": 4}.get(block.name, 1) * int(figures["#bytes"])
    time = float(next(figures[key] for key in _TIMES if key in figures))
    printed = float(figures["Mbytes/sec"])
    candidates = [moved * US**-1 / unit for unit in (MB, 2**20)]
    return any(
        rate / (time + 0.0051) - 0.0051 <= printed <= rate / max(time - 0.0051, 1e-9) + 0.0051 for rate in candidates
    )


def _watch(block: _Block, size: int, time: float) -> None:
    """Note where a larger message moves its bytes at less than half the rate."""
    before, before_time = block.last
    if before and size > before and size / time < 0.5 * before / before_time:
        ratio = before / before_time / (size / time)
        block.drops.append(f"{block.name}: bandwidth drops {ratio:.1f}-fold between {before} and {size} bytes")
    block.last = (size, time)
