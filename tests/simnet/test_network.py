from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simnet.interpreters.network import ALIKE_FLOWS, Flow, Incidence, Network, _fill, _fill_many, _shares, shares

GB, MB, US = 1e9, 1e6, 1e-6


def _ends(flows: list[tuple[str, float, tuple[int, ...]]], bandwidth: list[float]) -> tuple[dict[str, float], Network]:
    env = simpy.Environment()
    ends: dict[str, float] = {}
    network = Network(env, bandwidth, lambda flow: ends.__setitem__(flow.message, env.now))
    for name, num_bytes, links in flows:
        network.join(Flow(num_bytes, dict.fromkeys(links, 1.0), np.inf, name))
    env.run()
    return ends, network


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_flows_that_share_end_as_computed_by_hand_in_any_order_of_insertion(order: tuple[int, ...]) -> None:
    flows = [("A", 10 * MB, (0,)), ("B", 10 * MB, (0, 1)), ("C", 5 * MB, (1,))]
    ends, _ = _ends([flows[i] for i in order], [10 * GB, 4 * GB])
    assert {name: end / US for name, end in ends.items()} == pytest.approx({"A": 1250, "B": 3750, "C": 2500})


def test_flows_that_start_and_end_together_are_rated_once() -> None:
    ends, network = _ends([(str(i), 1 * MB, (0,)) for i in range(7)], [7 * GB])
    assert list(ends.values()) == [pytest.approx(1000 * US)] * 7
    assert network.num_rated == 7


def test_only_flows_connected_to_a_change_get_new_rates() -> None:
    env = simpy.Environment()
    network = Network(env, [GB] * 11, lambda flow: None)
    for link in range(10):
        network.join(Flow(10 * MB, {link: 1.0}, np.inf))
    env.run(until=1e-3)
    network.join(Flow(1 * MB, {3: 1.0}, np.inf))
    before = network.num_rated
    env.run(until=1.5e-3)
    assert network.num_rated - before == 2


def test_two_instants_closer_than_1e_12_relative_are_one() -> None:
    env = simpy.Environment()
    network = Network(env, [GB], lambda flow: None)
    for start in (1.0, 1.0 + 2e-16 * 1000):
        event = simpy.Event(env)
        event._ok, event.callbacks = True, [lambda _: network.join(Flow(1 * MB, {0: 1.0}, np.inf))]
        env.schedule(event, 1, start)
    env.run()
    assert network.num_rated == 2


def test_a_slower_link_slows_what_is_on_it_and_a_failed_one_stops_it() -> None:
    env = simpy.Environment()
    ends: list[float] = []
    network = Network(env, [GB], lambda flow: ends.append(env.now))
    flow = Flow(3 * MB, {0: 1.0}, np.inf)
    network.join(flow)
    for time, bandwidth in ((1e-3, 0.5 * GB), (2e-3, 0.0), (5e-3, 1.5 * GB)):
        event = simpy.Event(env)
        event._ok, event.callbacks = True, [lambda _, b=bandwidth: network.set_bandwidth(0, b)]
        env.schedule(event, 0, time)
    env.run(until=3e-3)
    assert network.stalled() == [flow]
    env.run()
    assert ends == [pytest.approx(6e-3)]


@st.composite
def _problems(draw: st.DrawFn) -> tuple[list[Flow], list[float]]:
    bandwidth = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0]), min_size=1, max_size=5))
    links = st.dictionaries(
        st.integers(0, len(bandwidth) - 1), st.sampled_from([1.0, 1.0, 0.05]), min_size=1, max_size=4
    )
    loads = draw(st.lists(links, min_size=1, max_size=9))
    caps = st.sampled_from([0.25, 0.5, 1.0, np.inf])
    return [Flow(1.0, load, draw(caps)) for load in loads], bandwidth


@given(_problems())
def test_plain_and_vectorised_shares_agree_and_are_max_min_fair(problem: tuple[list[Flow], list[float]]) -> None:
    flows, bandwidth = problem
    rates = _fill(flows, bandwidth)
    np.testing.assert_allclose(_fill_many(flows, bandwidth), rates, rtol=1e-12)
    load = [sum(r * f.loads.get(link, 0) for r, f in zip(rates, flows, strict=True)) for link in range(len(bandwidth))]
    assert all(used <= width * (1 + 1e-9) for used, width in zip(load, bandwidth, strict=True))
    for rate, flow in zip(rates, flows, strict=True):
        full = [link for link in flow.loads if load[link] >= bandwidth[link] * (1 - 1e-9)]
        fastest = [max(r for r, f in zip(rates, flows, strict=True) if link in f.loads) for link in full]
        assert rate == flow.cap or any(rate >= most * (1 - 1e-9) for most in fastest)


@pytest.mark.parametrize("capped", [False, True])
def test_many_flows_of_few_kinds_get_what_they_get_one_by_one(capped: bool) -> None:
    rng = np.random.default_rng(3)
    kinds = [sorted(rng.choice(9, size=int(rng.integers(0, 4)), replace=False).tolist()) for _ in range(40)]
    of_flow = rng.integers(len(kinds), size=ALIKE_FLOWS + 1)
    pairs = [(flow, link) for flow, kind in enumerate(of_flow.tolist()) for link in kinds[kind]]
    flow, link = np.array(pairs).T
    incidence = Incidence(flow, link, np.ones((len(flow), 1)), len(of_flow))
    cap = rng.choice([1e-3, 1.0], size=(len(of_flow), 1)) if capped else np.ones((len(of_flow), 1))
    bandwidth = rng.uniform(1, 9, (9, 1))
    one_by_one = _shares(incidence, bandwidth, cap, np.ones((1, 1)))
    assert shares(incidence, bandwidth, cap) == pytest.approx(one_by_one, rel=1e-12)


def test_shares_take_a_batch_of_bandwidths() -> None:
    incidence = Incidence(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), np.ones((4, 1)), 3)
    rates = shares(incidence, np.array([[10.0, 4.0], [4.0, 10.0]]), np.full((3, 2), np.inf))
    np.testing.assert_allclose(rates, [[8, 2], [2, 2], [2, 8]])
