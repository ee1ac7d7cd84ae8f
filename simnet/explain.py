"""Why a step takes as long as it does: its parts, what it waits for last, and the link that holds it up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simnet.errors import InvalidInput
from simnet.exchange import ApproximationError, Bottleneck, approximation_error, bottlenecks, paths_of, schedule_of
from simnet.interpreters.messages import num_transfers
from simnet.link_load import busiest
from simnet.prediction import StepPrediction
from simnet.profile_prices import NCCL
from simnet.results import Span
from simnet.step_model import StepModel
from simnet.workload import item_bytes

WORTH_NAMING = 0.02
"""A kind of link that saves less by itself shares the bottleneck with others on the same path."""

QUICK_TRANSFERS = 2000
"""An all-reduce of so many transfers is simulated twenty times in about a second."""


@dataclass(frozen=True, slots=True)
class PathPiece:
    """A stretch of the critical path: what the step could not do without, from and to in s."""

    name: str
    start_s: float
    end_s: float

    @property
    def time_s(self) -> float:
        """Length, s."""
        return self.end_s - self.start_s


def critical_path(found: StepPrediction) -> list[PathPiece]:
    """Stretches that end one where the next begins and fill the step, from its start to its end."""
    compute = {span.name: span for span in found.spans if span.row == "compute"}
    messages = sorted((s for s in found.spans if s.row == "exchange"), key=lambda s: s.end)
    backward, update = compute["backward"], compute["update"]
    if not messages or messages[-1].end <= backward.end:
        return [_piece(compute["forward"]), _piece(backward), *_tail(update, found)]
    chain = _chain(messages)
    first = chain[0].start
    names = f"all_reduce {chain[0].bucket}" + (f" to {chain[-1].bucket}" if len(chain) > 1 else "")
    before = [_piece(compute["forward"]), PathPiece("backward", backward.start, first)]
    return [*before, PathPiece(names, first, chain[-1].end), *_tail(update, found)]


def _chain(messages: list[Span]) -> list[Span]:
    """The last all-reduces that follow each other without a gap."""
    chain = [messages[-1]]
    for span in reversed(messages[:-1]):
        if span.end < chain[0].start - 1e-12:
            break
        chain.insert(0, span)
    return chain


def _tail(update: Span, found: StepPrediction) -> list[PathPiece]:
    rest = [_piece(span) for span in found.spans if span.name == "waiting for input"]
    return [_piece(update), *rest]


def _piece(span: Span) -> PathPiece:
    return PathPiece(span.name, span.start, span.end)


@dataclass(frozen=True, slots=True)
class BottleneckLink:
    """The link that holds up the largest all-reduce, and what a better one of its kind would give.

    `load` is the share of what it could carry in that time; `alike` of the `of_kind` links of its kind are as loaded.
    `saved` is the share of the time that is gone with twice the bandwidth or half the latency, as `what` says.
    """

    link: str
    kind: str
    load: float
    alike: int
    of_kind: int
    what: str
    saved: float


def bottleneck_link(model: StepModel) -> BottleneckLink | None:
    """Most loaded link of the kind that helps most; of all kinds where no kind helps alone.

    None on one device, and by a profile: it was measured as a whole, and which link limits it is not known.
    """
    kinds = bottleneck(model) if model.network is None else []
    if not kinds:
        return None
    ranks, exchange = model.scenario.job.devices, model.scenario.exchange
    schedule = schedule_of(exchange.algorithm, ranks, model.options(ranks))
    time = float(model.prices(ranks).time.max())
    alone = kinds[0].kind if kinds[0].saved >= WORTH_NAMING else None
    found = busiest(
        schedule, paths_of(model.cluster, ranks, model.slow_links(ranks)), _largest(model), time, kind=alone
    )
    better = next((entry for entry in kinds if entry.kind == found.kind), kinds[0])
    return BottleneckLink(found.link, better.kind, found.load, found.alike, found.of_kind, better.what, better.saved)


def bottleneck(model: StepModel) -> list[Bottleneck]:
    """Kinds of links by what doubling their bandwidth or halving their latency takes off the largest all-reduce."""
    job, exchange = model.scenario.job, model.scenario.exchange
    if job.devices == 1 or exchange.algorithm == NCCL:
        return []
    return bottlenecks(
        model.cluster, exchange.algorithm, model.options(job.devices), job.devices, _largest(model),
        itemsize=item_bytes(exchange.gradient_dtype), cost=model.cost, slow_links=model.slow_links(job.devices),
    )  # fmt: skip


def approximation(model: StepModel, draws: int, *, ranks: int | None = None) -> ApproximationError:
    """How far the static share is from simulation, on the largest bucket and on draws of the links.

    ranks : fewer devices of the same cluster, where simulating all of them takes too long
    """
    job, exchange = model.scenario.job, model.scenario.exchange
    if exchange.algorithm == NCCL:
        raise InvalidInput("NCCL's fit has no messages to simulate; name an algorithm, or leave out --simulate-draws")
    devices = job.devices if ranks is None else ranks
    return approximation_error(
        model.cluster, exchange.algorithm, model.options(devices), devices, _largest(model),
        itemsize=item_bytes(exchange.gradient_dtype), cost=model.cost, draws=draws,
        rng=np.random.default_rng(model.scenario.seed), slow_links=model.slow_links(devices),
    )  # fmt: skip


def quick_to_simulate(model: StepModel) -> int:
    """Devices of whole nodes, fewer by a quarter at a time until an all-reduce among them is simulated many times."""
    exchange, ranks = model.scenario.exchange, model.scenario.job.devices
    local = model.cluster.node.num_devices
    while ranks > 2 and num_transfers(schedule_of(exchange.algorithm, ranks, model.options(ranks))) > QUICK_TRANSFERS:
        fewer = ranks * 3 // 4
        ranks = fewer - fewer % local if fewer > local else fewer
    return ranks


def _largest(model: StepModel) -> float:
    return max(bucket.num_bytes for bucket in model.buckets) / model.scenario.exchange.compression
