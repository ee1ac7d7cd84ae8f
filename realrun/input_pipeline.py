"""From compressed images to batches: read, decode only the crop, resize, augment; in threads, ahead of need.

Every random choice depends on seed, epoch and sample alone, so any number of workers and ranks gives the
same batches. `Stages.table` says what each stage cost and how many images/s one worker of it makes.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from realrun.jpeg import HARMLESS, Pixels, Region, decode, dimensions, of_inks
from realrun.records import Reader, Record, index
from simnet.errors import InvalidInput
from simnet.schedule import IntArray
from simnet.units import GIB, Bytes, Seconds

Item = TypeVar("Item")

STAGES = ("read", "decode", "resize", "augment")
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
VALIDATION_EVERY = 20


@dataclass(slots=True)
class Stages:
    """Time spent in every stage, summed over workers, and samples made."""

    seconds: dict[str, Seconds] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    samples: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the CPU time of this thread as one stage's."""
        start = time.thread_time()
        yield
        spent = time.thread_time() - start
        with self._lock:
            self.seconds[stage] += spent

    def count(self) -> None:
        """Note one more sample made."""
        with self._lock:
            self.samples += 1

    def table(self) -> list[dict[str, float | str]]:
        """Return CPU seconds per image and images/s of one worker, stage by stage and together."""
        made = max(1, self.samples)
        spent = {**self.seconds, "all stages": sum(self.seconds.values())}
        return [
            {"stage": name, "time_s": seconds / made, "images_per_s": made / seconds if seconds else math.inf}
            for name, seconds in spent.items()
        ]


@dataclass(frozen=True, slots=True)
class Augmentation:
    """A random part of the image, resized to `resolution`, mirrored half of the time.

    Parameters
    ----------
    area : smallest and largest share of the image's area; aspect : smallest and largest width over height
    region : decode only the part; else decode the whole image, then cut
    halve : halve the part while it is decoded, where it stays large enough; its pixels then differ slightly

    Source: Szegedy et al., CVPR 2015, section 6 (the crop).
    """

    resolution: int = 224
    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    region: bool = True
    halve: bool = False
    seed: int = 0

    def crop(self, size: tuple[int, int], rng: np.random.Generator) -> Region:
        """Draw a part of an image of (width, height)."""
        width, height = size
        for _ in range(10):
            area = width * height * rng.uniform(*self.area)
            aspect = math.exp(rng.uniform(math.log(self.aspect[0]), math.log(self.aspect[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return Region(int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h)
        return self.centre(size)

    def centre(self, size: tuple[int, int]) -> Region:
        """Return the middle square, 7/8 of the shorter side."""
        side = max(1, min(size) * 7 // 8)
        return Region((size[0] - side) // 2, (size[1] - side) // 2, side, side)


class Images:
    """Labelled JPEG images as a data set to train on.

    Parameters
    ----------
    path : a folder of class folders, a tar file, or a folder of tar shards
    workers : threads that prepare images
    cache : bytes of compressed images kept in memory
    """

    channels = 3

    def __init__(
        self, path: Path, *, augmentation: Augmentation, workers: int = 2, cache: Bytes = 2 * GIB
    ) -> None:  # fmt: skip
        records = index(path, workers=workers)
        self.classes = sorted({record.label for record in records})
        self._train, self._validation = _split(records)
        self.augmentation, self.stages = augmentation, Stages()
        self.readers = {True: Reader(self._train, cache=cache), False: Reader(self._validation, cache=cache // 10)}
        numbers = {label: number for number, label in enumerate(self.classes)}
        self._labels = {
            training: torch.tensor([numbers[r.label] for r in reader.records])
            for training, reader in self.readers.items()
        }
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="images")

    @property
    def num_train(self) -> int:
        """Training images."""
        return len(self._train)

    @property
    def num_validation(self) -> int:
        """Images set aside."""
        return len(self._validation)

    @property
    def num_classes(self) -> int:
        """Classes."""
        return len(self.classes)

    @property
    def resolution(self) -> int:
        """Pixels of a side, after resizing."""
        return self.augmentation.resolution

    def train(self, samples: IntArray, *, epoch: int) -> tuple[Tensor, Tensor]:
        """Prepare training images, each with its own crop of this epoch."""
        return self._batch(samples, epoch=epoch)

    def validation(self, samples: IntArray) -> tuple[Tensor, Tensor]:
        """Prepare images set aside: the middle of each."""
        return self._batch(samples, epoch=None)

    def _batch(self, samples: IntArray, *, epoch: int | None) -> tuple[Tensor, Tensor]:
        side = self.resolution
        images = torch.empty(len(samples), 3, side, side)
        for _ in self._pool.map(partial(self._prepare, epoch=epoch), samples.tolist(), images.unbind()):
            pass
        return images, self._labels[epoch is not None][torch.from_numpy(samples)]

    def _prepare(self, sample: int, out: Tensor, *, epoch: int | None) -> None:
        """Write one image into its place of the batch."""
        plan, stages = self.augmentation, self.stages
        with stages.timed("read"):
            rng = np.random.default_rng([plan.seed, 0 if epoch is None else epoch + 1, sample])
            data = self.readers[epoch is not None].read(sample)
        with stages.timed("decode"):
            try:
                pixels = self._decode(data, None if epoch is None else rng)
            except InvalidInput as error:
                record = self.readers[epoch is not None].records[sample]
                raise InvalidInput(f"{record}: {error}; replace it or take it out") from error
        with stages.timed("resize"):
            image = _resized(pixels, plan.resolution)
        with stages.timed("augment"):
            mirror = epoch is not None and rng.random() < 0.5
            torch.mul(image.flip(-1) if mirror else image, _SCALE, out=out).sub_(_SHIFT)
        stages.count()

    def _decode(self, data: bytes, rng: np.random.Generator | None) -> Pixels:
        plan = self.augmentation
        size = dimensions(data) if plan.region else _header(data)[:2]
        part = plan.centre(size) if rng is None else plan.crop(size, rng)
        if plan.region:
            return decode(data, part, at_least=plan.resolution if plan.halve else None)
        return cut(data, part)


def cut(data: bytes, part: Region) -> Pixels:
    """Decode the whole image, then cut: what `realrun.jpeg.decode` saves."""
    printed = _header(data)[2] in ("CMYK", "YCCK")
    whole = _whole(data, "CMYK" if printed else "RGB")
    return (of_inks(whole) if printed else whole)[part.y : part.y + part.height, part.x : part.x + part.width]


def _whole(data: bytes, colours: str) -> Pixels:
    import simplejpeg

    try:
        return simplejpeg.decode_jpeg(data, colours)
    except ValueError as error:
        if HARMLESS not in str(error):
            raise InvalidInput(f"this is not a JPEG image that can be decoded: {error}") from error
    return simplejpeg.decode_jpeg(data, colours, strict=False)


def _header(data: bytes) -> tuple[int, int, str]:
    """Width, height and colours of a JPEG image."""
    import simplejpeg

    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError as error:
        raise InvalidInput(f"this is not a JPEG image that can be decoded: {error}") from error
    return width, height, colours


def _split(records: list[Record]) -> tuple[list[Record], list[Record]]:
    """Set every twentieth image of each class aside, at least one where a class has two."""
    seen: dict[str, int] = {}
    train: list[Record] = []
    validation: list[Record] = []
    for record in records:
        number = seen[record.label] = seen.get(record.label, -1) + 1
        (validation if number % VALIDATION_EVERY == 1 else train).append(record)
    return train, validation


def _resized(pixels: Pixels, side: int) -> Tensor:
    """Resize with antialiasing in bytes, (3, side, side)."""
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    return functional.interpolate(image, (side, side), mode="bilinear", antialias=True)[0]


_SCALE = torch.tensor([1 / (255 * d) for d in DEVIATION])[:, None, None]
_SHIFT = torch.tensor([m / d for m, d in zip(MEAN, DEVIATION, strict=True)])[:, None, None]


def ahead(calls: Iterable[Callable[[], Item]], *, depth: int = 2) -> Iterator[Item]:
    """Yield results in order while up to `depth` of the next calls already run, one after the other, in a thread.

    Raises
    ------
    InvalidInput : depth below 1.
    Exception : whatever a call raised, when its turn comes.
    """
    if depth < 1:
        raise InvalidInput(f"prefetch at least 1 batch, got {depth}")
    todo = iter(calls)
    pending: deque[Future[Item]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:

        def fill() -> None:
            while len(pending) < depth:
                call = next(todo, None)
                if call is None:
                    return
                pending.append(pool.submit(call))

        fill()
        while pending:
            result = pending.popleft().result()
            fill()
            yield result


def open_images(path: Path, **options: Any) -> Images:
    """Open images with an `Augmentation` of the given resolution and seed; other options as for `Images`."""
    augmentation = Augmentation(
        options.pop("resolution", None) or 224, region=options.pop("region", True), seed=options.pop("seed", 0)
    )
    return Images(path, augmentation=augmentation, **options)
