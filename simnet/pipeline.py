"""The input pipeline of one host: from storage to its devices, and how long a step waits for data.

Two forms of the same description: `steady_feed` takes the slowest stage's rate, `simulate_feed` runs the stages,
their workers and the queues between them on an event clock. In the steady state they agree; only the events
know warm-up, jitter and how deep a queue must be.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simnet.errors import InvalidInput
from simnet.stragglers import Jitter
from simnet.units import BytesPerSecond, Seconds

DEVICE = "device"
CORES = "cores"


@dataclass(frozen=True, slots=True)
class Stage:
    """Workers that each take `time` s for a sample; those on the CPU share the host's cores."""

    name: str
    time: Seconds
    workers: int = 1
    on_cpu: bool = True
    jitter: Jitter | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.time < math.inf or self.workers < 1:
            raise InvalidInput(
                f"stage {self.name!r} needs 0 or more s a sample and 1 or more workers, got {self.time} s "
                f"and {self.workers}"
            )

    @property
    def rate(self) -> float:
        """Samples/s of all its workers."""
        return self.workers / self.time if self.time > 0 else math.inf


@dataclass(frozen=True, slots=True)
class InputPipeline:
    """Stages of one host in the order of the data, and the devices it feeds.

    `queue` is how many samples fit between two stages; `prefetch` how many ready batches wait for each device;
    `copy_time` is s to move one sample to a device, each device over its own link, while the previous step
    computes if `overlap_copy`.
    """

    stages: tuple[Stage, ...]
    cores: int
    num_devices: int = 1
    queue: int = 64
    prefetch: int = 2
    copy_time: Seconds = 0.0
    overlap_copy: bool = True

    def __post_init__(self) -> None:
        if not self.stages:
            raise InvalidInput("an input pipeline needs at least one stage, got none")
        if min(self.cores, self.num_devices, self.queue, self.prefetch) < 1 or self.copy_time < 0:
            raise InvalidInput(
                "an input pipeline needs 1 or more cores, devices, samples of queue and batches of prefetch, and a "
                f"copy of 0 or more s, got {self.cores}, {self.num_devices}, {self.queue}, {self.prefetch} and "
                f"{self.copy_time} s"
            )

    @property
    def cpu_time(self) -> Seconds:
        """CPU time of one sample, over all stages."""
        return sum(stage.time for stage in self.stages if stage.on_cpu)

    def with_stage(self, name: str, **changes: Any) -> InputPipeline:
        """The same pipeline with one stage changed."""
        if name not in {stage.name for stage in self.stages}:
            raise InvalidInput(f"no stage {name!r}; there are {', '.join(stage.name for stage in self.stages)}")
        stages = tuple(replace(stage, **changes) if stage.name == name else stage for stage in self.stages)
        return replace(self, stages=stages)


@dataclass(frozen=True, slots=True)
class Feed:
    """What a step gets: its time with the data, s, of which `stall_s` is waiting, and the stage that limits it.

    `slowest` is "device" where the data keep up, "cores" where the stages together want more cores than there are.
    `rates` are samples/s of the host, by stage; `stalls` the waits of the single steps, where events were run.
    """

    step_s: Seconds
    stall_s: Seconds
    slowest: str
    samples_per_s: float
    rates: Mapping[str, float]
    first_step_s: Seconds = 0.0
    stalls: tuple[Seconds, ...] = field(default=(), repr=False)


def input_time(pipeline: InputPipeline, batch: int) -> Seconds:
    """Time between two batches being ready on every device of the host, s, if the devices never wait for each other."""
    _require(batch, 1.0)
    samples = batch * pipeline.num_devices
    return max(batch * pipeline.copy_time, *(samples / rate for rate in supply(pipeline).values()))


def several_hosts(pipeline: InputPipeline, num_hosts: int) -> InputPipeline:
    """Let several hosts like this one feed the same devices together."""
    if num_hosts < 1:
        raise InvalidInput(f"devices need 1 or more hosts to feed them, got {num_hosts}")
    stages = tuple(replace(stage, workers=num_hosts * stage.workers) for stage in pipeline.stages)
    return replace(pipeline, stages=stages, cores=num_hosts * pipeline.cores, queue=num_hosts * pipeline.queue)


def supply(pipeline: InputPipeline) -> dict[str, float]:
    """Samples/s the host can deliver, stage by stage, and of its cores together."""
    rates = {stage.name: stage.rate for stage in pipeline.stages}
    cpu = pipeline.cpu_time
    rates[CORES] = pipeline.cores / cpu if cpu > 0 else math.inf
    return rates


def steady_feed(pipeline: InputPipeline, batch: int, step_time: Seconds) -> Feed:
    """Predict the steady state in closed form: a step takes as long as the slowest of compute, copy and stages.

    Parameters
    ----------
    batch : samples per device and step.
    step_time : s of a step whose data are there.
    """
    _require(batch, step_time)
    rates = supply(pipeline)
    samples = batch * pipeline.num_devices
    copy = batch * pipeline.copy_time
    inline = 0.0 if pipeline.overlap_copy else copy
    periods = {name: samples / rate for name, rate in rates.items()}
    if pipeline.overlap_copy:
        periods["copy"] = copy
        rates["copy"] = samples / copy if copy > 0 else math.inf
    slowest = max(periods, key=lambda name: periods[name])
    busy = step_time + inline
    if periods[slowest] <= busy:
        slowest = DEVICE if inline == 0 else "copy"
    step = max(busy, *periods.values())
    return Feed(step, step - step_time, slowest, samples / step, rates)


def workers_to_keep_up(pipeline: InputPipeline, batch: int, step_time: Seconds) -> dict[str, int]:
    """Workers each stage needs, and cores the host needs, so that no step waits."""
    _require(batch, step_time)
    demand = batch * pipeline.num_devices / step_time
    need = {stage.name: max(1, math.ceil(demand * stage.time - 1e-9)) for stage in pipeline.stages}
    need[CORES] = max(1, math.ceil(demand * pipeline.cpu_time - 1e-9))
    return need


def _require(batch: int, step_time: Seconds) -> None:
    if batch < 1 or not 0 < step_time < math.inf:
        raise InvalidInput(
            f"a feed needs a batch of 1 or more samples and a step above 0 s, got {batch}, {step_time} s"
        )


def simulate_feed(
    pipeline: InputPipeline, batch: int, step_time: Seconds, *, steps: int = 50, grain: int = 1, seed: int = 0
) -> Feed:
    """Run the pipeline on an event clock for a number of steps, all devices of the host in step.

    Parameters
    ----------
    grain : samples that move together; must divide batch. 1 is exact, more is quicker.

    Returns
    -------
    Feed : step_s and stall_s are means over the second half of the steps, first_step_s is until the first has ended.
    """
    _require(batch, step_time)
    if steps < 2 or grain < 1 or batch % grain:
        raise InvalidInput(
            f"events need 2 or more steps and a grain that divides the batch of {batch}, got {steps}, {grain}"
        )
    host = _Host(pipeline, batch, grain, np.random.default_rng(seed))
    ends, stalls = host.run(steps, step_time)
    half = steps // 2
    step = (ends[-1] - ends[half - 1]) / (steps - half)
    stall = float(np.mean(stalls[half:]))
    slowest = steady_feed(pipeline, batch, step_time).slowest
    if stall <= 1e-9 * step:
        slowest = DEVICE
    elif slowest == DEVICE:
        slowest = host.busiest()
    samples = batch * pipeline.num_devices
    return Feed(step, stall, slowest, samples / step, supply(pipeline), ends[0], tuple(stalls))


class _Host:
    """Workers, cores and queues of one host on a SimPy clock."""

    def __init__(self, pipeline: InputPipeline, batch: int, grain: int, rng: np.random.Generator) -> None:
        import simpy

        self.pipeline, self.grain, self.rng = pipeline, grain, rng
        self.batch, self.per_batch = batch, batch // grain
        self.env = simpy.Environment()
        self.cores = simpy.Resource(self.env, pipeline.cores)
        self.busy = dict.fromkeys((stage.name for stage in pipeline.stages), 0.0)
        depth = max(1, pipeline.queue // grain)
        self.queues = [simpy.Store(self.env, depth) for _ in pipeline.stages]
        self.ready = [simpy.Store(self.env, pipeline.prefetch) for _ in range(pipeline.num_devices)]
        self.on_device = [simpy.Store(self.env, 1) for _ in range(pipeline.num_devices)]

    def run(self, steps: int, step_time: Seconds) -> tuple[list[Seconds], list[Seconds]]:
        """Return when each step ends, and how long it waited, s."""
        for index, stage in enumerate(self.pipeline.stages):
            for _ in range(stage.workers):
                self.env.process(self._work(index, stage))
        self.env.process(self._assemble())
        if self.pipeline.overlap_copy:
            for device in range(self.pipeline.num_devices):
                self.env.process(self._copy(device))
        ends: list[Seconds] = []
        stalls: list[Seconds] = []
        self.env.run(self.env.process(self._train(steps, step_time, ends, stalls)))
        return ends, stalls

    def busiest(self) -> str:
        """Stage whose workers had least time to spare."""
        stages = self.pipeline.stages
        return max(stages, key=lambda stage: self.busy[stage.name] / stage.workers).name

    def _work(self, index: int, stage: Stage) -> Generator[Any, Any, None]:
        while True:
            if index > 0:
                yield self.queues[index - 1].get()
            time = self._time(stage)
            if stage.on_cpu:
                with self.cores.request() as core:
                    yield core
                    yield self.env.timeout(time)
            else:
                yield self.env.timeout(time)
            self.busy[stage.name] += time
            yield self.queues[index].put(None)

    def _time(self, stage: Stage) -> Seconds:
        factor = 1.0 if stage.jitter is None else float(stage.jitter.draw(self.rng, (1,))[0])
        return stage.time * self.grain * factor

    def _assemble(self) -> Generator[Any, Any, None]:
        while True:
            for device in self.ready:
                for _ in range(self.per_batch):
                    yield self.queues[-1].get()
                yield device.put(None)

    def _copy(self, device: int) -> Generator[Any, Any, None]:
        while True:
            yield self.ready[device].get()
            yield self.env.timeout(self.batch * self.pipeline.copy_time)
            yield self.on_device[device].put(None)

    def _train(
        self, steps: int, step_time: Seconds, ends: list[Seconds], stalls: list[Seconds]
    ) -> Generator[Any, Any, None]:
        overlap = self.pipeline.overlap_copy
        source = self.on_device if overlap else self.ready
        for _ in range(steps):
            begin = self.env.now
            yield self.env.all_of([store.get() for store in source])
            if not overlap:
                yield self.env.timeout(self.batch * self.pipeline.copy_time)
            stalls.append(self.env.now - begin)
            yield self.env.timeout(step_time)
            ends.append(self.env.now)


def read_stage(
    sample_bytes: float, bandwidth: BytesPerSecond, *, hit: float = 0.0, latency: Seconds = 0.0, streams: int = 1
) -> Stage:
    """Read from storage: `streams` at once share the bandwidth, each waits the latency; cached samples cost nothing."""
    if not bandwidth > 0 or not 0 <= hit <= 1 or sample_bytes < 0 or latency < 0:
        raise InvalidInput(
            "reading needs bandwidth above 0, 0 <= hit <= 1 and 0 or more bytes and s, got "
            f"{bandwidth} bytes/s, {hit}, {sample_bytes} bytes, {latency} s"
        )
    missed = 1 - hit
    return Stage("read", missed * (latency + sample_bytes * streams / bandwidth), streams, on_cpu=False)


def feed_rows(feed: Feed) -> Iterator[dict[str, Any]]:
    """One row per stage: its rate, samples/s, and how much of it the run uses."""
    for name, rate in feed.rates.items():
        finite = math.isfinite(rate)
        yield {
            "stage": name,
            "samples_per_s": rate if finite else None,
            "utilisation": feed.samples_per_s / rate if finite else 0.0,
            "slowest": name == feed.slowest,
        }
