"""`simnet calibrate`: turn logs into a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simnet.cli.options import Ampere, Hardware, Inside, LogRanks, LogRanksPerNode, NetworkLatency, NicBandwidth, Nics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simnet.results import Measurement, Profile, ProfileInput


def command(
    logs: Annotated[list[Path], typer.Argument(help="Logs of any format read here, in any mix.")],
    *,
    out: Annotated[Path, typer.Option(help="Profile to write (TOML).")],
    name: Annotated[str, typer.Option(help="Name of the profile; the file's name where not given.")] = "",
    holdout: Annotated[
        list[str] | None,
        typer.Option(help='Rows not to fit: "ranks=16", "sizes=64K:1M:2", "collective=all_gather"; repeatable.'),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    nics: Nics = None,
    nic_bandwidth: NicBandwidth = None,
    inside: Inside = None,
    network_latency: NetworkLatency = None,
    hardware: Hardware = "NVLINK",
    ampere: Ampere = False,
    ranks_per_node: LogRanksPerNode = None,
    log_ranks: LogRanks = None,
    json: Annotated[bool, typer.Option("--json", help="The profile as one JSON object.")] = False,
) -> None:
    """Fit latency, bandwidth, protocol switch and reduction rate, with 80 % intervals; contradicting rows are named.

    With --nics, --nic-bandwidth and --inside, NCCL's own model is fitted to its all-reduces instead.
    """
    from simnet.calibration import calibrate
    from simnet.cli.app import print_json
    from simnet.cli.options import nccl_site, with_nodes, with_ranks
    from simnet.points import parse_holdout
    from simnet.profiles import write_profile

    inputs, rows, notes = _read(logs)
    site = nccl_site(
        nics=nics, nic_bandwidth=nic_bandwidth, inside=inside, network_latency=network_latency, hardware=hardware,
        ampere=ampere,
    )  # fmt: skip
    kept, held = parse_holdout(with_nodes(with_ranks(rows, log_ranks), ranks_per_node), holdout or [])
    profile = calibrate(
        kept, name=name or out.stem, inputs=inputs, created=_now(), command=_command(), seed=seed, site=site
    )  # fmt: skip
    write_profile(profile, out)
    if json:
        print_json([profile])
        return
    for line in (*_lines(profile, len(held)), *notes, *_held_out(profile, held), f"wrote {out}"):
        print(line)


def _held_out(profile: Profile, rows: list[Measurement]) -> Iterator[str]:
    """Error figures on rows that were held out and are of a kind a profile prices by itself."""
    from simnet.calibration import expected
    from simnet.comparison import ComparedRow, accuracy

    compared = [
        ComparedRow(row.collective, row.algorithm, row.ranks, row.size_bytes, time, row.time_s)
        for row, time in expected(profile, rows)
    ]
    if compared:
        found = accuracy(compared)
        yield (
            f"  on {found.rows} rows held out: MAPE {found.mape:.1%}, geometric mean {found.geometric_mean:.1%}, "
            f"bias {found.bias:+.1%}, p95 {found.p95:.1%}, largest {found.max:.1%}"
        )


def _refused(profile: Profile) -> Iterator[str]:
    """Name every row that contradicts others; count those left out for one common reason."""
    common: dict[str, int] = {}
    for point in profile.refused:
        if point.reason.startswith("contradicts"):
            yield f"  refused: {point.collective} {point.size_bytes} bytes {point.time_s * 1e6:.2f} us: {point.reason}"
        else:
            common[point.reason] = common.get(point.reason, 0) + 1
    yield from (f"  left out: {count} rows: {reason}" for reason, count in common.items())


def _read(logs: list[Path]) -> tuple[list[ProfileInput], list[Measurement], list[str]]:
    """Inputs, rows, and what the readers noted beside them."""
    from hashlib import file_digest

    from simnet.importers.logs import read_log
    from simnet.results import ProfileInput

    inputs: list[ProfileInput] = []
    rows: list[Measurement] = []
    notes: list[str] = []
    for path in logs:
        log = read_log(path)
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        inputs.append(ProfileInput(str(path), digest, len(log.measurements)))
        rows += log.measurements
        notes += [f"  note: {path.name}: {text}" for text in log.notes if not text.startswith("two modes")]
    return inputs, rows, notes


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")


def _command() -> str:
    import shlex
    import sys

    return shlex.join(["simnet", *sys.argv[1:]])


def _lines(profile: Profile, held: int) -> Iterator[str]:
    from simnet.units import format_si

    def span(fitted: object, unit: str) -> str:
        value, low, high = (format_si(getattr(fitted, key), unit) for key in ("value", "low", "high"))
        return f"{value} ({low} to {high})"

    yield f"profile {profile.name}: {len(profile.points)} rows fitted, {len(profile.refused)} refused, {held} held out"
    for segment in profile.segments:
        end = "any size" if segment.max_bytes is None else f"up to {segment.max_bytes} bytes"
        yield (
            f"  messages {end:<22} latency {span(segment.latency_s, 's')}, "
            f"bandwidth {span(segment.bandwidth_bytes_per_s, 'B/s')}"
        )
    if profile.nccl:
        yield "  NCCL's model as published, times"
        for name, factor in profile.nccl.variants[0].factors.items():
            yield f"    {name:<34} {factor.value:.3f} ({factor.low:.3f} to {factor.high:.3f})"
    if profile.gamma_s_per_byte:
        yield f"  reduction {span(profile.gamma_s_per_byte, 's/B')}"
    for text in profile.assumptions:
        yield f"  {'WARNING' if text.startswith('two modes') else 'assumed'}: {text}"
    yield f"  distance from its own points (no accuracy): {profile.residuals['geometric_mean']:.1%} geometric mean"
    yield from _refused(profile)
