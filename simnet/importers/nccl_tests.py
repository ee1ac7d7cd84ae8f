"""nccl-tests text of every vintage.

Old tables with an `error` column and no root, new ones with `#wrong`, with or without `#`, behind rank
prefixes, split by foreign output, cut, elided, several runs in a file, singleton runs interleaved.

Source: nccl-tests, src/util.cu; tables printed by nccl-tests 2.0 to 2.17.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from simnet.importers.nccl_infer import BLANK, Row, Verdict, infer, possible
from simnet.importers.nccl_rows import Half, Start, agrees, figures, half, parts, row_start, without_functions
from simnet.importers.nccl_run import Run, closing_notes, environment
from simnet.importers.prefixes import without_numbers
from simnet.importers.record import Fact, Item, Line, Note, Skipped
from simnet.metrics import algbw
from simnet.results import CollectivePrediction, Measurement
from simnet.units import GB, US

FORMAT = "nccl-tests"
MARKER = r"size\s+count\s+type\s.*time\s+algbw|nThread \d+ nGpus|nccl-tests version|# collective \w+, "
_PREFIX = re.compile(r"\[\d+,\d+\]<std(?:out|err)>:|\s*\d{1,6}:(?=\s|$)")
_BANNER = re.compile(r"nThread (\d+) nGpus (\d+) minBytes (\d+) maxBytes (\d+)")
_RANK = re.compile(r"Rank\s+(\d+)\b.*?\son\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s?(.*)")
_HEADER = re.compile(r"size\s+count\s+type\b.*")
_NAME = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|broadcast|reduce|all_?to_?all|sendrecv|gather|scatter)_perf\b"
)
_PROGRAM = re.compile(r"(?:test starting: |\./|build/)(\w+)_perf\b")
_TITLE = re.compile(r"# collective (\w+)((?:, [a-z]+ [^,]+)*)\s*$")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*([\d.]+(?:e[-+]\d+)?)")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)")
_ELISIONS = ("...", "....", "…", "[...]", "[…]")
_BUFFER = 256
_HALVES = {"in-place": True, "out-of-place": False, "measured": None, "predicted": None}


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """Rows of all runs, in file order within each rank prefix; one item at a time, in constant memory."""
    streams: dict[str, _Stream] = {}
    runs = 0
    for line in without_numbers(lines):
        match = _PREFIX.match(line.text)
        key = match[0].strip() if match else ""
        if key not in streams and len(streams) < 4096:
            runs += 1
            streams[key] = _Stream(path, runs)
        stream = streams.get(key) or streams[next(iter(streams))]
        if line.text.strip() in _ELISIONS:
            for other in streams.values():
                other.run.elided = other.run.elided or other.run.header is not None
        text = line.text[match.end() :] if match else line.text
        yield from stream.feed(Line(line.number, text, line.ended))
    for stream in streams.values():
        yield from stream.end()


class _Stream:
    """The state machine of one prefix."""

    def __init__(self, path: str, index: int) -> None:
        self.path = path
        self.run = Run(index)
        self.pending: tuple[int, Start, int | None] | None = None
        self.named: str | None = None
        self.repeated: tuple[str, int] | None = None

    def feed(self, line: Line) -> Iterator[Item]:
        """Take one line."""
        text = without_functions(line.text)
        found = row_start(text)
        if found is not None:
            yield from self._row(line, text, *found)
        elif self.pending is not None and (tokens := list(figures(text))) and len(tokens) in (4, 8):
            yield from self._rest(line, tokens)
        else:
            yield from self._other(line, text)

    def end(self) -> Iterator[Item]:
        """Close the last run, and one that a heading began and no row followed."""
        if self.pending is not None:
            yield Skipped(self.pending[0], "row is cut")
        yield from self._close()
        if self.repeated is not None and self.run.footers:
            yield from self._begin_if(True)
            yield from self._close()

    def _other(self, line: Line, text: str) -> Iterator[Item]:
        """Read banners, rank lines, headers and footers."""
        if name := _NAME.search(text) or _PROGRAM.search(text):
            self.named = _spelling(name[1])
        if match := _TITLE.search(text):
            yield from self._begin_if(self.run.num_rows > 0)
            self.run.title = dict(part.split(" ", 1) for part in match[2].split(", ") if " " in part)
            self.named = self.run.named = match[1]
        elif _BANNER.search(text):
            yield from self._begin_if(self.run.num_rows > 0)
            self.run.banners += 1
        elif match := _RANK.search(text):
            yield from self._begin_if(self.run.num_rows > 0 and not self.run.singletons)
            self._rank(int(match[1]), match[2], match[3].strip())
        elif (match := _HEADER.search(text)) and "time" in match[0]:
            self._header(match[0], line.number)
        elif text.startswith("#") and (half_name := text.strip("# ").strip()) in _HALVES:
            self.run.in_place = _HALVES[half_name]
        elif line.ended and (match := _AVERAGE.search(text)):
            self.run.footers += 1
            self.run.average = float(match[1]) * GB
        elif match := _BOUNDS.search(text):
            self.run.environment["out_of_bounds"] = int(match[1])

    def _header(self, text: str, number: int) -> None:
        """Take the heading of a table; one that stands among the rows of a run tells nothing by itself."""
        if self.run.num_rows and not self.run.singletons:
            self.repeated = (text, number)
        else:
            self.run.header, self.run.header_line = text, number

    def _goes_on(self, start: Start) -> bool:
        """Whether a row below a repeated heading belongs to the run before it: alike, and of a larger size."""
        last = self.run.last_start
        alike = last is not None and (last.dtype, last.redop) == (start.dtype, start.redop)
        return alike and last is not None and start.size > last.size and not self.run.over

    def _rank(self, rank: int, host: str, device: str) -> None:
        run = self.run
        if rank == 0 and run.ranks is not None and run.ranks > 1:
            run.listed, run.hosts, run.rank_zeros = [], set(), 0
        run.rank_zeros += rank == 0
        run.listed.append(rank)
        run.listed_after_header = run.listed_after_header or run.header is not None
        run.hosts.add(host)
        run.device = device or run.device

    def _begin_if(self, begins: bool) -> Iterator[Item]:
        if begins:
            yield from self._close()
            self.run = Run(self.run.index + 1)
            if self.repeated is not None:
                (self.run.header, self.run.header_line), self.repeated = self.repeated, None

    def _row(self, line: Line, text: str, start: Start, tokens: list[str]) -> Iterator[Item]:
        if self.pending is not None:
            yield Skipped(self.pending[0], "row is cut")
            self.pending = None
        yield from self._begin_if(self.run.over or (self.repeated is not None and not self._goes_on(start)))
        self.repeated = None
        run = self.run
        run.last_start = start
        if run.header is not None and start.redop is None:
            start = replace(start, redop=BLANK)
        run.num_rows += 1
        run.named = run.named or self.named
        rooted = _has_root(run.header, tokens)
        root = int(tokens[0]) if rooted and tokens and tokens[0].lstrip("-").isdigit() else None
        body = tokens[1:] if rooted else tokens
        whole = line.ended or len(text.rstrip()) >= run.last_length
        run.last_length = len(text.rstrip())
        if not body:
            self.pending = (line.number, start, root)
            return
        yield from self._take(line.number, start, root, body, whole=whole)

    def _rest(self, line: Line, tokens: list[str]) -> Iterator[Item]:
        assert self.pending is not None
        number, start, root = self.pending
        self.pending = None
        first = half(tokens[:4])
        if first is None or first.algbw < 0.1 * GB:
            yield Skipped(number, "row is split by foreign output and too small a size to prove its rest belongs to it")
            return
        yield from self._take(number, start, root, tokens, whole=line.ended)

    def _take(self, number: int, start: Start, root: int | None, body: list[str], *, whole: bool) -> Iterator[Item]:
        """Check both halves and keep what is whole."""
        if self.run.header and "cputime" in self.run.header:
            yield Skipped(number, "cputime is how long the processor took to launch it, not how long it ran")
            return
        single = self.run.header.count("algbw") == 1 if self.run.header else len(body) in (4, 6)
        halves = [body[:4]] if single else [body[:4], body[4:8]]
        for place, tokens in enumerate(halves):
            figures_ = half(tokens)
            in_place = self.run.in_place if single else place == 1
            reason = None if figures_ else "row is cut" if len(tokens) < 4 else "a figure is not a number"
            if figures_ and not whole and place == len(halves) - 1:
                reason = "the file may end inside this row"
            reason = reason or _contradiction(start, figures_, self.run)
            if reason or figures_ is None:
                yield Skipped(number, reason or "row is cut")
                continue
            interval = _interval(body[4:]) if " low " in (self.run.header or "") else ()
            self.run.waiting.append(Row(number, start, figures_, root, in_place, interval))
        if self.run.verdict is not None or len(self.run.waiting) >= _BUFFER:
            yield from self._emit()

    def _emit(self) -> Iterator[Item]:
        """Hand out the waiting rows once collective and ranks are told."""
        run = self.run
        if not run.waiting:
            return
        if run.verdict is None:
            run.verdict = infer(
                run.waiting,
                named=run.named,
                listed_ranks=run.ranks,
                trusted=run.orderly or run.singletons > 0,
                likely=run.likely,
            )
            yield from (Note(f"run {run.index}: {text}") for text in run.verdict.notes)
            run.environment |= environment(run)
        for row in run.waiting:
            item = self._measurement(row, run.verdict)
            run.num_taken += not isinstance(item, Skipped)
            yield item
        run.waiting = []

    def _measurement(self, row: Row, verdict: Verdict) -> Item:
        if verdict.collective not in possible(row):
            return Skipped(row.line, f"redop and root of the row are not those of {verdict.collective}")
        if not verdict.busbw_agrees(row) or not verdict.parts_agree(row):
            return Skipped(row.line, f"busbw, count and size do not fit {verdict.collective} on {verdict.ranks} ranks")
        if verdict.ranks == 1 and row.in_place:
            return Skipped(row.line, "in place on one rank moves no data")
        self.run.busbw_sum += row.half.busbw or 0.0
        self.run.num_busbw += row.half.busbw is not None
        if "engine" in self.run.title:
            return _prediction(row, verdict, self.run.title)
        wrong = row.half.wrong
        first, second = _pair(self.run.hosts)
        return Measurement(
            collective=verdict.collective, size_bytes=row.start.size, time_s=row.half.time, ranks=verdict.ranks,
            count=row.start.count, dtype=row.start.dtype, nodes=self.run.nodes,
            algbw_bytes_per_s=algbw(row.start.size, row.half.time), busbw_bytes_per_s=row.half.busbw,
            num_wrong=int(wrong) if wrong.isdigit() and "error" not in (self.run.header or "") else None,
            in_place=row.in_place, source=self.path, environment=self.run.environment, src=first, dst=second,
            algorithm=self.run.title.get("algorithm"), cluster=self.run.title.get("cluster"),
        )  # fmt: skip

    def _close(self) -> Iterator[Item]:
        """End a run: its last rows, and what a reader of them must know."""
        run = self.run
        yield from self._emit()
        if run.header is None and run.num_rows == 0 and not run.banners:
            return
        if run.num_taken:
            yield Fact(f"run {run.index}", {"rows": run.num_rows, **run.environment})
        yield from (Note(f"run {run.index}: {text}") for text in closing_notes(run))


def _interval(tokens: list[str]) -> tuple[float, ...]:
    """Low and high of a predicted row, s."""
    return tuple(float(token) * US for token in tokens) if len(tokens) == 2 else ()


def _prediction(row: Row, verdict: Verdict, title: dict[str, str]) -> CollectivePrediction:
    """Row of a table that `simnet allreduce` printed."""
    low, high = row.interval or (None, None)
    return CollectivePrediction(
        collective=verdict.collective, algorithm=title.get("algorithm", ""), cluster=title.get("cluster", ""),
        ranks=verdict.ranks or 0, size_bytes=row.start.size, count=row.start.count or 0, dtype=row.start.dtype,
        time_s=row.half.time, algbw_bytes_per_s=algbw(row.start.size, row.half.time),
        busbw_bytes_per_s=row.half.busbw or 0.0, engine=title["engine"], exact="exact" in title,
        profile=title.get("profile", ""), low_s=low, high_s=high,
    )  # fmt: skip


def _pair(hosts: set[str]) -> tuple[str, str] | tuple[None, None]:
    """Name both nodes of a run over exactly two."""
    return (min(hosts), max(hosts)) if len(hosts) == 2 else (None, None)


def _has_root(header: str | None, tokens: list[str]) -> bool:
    if header is not None:
        return "root" in header
    return len(tokens) in (5, 7, 9)


def _contradiction(start: Start, figures_: Half | None, run: Run) -> str | None:
    """Say why a row cannot be right, from its own columns alone."""
    if figures_ is None:
        return None
    blocks = parts(start)
    if blocks is None:
        return f"count {start.count} of {start.dtype} is not size {start.size}"
    if agrees(figures_.algbw, start.size, figures_):
        return None
    if blocks > 1 and agrees(figures_.algbw, start.size, figures_, 1 / blocks):
        run.old_algbw = True
        return None
    return f"algbw {figures_.algbw / GB:.2f} GB/s is not size/time"


def _spelling(name: str) -> str:
    """Names as torch and NCCL spell collectives."""
    return {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
            "alltoall": "all_to_all"}.get(name.replace("_", ""), name)  # fmt: skip
