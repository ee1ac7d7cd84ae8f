"""Fitted: latency and bandwidth by ranges of message size, as a calibration found them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simnet.costs.model import FloatArray, Plain, as_float
from simnet.costs.registry import cost_model
from simnet.errors import InvalidInput
from simnet.results import Profile, Segment
from simnet.units import Bytes, BytesPerSecond, Seconds


@cost_model("fitted", source="a profile that simnet calibrate wrote", required=("latencies", "bandwidths"))
@dataclass(frozen=True, slots=True)
class Fitted(Plain):
    """Piecewise alpha-beta: range k of message sizes has a latency, in place of the path's, and a bandwidth.

    Parameters
    ----------
    max_bytes : largest message of every range but the last, rising, shape (num_ranges - 1,)
    latencies : s, shape (num_ranges,)
    bandwidths : bytes/s a message reaches, at most its path's, shape (num_ranges,)
    """

    max_bytes: tuple[Bytes, ...] = ()
    latencies: tuple[Seconds, ...] = (0.0,)
    bandwidths: tuple[BytesPerSecond, ...] = (1e12,)
    name: str = "fitted"

    def __post_init__(self) -> None:
        ranges = len(self.latencies)
        rising = all(a < b for a, b in zip(self.max_bytes, self.max_bytes[1:], strict=False))
        if not len(self.bandwidths) == ranges == len(self.max_bytes) + 1 or not rising or min(self.bandwidths) <= 0:
            raise InvalidInput(
                "a fitted cost needs one latency and one bandwidth above 0 per range and rising borders between them, "
                f"got borders {self.max_bytes}, latencies {self.latencies}, bandwidths {self.bandwidths}"
            )

    def _range(self, num_bytes: npt.ArrayLike) -> npt.NDArray[np.intp]:
        return np.searchsorted(np.array(self.max_bytes, float), as_float(num_bytes), side="left")

    def delay(self, num_bytes: npt.ArrayLike, latency: npt.ArrayLike) -> FloatArray:
        """Latency of the message's range."""
        size = np.broadcast_arrays(as_float(num_bytes), as_float(latency))[0]
        return np.array(self.latencies)[self._range(size)]

    def flow_cap(self, num_bytes: npt.ArrayLike, bandwidth: npt.ArrayLike) -> FloatArray:
        """Bandwidth of the message's range, at most the path's."""
        size, path = np.broadcast_arrays(as_float(num_bytes), as_float(bandwidth))
        return np.minimum(path, np.array(self.bandwidths)[self._range(size)])


def of_profile(profile: Profile) -> Fitted:
    """Return the cost model of a profile.

    Raises
    ------
    InvalidInput : the profile has no segments, or one without an end before the last.
    """
    if not profile.segments and profile.nccl is not None:
        raise InvalidInput(
            f"profile {profile.name} prices NCCL's own all-reduces and no single messages; use the algorithm nccl, or "
            "calibrate from messages between two ranks"
        )
    segments = sorted(profile.segments, key=_end)
    return _of_segments(segments, f"fitted: {profile.name}")


def _end(segment: Segment) -> float:
    return np.inf if segment.max_bytes is None else float(segment.max_bytes)


def _of_segments(segments: Sequence[Segment], name: str) -> Fitted:
    borders = [s.max_bytes for s in segments[:-1]]
    if not segments or None in borders:
        raise InvalidInput(f"{name}: a profile needs segments, and only the last may have no end, got {borders}")
    return Fitted(
        tuple(b for b in borders if b is not None),
        tuple(s.latency_s.value for s in segments),
        tuple(s.bandwidth_bytes_per_s.value for s in segments),
        name,
    )
