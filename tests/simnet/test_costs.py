from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnet.costs.fitted import Fitted, of_profile
from simnet.costs.gloo import Gloo
from simnet.costs.infiniband import InfiniBand, Roce
from simnet.costs.loggp import LogGP
from simnet.costs.nccl import Nccl
from simnet.costs.nccl_tuning import Algorithm, Hardware, Machine, Protocol, all_reduce_time, choose, latency
from simnet.costs.registry import build, cost_models, find, of_text
from simnet.costs.tcp import Tcp
from simnet.errors import InvalidInput
from simnet.results import Fitted as Value
from simnet.results import Profile, Segment
from simnet.units import GB, GBIT_PER_S, KIB, MB, MIB, US, Dimension, parse

SIZES = st.integers(0, 2**40)
LATENCIES = st.floats(0, 1e-3)


@pytest.mark.parametrize("name", cost_models())
@given(size=SIZES, latency=LATENCIES)
def test_every_model_is_a_cost_and_never_negative(name: str, size: int, latency: float) -> None:
    cost = find(name).build()
    assert cost.delay(size, latency) >= 0
    assert size <= cost.wire_bytes(size) <= 2 * size + 1538
    assert (cost.wire_bytes(size) == 0) == (size == 0)
    assert cost.occupy(size) >= 0
    assert 0 <= cost.reverse_bytes(size) <= size + 200
    assert 0 < cost.flow_cap(size, 12.5e9) <= 12.5e9
    assert cost.eager(size) in (True, False)


@pytest.mark.parametrize("name", cost_models())
def test_every_model_takes_arrays_and_says_where_it_comes_from(name: str) -> None:
    cost, sizes = find(name).build(), np.array([0, 1, 1000, 10**6, 10**9])
    latencies = np.full(5, 1e-6)
    for many, one in (
        (cost.delay(sizes, latencies), [cost.delay(s, 1e-6) for s in sizes]),
        (cost.wire_bytes(sizes), [cost.wire_bytes(s) for s in sizes]),
        (cost.occupy(sizes), [cost.occupy(s) for s in sizes]),
        (cost.reverse_bytes(sizes), [cost.reverse_bytes(s) for s in sizes]),
        (cost.flow_cap(sizes, np.full(5, 1e9)), [cost.flow_cap(s, 1e9) for s in sizes]),
        (cost.eager(sizes), [cost.eager(s) for s in sizes]),
    ):
        np.testing.assert_array_equal(many, one)
    assert len(find(name).source) > 10
    assert find(name).summary


@pytest.mark.parametrize("name", cost_models())
@given(sizes=st.tuples(SIZES, SIZES))
def test_more_bytes_are_never_fewer_on_the_wire(name: str, sizes: tuple[int, int]) -> None:
    cost, (small, large) = find(name).build(), sorted(sizes)
    assert cost.wire_bytes(small) <= cost.wire_bytes(large)


def test_unknown_models_and_options_are_refused_with_the_alternatives() -> None:
    with pytest.raises(InvalidInput, match="choose one of alpha_beta"):
        build("alpha")
    with pytest.raises(InvalidInput, match="takes no option 'mss'"):
        build("tcp", mss=1448)
    assert build("Alpha-Beta").name == "alpha-beta"


def test_one_gigabyte_per_second_is_ten_to_the_nine() -> None:
    assert GB == 10**9
    assert parse("1 GB/s", Dimension.BANDWIDTH) == 1e9
    assert parse("25 Gbit/s", Dimension.BANDWIDTH) == 25 * GBIT_PER_S == 3.125e9
    assert build("alpha_beta").flow_cap(GB, 1e9) == 1e9
    assert MIB == 2**20


def test_tcp_carries_1448_of_1538_bytes_on_a_wire_and_of_1514_under_tc() -> None:
    wire, shaped = Tcp(), Tcp(medium="tc")
    assert wire.wire_bytes(1448) == 1538
    assert shaped.wire_bytes(1448) == 1514
    assert wire.efficiency == pytest.approx(1448 / 1538)
    assert shaped.efficiency == pytest.approx(0.9564, abs=5e-5)
    assert shaped.duplex_efficiency == pytest.approx(2896 / (2 * 1514 + 66))
    assert shaped.duplex_efficiency == pytest.approx(0.9360, abs=5e-5)


def test_tcp_acknowledges_every_second_segment_with_an_empty_frame() -> None:
    shaped = Tcp(medium="tc")
    assert shaped.reverse_bytes(2 * 1448) == 66
    assert shaped.reverse_bytes(3 * 1448) == 132
    assert shaped.reverse_bytes(0) == 0


def test_jumbo_frames_waste_less() -> None:
    assert Tcp(mtu=9000).efficiency > 0.99 > Tcp().efficiency
    with pytest.raises(InvalidInput, match="above 52 bytes"):
        Tcp(mtu=40)
    with pytest.raises(InvalidInput, match="wire or tc"):
        Tcp(medium="air")


def test_tcp_flows_add_up_to_the_port_and_no_further() -> None:
    headers = 1538 / 1448
    caps = [float(Tcp(flow_bandwidth=2.06e9, flows=n).flow_cap(MB, 4e9)) for n in (1, 2, 4)]
    assert caps == pytest.approx([2.06e9 * headers, 4e9, 4e9], rel=1e-3)
    assert float(Tcp(flow_bandwidth=1.25e9, flows=4).flow_cap(MB, 12.5e9)) == pytest.approx(5e9 * headers, rel=1e-3)
    with pytest.raises(InvalidInput, match="flows of tcp"):
        Tcp(flows=0)


def test_loggp_keeps_a_sender_busy_and_asks_before_large_messages() -> None:
    cost = LogGP(overhead=1e-6, gap=3e-6, bandwidth=5e9, eager_bytes=1000)
    assert cost.delay(1000, 5e-6) == pytest.approx(7e-6)
    assert cost.delay(1001, 5e-6) == pytest.approx(21e-6)
    assert cost.occupy(1) == pytest.approx(3e-6)
    assert cost.flow_cap(1, 12.5e9) == 5e9
    assert LogGP().flow_cap(1, 12.5e9) == 12.5e9
    assert not cost.eager(1001)


def test_infiniband_packets_have_26_bytes_of_headers_and_roce_82() -> None:
    assert InfiniBand().wire_bytes(4096) == 4096 + 26
    assert Roce().wire_bytes(4097) == 4097 + 2 * 82
    assert Roce(mtu=1024).wire_bytes(4096) == 4096 + 4 * 82
    assert InfiniBand().delay(2**20, 1e-6) == pytest.approx(3e-6)
    assert InfiniBand().eager(12288)


def test_gloo_on_two_nodes_of_1_gbit_takes_about_the_time_reported() -> None:
    cost, size = Gloo(), 20 * MB
    rate = float(cost.flow_cap(size, GBIT_PER_S))
    seconds = float(cost.delay(size, 50e-6) + cost.wire_bytes(size) / rate)
    assert seconds == pytest.approx(0.180, rel=0.07)


def test_gloo_on_40_gbit_is_held_by_its_one_connection() -> None:
    cost, half = Gloo(), 10 * MB
    seconds = 2 * float(cost.delay(half, 20e-6) + cost.wire_bytes(half) / cost.flow_cap(half, 5e9))
    assert seconds == pytest.approx(17.251e-3, rel=0.05)


def test_gloo_states_a_cliff_as_a_cliff() -> None:
    cost = Gloo(stall_bytes=256 * KIB, stall=20e-3)
    below, at = (float(cost.delay(size, 0.0)) for size in (256 * KIB - 1, 256 * KIB))
    assert at - below == pytest.approx(20e-3)
    assert Gloo(stall_bytes=1).delay(1, 0.0) == Gloo().delay(1, 0.0)
    with pytest.raises(InvalidInput, match="needs stall_bytes"):
        Gloo(stall=1e-3)


def test_nccl_protocols_send_flags_beside_data() -> None:
    assert Nccl("LL").wire_bytes(1200) == 2400
    assert Nccl("LL128").wire_bytes(1200) == pytest.approx(1280)
    assert Nccl("Simple").wire_bytes(1200) == 1200
    assert Nccl("LL").delay(1, 1.9e-6) == pytest.approx(0.47e-6)
    assert Nccl("LL").delay(1, 2.54e-6) == pytest.approx(2.7e-6)
    assert Nccl("Simple", "tree", intra="PCI").delay(1, 0.0) == pytest.approx(28e-6)
    assert Nccl(channel_bandwidth=21e9).flow_cap(1, 48e9) == 21e9
    with pytest.raises(InvalidInput, match="protocol of nccl must be one of LL, LL128, Simple"):
        Nccl("LL64")


def _abci(num_nodes: int) -> Machine:
    return Machine(4 * num_nodes, num_nodes, 2, 12 * GB, 12 * GB)


def test_nccl_runs_low_latency_small_and_simple_rings_large() -> None:
    small, large = choose(_abci(8), 1 * KIB), choose(_abci(8), 512 * MIB)
    assert small.protocol is Protocol.LL
    assert (large.algorithm, large.protocol) == (Algorithm.RING, Protocol.SIMPLE)
    order = [choose(_abci(8), 2**k).time for k in range(10, 30)]
    assert order == sorted(order)


def test_nccl_prefers_trees_for_small_messages_as_nodes_grow() -> None:
    one_shot = [choose(_abci(n), 8 * KIB).algorithm for n in (2, 32, 256)]
    assert one_shot[-1] is Algorithm.TREE
    big = Machine(4096, 512, 8, 12 * GB, 12 * GB)
    assert latency(big, Algorithm.TREE, Protocol.LL) < latency(big, Algorithm.RING, Protocol.LL) / 20


def test_the_tuning_model_gives_its_own_published_sums() -> None:
    machine = _abci(2)
    steps = 12 * 0.47 * 1.8 + 2 * 2.7 + 3.6
    assert latency(machine, Algorithm.RING, Protocol.LL) == pytest.approx(steps * US)
    assert all_reduce_time(machine, 1 * GB, Algorithm.RING, Protocol.SIMPLE) == pytest.approx(
        1e9 * 14 / 8 / 24e9 + 1.9 * (8.4 + 12 * 3.4 + 2 * 9.6) * US
    )
    old = Machine(8, 2, 2, 12 * GB, 12 * GB, release="2.5")
    assert latency(old, Algorithm.RING, Protocol.SIMPLE) == pytest.approx((8.4 + 12 * 5.7 + 2 * 6.6) * US)


def test_ll128_is_left_alone_where_it_is_not_safe() -> None:
    pcie = Machine(8, 1, 1, 12 * GB, 12 * GB, intra=Hardware.PCI, ll128=False)
    assert {choose(pcie, 2**k).protocol for k in range(4, 30)} == {Protocol.LL, Protocol.SIMPLE}
    with pytest.raises(InvalidInput, match="release of NCCL"):
        Machine(8, 1, 1, 1.0, 1.0, release="1.0")
    with pytest.raises(InvalidInput, match="1 <= nodes <= ranks"):
        Machine(2, 4, 1, 1.0, 1.0)


def _value(number: float) -> Value:
    return Value(number, number, number)


def test_a_profile_becomes_a_cost_with_its_switches() -> None:
    segments = (
        Segment(None, _value(20e-6), _value(10e9)),
        Segment(4096, _value(5e-6), _value(1e9)),
    )
    cost = of_profile(Profile("test", segments))
    assert cost.delay(np.array([4096, 4097]), 1.0).tolist() == [5e-6, 20e-6]
    assert cost.flow_cap(np.array([1, 10**6]), 3e9).tolist() == [1e9, 3e9]
    with pytest.raises(InvalidInput, match="needs segments"):
        of_profile(Profile("empty", ()))


def test_a_fit_with_borders_out_of_order_is_refused() -> None:
    with pytest.raises(InvalidInput, match="rising borders"):
        Fitted((10, 5), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    with pytest.raises(InvalidInput, match="rising borders"):
        Fitted((), (0.0,), (0.0,))


def test_a_cost_model_can_be_written_in_one_word_with_options() -> None:
    cost = of_text("tcp:flows=4, flow_bandwidth=1.25 GB/s, overhead=20 us, mtu=9000, medium=tc")
    assert isinstance(cost, Tcp)
    assert (cost.mtu, cost.medium, cost.flows) == (9000, "tc", 4)
    assert (cost.overhead, cost.flow_bandwidth) == pytest.approx((20e-6, 1.25e9))
    assert of_text("alpha-beta").name == "alpha-beta"
    assert of_text("nccl:protocol=LL").wire_bytes(1) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fitted", "needs a profile that simnet calibrate wrote; give one with --profile FILE"),
        ("loggp", "needs overhead, gap, eager_bytes, which no source gives for all machines; write loggp:overhead="),
        ("loggp:overhead=1 us,gap=1 us", "needs eager_bytes,"),
        ("tcp:", "needs overhead, which .* write tcp:overhead=..."),
        ("gloo:flows=1", "needs overhead,"),
        ("tcp:overhead=-5 us", "overhead of tcp must be 0 or more, got -5e-06"),
        ("udp", "unknown cost model"),
        ("tcp:flows", "no option"),
        ("tcp:window=3", "write mtu="),
        ("tcp:flows=two", "whole number"),
        ("tcp:overhead=20", "bare number"),
        ("fitted:max_bytes=3", "use a profile"),
    ],
)
def test_a_cost_model_written_wrongly_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        of_text(text)


@pytest.mark.parametrize("name", cost_models())
def test_a_model_named_alone_stands_on_sourced_defaults(name: str) -> None:
    if not find(name).required:
        assert of_text(name) == find(name).build()
        return
    with pytest.raises(InvalidInput, match=f"the cost model {name} needs"):
        build(name)


def test_rings_lose_bandwidth_at_middle_sizes_as_nodes_grow() -> None:
    rates = [8 * MIB / all_reduce_time(_abci(n), 8 * MIB, Algorithm.RING, Protocol.SIMPLE) for n in (2, 8, 32)]
    assert rates == sorted(rates, reverse=True)


def test_beyond_two_nodes_large_messages_run_on_rings_and_not_on_trees() -> None:
    five = Machine(40, 5, 16, 12.5 * GB, 12.5 * GB, ampere=True)
    assert choose(five, 2**30).algorithm is Algorithm.RING
    tree = all_reduce_time(five, 2**30, Algorithm.TREE, Protocol.SIMPLE)
    assert tree > 1.2 * choose(five, 2**30).time
