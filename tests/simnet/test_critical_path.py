from __future__ import annotations

import numpy as np
import pytest

from simnet.algorithms.registry import build
from simnet.critical_path import explain_collective
from simnet.errors import Unsupported
from simnet.paths import UniformPaths
from tests.simnet.fabrics import nodes

US = 1e-6


def _uniform(n: int) -> UniformPaths:
    return UniformPaths(n, 1 * US, 12.5e9)


@pytest.mark.parametrize("name", ["ring", "torus2d", "halving_doubling", "double_binary_tree", "hierarchical"])
@pytest.mark.parametrize("shared", [False, True])
def test_terms_add_up_to_the_time_and_hops_follow_each_other(name: str, shared: bool) -> None:
    paths = nodes(3, 4) if shared else _uniform(12)
    starts = np.random.default_rng(1).uniform(0, 20 * US, 12)
    schedule = build(name, 12)
    found = explain_collective(schedule, schedule.num_chunks * 1000, paths, gamma=1e-11, starts=starts)
    assert sum(found.terms_s.values()) == pytest.approx(found.time_s, rel=1e-9)
    assert found.hops[-1].end_s == found.time_s
    for before, after in zip(found.hops, found.hops[1:], strict=False):
        assert {before.src, before.dst} & {after.src, after.dst}
        assert before.step < after.step
        assert after.start_s == pytest.approx(before.end_s + after.waiting_s, rel=1e-9)
    assert all(link.utilisation <= 1 + 1e-9 for link in found.links)


def test_terms_of_a_ring_are_those_of_its_formula() -> None:
    n, size = 16, 16 * 125_000
    found = explain_collective(build("ring", n), size // 4, _uniform(n), gamma=2e-11)
    assert len(found.hops) == 2 * (n - 1)
    wanted = {"latency": 30 * US, "bandwidth": 30 * 10 * US, "reduction": 15 * 2.5 * US, "sharing": 0, "waiting": 0}
    assert {name: time / US for name, time in found.terms_s.items()} == pytest.approx(
        {name: time / US for name, time in wanted.items()}, abs=1e-6
    )
    assert [link.utilisation for link in found.links] == pytest.approx([300 / (330 + 37.5)] * 2 * n)


def test_a_straggler_is_where_the_critical_path_begins() -> None:
    starts = np.zeros(8)
    starts[5] = 1e-3
    found = explain_collective(build("ring", 8), 8000, _uniform(8), starts=starts)
    assert 5 in (found.hops[0].src, found.hops[0].dst)
    assert found.terms_s["waiting"] == pytest.approx(1e-3)


def test_the_shared_nic_is_the_link_that_holds_it_up() -> None:
    found = explain_collective(build("torus2d", 16, grid=(4, 4)), 16 * 100_000, nodes(4, 4, nic=5e9))
    slowest = max(found.links, key=lambda link: link.critical_s)
    assert "host" in slowest.link
    assert found.terms_s["sharing"] > found.terms_s["latency"]
    assert found.links[0].link.startswith(("host", "switch"))


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(Unsupported, match="explain fewer ranks"):
        explain_collective(build("ring", 2048), 2048, _uniform(2048))
