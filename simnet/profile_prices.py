"""What a calibrated profile says of the all-reduces of a training step, in place of a cost model.

A profile of messages prices the messages of any algorithm; one that holds NCCL's fit prices whatever NCCL runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from simnet.costs import nccl_scaled
from simnet.errors import InvalidInput
from simnet.exchange import Input, Prices
from simnet.profiles import read_profile
from simnet.results import NcclFit, Profile
from simnet.scenario import Scenario
from simnet.units import Bytes

NCCL = "nccl"
"""Algorithm that stands for whatever NCCL runs at a size."""

_LEAST: Bytes = 8


def profile_of(scenario: Scenario) -> Profile | None:
    """Return the profile of a scenario's messages, its wires scaled as the scenario says; None where it has none.

    Raises
    ------
    InvalidInput : not a profile, one that cannot price the scenario's algorithm, or factors it cannot follow.
    """
    exchange = scenario.exchange
    if not exchange.profile:
        if exchange.algorithm == NCCL:
            raise InvalidInput(
                f"scenario {scenario.name!r} has the algorithm nccl and no profile to price it; name one with "
                "--profile, or the algorithm that runs"
            )
        return None
    profile = read_profile(exchange.profile)
    if exchange.algorithm == NCCL and profile.nccl is None:
        raise InvalidInput(
            f"profile {profile.name} holds no fit of NCCL; name the algorithm that runs, or calibrate with --nics"
        )
    if not scenario.bandwidth and not scenario.latency:
        return profile
    if exchange.algorithm != NCCL or profile.nccl is None:
        raise InvalidInput(
            f"profile {profile.name} was measured as a whole and does not tell which wire limits it; scale wires "
            "without a profile, or with one that holds NCCL's fit"
        )
    return replace(profile, nccl=_scaled(profile.nccl, scenario.bandwidth, scenario.latency))


def _scaled(fit: NcclFit, bandwidth: Mapping[str, float], latency: Mapping[str, float]) -> NcclFit:
    for name in (*bandwidth, *latency):
        if name not in ("inter", "intra"):
            raise InvalidInput(f"NCCL's fit knows wires as inter and intra alone, got {name!r}; scale one of those")
    inside, across = ((bandwidth.get(name, 1.0), latency.get(name, 1.0)) for name in ("intra", "inter"))
    return nccl_scaled.scaled(fit, inside=inside, across=across)


def with_profile(scenario: Scenario, path: str) -> Scenario:
    """Return the scenario priced by a profile; its algorithm becomes nccl where the profile holds NCCL's fit."""
    found = scenario.with_exchange(profile=path)
    return found if read_profile(path).nccl is None else found.with_exchange(algorithm=NCCL, options={})


def price_nccl(fit: NcclFit, ranks: int, sizes: Sequence[float], *, ranks_per_node: int) -> Prices:
    """Price all-reduces by NCCL's own model; one input stands for the interval of its profile.

    Raises
    ------
    InvalidInput : the last node would not be full.
    """
    whole = sorted({_LEAST, *(max(1, round(size)) for size in sizes)})
    grid, none = np.array(whole, float), np.zeros(len(whole))
    if ranks == 1 or not len(sizes):
        return Prices(grid, none, none, (), np.zeros((0, len(whole))), np.zeros((0, len(whole))))
    nodes = nccl_scaled.nodes_of(fit, ranks, ranks_per_node)
    times = np.maximum.accumulate(nccl_scaled.times(fit, ranks, nodes, whole))
    halves = nccl_scaled.half_widths(fit, ranks, nodes, whole)
    end = float(np.exp(halves.max()))
    interval = Input("NCCL's profile", "time", 1 / end, end)
    sds = (times * halves / halves.max() * interval.sd)[None, :]
    return Prices(
        grid, np.full(len(whole), times[0]), times - times[0], (interval,), np.broadcast_to(sds[:, :1], sds.shape),
        sds - sds[:, :1], False, "nccl profile",
        f"NCCL's model of whole all-reduces on {nodes} nodes, scaled to measured rows",
    )  # fmt: skip
