"""Messages share cores as work shares machines: as many at once as the probe had take its time, fewer take less."""

from __future__ import annotations

import pytest

from simnet.collective import Collective, Kind
from simnet.costs.fitted import Fitted
from simnet.interpreters import engine
from simnet.schedule import Schedule, Step
from studies.shared_cores import CoreTime, SharedCores

LOADED = Fitted((), (100e-6,), (1e9,))
BYTES = 1_000_000
MESSAGE = 100e-6 + BYTES / 1e9


def time_of(sources: list[int], targets: list[int], cores: int) -> float:
    def items():
        yield Step.columns(sources, targets, 0)

    schedule = Schedule("traffic", Collective(Kind.ALL_REDUCE), 4, 1, items)
    cost = CoreTime(LOADED, in_flight=4, cores=cores)
    return float(engine.run(schedule, BYTES // 4, SharedCores(4, cores), cost).time)


@pytest.mark.parametrize("cores", [1, 2, 4, 16])
def test_as_many_messages_as_the_probe_had_take_its_time(cores):
    assert time_of([0, 1, 2, 3], [1, 2, 3, 0], cores) == pytest.approx(MESSAGE, rel=1e-9)


@pytest.mark.parametrize(("cores", "share"), [(1, 0.5), (2, 0.5), (3, 0.75), (4, 1.0), (16, 1.0)])
def test_two_messages_instead_of_four_get_up_to_a_core_each(cores, share):
    assert time_of([0, 1], [1, 0], cores) == pytest.approx(share * MESSAGE, rel=1e-9)


def test_one_message_alone_never_gets_more_than_a_core():
    assert time_of([0], [1], 2) == pytest.approx(0.5 * MESSAGE, rel=1e-9)
    assert time_of([0], [1], 1) == pytest.approx(0.25 * MESSAGE, rel=1e-9)
