"""The same schedules predicted and run in a shaped network of namespaces on this machine.

Real PyTorch and the kernel's own TCP over links of known rate. The prediction is calibrated by one-way and
two-way ping-pong alone; no collective is fitted to. Needs root and iproute2; without them ranks run on the
loopback device, where nothing is predicted, and the report says how much such times scatter.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from realrun.lab import network
from realrun.lab.plan import Plan, plan
from realrun.lab.step_trial import StepTrial, time_steps
from realrun.lab.trial import ONE_WAY, TWO_WAY, Answer, Request, trials
from simnet.algorithms import registry
from simnet.costs.tcp import Tcp
from simnet.errors import InvalidInput, Unsupported
from simnet.fabric import Fabric, Link
from simnet.interpreters.simulate import simulate
from simnet.metrics import mape
from simnet.paths import FabricPaths
from simnet.placement import Placement
from simnet.units import GBIT_PER_S, KIB, MIB, Bytes, BytesPerSecond, Seconds
from studies import lab_step
from studies.study import Claim, Picture, Result, Table

_log = logging.getLogger(__name__)

MBIT = GBIT_PER_S / 1e3
HOSTS = 4
RATE, UPLINK = 100 * MBIT, 50 * MBIT
ITEM_BYTES = 4
PING_SIZES = (4 * KIB, 256 * KIB, MIB, 4 * MIB)
ORDER_MATTERS = 0.1


@dataclass(frozen=True, slots=True)
class Entry:
    """An algorithm with its options, as the study runs it."""

    algorithm: str
    options: dict[str, Any] = field(default_factory=dict)


ENTRIES = (
    Entry("ring"),
    Entry("halving_doubling"),
    Entry("torus2d", {"grid": (2, 2)}),
    Entry("hierarchical", {"ranks_per_node": 2}),
    Entry("double_binary_tree", {"segments": 4}),
)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    topologies: tuple[str, ...]
    entries: tuple[Entry, ...]
    sizes: tuple[Bytes, ...]
    ping_sizes: tuple[Bytes, ...]
    repeats: int


FULL = Extent(("star", "two-tier", "torus2d"), ENTRIES, tuple(64 * KIB * 4**k for k in range(5)), PING_SIZES, repeats=7)
QUICK = Extent(("star",), ENTRIES[:3], (64 * KIB, MIB), PING_SIZES[:3], repeats=3)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What ping-pong alone says of the links.

    Attributes
    ----------
    factor : rate found over rate set, from the slope between the two largest sizes, both directions of use
    overhead : s per message beyond its bytes, median over sizes; 0 where the shaper's bucket, which lets the
        first bytes of an idle port pass at once, hides it
    hidden : s by which the smallest intercept is below 0
    points : sizes and times it was fitted to
    """

    factor: float
    overhead: Seconds
    hidden: Seconds
    points: tuple[dict[str, Any], ...]


def calibrate(answers: Sequence[Answer], rate: BytesPerSecond) -> Calibration:
    """Fit a rate and an overhead to ping-pong; `answers` hold one-way and two-way times of several sizes."""
    slopes, intercepts, points = [], [], []
    for what in (ONE_WAY, TWO_WAY):
        chosen = sorted((a for a in answers if a.request.what == what), key=lambda a: a.request.size)
        wire = np.array([port_bytes(a.request.size, both=what == TWO_WAY) for a in chosen])
        times = np.array([np.median(a.samples_s) for a in chosen])
        slopes.append((wire[-1] - wire[-2]) / (times[-1] - times[-2]))
        intercepts += (times - wire / slopes[-1]).tolist()
        points += [
            {"what": what, "size_bytes": a.request.size, "time_s": float(t)} for a, t in zip(chosen, times, strict=True)
        ]
    return Calibration(
        float(np.mean(slopes)) / rate, max(0.0, float(np.median(intercepts))), max(0.0, -min(intercepts)),
        tuple(points),
    )  # fmt: skip


def port_bytes(size: Bytes, *, both: bool) -> float:
    """Bytes that one port sends: a message, and the acknowledgements of the other one where both send."""
    cost = Tcp(medium="tc")
    return float(cost.wire_bytes(size) + (cost.reverse_bytes(size) if both else 0))


def predict(made: Plan, entry: Entry, size: Bytes, found: Calibration) -> Seconds:
    """Time of a collective in the lab, from its plan and the calibration."""
    links = [Link(k.src, k.dst, 0.0, k.bandwidth * found.factor, k.kind) for k in made.fabric().links]
    fabric = Fabric(links, router=lambda _, src, dst: made.route(src, dst))
    paths = FabricPaths(fabric, Placement(made.hosts))
    schedule = registry.build(entry.algorithm, len(made.hosts), **entry.options)
    cost = Tcp(medium="tc", overhead=found.overhead)
    return float(simulate(schedule, size // ITEM_BYTES, paths, cost, itemsize=ITEM_BYTES).time)


def requests(extent: Extent) -> list[Request]:
    """Return ping-pong, then every algorithm at every size; sizes outermost, so that drift touches all algorithms."""
    pings = [Request(what, s, 2 * extent.repeats + 1) for s in extent.ping_sizes for what in (ONE_WAY, TWO_WAY)]
    runs = [
        Request(entry.algorithm, size, extent.repeats if size <= MIB else max(3, extent.repeats - 2), 1, entry.options)
        for size in extent.sizes
        for entry in extent.entries
    ]
    return pings + runs


def measure(topology: str, extent: Extent) -> tuple[Plan, list[Answer]]:
    """Build a lab, measure everything in it with one set of ranks, remove it."""
    name = f"loop{os.getpid() % 10**6}"
    made = _plan(topology, name)
    network.up(made)
    try:
        return made, [_told(topology, answer) for answer in trials(name, requests(extent), timeout=3600.0)]
    finally:
        network.down(name)


def _plan(topology: str, name: str) -> Plan:
    return plan(topology, HOSTS, RATE, uplink=UPLINK if topology == "two-tier" else None, name=name)


def training_step(extent: Extent) -> list[dict[str, Any]]:
    """Rows of one training step on two hosts, one rank and one core each."""
    name = f"step{os.getpid() % 10**6}"
    made = plan("star", 2, RATE, name=name)
    pings = [r for r in requests(extent) if r.what in (ONE_WAY, TWO_WAY)]
    network.up(made)
    try:
        found = calibrate(list(trials(name, pings)), RATE)
        answer = time_steps(name, StepTrial())
    finally:
        network.down(name)
    return lab_step.rows_of(answer, lambda size: predict(made, Entry("ring"), size, found))


def _told(topology: str, answer: Answer) -> Answer:
    asked, time = answer.request, float(np.median(answer.samples_s))
    _log.info("%s: %s of %d bytes took %.4g s, median of %d", topology, asked.what, asked.size, time, asked.repeats)
    return answer


def rows_of(made: Plan, answers: Sequence[Answer], extent: Extent, found: Calibration) -> Iterator[dict[str, Any]]:
    """Yield one row per algorithm and size."""
    measured = {(a.request.what, a.request.size): a for a in answers}
    for size in extent.sizes:
        for entry in extent.entries:
            samples = np.array(measured[entry.algorithm, size].samples_s)
            low, middle, high = (float(q) for q in np.quantile(samples, (0.25, 0.5, 0.75)))
            predicted = predict(made, entry, size, found)
            yield {
                "id": f"{made.topology}-{entry.algorithm}-{size}", "system": f"lab {made.topology}",
                "quantity": f"all_reduce {entry.algorithm}", "unit": "s", "size_bytes": size,
                "published": middle, "predicted": predicted, "low": predicted, "high": predicted,
                "error": predicted / middle - 1, "measured_q25": low, "measured_q75": high,
                "samples_s": samples.tolist(), "kind": "measured here",
                "basis": "median of the samples beside; calibrated by ping-pong alone",
            }  # fmt: skip


def errors(rows: Sequence[dict[str, Any]], *, at_least: Bytes = 0) -> float:
    """MAPE of the rows of that size and above."""
    chosen = [row for row in rows if row["size_bytes"] >= at_least]
    return mape([row["predicted"] for row in chosen], [row["published"] for row in chosen])


def order_faults(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Pairs of algorithms whose measured times differ by more than a tenth and whose predicted order is the other."""
    faults = []
    for a in rows:
        for b in rows:
            same = a["system"] == b["system"] and a["size_bytes"] == b["size_bytes"]
            slower = b["published"] > a["published"] * (1 + ORDER_MATTERS)
            if same and slower and b["predicted"] <= a["predicted"]:
                faults.append(f"{a['id']} and {b['quantity'].split()[-1]}")
    return faults


def claims_of(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    """State what the rows must show."""
    largest = [abs(row["error"]) for row in rows if row["size_bytes"] >= 16 * MIB]
    faults = order_faults(rows)
    worst = max(rows, key=lambda row: abs(row["error"]))
    claims = [
        Claim("MAPE is at most 3 % for 1 MiB and more", errors(rows, at_least=MIB) <= 0.03,
              f"{errors(rows, at_least=MIB):.2%}"),
        Claim("MAPE is at most 10 % for all sizes", errors(rows) <= 0.10,
              f"{errors(rows):.2%}, worst {worst['error']:+.1%} at {worst['id']}"),
        Claim("the order of the algorithms is right wherever they differ by more than 10 %", not faults,
              "; ".join(faults)),
    ]  # fmt: skip
    if largest:
        claims.append(Claim("every error at 16 MiB is at most 1.5 %", max(largest) <= 0.015, f"{max(largest):.2%}"))
    return claims


def run(*, quick: bool = False) -> Result:
    """Measure and predict; `quick` takes the star, three algorithms and two sizes, under a minute."""
    extent = QUICK if quick else FULL
    try:
        network.require_lab(*(_plan(topology, "any") for topology in extent.topologies))
    except (InvalidInput, Unsupported) as error:
        return _on_loopback(extent, str(error))
    rows: list[dict[str, Any]] = []
    calibrations, realtime = [], True
    for topology in extent.topologies:
        made, answers = measure(topology, extent)
        found = calibrate(answers, RATE)
        realtime = realtime and all(answer.realtime for answer in answers)
        calibrations.append({"topology": topology, **asdict(found)})
        rows += rows_of(made, answers, extent, found)
    claims, steps = claims_of(rows), [] if quick else training_step(extent)
    if steps:
        worst = max(abs(row["error"]) for row in steps)
        claims.append(
            Claim("a training step is predicted within 10 %, overlapped and not", worst <= 0.1, f"{worst:.1%}")
        )
    rows = [row | {"environment": _environment(realtime=realtime)} for row in rows + steps]
    return Result(rows, claims, _tables(rows, calibrations), [_picture(rows)], _notes(realtime))


def _tables(rows: Sequence[dict[str, Any]], calibrations: Sequence[dict[str, Any]]) -> list[Table]:
    short = [
        {"lab": row["system"].removeprefix("lab "), "algorithm": row["quantity"].removeprefix("all_reduce "),
         "size_bytes": row["size_bytes"], "measured_s": row["published"], "predicted_s": row["predicted"],
         "error": f"{row['error']:+.2%}", "q25_s": row["measured_q25"], "q75_s": row["measured_q75"]}
        for row in rows
    ]  # fmt: skip
    fits = [{k: v for k, v in c.items() if k != "points"} for c in calibrations]
    points = [{"topology": c["topology"], **point} for c in calibrations for point in c["points"]]
    return [
        Table("All-reduce, predicted and measured", short, "medians and quartiles of every sample"),
        Table("Calibration", fits, "rate found over rate set; seconds per message; seconds the shaper's bucket hides"),
        Table("Points it was fitted to", points),
    ]


def _picture(rows: Sequence[dict[str, Any]]) -> Picture:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for system in dict.fromkeys(row["system"] for row in rows):
            chosen = [row for row in rows if row["system"] == system]
            axes.plot([r["published"] for r in chosen], [r["predicted"] for r in chosen], "o", label=system)
        ends = [min(r["published"] for r in rows), max(r["published"] for r in rows)]
        axes.plot(ends, ends, color="grey", linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="measured (s)", ylabel="predicted (s)")
        axes.legend()

    return Picture("agreement", "Predicted against measured; the line is equality.", draw, (6.0, 5.0))


def _environment(*, realtime: bool) -> dict[str, Any]:
    """Return what the times depend on beside the lab: kernel, cores, torch, and what else the machine did."""
    import platform

    import torch

    cores = len(os.sched_getaffinity(0))
    return {
        "kernel": platform.release(), "cores": cores, "torch": torch.__version__, "load": os.getloadavg()[0],
        "realtime": realtime, "rate_bytes_per_s": RATE, "uplink_bytes_per_s": UPLINK,
    }  # fmt: skip


def _notes(realtime: bool) -> list[str]:
    priority = "real-time" if realtime else "ordinary"
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return [
        f"Measured on {cores} cores with a load of {load:.1f}; ranks ran at {priority} priority, one thread each.",
        "Bytes are those tc counts: 1,514 for 1,448 of payload, acknowledgements of 66 bytes in the same ports.",
    ]


def _on_loopback(extent: Extent, why: str) -> Result:
    """Say how much the loopback device scatters; predict nothing there."""
    from realrun.benchmark import sweep
    from realrun.plans import Plan as Sweep
    from realrun.ranks import RankPool

    rows: list[dict[str, Any]] = []
    with RankPool(HOSTS) as pool:
        for entry in extent.entries:
            asked = Sweep(entry.algorithm, extent.sizes, entry.options, iterations=extent.repeats)
            for found in pool.stream(sweep, asked):
                samples = np.array(found["samples_s"])
                low, high = np.quantile(samples, (0.25, 0.75))
                rows.append({
                    "id": f"loopback-{entry.algorithm}-{found['size_bytes']}", "system": "loopback",
                    "quantity": f"all_reduce {entry.algorithm}", "unit": "s", "size_bytes": found["size_bytes"],
                    "published": float(np.median(samples)), "scatter": float((high - low) / np.median(samples)),
                    "kind": "measured here", "reason": "no lab, nothing predicted",
                })  # fmt: skip
    scatter = float(np.median([row["scatter"] for row in rows]))
    note = f"No lab: {why}. On loopback the middle half of the samples spans {scatter:.0%} of the median."
    return Result(rows, [], [Table("All-reduce on loopback", rows)], [], [note])
