"""`simnet export`: hand a schedule to other tools, or other people's programs to this one's engines."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simnet.schedule import Schedule


def command(
    *,
    algorithm: Annotated[str, typer.Option(help="A name from `simnet catalog algorithms`.")],
    ranks: Annotated[int, typer.Option(help="World size.")],
    out: Annotated[Path, typer.Option(help="File to write; for chakra the prefix of PREFIX.RANK.et.")],
    form: Annotated[str, typer.Option("--format", help="msccl, goal, chakra, or text to read it.")] = "msccl",
    grid: Annotated[str | None, typer.Option(help="Grid of torus algorithms, such as 4x4.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Group size of hierarchical algorithms.")] = None,
    size: Annotated[str, typer.Option(help="Bytes per rank (goal, chakra); K, M, G = 2**10, 20, 30.")] = "1M",
    min_bytes: Annotated[str, typer.Option(help="Smallest message the program is for (msccl).")] = "0",
    max_bytes: Annotated[str, typer.Option(help="Largest message the program is for (msccl).")] = "1024G",
    bandwidth: Annotated[str | None, typer.Option(help="Of every link; writes PREFIX.network.yml (chakra).")] = None,
    latency: Annotated[str | None, typer.Option(help="Of every link (chakra).")] = None,
    adds: Annotated[
        str | None,
        typer.Option(help="What a rank adds, such as '200 GB/s' (goal, chakra); default additions take no time."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per file written.")] = False,
) -> None:
    """Write a schedule as text, an MSCCL program, a GOAL file, or Chakra traces with an ASTRA-sim network file."""
    from simnet.algorithms.grid import parse_grid
    from simnet.algorithms.registry import build
    from simnet.cli.app import print_json
    from simnet.errors import InvalidInput
    from simnet.exporters.msccl import write_msccl
    from simnet.schedule import format_schedule
    from simnet.units import parse_size

    if form != "chakra" and (bandwidth is not None or latency is not None):
        raise InvalidInput(f"--bandwidth and --latency belong to --format chakra, got --format {form}; leave them out")
    if form not in ("goal", "chakra") and adds is not None:
        raise InvalidInput(f"--adds belongs to --format goal and chakra, got --format {form}; leave it out")
    gamma = _gamma(adds)
    shape = None if grid is None else parse_grid(grid)
    schedule = build(algorithm, ranks, grid=shape, ranks_per_node=ranks_per_node)
    match form:
        case "msccl":
            least, most = parse_size(min_bytes, name="--min-bytes"), parse_size(max_bytes, name="--max-bytes")
            files = [_write(out, write_msccl(schedule, min_bytes=least, max_bytes=most))]
        case "text":
            files = [_write(out, format_schedule(schedule, max_steps=sys.maxsize).splitlines())]
        case "goal":
            files = [_goal(schedule, parse_size(size, name="--size"), out, gamma)]
        case "chakra":
            files = _chakra(schedule, parse_size(size, name="--size"), out, gamma)
            if bandwidth is not None or latency is not None:
                files.append(_network(out, bandwidth, latency, shape or (ranks,), ring=shape is not None))
        case _:
            raise InvalidInput(f"--format must be msccl, goal, chakra or text, got {form!r}")
    rows: list[dict[str, Any]] = [{"file": str(file), "bytes": file.stat().st_size, "format": form} for file in files]
    if json:
        print_json(rows)
        return
    for row in rows:
        print(f"{row['file']}  {row['bytes']} bytes")
    if form == "chakra" and gamma:
        print("# additions last whole microseconds there; ASTRA-sim's roofline takes their bytes instead")


def _write(file: Path, lines: Iterable[str]) -> Path:
    from simnet.errors import InvalidInput

    try:
        with file.open("w") as stream:
            stream.writelines(line + "\n" for line in lines)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror}; name another with --out") from error
    return file


def _elements(schedule: Schedule, size: int) -> int:
    from simnet.errors import InvalidInput

    if size % 4:
        raise InvalidInput(f"--size must be whole elements of 4 bytes, got {size}")
    return size // 4


def _gamma(adds: str | None) -> float:
    """Seconds per byte added."""
    from simnet.errors import InvalidInput
    from simnet.units import Dimension as Unit
    from simnet.units import parse

    if adds is None:
        return 0.0
    rate = parse(adds, Unit.BANDWIDTH, name="--adds")
    if not rate > 0:
        raise InvalidInput(f"--adds must be above 0 bytes/s, got {adds}; leave it out where additions take no time")
    return 1 / rate


def _goal(schedule: Schedule, size: int, out: Path, gamma: float) -> Path:
    from simnet.exporters.goal import write_goal

    return _write(out, write_goal(schedule, _elements(schedule, size), gamma=gamma))


def _chakra(schedule: Schedule, size: int, out: Path, gamma: float) -> list[Path]:
    from simnet.errors import InvalidInput
    from simnet.exporters.chakra import write_chakra

    files = [out.with_name(f"{out.name}.{rank}.et") for rank in range(schedule.world_size)]
    for rank, file in enumerate(files):
        try:
            with file.open("wb") as stream:
                stream.writelines(write_chakra(schedule, _elements(schedule, size), rank, gamma=gamma))
        except OSError as error:
            raise InvalidInput(f"{file} cannot be written: {error.strerror}; name another with --out") from error
    return files


def _network(out: Path, bandwidth: str | None, latency: str | None, shape: tuple[int, ...], *, ring: bool) -> Path:
    from simnet.errors import InvalidInput
    from simnet.exporters.astra_sim import Dimension, write_network
    from simnet.units import Dimension as Unit
    from simnet.units import parse

    if bandwidth is None or latency is None:
        raise InvalidInput("the network file needs both --bandwidth and --latency")
    rate, delay = parse(bandwidth, Unit.BANDWIDTH, name="--bandwidth"), parse(latency, Unit.TIME, name="--latency")
    text = write_network([Dimension("Ring" if ring else "Switch", extent, rate, delay) for extent in shape])
    return _write(out.with_name(f"{out.name}.network.yml"), text.splitlines())
