"""ImageNet on a host: sourced rates of its stages, caches of compressed data, shards of whole files."""

from __future__ import annotations

import math
from enum import StrEnum

from simnet.errors import InvalidInput
from simnet.hardware import Quantity
from simnet.pipeline import InputPipeline, Stage, input_time, read_stage, steady_feed
from simnet.scenario import Input
from simnet.units import Bytes, BytesPerSecond, Seconds


class End(StrEnum):
    """Which end of the sourced intervals to build with: the stated values, or all at their fast or slow end."""

    VALUE = "value"
    FAST = "fast"
    SLOW = "slow"

    def of(self, time: Quantity) -> float:
        """Pick a time, or anything else that is better when smaller."""
        match self:
            case End.VALUE:
                return time.value
            case End.FAST:
                return time.low
            case End.SLOW:
                return time.high


class CachePolicy(StrEnum):
    """PINNED keeps what it first read (a data loader's own cache, or an explicit copy); LRU is the page cache."""

    PINNED = "pinned"
    LRU = "lru"


def hit_fraction(cache: Bytes, shard: Bytes, policy: CachePolicy = CachePolicy.PINNED, *, epoch: int = 1) -> float:
    """Share of a host's reads that its cache of compressed data serves; nothing in epoch 0.

    A shard is read once per epoch, in a new random order. A pinned cache of a fraction c of it serves c; the least
    recently used policy evicts much of what the next epoch wants and serves c + (1 - c) ln(1 - c): a sample read at
    time x of an epoch and y of the one before is still there if 1 - y (1 - x) <= c.
    """
    if cache < 0 or shard <= 0 or epoch < 0:
        raise InvalidInput(f"a cache of {cache} bytes for a shard of {shard} bytes in epoch {epoch} means nothing")
    fraction = min(1.0, cache / shard)
    if epoch == 0:
        return 0.0
    if policy is CachePolicy.PINNED or fraction == 1:
        return fraction
    return fraction + (1 - fraction) * math.log1p(-fraction)


def shard_imbalance(num_files: int, num_hosts: int) -> float:
    """Files of the fullest host over the mean: what sharding by whole files costs; 1 where they divide evenly.

    Raises
    ------
    InvalidInput : fewer files than hosts, so that some hosts have nothing to read.
    """
    if not 1 <= num_hosts <= num_files:
        raise InvalidInput(
            f"{num_files} files cannot be sharded over {num_hosts} hosts; write more files or read one by all"
        )
    return math.ceil(num_files / num_hosts) * num_hosts / num_files


_LOADERS = (
    "arXiv 2605.08731: simplejpeg in a PyTorch DataLoader on five 16-vCPU machines, best worker count, per worker"
)
_PER_V100 = (
    "remainder of 8 vCPUs for one V100 at 1,376 images/s of ResNet-50 after decoding; published advice and a published "
    "speed, not a measurement of this stage"
)

SAMPLE_BYTES = Quantity(117e3, 108e3, 120e3, "150 GB of ImageNet (NVIDIA technical blog on DALI) over 1,281,167 images")
DECODE = Quantity(1 / 288, 1 / 380, 1 / 195, _LOADERS)
AUGMENT = Quantity(8 / 1376 - 1 / 288, 1e-3, 4e-3, _PER_V100)
PARSE = Quantity(20e-6, 5e-6, 100e-6, "assumed: a record of 117 kB checked and unpacked at 6 GB/s")
ENTROPY_SHARE = Quantity(0.5, 0.3, 0.7, "assumed: the share of decoding that cannot skip rows outside the crop")
CROP_AREA = Quantity(0.54, 0.54, 0.54, "mean of the crop area of random-resized crop, uniform between 0.08 and 1")
COPY = Quantity(1 / 12e9, 1 / 13e9, 1 / 10e9, "s/byte: NCCL 2.5.6, effective width of PCIe 3.0 x16")


def fused_decode(decode: Seconds, *, end: End = End.VALUE) -> Seconds:
    """Time to decode only what the crop needs: entropy coding to the crop's last row, the rest in its area only.

    Source: Ying et al., arXiv 1811.06992, for the idea; the saving is this project's estimate.
    """
    entropy, area = end.of(ENTROPY_SHARE), CROP_AREA.value
    rows = 0.5 * (1 + math.sqrt(area))
    return decode * (entropy * rows + (1 - entropy) * area)


def image_pipeline(
    *,
    cores: int,
    storage_bandwidth: BytesPerSecond,
    num_devices: int = 1,
    hit: float = 0.0,
    fused: bool = False,
    workers: int | None = None,
    pixel_bytes: int = 4,
    resolution: int = 224,
    prefetch: int = 2,
    end: End = End.VALUE,
) -> InputPipeline:
    """ImageNet on one host: read, parse, decode (fused with the crop or not), augment, copy.

    Parameters
    ----------
    cores : of the host (vCPUs, as clouds count them); every CPU stage gets `workers` of them, all by default.
    storage_bandwidth : bytes/s of this host's share of the storage; `hit` of the reads come from its cache.
    pixel_bytes : of one channel of one pixel on its way to the device: 1, 2 or 4.
    end : build with the stated rates, or with all of them at the fast or slow end of their intervals.
    """
    threads = workers or cores
    decode = end.of(DECODE)
    stages = (
        read_stage(end.of(SAMPLE_BYTES), storage_bandwidth, hit=hit),
        Stage("parse", end.of(PARSE), threads),
        Stage("decode and crop", fused_decode(decode, end=end), threads) if fused else Stage("decode", decode, threads),
        Stage("augment", end.of(AUGMENT), threads),
    )
    copy = 3 * resolution**2 * pixel_bytes * end.of(COPY)
    return InputPipeline(stages, cores, num_devices, prefetch=prefetch, copy_time=copy)


def host_of(spec: Input, *, num_devices: int, resolution: int = 224, end: End = End.VALUE) -> InputPipeline:
    """Build the pipeline of one host from a scenario's table [input]."""
    return image_pipeline(
        cores=spec.cores, storage_bandwidth=spec.storage_bandwidth, num_devices=num_devices, hit=spec.cached,
        fused=spec.fused, pixel_bytes=spec.pixel_bytes, resolution=resolution, end=end,
    )  # fmt: skip


def batch_interval(spec: Input, batch: int, *, num_devices: int, resolution: int = 224) -> Quantity:
    """Time between two batches of `batch` images a device, s, with all rates at either end of their intervals."""
    times = {
        end: input_time(host_of(spec, num_devices=num_devices, resolution=resolution, end=end), batch) for end in End
    }
    return Quantity(times[End.VALUE], times[End.FAST], times[End.SLOW], "sourced rates of the input pipeline")


def slow_stage(spec: Input, batch: int, step_time: Seconds, *, num_devices: int, resolution: int = 224) -> str:
    """Stage that a step of `step_time` s waits for; "device" if the data keep up."""
    return steady_feed(host_of(spec, num_devices=num_devices, resolution=resolution), batch, step_time).slowest
