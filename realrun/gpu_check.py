"""Check one CUDA device in under ten minutes and leave a record: `python -m realrun.gpu_check --out gpu.jsonl`.

The executor on CUDA tensors (NCCL with one rank; gloo ranks that share the device and stage through the
host, which the record says), rates of copies, additions, products and convolutions, layer times of
ResNet-50 in fp32, tf32 and bf16, and step times: predicted for batches nothing was fitted to, written
down, then measured. What one device cannot show is NCCL between ranks: it refuses two on one device.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import torch.distributed as dist
import typer

from realrun import models
from realrun.benchmark import DTYPES
from realrun.compute import convolution, dtype_of, layer_times, matmul, step_times, timed
from realrun.environment import fingerprint
from realrun.executor import Executor
from realrun.known_results import expectation, pattern
from realrun.ranks import RankPool
from realrun.report import kept
from simnet.algorithms import registry
from simnet.cli.app import run
from simnet.errors import Unsupported, WrongResult
from simnet.units import Seconds, format_duration

ALGORITHMS = ("ring", "torus2d", "halving_doubling", "double_binary_tree")
COUNTS = (0, 1, 3, 1_000, 1_000_003)
SHARING_RANKS = (2, 3, 4)
FITTED_BATCHES = (32, 128)
HELD_OUT_BATCHES = (16, 64, 256)
PRECISIONS = ("fp32", "tf32", "bf16")
LIMIT: Seconds = 540.0

Record = dict[str, Any]


def executor_faults(device: str) -> list[str]:
    """Sums that are wrong on this rank, on tensors of `device`, strided ones among them."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    found = []
    for name in ALGORITHMS:
        executor = Executor(registry.build(name, world_size))
        for count in COUNTS:
            expected, _ = expectation(executor.schedule, rank, count)
            for label, dtype in DTYPES.items():
                for stride in (1, 2):
                    whole = torch.zeros(count * stride, dtype=dtype, device=device)
                    tensor = whole[::stride]
                    tensor.copy_(torch.from_numpy(pattern(rank, count, world_size)))
                    executor.run(tensor).wait()
                    if not np.array_equal(tensor.cpu().to(torch.int64).numpy(), expected):
                        found.append(f"rank {rank}: {name}, {count} elements of {label}, stride {stride}")
    return found


def correctness() -> Iterator[Record]:
    """One NCCL rank in this process, then gloo ranks that share the device."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        try:
            yield _verdict("nccl", 1, executor_faults("cuda:0"), host_staging=False)
        finally:
            dist.destroy_process_group()
    for ranks in SHARING_RANKS:
        with RankPool(ranks) as pool:
            faults = [fault for found in pool.run(executor_faults, "cuda:0", timeout=120.0) for fault in found]
            yield _verdict("gloo", ranks, faults, host_staging=True)


def _verdict(backend: str, ranks: int, faults: list[str], *, host_staging: bool) -> Record:
    return {"kind": "correctness", "backend": backend, "ranks": ranks, "host_staging": host_staging, "faults": faults}


def rates(device: torch.device) -> Iterator[Record]:
    """Copies and additions by size, products and convolutions by precision."""
    for size in (2**20, 2**24, 2**28):
        there, here = (torch.zeros(size // 4, device=device) for _ in range(2))
        for quantity, work in (("copy_rate", here.copy_), ("reduction_rate", here.add_)):
            samples = timed(partial(work, there), device, iterations=20, warmup=5)
            yield _probe(quantity, samples, size_bytes=size)
    for precision in (*PRECISIONS, "fp16"):
        for quantity, (product, flop) in (
            ("matmul_rate", matmul(8192, precision, device)),
            ("convolution_rate", convolution(128, 256, 28, precision, device)),
        ):
            samples = timed(product, device, iterations=10, warmup=3)
            yield _probe(quantity, samples, precision=precision, flop=flop)


def _probe(quantity: str, samples: list[Seconds], **more: Any) -> Record:
    return {"kind": "probe", "quantity": quantity, **more, "time_s": median(samples), "samples_s": samples}


def layers(device: torch.device) -> Iterator[Record]:
    """Every leaf of ResNet-50, alone, forward, backward and update, at the batches that are fitted to."""
    for precision in PRECISIONS:
        for batch in FITTED_BATCHES:
            network, images = _resnet50(precision, batch, device)
            for layer in layer_times(network, images, iterations=10, warmup=3):
                yield {"kind": "layer", "precision": precision, "batch": batch, **asdict(layer)}


def steps(device: torch.device) -> Iterator[Record]:
    """Step times at fitted batches, predictions for others, and then their measurement."""
    for precision in PRECISIONS:
        fitted = {batch: _step(precision, batch, device) for batch in FITTED_BATCHES}
        yield from (_measured(precision, batch, samples, fitted=True) for batch, samples in fitted.items())
        slope, start = np.polyfit(list(fitted), [median(samples) for samples in fitted.values()], 1)
        predictions = {batch: float(start + slope * batch) for batch in HELD_OUT_BATCHES}
        for batch, predicted in predictions.items():
            yield {
                "kind": "prediction",
                "quantity": "step",
                "precision": precision,
                "batch": batch,
                "time_s": predicted,
            }
        for batch, predicted in predictions.items():
            row = _measured(precision, batch, _step(precision, batch, device), fitted=False)
            yield {**row, "predicted_s": predicted, "error": predicted / row["time_s"] - 1}


def _step(precision: str, batch: int, device: torch.device) -> list[Seconds]:
    network, images = _resnet50(precision, batch, device)
    forward, backward, update = step_times(network, images, iterations=15, warmup=5)
    return [sum(parts) for parts in zip(forward, backward, update, strict=True)]


def _measured(precision: str, batch: int, samples: list[Seconds], *, fitted: bool) -> Record:
    return {
        "kind": "step", "model": "resnet50", "precision": precision, "batch": batch, "fitted": fitted,
        "time_s": median(samples), "samples_s": samples,
    }  # fmt: skip


def _resnet50(precision: str, batch: int, device: torch.device) -> tuple[torch.nn.Module, torch.Tensor]:
    dtype = dtype_of(precision, device)
    network = models.build("resnet50", num_classes=1000, resolution=224)
    images = torch.randn(batch, 3, 224, 224, device=device, dtype=dtype)
    network.to(device, dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network, images.contiguous(memory_format=torch.channels_last)


def records(device: torch.device) -> Iterator[Record]:
    """Everything, in the order of importance, until the time limit."""
    began = time.monotonic()
    yield {"kind": "machine", "environment": fingerprint()}
    for part in (correctness(), rates(device), steps(device), layers(device)):
        for record in part:
            yield {**record, "device": torch.cuda.get_device_name(device)}
            if time.monotonic() - began > LIMIT:
                yield {"kind": "end", "reason": f"time limit of {LIMIT:g} s"}
                return
    yield {"kind": "end", "reason": "complete"}


def command(out: Annotated[Path, typer.Option(help="File to append records to.")] = Path("gpu_check.jsonl")) -> None:
    """Check the first CUDA device and write one JSON line per record.

    Raises
    ------
    Unsupported : no CUDA device here.
    WrongResult : the executor gave a wrong sum.
    """
    if not torch.cuda.is_available():
        raise Unsupported("this check needs a CUDA device and PyTorch sees none; run it where nvidia-smi lists one")
    faults: list[str] = []
    for record in kept(records(torch.device("cuda", 0)), out):
        faults += record.get("faults", [])
        print(_line(record), flush=True)
    if faults:
        raise WrongResult(f"{len(faults)} sums are wrong, the first: {faults[0]}; see {out}")


def _line(record: Record) -> str:
    keys = ("quantity", "name", "backend", "ranks", "host_staging", "precision", "batch", "size_bytes", "reason")
    told = " ".join(f"{key} {record[key]}" for key in keys if key in record)
    time_text = f" {format_duration(record['time_s'])}" if "time_s" in record else ""
    error = f" error {record['error']:+.1%}" if "error" in record else ""
    return f"{record['kind']}: {told}{time_text}{error}" + (" WRONG" if record.get("faults") else "")


if __name__ == "__main__":
    run(lambda: typer.run(command))
