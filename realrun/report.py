"""Show measured rows: the nccl-tests table with spread and stragglers, JSON lines, predictions beside."""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from simnet.cli.app import print_json
from simnet.errors import InvalidInput
from simnet.results import Measurement
from simnet.tables import nccl_table
from simnet.units import Seconds, format_duration, format_si

Key = tuple[str, str, int, int]
_TITLES = ("#       size", "#        (B)")


def kept(rows: Iterable[dict[str, Any]], out: Path | None) -> Iterator[dict[str, Any]]:
    """Pass rows on, each appended to a file first, so that a run that is killed keeps what it has.

    Raises
    ------
    InvalidInput : there can be no such file; before the first row is asked for.
    """
    if out is None:
        yield from rows
        return
    if not os.access(out.parent, os.W_OK) or out.is_dir():
        raise InvalidInput(f"{out} cannot be written; name a file in a folder that exists and takes files")
    for row in rows:
        with out.open("a") as file:
            file.write(jsonlib.dumps(row) + "\n")
        yield row


def read_predicted(path: Path) -> dict[Key, Seconds]:
    """Predicted times by (collective, algorithm, ranks, size) from JSON lines written before the run.

    Raises
    ------
    InvalidInput : the file cannot be read or holds no predicted row.
    """
    try:
        rows = [jsonlib.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{path} holds no JSON lines: {error}; write it with simnet allreduce --json > {path.name}"
        ) from error
    found = {(r["collective"], r["algorithm"], r["ranks"], r["size_bytes"]): r["time_s"] for r in rows if "engine" in r}
    if not found:
        raise InvalidInput(f"{path} holds no predicted row; write it with simnet allreduce --json > {path.name}")
    return found


def print_rows(
    rows: Iterable[dict[str, Any]], beside: Mapping[Key, Seconds], *, json: bool = False, quiet: bool = False
) -> int:
    """Print rows as they come and return how many values were wrong; `quiet` only consumes them."""
    seen: list[dict[str, Any]] = []
    if json and not quiet:
        print_json(_remember(rows, seen))
    else:
        for line in _lines(_remember(rows, seen), seen, beside):
            if not quiet:
                print(line, flush=True)
    return sum(row["num_wrong"] for row in seen)


def _remember(rows: Iterable[dict[str, Any]], seen: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        seen.append(row)
        yield row


def _lines(rows: Iterable[dict[str, Any]], seen: list[dict[str, Any]], beside: Mapping[Key, Seconds]) -> Iterator[str]:
    for line in nccl_table(measurement(row) for row in rows):
        if len(seen) == 1 and line.startswith("# collective"):
            yield from _heading(seen[0])
        if line.startswith(_TITLES):
            yield line + _titles(line, bool(beside))
        elif line.startswith("#"):
            yield line
        else:
            yield line + _spread(seen[-1]) + _prediction(seen[-1], beside)
    if seen:
        yield from _lateness(seen)


def measurement(row: Mapping[str, Any]) -> Measurement:
    """Read a record back as the shared type; keys it does not have are left out."""
    known = {field.name for field in fields(Measurement)}
    return Measurement(**{key: value for key, value in row.items() if key in known})


def _heading(row: Mapping[str, Any]) -> Iterator[str]:
    env = row["environment"]
    hosts = len(env["hosts"])
    yield (
        f"# {env['launcher']}: {row['ranks']} ranks on {hosts} host{'s' * (hosts != 1)}, {env['cores']} cores here, "
        f"backend {env['backend']}, device {env['device']}, torch {env['versions'].get('torch', 'unknown')}"
    )
    if env["ranks_exceed_cores"]:
        yield f"# {env['ranks_on_this_host']} ranks share {env['cores']} cores: times include waiting for a core"


def _titles(line: str, with_prediction: bool) -> str:
    names = line.startswith(_TITLES[0])
    columns = ("min", "p95", "late", "last") if names else ("(us)", "(us)", "(us)", "(rank)")
    extra = (("predicted", "error") if names else ("(us)", "(%)")) if with_prediction else ()
    return "".join(f"{c:>10}" for c in columns) + "".join(f"{c:>11}" for c in extra)


def _spread(row: Mapping[str, Any]) -> str:
    late = row["late_s"]
    times = (row["min_s"], row["p95_s"], max(late))
    return "".join(f"{t * 1e6:>10.1f}" for t in times) + f"{int(np.argmax(late)):>10}"


def _prediction(row: Mapping[str, Any], beside: Mapping[Key, Seconds]) -> str:
    if not beside:
        return ""
    time = beside.get((row["collective"], row["algorithm"], row["ranks"], row["size_bytes"]))
    if time is None:
        return f"{'N/A':>11}{'N/A':>11}"
    error = f"{100 * (time / row['time_s'] - 1):+.1f}" if row["time_s"] > 0 else "N/A"
    return f"{time * 1e6:>11.1f}{error:>11}"


def _lateness(rows: list[dict[str, Any]]) -> Iterator[str]:
    late = np.median([row["late_s"] for row in rows], axis=0)
    yield "# Median lateness at the barrier, us, by rank: " + " ".join(f"{t * 1e6:.1f}" for t in late)
    named = [row["straggler"] for row in rows if row["straggler"] is not None]
    if not named:
        yield "# Straggler            : none"
        return
    rank = max(set(named), key=named.count)
    lateness = format_duration(float(late[rank]))
    yield f"# Straggler            : rank {rank}, {lateness} late, at {named.count(rank)} of {len(rows)} sizes"


def print_probe(rows: Iterable[dict[str, Any]], *, json: bool = False, quiet: bool = False) -> None:
    """Print probe records as they come."""
    if json and not quiet:
        print_json(rows)
        return
    for number, row in enumerate(rows):
        if quiet:
            continue
        if number == 0:
            print(f"{'quantity':<24}{'from':>16}{'to':>16}{'size (B)':>12}{'median (us)':>13}{'min (us)':>11}  rate")
        print(_probe_line(row), flush=True)


def _probe_line(row: Mapping[str, Any]) -> str:
    places = f"{row.get('src', ''):>16}{row.get('dst', row.get('name', '')):>16}{row.get('size_bytes', 0):>12}"
    times = f"{row['time_s'] * 1e6:>13.2f}{min(row['samples_s']) * 1e6:>11.2f}"
    return f"{row['quantity']:<24}{places}{times}  {_rate(row)}"


def _rate(row: Mapping[str, Any]) -> str:
    if row["quantity"] == "layer":
        parts = ((name, row[f"{name}_s"]) for name in ("backward", "update"))
        return ", ".join(f"{name} {format_duration(float(np.median(times)))}" for name, times in parts if times)
    if "flop" in row:
        return format_si(row["flop"] / row["time_s"], "FLOP/s")
    return format_si(row["size_bytes"] / row["time_s"], "B/s")


def print_progress(rows: Iterable[dict[str, Any]], out: Path, *, quiet: bool = False) -> None:
    """Print one line per record of a campaign, and at the end what to do with the file."""
    number = 0
    for number, row in enumerate(rows, start=1):
        if not quiet:
            print(_progress_line(number, row), flush=True)
    if not quiet:
        print(f"wrote {number} records to {out}; next: simnet calibrate {out} --out {out.with_suffix('.toml')}")


def _progress_line(number: int, row: Mapping[str, Any]) -> str:
    kind = row.get("kind", "point")
    if kind == "probe":
        return f"{number:>5}  {_probe_line(row)}"
    if kind == "point":
        mark = "held out" if row["holdout"] else ""
        time = format_duration(row["time_s"])
        return f"{number:>5}  {row['algorithm']:<24}{row['size_bytes']:>12} B  {time:>12}  {mark}"
    told = {key: value for key, value in row.items() if key not in ("kind", "hosts")}
    return f"{number:>5}  {kind}: " + ", ".join(f"{key} {value}" for key, value in told.items())
