"""Measure what messages, additions and copies cost, as raw records that `simnet calibrate` reads.

Messages go through the executor, so that what they cost includes everything a step of a real
collective costs. A record's `samples_s` are seconds per message (or per addition, copy, product).

`loaded` probes keep every rank busy at once, as collectives do: where ranks share cores, memory or
a NIC, a message between two of them while the others idle is not what it costs in a collective.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from realrun.benchmark import choose_device
from realrun.compute import convolution, dtype_of, layer_times, matmul, timed
from realrun.environment import run_environment
from realrun.executor import Executor
from realrun.groups import channels_of
from realrun.launch import detect
from realrun.measure import measure
from realrun.models import build
from realrun.plans import PRECISIONS, ProbePlan
from simnet.collective import Collective, Kind
from simnet.errors import InvalidInput
from simnet.schedule import Item, Schedule, Step
from simnet.units import Bytes, Seconds

Pair = tuple[int, int]
_SMALL: Bytes = 1024
_LARGE: Bytes = 2**16
_TARGET: Seconds = 2e-3
_MESSAGE_REPEATS, _RATE_REPEATS = 3, 64


def probe(plan: ProbePlan) -> Iterator[dict[str, Any]]:
    """Yield a record per measurement, on every rank of the default group.

    Raises
    ------
    InvalidInput : fewer than two ranks, or a precision the device does not have.
    """
    world_size = dist.get_world_size()
    if world_size < 2:
        raise InvalidInput(f"a probe needs 2 ranks or more, got {world_size}; use --ranks 2")
    site = Site.here(plan.timeout)
    if plan.model:
        dtype_of(plan.precision, site.device)
    for pairs in _rounds(world_size, plan, across=len(site.environment["hosts"]) > 1):
        for size in plan.sizes:
            yield from _message_records(plan, site, pairs, size)
    if plan.rates:
        large = [size for size in plan.sizes if size >= _LARGE] or [max(_LARGE, *plan.sizes)]
        for size in large:
            yield from _rate_records(plan, site, size)
    if plan.compute:
        yield from _compute_records(plan, site)
    if plan.model:
        yield from _layer_records(plan, site)


@dataclass(frozen=True, slots=True)
class Site:
    """Place and device of this rank, and what goes into every record."""

    rank: int
    device: torch.device
    names: tuple[str, ...]
    environment: Mapping[str, Any]
    control: dist.ProcessGroup

    @classmethod
    def here(cls, timeout: Seconds) -> Site:
        """Describe the default group; a collective call."""
        control = channels_of(None, timeout).control
        hosts: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(hosts, socket.gethostname(), group=control)
        device = choose_device("")
        launch = detect()
        environment = run_environment(
            hosts, backend=str(dist.get_backend()), device=str(device), launcher=str(launch or "local ranks")
        )
        names = tuple(f"{host}:{rank}" for rank, host in enumerate(hosts))
        return cls(dist.get_rank(), device, names, environment, control)

    def record(self, quantity: str, samples: Sequence[Seconds], **more: Any) -> dict[str, Any]:
        """Return a raw record; `time_s` is the median of the samples."""
        return {
            "kind": "probe", "quantity": quantity, **more, "time_s": median(samples), "samples_s": list(samples),
            "device": str(self.device), "environment": dict(self.environment),
        }  # fmt: skip


def _rounds(world_size: int, plan: ProbePlan, *, across: bool) -> list[list[Pair]]:
    """Pairs that are measured at the same time; loaded: all neighbours and, `across` hosts, all of the two halves."""
    if plan.loaded:
        neighbours = [(rank, rank + 1) for rank in range(0, world_size - 1, 2)]
        half = world_size // 2
        return [neighbours, [(rank, rank + half) for rank in range(half)]] if across else [neighbours]
    every = [(a, b) for a in range(world_size) for b in range(a + 1, world_size)]
    number = min(plan.pairs or len(every), len(every))
    return [[every[int(i)]] for i in np.linspace(0, len(every) - 1, number).round()]


def traffic(world_size: int, pairs: Sequence[Pair], *, both_ways: bool, coupled: bool = False) -> Schedule:
    """Pairs (a, b): a sends the first half of the buffer to b, b the second to a; at once or one after the other.

    Where `coupled`, an exchange is followed by one of b with the next pair's a, so that every rank comes to
    wait for every other, as in a collective.
    """
    then = [crossing(pairs)] if coupled and len(pairs) > 1 else []
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    there, back = Step.columns(first, second, 0), Step.columns(second, first, 1)
    both = Step.columns(np.append(first, second), np.append(second, first), np.repeat([0, 1], len(pairs)))
    steps = (both, *then) if both_ways else (there, back)
    name = "exchange" if both_ways else "ping_pong"

    def items() -> Iterator[Item]:
        yield from steps

    return Schedule(name, Collective(Kind.ALL_REDUCE), world_size, 2, items)


def crossing(pairs: Sequence[Pair]) -> Step:
    """Step in which the second rank of every pair exchanges with the first of the next pair."""
    first = np.array([b for _, b in pairs])
    second = np.roll([a for a, _ in pairs], -1)
    return Step.columns(np.append(first, second), np.append(second, first), np.repeat([0, 1], len(pairs)))


def _message_records(plan: ProbePlan, site: Site, pairs: list[Pair], size: Bytes) -> Iterator[dict[str, Any]]:
    tensor = torch.zeros(2 * size, dtype=torch.uint8, device=site.device)
    for both_ways in (False, True) if plan.one_way else (True,):
        schedule = traffic(len(site.names), pairs, both_ways=both_ways, coupled=plan.loaded)
        executor = Executor(schedule, timeout=plan.timeout)
        durations = _timed(partial(_run, executor, tensor), plan, site, most=_MESSAGE_REPEATS)
        quantity = "bidirectional_bandwidth" if both_ways else "latency" if size < _SMALL else "bandwidth"
        messages = len(list(schedule.steps()))
        for a, b in pairs:
            samples = (durations[:, [a, b]].max(axis=1) / messages).tolist()
            places = {"src": site.names[a], "dst": site.names[b], "loaded": plan.loaded}
            yield site.record(quantity, samples, size_bytes=size, **places)


def _run(executor: Executor, tensor: torch.Tensor) -> None:
    executor.run(tensor).wait()


def _rate_records(plan: ProbePlan, site: Site, size: Bytes) -> Iterator[dict[str, Any]]:
    there, here = (torch.zeros(size // 4, device=site.device) for _ in range(2))
    active = range(len(site.names)) if plan.loaded else range(1)
    for quantity, work in (("reduction_rate", partial(here.add_, there)), ("copy_rate", partial(here.copy_, there))):
        durations = _timed(work if site.rank in active else _idle, plan, site, most=_RATE_REPEATS)
        for rank in active:
            places = {"src": site.names[rank], "dst": site.names[rank], "loaded": plan.loaded, "dtype": "float"}
            yield site.record(quantity, durations[:, rank].tolist(), size_bytes=size // 4 * 4, **places)


def _compute_records(plan: ProbePlan, site: Site) -> Iterator[dict[str, Any]]:
    """Rank 0's rates; the others wait, and so have none."""
    on_cuda = site.device.type == "cuda"
    extent, channels, batch = (4096, 256, 64) if on_cuda else (512, 64, 4)
    for precision in PRECISIONS if on_cuda else ("fp32", "bf16"):
        for quantity, (work, flop) in (
            ("matmul_rate", matmul(extent, precision, site.device)),
            ("convolution_rate", convolution(batch, channels, 28, precision, site.device)),
        ):
            if site.rank == 0:
                samples = timed(work, site.device, iterations=plan.iterations, warmup=plan.warmup)
                yield site.record(quantity, samples, precision=precision, flop=flop, src=site.names[0])
            dist.barrier(group=site.control)


def _layer_records(plan: ProbePlan, site: Site) -> Iterator[dict[str, Any]]:
    """Rank 0's layer times; the others wait."""
    if site.rank == 0:
        network = build(plan.model, num_classes=1000, resolution=224)
        dtype = dtype_of(plan.precision, site.device)
        images = torch.randn(plan.batch, 3, 224, 224, dtype=dtype, device=site.device)
        layers = layer_times(
            network.to(site.device, dtype), images, iterations=plan.iterations, warmup=plan.warmup
        )  # fmt: skip
        for layer in layers:
            found = asdict(layer)
            named = {"layer_kind": found.pop("kind"), "model": plan.model, "batch": plan.batch, "src": site.names[0]}
            yield site.record("layer", layer.forward_s, precision=plan.precision, **named, **found)
    dist.barrier(group=site.control)


def _idle() -> None:
    """What ranks do that are not measured."""


def _timed(
    work: Callable[[], object], plan: ProbePlan, site: Site, *, most: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds per call on every rank, shape (iterations, ranks); a sample is a run of up to `most` calls.

    Messages come in short runs, as in a collective: in long ones, ranks that share cores get better at
    taking turns than a collective ever does.
    """
    repeats = _repeats(work, site, most)
    synchronize = torch.cuda.synchronize if site.device.type == "cuda" else _idle
    samples = measure(
        partial(_repeat, work, repeats), iterations=plan.iterations, warmup=plan.warmup, group=site.control,
        synchronize=synchronize,
    )  # fmt: skip
    return samples.duration / repeats


def _repeats(work: Callable[[], object], site: Site, most: int) -> int:
    """How often to call, the same on every rank: up to `most` times, for a sample of about 2 ms."""
    work()
    began = time.perf_counter()
    work()
    if site.device.type == "cuda":
        torch.cuda.synchronize()
    once = torch.tensor([time.perf_counter() - began])
    dist.all_reduce(once, dist.ReduceOp.MAX, group=site.control)
    return int(min(max(_TARGET / max(once.item(), 1e-9), 1), most))


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()
