"""One file from a job: what the machine is, what messages cost, and points of which a third is held out."""

from __future__ import annotations

import json
import sys

import pytest

from realrun.campaign import campaign
from realrun.cli.main import main
from realrun.plans import Campaign
from simnet.errors import InvalidInput
from simnet.importers.logs import read_log
from simnet.points import parse_holdout

ALGORITHMS = (("ring", {}), ("torus2d", {"grid": (2, 2)}), ("hierarchical", {"ranks_per_node": 3}), ("native", {}))


def carried_home(plan: Campaign) -> list[dict]:
    return list(campaign(plan))


def plan(budget: float, **settings) -> Campaign:
    return Campaign(budget, (1024, 4096, 16384), ALGORITHMS, pairs=1, iterations=2, warmup=1, **settings)


def test_a_campaign_leaves_machine_probe_and_points_with_a_third_held_out(rank_pool, tmp_path):
    rows = rank_pool(4).run(carried_home, plan(300.0))[0]
    kinds = [row.get("kind", "point") for row in rows]
    assert kinds[0] == "machine"
    assert rows[0]["hosts"][0]["cores"] >= 1
    assert kinds[-1] == "end"
    assert [row["algorithm"] for row in rows if row.get("kind") == "left_out"] == ["hierarchical"]
    points = [row for row in rows if row.get("kind", "point") == "point"]
    assert sorted((p["algorithm"], p["size_bytes"]) for p in points) == sorted(
        (name, size) for name in ("ring", "torus2d", "native") for size in (1024, 4096, 16384)
    )
    assert sum(p["holdout"] for p in points) == 3

    path = tmp_path / "job.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = read_log(path)
    _, held = parse_holdout(log.measurements, [])
    assert {(row.algorithm, row.size_bytes) for row in held} == {
        (p["algorithm"], p["size_bytes"]) for p in points if p["holdout"]
    }
    assert len(held) == 3


def test_a_spent_budget_ends_the_campaign_with_what_it_has(rank_pool):
    rows = rank_pool(2).run(carried_home, plan(1e-3))[0]
    assert rows[-1]["kind"] == "end"
    assert rows[-1]["points_left"] > 0
    assert rows[0]["kind"] == "machine"


def test_the_order_and_so_the_hold_out_follow_the_seed(rank_pool):
    first, again, other = (rank_pool(2).run(carried_home, plan(300.0, seed=seed))[0] for seed in (1, 1, 2))

    def order(rows):
        return [(r["algorithm"], r["size_bytes"], r["holdout"]) for r in rows if "holdout" in r]

    assert order(first) == order(again) != order(other)


@pytest.mark.parametrize("given", [{"iterations": 0}, {"pairs": -1}, {"seed": -1}, {"warmup": -1}], ids=str)
def test_a_campaign_that_cannot_be_is_refused_before_a_rank_starts(given):
    with pytest.raises(InvalidInput, match=r"iterations must be 1 or more, .* got"):
        Campaign(1.0, (4,), (), **given)


def test_a_file_that_exists_is_not_added_to(monkeypatch, capsys, tmp_path):
    path = tmp_path / "job.jsonl"
    path.write_text("{}\n")
    monkeypatch.setattr(sys, "argv", ["realrun", "calibrate", "--ranks", "2", "--out", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "exists; name another file" in capsys.readouterr().err
    assert path.read_text() == "{}\n"
