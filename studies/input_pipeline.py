"""The input pipeline: rates of its stages predicted and measured, and what decoding only the crop saves.

Compressed images of ImageNet's size are made on the spot. Each stage is timed alone; from those times
`simnet.pipeline` predicts the rate of the whole with one and more workers, which is then measured. Beside it stand
the sourced stage times with which `simnet` predicts other machines.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from realrun.input_pipeline import STAGES, Augmentation, Images, cut
from realrun.jpeg import Region, decode
from realrun.records import index, synthetic_images, write_shards
from simnet import image_input
from simnet.pipeline import InputPipeline, Stage, supply
from studies.study import Claim, Result, Table

BATCH = 32
CROP_SHARES = (0.08, 0.25, 0.5, 1.0)
SOURCED = {"decode": image_input.DECODE, "augment": image_input.AUGMENT}


@dataclass(frozen=True, slots=True)
class Extent:
    """How many images, and how often."""

    images: int
    repeats: int


FULL, QUICK = Extent(400, 5), Extent(48, 7)


def crop_gain(data: Sequence[bytes], share: float, *, seed: int = 0) -> dict[str, float]:
    """CPU time per image of decoding crops of that share of the area, fused and decode-then-cut."""
    plan, rng = Augmentation(area=(share, share)), np.random.default_rng(seed)
    parts = [plan.crop((500, 375), rng) if share < 1 else Region(0, 0, 500, 375) for _ in data]
    fused, whole = (_cpu_time(function, data, parts) for function in (decode, cut))
    return {"share_of_area": share, "fused_s": fused, "decode_then_cut_s": whole, "gain": whole / fused}


def _cpu_time(function: Any, data: Sequence[bytes], parts: Sequence[Region]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        for image, part in zip(data, parts, strict=True):
            function(image, part)
        times.append(time.process_time() - start)
    return min(times) / len(data)


def predicted_rates(stage_times: dict[str, float], workers: int, cores: int) -> float:
    """Images/s of workers that each do all stages of an image, from times of the stages alone."""
    whole = Stage("all stages", sum(stage_times.values()), workers=workers)
    return min(supply(InputPipeline((whole,), cores=cores)).values())


class Setup:
    """One way to run the pipeline: workers, and whether only the crop is decoded."""

    def __init__(self, folder: Path, *, workers: int, region: bool = True) -> None:
        self.workers = workers
        self.data = Images(folder, augmentation=Augmentation(region=region), workers=workers, cache=2**30)
        self.rates: list[float] = []
        self.times: list[dict[str, float]] = []

    def epoch(self, number: int) -> None:
        """Prepare every image once; note images/s and CPU seconds an image of each stage.

        The rate is per second that the threads had a core: on a loaded machine wall time would measure the others.
        """
        stages = self.data.stages
        stages.seconds, stages.samples = dict.fromkeys(STAGES, 0.0), 0
        order, start = np.arange(self.data.num_train), time.process_time()
        for first in range(0, len(order), BATCH):
            self.data.train(order[first : first + BATCH], epoch=number)
        self.rates.append(len(order) * self.workers / (time.process_time() - start))
        self.times.append({name: stages.seconds[name] / len(order) for name in STAGES})

    @property
    def rate(self) -> float:
        """Median images/s, the first epoch (which fills the cache) left out."""
        return float(np.median(self.rates[1:]))

    @property
    def stage_times(self) -> dict[str, float]:
        """Median CPU seconds an image of each stage, the first epoch left out."""
        return {name: float(np.median([times[name] for times in self.times[1:]])) for name in STAGES}


def run(*, quick: bool = False) -> Result:
    """Make images, time stages, predict, measure; `quick` takes an eighth of the images."""
    import torch

    extent, threads = QUICK if quick else FULL, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as name:
            write_shards(Path(name), synthetic_images(extent.images, num_classes=4), per_shard=64)
            return _result(Path(name), extent)
    finally:
        torch.set_num_threads(threads)


def _result(folder: Path, extent: Extent) -> Result:
    records = index(folder)
    data = [r.path.read_bytes()[r.offset : r.offset + r.size] for r in records[: min(40, len(records))]]
    gains = [crop_gain(data, share) for share in CROP_SHARES]
    cores = len(os.sched_getaffinity(0))
    alone, uncut = Setup(folder, workers=1), Setup(folder, workers=1, region=False)
    whole = [Setup(folder, workers=workers) for workers in (1, max(2, cores))]
    # In turn, so that all see the same machine.
    for number in range(extent.repeats + 1):
        for setup in (alone, *whole, uncut):
            setup.epoch(number)
    times = alone.stage_times
    rows = [_stage_row(name, times[name]) for name in STAGES]
    rows += [_rate_row(s.workers, s.rate, predicted_rates(times, s.workers, max(2, cores))) for s in whole]
    whole_rate = uncut.rate
    fused_rate = rows[len(STAGES)]["published"]
    random = gains[1]["gain"]
    claims = [
        Claim("whole pipelines run at the rate of their stages within 20 %",
              all(abs(row["error"]) <= 0.2 for row in rows[len(STAGES) :]),
              ", ".join(f"{row['error']:+.1%}" for row in rows[len(STAGES) :])),
        Claim("decoding only the crop is faster for crops of a quarter of the image or less",
              min(gains[0]["gain"], random) > 1, f"{gains[0]['gain']:.1f} and {random:.1f} times"),
    ]  # fmt: skip
    size = float(np.mean([len(image) for image in data]))
    notes = [
        f"{extent.images} images of 500x375, {size / 1e3:.0f} kB on average, in batches of {BATCH}; crops of 8 to "
        "100 % of the area.",
        f"One worker makes {fused_rate:.0f} images/s with fused crops and {whole_rate:.0f} images/s decoding whole "
        f"images first: {fused_rate / whole_rate:.2f} times.",
        "Times are CPU times, which other work on the machine disturbs least.",
    ]
    columns = ("quantity", "unit", "published", "predicted", "low", "high", "error", "basis")
    shown = [{column: row[column] for column in columns} for row in rows]
    return Result(
        rows, claims, [Table("Stages and whole pipelines", shown), Table("Decoding only the crop", gains)], [], notes
    )  # fmt: skip


def _stage_row(name: str, measured: float) -> dict[str, Any]:
    """Measured here beside the sourced time that predictions of other machines use, where there is one."""
    sourced = SOURCED.get(name)
    row = {"id": f"stage-{name}", "system": "this machine", "quantity": f"{name}, CPU time an image", "unit": "s",
           "published": measured, "kind": "measured here"}  # fmt: skip
    if sourced is None:
        return row | {"predicted": None, "low": None, "high": None, "error": None, "basis": "no sourced time"}
    low, high = sourced.low, sourced.high
    return row | {
        "predicted": sourced.value, "low": low, "high": high, "error": sourced.value / measured - 1,
        "inside": low <= measured <= high, "basis": sourced.source,
    }  # fmt: skip


def _rate_row(workers: int, measured: float, predicted: float) -> dict[str, Any]:
    return {
        "id": f"pipeline-{workers}", "system": "this machine", "quantity": f"whole pipeline, {workers} workers",
        "unit": "image/s", "published": measured, "predicted": predicted, "low": predicted, "high": predicted,
        "error": predicted / measured - 1, "kind": "measured here", "basis": "sum of the stages, each timed alone",
    }  # fmt: skip
