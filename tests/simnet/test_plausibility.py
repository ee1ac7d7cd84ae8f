import pytest

from simnet.errors import InvalidInput
from simnet.plausibility import Way, busbw_limit, device_rate, too_good
from simnet.results import Measurement
from simnet.units import GB


def test_two_nodes_by_tree_may_show_more_than_their_nic() -> None:
    assert busbw_limit(16, 2, 12.5 * GB, Way.RING) == 12.5 * GB
    assert busbw_limit(16, 2, 12.5 * GB, Way.TREE) == pytest.approx(23.4375 * GB)


def test_too_good_is_only_what_no_algorithm_reaches() -> None:
    def row(busbw: float) -> Measurement:
        return Measurement("all_reduce", 1 << 30, 0.1, 16, nodes=2, busbw_bytes_per_s=busbw * GB)

    found = list(too_good([row(12.4), row(20.0), row(23.4), row(23.5)], 12.5 * GB))
    assert [found_row.busbw_bytes_per_s for found_row, _ in found] == [23.5 * GB]


def test_480_gb_per_s_of_nvls_are_308_on_the_wire() -> None:
    assert device_rate(480 * GB, 8, Way.IN_NETWORK) == pytest.approx(308.57 * GB, rel=1e-4)
    assert device_rate(480 * GB, 8, Way.RING) == pytest.approx(480 * GB)


def test_more_nodes_gain_nothing_from_a_tree() -> None:
    assert busbw_limit(32, 4, 25 * GB, Way.TREE) < busbw_limit(32, 4, 25 * GB, Way.RING)
    with pytest.raises(InvalidInput, match="two nodes"):
        busbw_limit(8, 1, 25 * GB, Way.RING)
