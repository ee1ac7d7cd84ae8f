"""One run of an nccl-tests table while it is read: what its lines told, and what must be known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simnet.importers.nccl_infer import BLANK, Row, Verdict
from simnet.importers.nccl_rows import Start
from simnet.units import GB


@dataclass(slots=True)
class Run:
    """What is known of one run; rows wait here until its collective and ranks are told."""

    index: int
    banners: int = 0
    rank_zeros: int = 0
    listed: list[int] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    device: str | None = None
    named: str | None = None
    title: dict[str, str] = field(default_factory=dict)
    header: str | None = None
    header_line: int = 0
    waiting: list[Row] = field(default_factory=list)
    num_rows: int = 0
    num_taken: int = 0
    footers: int = 0
    verdict: Verdict | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    busbw_sum: float = 0.0
    num_busbw: int = 0
    average: float | None = None
    elided: bool = False
    last_length: int = 0
    last_start: Start | None = None
    old_algbw: bool = False
    in_place: bool | None = None
    listed_after_header: bool = False

    @property
    def singletons(self) -> int:
        """How many one-rank runs print into this one; 0 where it is a single run."""
        several = max(self.banners, self.rank_zeros)
        return several if several > 1 and max(self.listed, default=0) == 0 else 0

    @property
    def ranks(self) -> int | None:
        """World size that the log states or lists."""
        if self.title.get("ranks", "").isdigit():
            return int(self.title["ranks"])
        return max(self.listed) + 1 if self.listed else None

    @property
    def nodes(self) -> int | None:
        """Hosts of the ranks, where all of them are listed."""
        whole = sorted(self.listed) == list(range(len(self.listed)))
        told = self.verdict is None or self.verdict.ranks == len(self.listed)
        return len(self.hosts) if whole and told and len(self.listed) > 1 else None

    @property
    def likely(self) -> str | None:
        """Collective whose table has this form: in 2020 only that of all-to-all left its column of reductions blank."""
        blank = self.header is not None and "redop" in self.header and self.waiting[0].start.redop == BLANK
        return "all_to_all" if blank else None

    @property
    def orderly(self) -> bool:
        """Whether banner, all ranks in order and header came as printed: the list can be trusted on its own."""
        if "ranks" in self.title:
            return True
        in_order = self.listed == list(range(len(self.listed)))
        return self.banners == 1 and in_order and self.header is not None and not self.listed_after_header

    @property
    def over(self) -> bool:
        """Whether every run printed into this one has its footer."""
        return self.footers >= max(1, self.singletons)


def environment(run: Run) -> dict[str, Any]:
    """What every row of the run carries."""
    found: dict[str, Any] = {"run": run.index}
    if run.device:
        found["device"] = run.device
    if run.singletons and run.verdict is not None and run.verdict.ranks == 1:
        found["interleaved_runs"] = run.singletons
    return found


def closing_notes(run: Run) -> Iterator[str]:
    """What a reader of the rows must know."""
    if run.num_rows == 0:
        yield f"started, no result (header at line {run.header_line})" if run.header else "started, no result"
        return
    if run.singletons and (run.verdict is None or run.verdict.ranks == 1):
        yield f"{run.singletons} singleton runs interleaved: every row is one GPU alone, not {run.singletons} together"
    if run.old_algbw:
        yield "algbw is printed per rank, an old definition of all_gather; size/time is used"
    if run.footers == 0:
        yield "no footer: the run was cut or did not finish"
    if run.elided:
        yield "rows are elided; the printed average covers rows that are not shown"
    elif run.average is not None and run.num_busbw and not _is_mean(run):
        yield (
            f"the printed average of {run.average / GB:g} GB/s is not the mean of the rows shown, "
            f"{run.busbw_sum / run.num_busbw / GB:.4g} GB/s; rows are missing"
        )


def _is_mean(run: Run) -> bool:
    mean = run.busbw_sum / run.num_busbw
    return run.average is not None and abs(mean - run.average) <= 0.006 * GB + 0.002 * mean
