"""Which gradients travel together: the rules of the frameworks, exactly.

Every rule takes gradients in registration order and walks them in reverse, the order in which the backward
pass writes them. It never splits a tensor and never mixes number formats. The buckets come back in the order
in which they are sent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from simnet.errors import InvalidInput
from simnet.units import MIB, MS, Bytes, Seconds
from simnet.workload import Bucket, Gradient

Gradients = Sequence[Gradient]


def _bucket(gradients: Gradients, tensors: Sequence[int], *, wait: Seconds = 0.0) -> Bucket:
    chosen = [gradients[i] for i in tensors]
    layer = min(g.layer for g in chosen)
    return Bucket(tuple(tensors), sum(g.num_bytes for g in chosen), chosen[0].dtype, layer, wait)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise InvalidInput(f"{name} must be more than 0, got {value}")


def ddp(
    gradients: Gradients, *, cap: Bytes = 25 * MIB, first: Bytes = MIB, caps: Sequence[Bytes] = ()
) -> tuple[Bucket, ...]:
    """Buckets of PyTorch's DistributedDataParallel from its second iteration on.

    A bucket closes as soon as it holds its limit or more: `first` for the first bucket of each number format,
    `cap` for the others; or the limits `caps` one by one, the last for all that follow (bucket_cap_mb_list).
    In the first iteration DDP uses `one_bucket` instead. Where a user sets bucket_cap_mb, torch 2.3 and later take
    it for the first bucket too: give `first` the same value then.

    Source: pytorch issues 48880, 118421, 121640; equal to torch's own function on every list tested.
    """
    limits = tuple(caps) or (first, cap)
    for limit in limits:
        _positive("limits of buckets", limit)
    return _fill(gradients, limits)


def _fill(gradients: Gradients, limits: Sequence[Bytes]) -> tuple[Bucket, ...]:
    closed: list[list[int]] = []
    number: Counter[str] = Counter()
    filling: dict[str, list[int]] = {}
    held: Counter[str] = Counter()
    for index in reversed(range(len(gradients))):
        gradient = gradients[index]
        filling.setdefault(gradient.dtype, []).append(index)
        held[gradient.dtype] += gradient.num_bytes
        if held[gradient.dtype] >= limits[min(number[gradient.dtype], len(limits) - 1)]:
            closed.append(filling.pop(gradient.dtype))
            held[gradient.dtype] = 0
            number[gradient.dtype] += 1
    rest = sorted(filling.values(), key=lambda tensors: -tensors[0])
    return tuple(_bucket(gradients, tensors) for tensors in (*closed, *rest))


def one_bucket(gradients: Gradients) -> tuple[Bucket, ...]:
    """One bucket per number format, sent when the whole backward pass is over: no overlap.

    DDP does this in its first iteration, before it has seen the order of the gradients.
    """
    return _fill(gradients, (sum(g.num_bytes for g in gradients) + 1,))


def per_layer(gradients: Gradients) -> tuple[Bucket, ...]:
    """One bucket per layer and number format: the most overlap and the most messages.

    Source: Goyal et al., arXiv 1706.02677, section 4.
    """
    layers: dict[tuple[int, str], list[int]] = {}
    for index in reversed(range(len(gradients))):
        layers.setdefault((gradients[index].layer, gradients[index].dtype), []).append(index)
    return tuple(_bucket(gradients, tensors) for tensors in layers.values())


def lazy_fusion(gradients: Gradients, *, threshold: Bytes = 16 * MIB) -> tuple[Bucket, ...]:
    """Pool gradients as they come and send the pool once it holds `threshold` or more.

    The default threshold is a choice of this project: the source tunes its own per network.

    Source: Jia et al., arXiv 1807.11205, tensor fusion.
    """
    _positive("threshold", threshold)
    return _fill(gradients, (threshold,))


def horovod(
    gradients: Gradients, ready: Sequence[Seconds], *, threshold: Bytes = 128 * MIB, cycle: Seconds = MS
) -> tuple[Bucket, ...]:
    """Tensor fusion of Horovod: what is ready at a tick of the cycle leaves at that tick, fused.

    Nothing waits for a buffer to fill. Within a tick a tensor that does not fit beside the first of its buffer is
    passed over and starts its own, so a large tensor neither waits for small ones nor delays them.

    Parameters
    ----------
    ready : s, when the backward pass of each layer ends; shape (num_layers,). Ticks are at whole multiples of `cycle`.
    threshold : bytes of the fusion buffer; 0 sends every tensor by itself.
    cycle : s between ticks; 0 means that every tensor leaves when it is ready.

    Source: horovod docs/tensor-fusion; pull requests 17, 663, 2468 (the defaults, since release 0.21).
    """
    if threshold < 0 or cycle < 0:
        raise InvalidInput(f"threshold and cycle must be 0 or more, got {threshold} bytes and {cycle} s")
    num_layers = 1 + max((g.layer for g in gradients), default=-1)
    if len(ready) < num_layers:
        raise InvalidInput(f"ready must give a time for each of {num_layers} layers, got {len(ready)}")
    ticks: dict[float, list[int]] = {}
    for index in reversed(range(len(gradients))):
        ticks.setdefault(_tick(ready[gradients[index].layer], cycle), []).append(index)
    return tuple(
        _bucket(gradients, tensors, wait=tick - max(ready[gradients[i].layer] for i in tensors))
        for tick in sorted(ticks)
        for tensors in _fuse(gradients, ticks[tick], threshold)
    )


def _tick(time: Seconds, cycle: Seconds) -> Seconds:
    return time if cycle == 0 else max(time, math.ceil(time / cycle - 1e-9) * cycle)


def _fuse(gradients: Gradients, waiting: list[int], threshold: Bytes) -> list[list[int]]:
    buffers = []
    while waiting:
        head, held, passed = waiting[0], gradients[waiting[0]].num_bytes, []
        buffer = [head]
        for index in waiting[1:]:
            fits = held + gradients[index].num_bytes <= threshold
            if fits and gradients[index].dtype == gradients[head].dtype:
                buffer.append(index)
                held += gradients[index].num_bytes
            else:
                passed.append(index)
        buffers.append(buffer)
        waiting = passed
    return buffers


RULES: dict[str, Callable[..., tuple[Bucket, ...]]] = {
    "ddp": ddp,
    "horovod": horovod,
    "lazy_fusion": lazy_fusion,
    "one_bucket": one_bucket,
    "per_layer": per_layer,
}


def assign(rule: str, gradients: Gradients, ready: Sequence[Seconds], **options: Any) -> tuple[Bucket, ...]:
    """Apply a rule by name; `ready` (s, per layer) matters to the rules that poll, options that are None are left out.

    Raises
    ------
    InvalidInput : there is no such rule, or it takes no such option.
    """
    if rule not in RULES:
        raise InvalidInput(f"unknown bucket rule {rule!r}; choose one of {', '.join(RULES)}")
    given = {name: value for name, value in options.items() if value is not None}
    takes = tuple(RULES[rule].__kwdefaults__ or ())
    for name, value in given.items():
        if name not in takes:
            raise InvalidInput(f"{rule} takes no option {name!r}, got {value!r}; it takes {', '.join(takes) or 'none'}")
    return horovod(gradients, ready, **given) if rule == "horovod" else RULES[rule](gradients, **given)
