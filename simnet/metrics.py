"""Bandwidth figures as nccl-tests defines them, efficiency, and error figures.

Source: nccl-tests, doc/PERFORMANCE.md (algbw = S/t; busbw = algbw times a factor of the collective).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simnet.collective import Kind
from simnet.errors import InvalidInput
from simnet.units import Bytes, BytesPerSecond, Seconds


def bus_factor(kind: Kind, world_size: int) -> float:
    """Busbw over algbw: 2(n-1)/n, (n-1)/n or 1. World size 1 gives 0, except for 1-factor collectives."""
    n = world_size
    match kind:
        case Kind.ALL_REDUCE:
            return 2 * (n - 1) / n
        case Kind.REDUCE_SCATTER | Kind.ALL_GATHER | Kind.ALL_TO_ALL:
            return (n - 1) / n
        case Kind.BROADCAST | Kind.REDUCE:
            return 1.0


def algbw(num_bytes: Bytes, time: Seconds) -> BytesPerSecond:
    """Return S/t; 0 where nothing was moved or no time passed."""
    return num_bytes / time if time > 0 else 0.0


def busbw(kind: Kind, world_size: int, num_bytes: Bytes, time: Seconds) -> BytesPerSecond:
    """Return algbw times the collective's factor: comparable across world sizes, no wire speed."""
    return algbw(num_bytes, time) * bus_factor(kind, world_size)


def scaling_efficiency(rate: float, num_devices: int, base_rate: float, base_devices: int = 1) -> float:
    """Throughput per device over throughput per device of the base, as a fraction."""
    return (rate / num_devices) / (base_rate / base_devices)


def _pairs(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], ...]:
    p, m = np.asarray(predicted, float), np.asarray(measured, float)
    if p.shape != m.shape or p.size == 0 or np.any(p <= 0) or np.any(m <= 0):
        raise InvalidInput(
            f"error figures need equally many positive values, got shapes {p.shape} and {m.shape}; "
            "drop rows without a time first"
        )
    return p, m


def mape(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> float:
    """Mean of |predicted/measured - 1|, a fraction."""
    p, m = _pairs(predicted, measured)
    return float(np.mean(np.abs(p / m - 1)))


def geometric_mean_error(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> float:
    """Return exp(mean |ln(predicted/measured)|) - 1, a fraction that treats 2x and 1/2x alike."""
    p, m = _pairs(predicted, measured)
    return float(np.expm1(np.mean(np.abs(np.log(p / m)))))


def signed_bias(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> float:
    """Mean of predicted/measured - 1, a fraction; its sign tells optimism from pessimism."""
    p, m = _pairs(predicted, measured)
    return float(np.mean(p / m - 1))


def error_quantile(predicted: npt.ArrayLike, measured: npt.ArrayLike, quantile: float) -> float:
    """Quantile of |predicted/measured - 1|; 1.0 gives the largest."""
    p, m = _pairs(predicted, measured)
    return float(np.quantile(np.abs(p / m - 1), quantile))
