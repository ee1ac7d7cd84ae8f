"""What there is to train on: handwritten digits, images made on the spot, or images on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from simnet.errors import InvalidInput
from simnet.schedule import IntArray

VALIDATION_SHARE = 0.2


class Dataset(Protocol):
    """Samples by number; training and validation samples are apart."""

    @property
    def num_train(self) -> int:
        """Training samples."""
        ...

    @property
    def num_validation(self) -> int:
        """Validation samples."""
        ...

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        ...

    @property
    def resolution(self) -> int:
        """Pixels of a side."""
        ...

    @property
    def channels(self) -> int:
        """Colours."""
        ...

    def train(self, samples: IntArray, *, epoch: int) -> tuple[Tensor, Tensor]:
        """Images (batch, channels, resolution, resolution) and labels (batch,) of training samples, augmented."""
        ...

    def validation(self, samples: IntArray) -> tuple[Tensor, Tensor]:
        """Images and labels of validation samples."""
        ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """Images and labels held as tensors; `shift` moves training images by up to that many pixels."""

    images: Tensor
    labels: Tensor
    num_train: int
    num_classes: int
    seed: int = 0
    shift: int = 0

    @property
    def num_validation(self) -> int:
        """Samples after the training samples."""
        return len(self.labels) - self.num_train

    @property
    def resolution(self) -> int:
        """Pixels of a side."""
        return self.images.shape[-1]

    @property
    def channels(self) -> int:
        """Colours."""
        return self.images.shape[1]

    def train(self, samples: IntArray, *, epoch: int) -> tuple[Tensor, Tensor]:
        """Return training samples; each one's shift depends on seed, epoch and sample alone."""
        chosen = torch.from_numpy(samples)
        images = self.images[chosen]
        if self.shift and len(samples):
            images = _shifted(images, _offsets(samples, epoch, self.seed, self.shift))
        return images, self.labels[chosen]

    def validation(self, samples: IntArray) -> tuple[Tensor, Tensor]:
        """Return validation samples as they are."""
        chosen = torch.from_numpy(samples + self.num_train)
        return self.images[chosen], self.labels[chosen]


def _offsets(samples: IntArray, epoch: int, seed: int, shift: int) -> IntArray:
    """Shift of each sample in rows and columns, shape (batch, 2): a hash, so the order of calls does not matter."""
    key = samples.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64((epoch << 20) ^ seed)
    key ^= key >> np.uint64(31)
    key *= np.uint64(0xBF58476D1CE4E5B9)
    key ^= key >> np.uint64(29)
    span = np.uint64(2 * shift + 1)
    both = np.stack([key % span, (key >> np.uint64(32)) % span], axis=1)
    return both.astype(np.int64) - shift


def _shifted(images: Tensor, offsets: IntArray) -> Tensor:
    """Move every image by its own rows and columns; what comes in at the border is zero."""
    size = images.shape[-1]
    reach = int(np.abs(offsets).max())
    padded = torch.nn.functional.pad(images, (reach,) * 4)
    rows = torch.from_numpy(reach + offsets[:, 0])[:, None] + torch.arange(size)
    columns = torch.from_numpy(reach + offsets[:, 1])[:, None] + torch.arange(size)
    index = torch.arange(len(images))
    return padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def digits(*, seed: int = 0, shift: int = 0) -> InMemory:
    """The 1,797 handwritten digits of scikit-learn, 8x8 pixels, one fifth of them for validation.

    Source: UCI machine learning repository, optical recognition of handwritten digits (test part).
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InvalidInput("the digits come with scikit-learn; install simnet-testbed[train]") from error
    data: Any = load_digits()
    mixed = np.random.default_rng(20260101).permutation(len(data.target))
    images = torch.from_numpy(data.images[mixed].astype(np.float32))[:, None] / 16.0
    labels = torch.from_numpy(data.target[mixed].astype(np.int64))
    mean, deviation = images.mean(), images.std()
    num_train = round(len(labels) * (1 - VALIDATION_SHARE))
    return InMemory((images - mean) / deviation, labels, num_train, 10, seed, shift)


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Images made on the spot from their number: noise around a pattern of their class. Nothing is stored."""

    num_train: int = 1024
    num_validation: int = 128
    num_classes: int = 1000
    resolution: int = 224
    channels: int = 3
    seed: int = 0

    def train(self, samples: IntArray, *, epoch: int) -> tuple[Tensor, Tensor]:
        """Make training samples; they are the same in every epoch."""
        return self._make(samples)

    def validation(self, samples: IntArray) -> tuple[Tensor, Tensor]:
        """Make validation samples."""
        return self._make(samples + self.num_train)

    def _make(self, samples: IntArray) -> tuple[Tensor, Tensor]:
        labels = torch.from_numpy(samples % self.num_classes)
        shape = (self.channels, self.resolution, self.resolution)
        images = torch.empty(len(samples), *shape)
        for row, sample in enumerate(samples.tolist()):
            draw = torch.Generator().manual_seed(self.seed * 1_000_003 + sample)
            torch.randn(shape, generator=draw, out=images[row])
            images[row] += _pattern(int(labels[row]), self.resolution)
        return images, labels


def _pattern(label: int, resolution: int) -> Tensor:
    """Return a wave whose direction and length belong to the class, (resolution, resolution)."""
    along = torch.arange(resolution, dtype=torch.float32) / resolution
    waves = (1 + label % 31, 1 + label // 31 % 33)
    return torch.sin(2 * torch.pi * (waves[0] * along[:, None] + waves[1] * along[None, :]))


def open_data(
    name: str, *, resolution: int | None = None, samples: int | None = None, seed: int = 0, shift: int = 0
) -> Dataset:
    """Open a data set by name: "digits", "synthetic", or the path of a folder or of tar shards of images.

    Raises
    ------
    InvalidInput : nothing of that name, or an option that it does not take.
    """
    if name == "digits":
        if resolution not in (None, 8) or samples is not None:
            raise InvalidInput("the digits are 1,797 images of 8x8 pixels; leave out resolution and samples")
        return digits(seed=seed, shift=shift)
    if shift:
        raise InvalidInput(f"only the digits are shifted, got a shift of {shift} for {name}; leave it out")
    if name == "synthetic":
        count = 1024 if samples is None else samples
        return Synthetic(count, max(1, count // 8), resolution=resolution or 224, seed=seed)
    if Path(name).exists():
        if samples is not None:
            raise InvalidInput(f"the images of {name} are as many as there are; leave out the number of samples")
        from realrun.input_pipeline import open_images

        return open_images(Path(name), resolution=resolution, seed=seed)
    raise InvalidInput(f"unknown data {name!r}; choose digits, synthetic, or the path of images")
