"""Leaving links out of the sharing changes no time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnet.algorithms.registry import build
from simnet.costs.alpha_beta import AlphaBeta
from simnet.errors import Unsupported
from simnet.fabric import Fabric, Link
from simnet.interpreters.contention import Group, Widths, contended_links, crowd
from simnet.interpreters.simulate import LinkChange, simulate
from simnet.paths import FabricPaths, Paths, UniformPaths
from simnet.placement import Placement
from tests.simnet.fabrics import nodes, on_torus, torus

NAMES = ("ring", "torus2d", "torus2d_concurrent", "direct", "halving_doubling", "double_binary_tree", "hierarchical")
COST = AlphaBeta()


def _leaves(per_leaf: int, uplink: float) -> FabricPaths:
    """Twelve devices under leaves of per_leaf, one spine, and uplinks of that bandwidth."""
    links = []
    for device in range(12):
        leaf = f"leaf{device // per_leaf}"
        links += [Link(f"d{device}", leaf, 1e-6, 10e9), Link(leaf, f"d{device}", 0.0, 10e9)]
    for leaf in range(12 // per_leaf):
        links += [Link(f"leaf{leaf}", "spine", 1e-7, uplink), Link("spine", f"leaf{leaf}", 1e-7, uplink)]
    return FabricPaths(Fabric(links), Placement(tuple(f"d{i}" for i in range(12))))


def _fabrics() -> list[Paths]:
    return [
        nodes(3, 4), nodes(6, 2, nic=60e9), nodes(3, 4, pair=5e9), on_torus(torus(4, 3), 4, 3),
        UniformPaths(12, 1e-6, 1e9), _leaves(4, 40e9), _leaves(4, 15e9), _leaves(3, 10e9),
    ]  # fmt: skip


FABRICS = _fabrics()


@given(st.sampled_from(NAMES), st.sampled_from(range(len(FABRICS))), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_links_left_out_of_the_sharing_change_nothing(name: str, fabric: int, skewed: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = FABRICS[fabric]
    schedule = build(name, 12)
    starts = rng.uniform(0, 1e-5, 12) * skewed
    count = int(rng.integers(1, 40_000))
    quick = simulate(schedule, count, paths, COST, starts=starts)
    all_shared = [LinkChange(0.0, link, 1.0) for link in range(len(paths.link_bandwidth))]
    full = simulate(schedule, count, paths, COST, starts=starts, changes=all_shared)
    np.testing.assert_allclose(quick.finish, full.finish, rtol=1e-9)


def _contended(name: str, paths: Paths, **options: object) -> set[str]:
    mask = contended_links([Group(build(name, paths.world_size, **options))], paths)
    links = paths.fabric.links if isinstance(paths, FabricPaths) else ()
    return {f"{links[i].src}>{links[i].dst}" for i in np.flatnonzero(mask).tolist()}


def test_a_ring_shares_nothing_and_columns_of_a_torus_share_the_nic() -> None:
    assert _contended("ring", nodes(3, 4)) == set()
    shared = _contended("torus2d", nodes(3, 4), grid=(4, 3))
    assert shared
    assert all("host" in link and "switch" in link for link in shared)
    assert len(shared) == 3


def test_uplinks_with_full_bisection_are_not_shared_and_oversubscribed_ones_are() -> None:
    assert not any("spine" in link for link in _contended("direct", _leaves(4, 40e9)))
    assert any("spine" in link for link in _contended("direct", _leaves(4, 15e9)))


def test_ports_of_two_channels_are_contended_even_in_different_steps() -> None:
    mask = contended_links([Group(build("torus2d_concurrent", 12))], UniformPaths(12, 1e-6, 1e9))
    assert mask.all()
    assert not contended_links([Group(build("torus2d", 12))], UniformPaths(12, 1e-6, 1e9)).any()


def test_links_that_vary_are_only_left_out_where_no_draw_fills_them() -> None:
    paths = _leaves(4, 40e9)
    width = paths.link_bandwidth
    schedule = [Group(build("direct", 12))]
    assert not contended_links(schedule, paths, widths=Widths(width, width))[24:].any()
    assert contended_links(schedule, paths, widths=Widths(0.9 * width, 1.1 * width))[24:].any()


def test_two_jobs_on_one_link_make_it_contended() -> None:
    ring = build("ring", 3)
    groups = [Group(ring, np.array([0, 4, 8]), lane=0), Group(ring, np.array([1, 5, 9]), lane=1)]
    assert not contended_links(groups[:1], nodes(3, 4)).any()
    assert contended_links(groups, nodes(3, 4)).any()


@pytest.mark.parametrize(("name", "most"), [("ring", 1), ("torus2d", 4), ("direct", 32)])
def test_the_crowd_on_a_nic_is_what_all_its_senders_can_have_in_flight(name: str, most: int) -> None:
    try:
        schedule = build(name, 12, **({"grid": (4, 3)} if name == "torus2d" else {}))
    except Unsupported:
        return
    paths = nodes(3, 4)
    nic = [i for i, link in enumerate(paths.fabric.links) if link.dst == "switch"]
    assert crowd(schedule, paths)[nic].tolist() == [most] * 3
