"""Why a step takes as long as it does: its parts, what it waits for last, and the link that holds it up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simnet.errors import InvalidInput
from simnet.exchange import ApproximationError, Bottleneck, approximation_error, bottlenecks
from simnet.prediction import StepPrediction
from simnet.profile_prices import NCCL
from simnet.results import Span
from simnet.step_model import StepModel
from simnet.workload import item_bytes


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


def bottleneck(model: StepModel) -> list[Bottleneck]:
    """Kinds of links by what doubling their bandwidth or halving their latency takes off the largest all-reduce."""
    job, exchange = model.scenario.job, model.scenario.exchange
    if job.devices == 1 or exchange.algorithm == NCCL:
        return []
    largest = max(bucket.num_bytes for bucket in model.buckets) / exchange.compression
    return bottlenecks(
        model.cluster, exchange.algorithm, model.options(job.devices), job.devices, largest,
        itemsize=item_bytes(exchange.gradient_dtype), cost=model.cost,
    )  # fmt: skip


def approximation(model: StepModel, draws: int) -> ApproximationError:
    """How far the static share is from simulation, on the largest bucket and on draws of the links."""
    job, exchange = model.scenario.job, model.scenario.exchange
    if exchange.algorithm == NCCL:
        raise InvalidInput("NCCL's fit has no messages to simulate; name an algorithm, or leave out --simulate-draws")
    largest = max(bucket.num_bytes for bucket in model.buckets) / exchange.compression
    return approximation_error(
        model.cluster, exchange.algorithm, model.options(job.devices), job.devices, largest,
        itemsize=item_bytes(exchange.gradient_dtype), cost=model.cost, draws=draws,
        rng=np.random.default_rng(model.scenario.seed),
    )  # fmt: skip
