from __future__ import annotations

import json
from pathlib import Path

import pytest

from simnet.algorithms.registry import build
from simnet.costs.alpha_beta import AlphaBeta
from simnet.exporters.perfetto import write_trace
from simnet.interpreters.program import Job
from simnet.interpreters.simulate import simulate_jobs
from tests.simnet.fabrics import nodes


def test_a_trace_has_a_track_per_rank_and_per_link_and_every_message_twice(tmp_path: Path) -> None:
    paths = nodes(2, 2)
    done = simulate_jobs([Job(build("ring", 4), 4000)], paths, AlphaBeta(), timeline=True)
    assert done.timeline is not None
    names = [f"link {i}" for i in range(len(paths.link_bandwidth))]
    write_trace(done.timeline, tmp_path / "trace.json", paths=paths, link_names=names, name="ring")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == 2 * done.num_messages == 2 * 24
    assert {e["pid"] for e in slices} == {0, 1, 2, 3}
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(done.time * 1e6)
    starts, ends = ([e["id"] for e in events if e["ph"] == phase] for phase in "sf")
    assert sorted(starts) == sorted(ends) == list(range(24))
    counters = [e for e in events if e["ph"] == "C"]
    used = {e["name"] for e in counters}
    assert used == {names[link] for a, b in ((0, 1), (1, 2), (2, 3), (3, 0)) for link in _route(paths, a, b)}
    for name in used:
        levels = [e["args"]["messages"] for e in counters if e["name"] == name]
        assert levels[-1] == 0
        assert min(levels) == 0


def _route(paths, src: int, dst: int) -> list[int]:
    vertices = paths.placement.vertices
    return list(paths.fabric.route(vertices[src], vertices[dst]))
