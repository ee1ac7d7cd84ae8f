"""Alpha-beta: latency plus bytes over bandwidth, nothing else.

Source: Hockney, Parallel Computing 20(3), 1994.
"""

from __future__ import annotations

from dataclasses import dataclass

from simnet.costs.model import Plain
from simnet.costs.registry import cost_model


@cost_model("alpha_beta", source="Hockney, Parallel Computing 20(3), 1994")
@dataclass(frozen=True, slots=True)
class AlphaBeta(Plain):
    """A message waits for the path's latency, then its bytes flow at the link's rate; rendezvous always."""

    name: str = "alpha-beta"
