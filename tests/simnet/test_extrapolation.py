from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simnet.errors import InvalidInput
from simnet.extrapolation import extrapolate
from simnet.importers.logs import read_log
from simnet.nccl_fit import usual_error
from simnet.results import Measurement, NcclSite
from simnet.units import GB

DATA = Path(__file__).parents[1] / "data" / "logs"
SITE = NcclSite(channels=12, channel_bandwidth=10 * GB, nics=2, nic_bandwidth=12 * GB)


def measured(*worlds: int) -> list[Measurement]:
    return [
        Measurement("all_reduce", s, 2 * (n - 1) * 2e-6 + 2 * (n - 1) / n * s / 20e9, n, nodes=max(1, n // 4))
        for n in worlds
        for s in (1024, 65_536, 1 << 20, 1 << 25)
    ]


def test_a_ring_goes_on_as_a_ring() -> None:
    found = extrapolate(measured(4, 8), ranks=16)
    assert [row.time_s for row in found] == pytest.approx([row.time_s for row in measured(16)], rel=1e-6)
    assert all(row.low_s < row.time_s < row.high_s for row in found if row.low_s and row.high_s)


def test_going_further_widens_the_interval() -> None:
    near, far = (extrapolate(measured(4, 8), ranks=n)[0] for n in (16, 64))
    assert near.high_s
    assert far.high_s
    assert far.high_s / far.time_s > near.high_s / near.time_s


def test_logs_of_nccl_need_one_world_size_alone() -> None:
    log = read_log(DATA / "new_8_ranks.log")
    found = extrapolate(log.measurements, ranks=16, nodes=4, site=SITE)
    assert [row.size_bytes for row in found] == sorted({row.size_bytes for row in log.measurements})
    assert found[-1].busbw_bytes_per_s < 24 * GB


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(InvalidInput, match="were measured"):
        extrapolate(measured(4, 8), ranks=8)
    with pytest.raises(InvalidInput, match="only more ranks"):
        extrapolate(measured(4, 8), ranks=2)
    with pytest.raises(InvalidInput, match="number of nodes"):
        extrapolate(measured(4, 8), ranks=16, site=SITE)
    with pytest.raises(InvalidInput, match="two world sizes"):
        extrapolate(measured(8), ranks=16)
    with pytest.raises(InvalidInput, match="ranks, nodes"):
        extrapolate([replace(row, nodes=None) for row in measured(8)], ranks=16, nodes=4, site=SITE)


def test_the_usual_error_is_what_the_study_finds() -> None:
    from studies import collectives

    machines = [collectives._abci(), *collectives._deepbench()]
    assert usual_error() == pytest.approx(float(np.median([collectives.missed(m) for m in machines])), rel=1e-3)
