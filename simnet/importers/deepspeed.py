"""DeepSpeed's comms logger: a line per collective, or its summary table.

Message sizes are printed to two decimals of KB, MB or GB of 1,024; times are ms. The printed bandwidths
are doubled or multiplied by the ranks for some collectives and are used only to infer the ranks.

Source: DeepSpeed, deepspeed/utils/comms_logging.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simnet.importers.prefixes import without_prefixes
from simnet.importers.record import Item, Line, Note, Skipped
from simnet.results import Measurement
from simnet.units import GIB, KIB, MIB, MS

FORMAT = "DeepSpeed"
MARKER = r"comm op:\s+\w+\s+\|\s+time|Comm\. Op\s+Message Size"
_LINE = re.compile(
    r"comm op:\s(\w+)\s\|\stime \(ms\):\s([\d.]+)\s\|\smsg size:\s([\d.]+)\s(B|[KMG]B)\s\|\salgbw \(Gbps\):\s([\d.]+)"
    r"\s+\|\sbusbw \(Gbps\):\s(\d+\.\d+)"
)
_OP = re.compile(r"^\s*([a-z]\w*)(?: \| \[Caller Func: .*\])?\s*$")
_ROW = re.compile(r"^\s+([\d.]+) (B|[KMG]B)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+\.\d\d)\s*$")
_UNITS = {"B": 1, "KB": KIB, "MB": MIB, "GB": GIB}
_NAMES = {
    "all_reduce": "all_reduce", "inference_all_reduce": "all_reduce", "all_gather_into_tensor": "all_gather",
    "all_gather": "all_gather", "allgather_fn": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_fn": "reduce_scatter", "broadcast": "broadcast",
    "reduce": "reduce", "all_to_all_single": "all_to_all",
}  # fmt: skip


def read(lines: Iterable[Line], path: str) -> Iterator[Item]:
    """One row per collective line or table row; rows of a few ms carry as many digits as were printed."""
    op, rows = "", 0
    yield Note("message sizes are printed to two decimals; printed bandwidths are not used")
    for line in without_prefixes(lines):
        item = None
        if match := _LINE.search(line.text):
            ranks = _ranks(match[1], float(match[5]), float(match[6]))
            item = _row(match[1], float(match[3]) * _UNITS[match[4]], float(match[2]), line, ranks=ranks, path=path)
        elif match := _ROW.match(line.text):
            mean = _mean(int(match[3]), float(match[4]), float(match[5]))
            item = _row(op, float(match[1]) * _UNITS[match[2]], mean, line, ranks=None, path=path)
        elif match := _OP.match(line.text):
            op = match[1]
        elif "comm op:" in line.text:
            item = Skipped(line.number, "line is cut", line.text[:60])
        if item is not None:
            rows += isinstance(item, Measurement)
            yield item
    if not rows:
        yield Note("started, no result")


def _row(op: str, size: float, time_ms: float, line: Line, *, ranks: int | None, path: str) -> Item:
    if op not in _NAMES:
        return Skipped(line.number, f"op {op or 'unknown'} is not read", line.text[:60])
    if time_ms <= 0:
        return Skipped(line.number, "time rounds to zero", line.text[:60])
    return Measurement(_NAMES[op], round(size), time_ms * MS, ranks, source=path)


def _mean(count: int, total: float, average: float) -> float:
    """Printed average, ms; total over count where it rounds to the same (the average may be a trimmed mean)."""
    precise = total / count if count else average
    return precise if abs(precise - average) <= 0.005 else average


def _ranks(op: str, algbw: float, busbw: float) -> int | None:
    """World size for which (n-1)/n is busbw/algbw, where the rounding leaves one."""
    if _NAMES.get(op) not in ("all_gather", "reduce_scatter", "all_to_all") or busbw >= algbw or algbw < 1:
        return None
    low, high = (busbw - 0.005) / (algbw + 0.005), (busbw + 0.005) / (algbw - 0.005)
    found = [n for n in range(2, 4097) if low <= (n - 1) / n <= high]
    return found[0] if len(found) == 1 else None
