"""Records of answers: what was predicted and what was measured share their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.units import Bytes, BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two times, s, that the true answer lies between."""

    low: npt.NDArray[np.float64] | Seconds
    high: npt.NDArray[np.float64] | Seconds


@dataclass(frozen=True, slots=True)
class Estimate:
    """When the last rank finishes, s, shape () or (batch,); `exact` is never silently false.

    finish : when each rank does, s, shape (world_size,) or (batch, world_size)
    """

    time: npt.NDArray[np.float64] | Seconds
    exact: npt.NDArray[np.bool_] | bool
    engine: str
    reason: str = ""
    bracket: Bracket | None = None
    finish: npt.NDArray[np.float64] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened when: one entry per message in order of its end, each column (num_messages,).

    start, wire, end : when both ends were ready, when the first byte was on the wire, when all was over, s
    step : position in the unrolled schedule; job : which of several schedules
    """

    world_size: int
    job: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    channel: npt.NDArray[np.int64]
    num_bytes: npt.NDArray[np.int64]
    start: npt.NDArray[np.float64]
    wire: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Span:
    """One bar of the timeline of a step: what, where, from and to in s."""

    name: str
    row: str
    start: float
    end: float
    bucket: int | None = None


@dataclass(frozen=True, slots=True)
class CollectivePrediction:
    """One predicted row: a collective of one size on one cluster; low and high are an 80 % interval."""

    collective: str
    algorithm: str
    cluster: str
    ranks: int
    size_bytes: Bytes
    count: int
    dtype: str
    time_s: Seconds
    algbw_bytes_per_s: BytesPerSecond
    busbw_bytes_per_s: BytesPerSecond
    engine: str
    exact: bool
    profile: str
    low_s: Seconds | None = None
    high_s: Seconds | None = None
    reason: str = ""
    runner_up: str = ""
    runner_up_s: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured row, with every sample; fields nobody recorded are None and never guessed.

    Beside the collectives there are rows between two ranks or nodes, src and dst: `send` (one way), `exchange`
    (both ways at once), `stream` (one way, many in flight, time per message), and `add` (a reduction of
    size_bytes without any network). A row marked holdout was set aside before it was measured: it is compared,
    never fitted.
    """

    collective: str
    size_bytes: Bytes
    time_s: Seconds
    ranks: int | None = None
    algorithm: str | None = None
    cluster: str | None = None
    nodes: int | None = None
    count: int | None = None
    dtype: str | None = None
    algbw_bytes_per_s: BytesPerSecond | None = None
    busbw_bytes_per_s: BytesPerSecond | None = None
    samples_s: tuple[Seconds, ...] = ()
    num_wrong: int | None = None
    in_place: bool | None = None
    source: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    src: str | None = None
    dst: str | None = None
    holdout: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted value with its 80 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Segment:
    """What a message of up to `max_bytes` costs, until the next segment takes over; None for no end."""

    max_bytes: Bytes | None
    latency_s: Fitted
    bandwidth_bytes_per_s: Fitted
    max_bytes_low: Bytes | None = None
    max_bytes_high: Bytes | None = None


@dataclass(frozen=True, slots=True)
class FittedPoint:
    """A measured row a profile was fitted to, or refused by it, with the fitted time beside it."""

    collective: str
    size_bytes: Bytes
    time_s: Seconds
    ranks: int | None = None
    algorithm: str | None = None
    fitted_s: Seconds | None = None
    source: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProfileInput:
    """A file a profile was fitted to."""

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class NcclSite:
    """What NCCL knows of a machine before any measurement.

    Parameters
    ----------
    channels : rings inside one node; channel_bandwidth, bytes/s, of one of them
    nics : network cards of a node; nic_bandwidth, bytes/s, of one
    intra : what steps inside a node cross, NVLINK or PCI
    network_latency : s, measured between two devices over the network, where known; else the published one holds
    """

    channels: int
    channel_bandwidth: BytesPerSecond
    nics: int
    nic_bandwidth: BytesPerSecond
    intra: str = "NVLINK"
    ampere: bool = False
    release: str = "2.8"
    network_latency: Seconds | None = None


@dataclass(frozen=True, slots=True)
class NcclLeftover:
    """ln(measured/modelled) at the sizes of one measured world size, in rising order of the sizes.

    `modes` is how far, in ln(time), repeats of two kinds are from the measured time; empty where there are none.
    """

    ranks: int
    nodes: int
    sizes: tuple[Bytes, ...]
    log_ratio: tuple[float, ...]
    modes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NcclVariant:
    """NCCL's tuning model scaled to measured rows, under one guess of what the rows do not say.

    Parameters
    ----------
    ll128_inside, ll128_across : whether LL128 runs inside a node, and between nodes; channels_per_nic
    factors : on the published latencies and bandwidths, by name
    error : mean |ln(modelled/measured)| at the largest world size, before the leftover is carried over
    """

    ll128_inside: bool
    ll128_across: bool
    channels_per_nic: int
    factors: Mapping[str, Fitted]
    leftovers: tuple[NcclLeftover, ...]
    error: float


@dataclass(frozen=True, slots=True)
class NcclFit:
    """All-reduces of NCCL on one machine; the first variant is the nearest, the others that come close follow."""

    site: NcclSite
    variants: tuple[NcclVariant, ...]
    error_per_doubling: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What a machine's messages cost, fitted to named measurements; accuracy on `points` is never reported.

    `segments` price single messages, so any schedule; `nccl` prices whole all-reduces of NCCL. One may be absent.
    """

    name: str
    segments: tuple[Segment, ...]
    gamma_s_per_byte: Fitted | None = None
    created: str = ""
    command: str = ""
    inputs: tuple[ProfileInput, ...] = ()
    points: tuple[FittedPoint, ...] = ()
    refused: tuple[FittedPoint, ...] = ()
    assumptions: tuple[str, ...] = ()
    residuals: Mapping[str, float] = field(default_factory=dict)
    nccl: NcclFit | None = None
