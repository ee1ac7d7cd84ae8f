"""What ranks are asked to measure: plain records, so that whoever starts ranks need not load torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simnet.errors import InvalidInput
from simnet.units import Bytes, Seconds

DTYPE_NAMES = ("float", "double", "half", "bfloat16", "int8", "uint8", "int32", "int64")
NATIVE = "native"
# Networks of `realrun.models` that take images of 224 pixels, as layers are timed with; and the precisions of layers.
LAYER_MODELS = ("resnet50", "alexnet")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: an algorithm of simnet, or `native` for the backend's own all-reduce.

    device : cpu or cuda; empty for the one the backend is made for
    """

    algorithm: str
    sizes: tuple[Bytes, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float"
    iterations: int = 20
    warmup: int = 3
    timeout: Seconds = 60.0
    always_check: bool = False
    device: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_NAMES:
            raise InvalidInput(f"dtype must be one of {', '.join(DTYPE_NAMES)}, got {self.dtype!r}")
        if self.iterations < 1 or self.warmup < 0:
            raise InvalidInput(
                f"iterations must be 1 or more and warmup 0 or more, got {self.iterations} and {self.warmup}"
            )


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What to measure.

    Attributes
    ----------
    pairs : how many pairs of ranks, taken evenly from all there are; 0 for all
    loaded : all ranks exchange at once instead of pair by pair: neighbours, and over several hosts also each rank
        of one half with one of the other
    one_way : messages there and back, besides those both ways at once
    rates : also the rates of addition and copy at sizes where they outweigh the call (64 KiB and more),
        on every rank at once where loaded, else on rank 0
    model, batch, precision : also layer times of that network of `realrun.models`, on rank 0; none where empty
    compute : also rates of matrix products and convolutions in each precision, on rank 0
    """

    sizes: tuple[Bytes, ...]
    pairs: int = 1
    loaded: bool = False
    model: str = ""
    batch: int = 8
    precision: str = "fp32"
    one_way: bool = True
    rates: bool = True
    compute: bool = False
    iterations: int = 20
    warmup: int = 3
    timeout: Seconds = 60.0

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.warmup < 0 or self.pairs < 0:
            raise InvalidInput(
                f"iterations must be 1 or more, warmup and pairs 0 or more, got {self.iterations}, {self.warmup} "
                f"and {self.pairs}"
            )
        if self.batch < 1:
            raise InvalidInput(f"batch must be 1 or more images, got {self.batch}")
        if self.model and self.model not in LAYER_MODELS:
            raise InvalidInput(f"layers are timed of {' or '.join(LAYER_MODELS)}, got model {self.model!r}")
        if self.precision not in PRECISIONS:
            raise InvalidInput(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")


@dataclass(frozen=True, slots=True)
class Campaign:
    """What to measure and for how long.

    Attributes
    ----------
    budget : s from the first record on; nothing is begun after it
    algorithms : names of all-reduces and options; one that does not admit the ranks is left out, and the file says so
    pairs : pairs of ranks to probe, 0 for all
    """

    budget: Seconds
    sizes: tuple[Bytes, ...]
    algorithms: tuple[tuple[str, Mapping[str, Any]], ...]
    pairs: int = 4
    iterations: int = 20
    warmup: int = 5
    timeout: Seconds = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.budget > 0:
            raise InvalidInput(f"the budget must be above 0 s, got {self.budget:g} s")
        if self.iterations < 1 or self.warmup < 0 or self.pairs < 0 or self.seed < 0:
            raise InvalidInput(
                "iterations must be 1 or more, warmup, pairs and seed 0 or more, got "
                f"{self.iterations}, {self.warmup}, {self.pairs} and {self.seed}"
            )
        for name, _ in self.algorithms:
            require_all_reduce(name)


def require_all_reduce(name: str) -> None:
    """Raise InvalidInput where no all-reduce has that name, nor is it the backend's own."""
    from simnet.algorithms.registry import algorithms
    from simnet.collective import Kind

    known = (*algorithms(Kind.ALL_REDUCE), NATIVE)
    if name not in known:
        raise InvalidInput(f"no all-reduce is called {name!r}; choose from {', '.join(known)}")
