from __future__ import annotations

import pytest

import simnet as sn
from simnet.errors import InvalidInput


def test_a_sweep_of_collectives_is_one_table() -> None:
    grid = {"cluster": "abci", "ranks": [4, 8], "algorithm": ["ring", "torus2d"], "sizes": "1M"}
    table = sn.sweep(grid)
    assert len(table) == 4
    assert table.groupby("algorithm")["time_s"].apply(lambda t: t.is_monotonic_increasing).all()


def test_public_names_are_those_listed() -> None:
    assert all(hasattr(sn, name) for name in sn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'predictt'"):
        _ = sn.predictt


def test_unknown_settings_are_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="unknown setting 'rank'"):
        sn.predict_collective(rank=4)
    with pytest.raises(InvalidInput, match="needs ranks"):
        sn.predict_collective(cluster="abci")
    with pytest.raises(InvalidInput, match="abci"):
        sn.cluster("abcii")


def test_a_sweep_of_a_scenario_varies_its_fields_by_dotted_name() -> None:
    table = sn.sweep({"scenario": "sony-1088", "job.devices": [4, 64], "bandwidth.inter": [0.25, 1.0]})
    assert table["devices"].tolist() == [4, 4, 64, 64]
    step = table.set_index(["job.devices", "bandwidth.inter"])["step_s"]
    assert step[4, 0.25] == step[4, 1.0], "one node does not use the network between nodes"
    assert step[64, 0.25] > step[64, 1.0]
    assert (table["efficiency_device_low"] <= table["efficiency_device"]).all()


@pytest.mark.parametrize("name", ["jobs.devices", "job", "devices", "draws.x", "job.device", "bandwidth"])
def test_a_field_no_scenario_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"no field|unknown key"):
        sn.predict("sony-1088", {name: 4})


def test_a_run_holds_the_step_it_is_made_of() -> None:
    run = sn.predict_run("you-m40")
    assert run.time_s.value > run.run.steps * run.step.step_s.value * 0.99


def test_fewer_devices_share_the_batch_of_the_recipe_and_so_does_the_step_beside_the_run() -> None:
    run = sn.predict_run("goyal-256", {"job.devices": 64})
    assert run.step.global_batch == 8192
    assert run.run.samples_per_s == pytest.approx(run.step.samples_per_s.value, rel=1e-3)
    assert run.step.efficiency_node.value < 1


def test_the_fastest_algorithm_of_every_size_with_what_was_not_tried() -> None:
    place = {"cluster": "abci", "ranks": 12, "algorithm": "auto"}
    table = sn.predict_collective(**place, sizes=[1024, 2**26])
    named = [sn.predict_collective(**{**place, "algorithm": name}, sizes=[size], engine="estimate").time_s.iloc[0]
             for name, size in zip(table.algorithm, table.size_bytes, strict=True)]  # fmt: skip
    assert table.time_s.tolist() == pytest.approx(named)
    assert table.algorithm.nunique() == 2
    assert (table.runner_up_s >= table.time_s).all()
    assert "powers of two" in table.attrs["refused"]["swing"]
    with pytest.raises(InvalidInput, match="'auto' takes no grid"):
        sn.predict_collective(**place, grid="3x4")
