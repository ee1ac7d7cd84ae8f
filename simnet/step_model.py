"""A scenario with everything about it looked up: what a step has to do at any number of devices, and its draws.

Intervals come from draws of every uncertain input: the fitted constants of the device, links of the catalogue,
and how far ranks differ. The same input has the same draws in a job and in the base its efficiency refers to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet import buckets, compute
from simnet.algorithms.registry import on_nodes
from simnet.catalog import load_cluster
from simnet.catalog.loader import Folder
from simnet.catalog.models import load_model
from simnet.costs import registry as costs
from simnet.costs.fitted import of_profile
from simnet.costs.model import CostModel
from simnet.errors import InvalidInput
from simnet.exchange import Prices, price, scaled
from simnet.hardware import Cluster, Device
from simnet.image_input import batch_interval, slow_stage
from simnet.intervals import Inputs, Interval, known_variation
from simnet.measured_layers import LayerTimes, read_layer_times
from simnet.profile_prices import NCCL, price_nccl, profile_of
from simnet.results import Profile
from simnet.scenario import Scenario
from simnet.stragglers import Jitter, expected_maximum, maximum_quantile
from simnet.training import Draws, StepTimes, StepWork, step
from simnet.units import Seconds
from simnet.workload import Bucket, Model, gradients, item_bytes

FloatArray = npt.NDArray[np.float64]

LARS_STREAMS, LARS_KERNELS = 2, 3
SCALING_KERNELS = 1
KERNEL_LAUNCH = 5e-6
"""Launch of one small kernel, s. A profile's `launch` is that of a whole layer: several kernels and the
framework's own work. Source: Gray, Getting Started with CUDA Graphs, NVIDIA developer blog, 2019."""


class StepModel:
    """A scenario with everything about it looked up; `evaluate` gives the step at any number of its devices."""

    def __init__(
        self, scenario: Scenario, profile: compute.ComputeProfile | None = None, *, catalog: Folder = None
    ) -> None:
        self.scenario = scenario
        self.profile = profile or compute.load_profile()
        self.network: Profile | None = profile_of(scenario)
        cluster = load_cluster(scenario.job.cluster, catalog)
        self.cluster: Cluster = scaled(cluster, scenario.bandwidth, scenario.latency)
        self.device: Device = self.cluster.node.device
        times = scenario.job.layer_times
        self.measured: LayerTimes | None = read_layer_times(times) if times else None
        if self.measured is not None:
            self.measured.require(scenario.job.model, scenario.job.precision)
        self.model: Model = load_model(scenario.job.model, catalog, **scenario.job.model_options)
        self.inputs = Inputs(scenario.seed, scenario.draws)
        self._priced: dict[tuple[int, tuple[float, ...]], Prices] = {}

    def with_batch(self, per_device_batch: int) -> StepModel:
        """Return the same job with another batch per device; what is known of the network is kept."""
        other = copy(self)
        other.scenario = self.scenario.with_job(per_device_batch=per_device_batch)
        for name in ("roofline", "passes", "buckets"):
            other.__dict__.pop(name, None)
        return other

    def with_cold_cache(self) -> StepModel:
        """Return the same job in its first epoch, when no host has cached any data."""
        other = copy(self)
        if self.scenario.input is not None:
            other.scenario = replace(self.scenario, input=replace(self.scenario.input, cached=0.0))
        return other

    @property
    def between_ranks(self) -> Interval:
        """Sd of the compute time over ranks: what lasts (the scenario's, or the catalogue's) and noise of a step."""
        lasting = _given(self.scenario.variation.between_ranks, "between_ranks")
        fresh = self.scenario.variation.between_steps or 0.0
        return Interval(*(math.hypot(sd, fresh) for sd in (lasting.value, lasting.low, lasting.high)))

    def over_steps(self, computed: Seconds, step_time: Seconds) -> tuple[Seconds, Seconds]:
        """Median and 95th percentile over the steps of a run, s, whose ranks compute `computed` s with fresh noise."""
        noise, ranks = Jitter(self.scenario.variation.between_steps or 0.0), self.scenario.job.devices
        mean = expected_maximum(noise, ranks)
        p50, p95 = (step_time + computed * (maximum_quantile(noise, ranks, p) - mean) for p in (0.5, 0.95))
        return p50, p95

    @property
    def node_contention(self) -> Interval:
        """What eight devices of one node take from each other beyond what the model counts."""
        return _given(self.scenario.variation.node_contention, "node_contention")

    @property
    def network_contention(self) -> Interval:
        """What a second node adds beyond what the model counts."""
        return _given(self.scenario.variation.network_contention, "network_contention")

    def _sharing(self, ranks: int) -> tuple[float, bool]:
        """Neighbours in a node over the seven contention was measured with, at most 1; whether nodes are several."""
        local = self.cluster.node.num_devices
        return min(1.0, (min(ranks, local) - 1) / 7), ranks > local

    @property
    def interference(self) -> Interval:
        """Fraction of compute speed lost to messages in flight: the scenario's own, or that of the catalogue."""
        return _given(self.scenario.exchange.interference, "interference")

    @cached_property
    def efficiency(self) -> compute.Efficiency:
        """Constants of the compute profile for this device, framework, precision and model."""
        job = self.scenario.job
        if self.measured is not None:
            return self.measured.efficiency
        return compute.efficiency(self.profile, self.device, job.framework, job.precision, job.model)

    @cached_property
    def roofline(self) -> compute.Roofline:
        """Bounds of one pass over the batch of a device."""
        job = self.scenario.job
        return compute.roofline(self.model, self.device, job.precision, job.per_device_batch)

    @cached_property
    def passes(self) -> tuple[FloatArray, FloatArray, Seconds]:
        """Forward and backward time of each layer, each (num_layers,), and time of the update, s."""
        found, bound = self.efficiency, self.roofline
        if self.measured is not None:
            forward, backward, update = self.measured.passes(self.model, bound, self.scenario.job.per_device_batch)
            return forward, backward, update + self._extra().value
        forward = bound.forward / found.efficiency + bound.forward_kernels * found.launch
        backward = bound.backward / found.efficiency + bound.backward_kernels * found.launch
        return (
            forward,
            backward,
            bound.update / found.efficiency + bound.update_kernels * found.launch + self._extra().value,
        )

    def _extra(self) -> Interval:
        """What LARS and loss scaling add to the update, s.

        LARS reads weights and gradients once more for their norms, loss scaling the gradients. How many kernels
        that takes depends on an implementation that nobody published: from plain launches for the weights alone
        (biases and batch norm have no trust ratio) to the framework's own overhead for every tensor.
        """
        optimizer, launch = self.scenario.optimizer, self.efficiency.launch or KERNEL_LAUNCH
        pass_ = self.model.num_parameters * compute.MASTER_BYTES / self.device.memory_bandwidth.value
        read = (LARS_STREAMS * optimizer.lars + optimizer.loss_scaling) * pass_
        tensors = self.model.parameters
        weights = sum(len(tensor.shape) > 1 for tensor in tensors)
        low, high = (
            (LARS_KERNELS * count * optimizer.lars + SCALING_KERNELS * optimizer.loss_scaling) * each
            for count, each in ((weights, min(KERNEL_LAUNCH, launch)), (len(tensors), launch))
        )
        return Interval(read + math.sqrt(low * high), read + low, read + high)

    @cached_property
    def cost(self) -> CostModel:
        """Cost model of the scenario's messages."""
        if self.network is not None:
            return of_profile(self.network)
        return costs.build(self.scenario.exchange.cost, **self.scenario.exchange.cost_options)

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """Gradient buckets, by the rule of the scenario."""
        exchange = self.scenario.exchange
        ready = np.cumsum(self.passes[1][::-1])[::-1]
        return buckets.assign(
            exchange.buckets, gradients(self.model, exchange.gradient_dtype), list(ready), **exchange.bucket_options
        )

    def sent(self, ranks: int) -> tuple[Bucket, ...]:
        """Buckets that travel: none on one device."""
        return self.buckets if ranks > 1 else ()

    def prices(self, ranks: int) -> Prices:
        """What the all-reduce of each bucket costs on that many devices."""
        exchange = self.scenario.exchange
        sizes = tuple(bucket.num_bytes / exchange.compression for bucket in self.sent(ranks))
        if (ranks, sizes) not in self._priced:
            found = self._price(ranks, sizes).at(sizes)
            self._priced[ranks, sizes] = found.spread(ranks) if exchange.rotating else found
        return self._priced[ranks, sizes]

    def _price(self, ranks: int, sizes: Sequence[float]) -> Prices:
        exchange = self.scenario.exchange
        if exchange.algorithm == NCCL and self.network is not None and self.network.nccl is not None:
            return price_nccl(self.network.nccl, ranks, sizes, ranks_per_node=self.cluster.node.num_devices)
        gamma = self.network and self.network.gamma_s_per_byte
        return price(
            self.cluster, exchange.algorithm, self.options(ranks), ranks, sizes,
            itemsize=item_bytes(exchange.gradient_dtype), cost=self.cost, gamma=gamma.value if gamma else 0.0,
            uncertain=self.scenario.draws > 1, slow_links=self.slow_links(ranks),
        )  # fmt: skip

    def slow_links(self, ranks: int) -> Mapping[str, float]:
        """Factors on links of the job; bases of its efficiency are healthy."""
        return self.scenario.slow.links if ranks == self.scenario.job.devices else {}

    def slow_ranks(self, ranks: int) -> list[tuple[float, int]]:
        """By how much, and how many, ranks of the job compute slower than the others; none in bases."""
        if ranks != self.scenario.job.devices:
            return []
        forward, backward, update = self.passes
        computed = self.scenario.job.accumulation * float(forward.sum() + backward.sum()) + update
        factors = self.scenario.slow.factors(computed, self.cluster.node.num_devices, ranks)
        return sorted(Counter(factors.values()).items())

    def _slowest(self, ranks: int) -> float:
        """How much longer the slowest rank is expected to compute than the mean healthy one, as a fraction."""
        jitter = Jitter(self.between_ranks.value)
        slow = [factor * expected_maximum(jitter, number) for factor, number in self.slow_ranks(ranks)]
        return max(expected_maximum(jitter, ranks), *slow, 0.0) - 1

    def _draw_slowest(self, ranks: int) -> FloatArray:
        found = self._latest(ranks, f"slowest of {ranks}")
        for factor, number in self.slow_ranks(ranks):
            late = factor * (1 + self._latest(number, f"slowest of {number} slow")) - 1
            found = np.maximum(found, late)
        return found

    def _latest(self, ranks: int, name: str) -> FloatArray:
        """How much longer the slowest of some ranks computes than their mean, in every draw of that name."""
        place = np.clip(self.inputs.uniform(name), 1e-9, 1 - 1e-9)
        return np.array([_slowest(self.between_ranks.value, ranks, p) for p in place])

    def options(self, ranks: int) -> dict[str, Any]:
        """Options of the algorithm: the scenario's, or those that fit the nodes.

        Options that count ranks hold for the job's own number of devices only.
        """
        exchange, local = self.scenario.exchange, self.cluster.node.num_devices
        options: dict[str, Any] = dict(exchange.options)
        if ranks != self.scenario.job.devices:
            options.pop("grid", None)
            size = options.get("ranks_per_node")
            if isinstance(size, int) and ranks % size:
                options["ranks_per_node"] = ranks if ranks < size else local
        return options if exchange.algorithm == NCCL else on_nodes(exchange.algorithm, ranks, local, options)

    def batch_norm(self) -> tuple[FloatArray, FloatArray]:
        """Exchange of statistics of each layer, forward and backward, s, each (num_layers,)."""
        layers = self.model.layers
        none = np.zeros(len(layers))
        group = self.scenario.batch_norm.group
        if group == 1:
            return none, none
        channels = [layer.num_parameters * 4 if layer.kind == "batch_norm" else 0 for layer in layers]
        if not any(channels):
            raise InvalidInput(
                f"{self.model.name} has no batch normalisation to share in groups; leave out [batch_norm]"
            )
        found = self._price_group(group, max(channels)).at(channels)
        times = np.where(np.array(channels) > 0, found.time, 0.0)
        return times, times

    def _price_group(self, group: int, most: int) -> Prices:
        """Price all-reduces of up to `most` bytes in a group that shares statistics."""
        members = self.scenario.batch_norm.members
        if self.scenario.exchange.algorithm == NCCL and self.network is not None and self.network.nccl is not None:
            local = self.cluster.node.num_devices
            nodes = len({rank // local for rank in members or range(group)})
            sizes = [most >> shift for shift in range(0, most.bit_length(), 2)]
            return price_nccl(self.network.nccl, group, sizes, ranks_per_node=max(1, group // nodes))
        return price(
            self.cluster, "ring", {}, group, [most], itemsize=4, cost=self.cost, uncertain=False, members=members
        )

    def batch_interval(self, ranks: int) -> Interval:
        """Time between two batches of data on every device, s; 0 where the scenario describes no input."""
        if self.scenario.input is None:
            return Interval(0.0, 0.0, 0.0)
        found = batch_interval(self.scenario.input, self._fed, **self._host(ranks))
        return Interval(found.value, found.low, found.high)

    def slow_stage(self, step_time: Seconds) -> str:
        """Stage of the input pipeline that a step waits for, "device" if it waits for none."""
        if self.scenario.input is None:
            return ""
        return slow_stage(self.scenario.input, self._fed, step_time, **self._host(self.scenario.job.devices))

    @property
    def _fed(self) -> int:
        return self.scenario.job.per_device_batch * self.scenario.job.accumulation

    def _host(self, ranks: int) -> dict[str, int]:
        """How many devices a host feeds, and the images it makes for them."""
        options = dict(self.model.options)
        if self.scenario.input is None or self.model.sample != "image":
            raise InvalidInput(f"{self.model.name} takes no images; leave out the table [input] of its scenario")
        shared = self.scenario.input.devices_per_host or self.cluster.node.num_devices
        return {"num_devices": min(ranks, shared), "resolution": options.get("resolution", 224)}

    def work(self, ranks: int) -> StepWork:
        """What a step on that many devices has to do."""
        exchange = self.scenario.exchange
        forward, backward, update = self.passes
        prices = self.prices(ranks)
        normed = self.batch_norm() if ranks > 1 else (np.zeros(len(forward)),) * 2
        return StepWork(
            forward, backward, update, self.sent(ranks), prices.latency, prices.transfer, *normed,
            overlap=exchange.overlap, lanes=ranks if exchange.rotating else exchange.lanes,
            interference=self.interference.value, accumulation=self.scenario.job.accumulation,
            input=self.batch_interval(ranks).value,
        )  # fmt: skip

    def evaluate(self, ranks: int) -> tuple[StepTimes, StepTimes]:
        """The central step, and the steps of all draws."""
        work = self.work(ranks)
        late = self._slowest(ranks)
        share, crosses = self._sharing(ranks)
        taken = share * self.node_contention.value + crosses * self.network_contention.value
        central = step(work, Draws(slowest=late, contention=taken))
        return central, step(work, self._draws(ranks)) if self.scenario.draws > 1 else central

    def _draws(self, ranks: int) -> Draws:
        found, bound, prices = self.efficiency, self.roofline, self.prices(ranks)
        fixed = bound.kernels * found.launch
        floor = bound.time / found.efficiency
        drawn = floor * np.exp(found.sd * self.inputs.normal("efficiency"))
        drawn = drawn + fixed * np.exp(found.launch_sd * self.inputs.normal("launch"))
        fed = self.batch_interval(ranks)
        slowest = self._draw_slowest(ranks)
        share, crosses = self._sharing(ranks)
        taken = share * self.inputs.lognormal("node contention", self.node_contention)
        taken = taken + crosses * self.inputs.lognormal("network contention", self.network_contention)
        normals = np.array([self.inputs.normal(i.name) + i.offset for i in prices.inputs]).reshape(-1, self.inputs.size)
        update, extra = self.passes[2], self._extra()
        return Draws(
            update=1 + (self.inputs.lognormal("optimizer", extra) - extra.value) / update if extra.value else 1.0,
            compute=drawn / (floor + fixed), slowest=slowest, contention=taken,
            latency=_factors(prices.latency, prices.latency_sd, normals, self.inputs.size),
            transfer=_factors(prices.transfer, prices.transfer_sd, normals, self.inputs.size),
            input=self.inputs.lognormal("input", fed) / (fed.value or 1.0),
        )  # fmt: skip


def _given(value: float | None, name: str) -> Interval:
    return known_variation()[name] if value is None else Interval(value, value, value)


def _slowest(spread: float, ranks: int, probability: float) -> float:
    if ranks == 1:
        return 0.0
    return maximum_quantile(Jitter(spread), ranks, probability) - 1


def _factors(times: FloatArray, sds: FloatArray, normals: FloatArray, size: int) -> FloatArray:
    """Log-linear response of each bucket's time to the inputs, (num_draws, num_buckets)."""
    if not len(sds):
        return np.ones((size, len(times)))
    slope = np.divide(sds, times, out=np.zeros_like(sds), where=times > 0)
    return np.exp(normals.T @ slope)
