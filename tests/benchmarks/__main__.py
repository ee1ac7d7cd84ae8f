"""Time the engines and print a table; every case runs in a process of its own, so that peak memory is its own.

Times are CPU times. Ratios are to a bare NumPy max-plus loop over as many ranks and repetitions, timed in the same
process: one gather, one maximum, one addition per repetition.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.cases import CASES, measure

TITLES = ("case", "messages", "CPU s", "messages/s", "peak MB", "bare loop s", "ratio", "bound")


def main() -> None:
    """Run all cases, or the one asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="Markdown file to write beside the printed table.")
    parser.add_argument("--case", help="Run one case in this process and print it as JSON.")
    parser.add_argument("--only", default="", help="Run only cases whose name contains this.")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case)))
        return
    lines = list(_table(arguments.only))
    if arguments.out:
        arguments.out.write_text(_page(lines), encoding="utf-8")


def _table(only: str) -> Iterator[str]:
    for line in (_line(TITLES), _line(["---"] * len(TITLES))):
        print(line)
        yield line
    for name in CASES:
        if only in name:
            line = _line(_cells(_run(name)))
            print(line, flush=True)
            yield line


def _run(name: str) -> dict[str, object]:
    found = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--case", name], check=True, capture_output=True, text=True
    )
    return json.loads(found.stdout)


def _cells(row: dict[str, object]) -> list[str]:
    def number(key: str, form: str) -> str:
        return "" if row.get(key) is None else format(row[key], form)

    return [
        str(row["name"]), number("messages", ",.0f"), number("cpu_s", ".3g"), number("messages_per_s", ",.0f"),
        number("peak_mb", ".0f"), number("bare_s", ".3g"), number("ratio", ".2f"), str(row["bound"]),
    ]  # fmt: skip


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _page(lines: list[str]) -> str:
    import numpy as np

    machine = f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}"
    return "\n".join(
        [
            "# Speed of the engines",
            "",
            "`make bench` writes this page. Times are CPU seconds of the engine on one core, imports aside; peak",
            "memory is that of the whole process. The bare loop is one NumPy gather, maximum and addition per",
            "repetition over as many ranks, timed in the same process. `estimate` is asked with relabelled ranks,",
            "starts of their own and links of their own unless a case says equal starts; where all ranks are alike it",
            "does not visit every message.",
            "",
            *lines,
            "",
            f"Measured on {machine}. The machine was shared, so times are upper ends; ratios are what to look at.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
