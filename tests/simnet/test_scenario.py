"""Scenario files: whole or refused with one sentence."""

from __future__ import annotations

import json

import pytest

from simnet.changes import parse_change
from simnet.errors import InvalidInput
from simnet.scenario import BatchNorm, Input, Job, Scenario, changed, load_scenario, parse_scenario, scenarios
from simnet.step_model import StepModel

JOB = {"cluster": "abci", "devices": 16, "model": "resnet50", "per_device_batch": 32}


def test_a_scenario_reads_back_its_tables():
    found = parse_scenario(
        {
            "name": "x",
            "job": JOB,
            "exchange": {"buckets": "ddp", "bucket_options": {"cap": "25 MiB"}, "options": {"grid": [4, 4]}},
        },
        where="x",
    )
    assert found.exchange.bucket_options == {"cap": 25 * 2**20}
    assert found.exchange.options == {"grid": (4, 4)}
    assert found.global_batch == 512


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"name": "x"}, "has no 'job'"),
        ({"name": "x", "job": {**JOB, "gpus": 3}}, "unknown key 'gpus'"),
        ({"name": "x", "job": JOB, "speed": 3}, "unknown key 'speed'"),
        ({"name": "x", "job": {"cluster": "abci"}}, "lacks a key"),
        ({"name": "x", "job": {**JOB, "devices": 0}}, "job.devices of scenario 'x' must be 1 or more"),
        ({"name": "x", "job": {**JOB, "devices": -4}}, "must be 1 or more"),
        ({"name": "x", "job": {**JOB, "per_device_batch": 1.5}}, "per_device_batch as a whole number"),
        ({"name": "x", "job": 7}, "must be a table"),
        ({"name": "x", "job": JOB, "exchange": {"bucket_options": {"cap": 25}}}, "text with a unit"),
        ({"name": "x", "job": JOB, "exchange": {"compression": 0.5}}, "compression"),
        ({"name": "x", "job": JOB, "exchange": {"interference": 1.0}}, "interference"),
        ({"name": "x", "job": JOB, "batch_norm": {"group": 3}}, "must divide 16 devices"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(values, text):
    with pytest.raises(InvalidInput, match=text):
        parse_scenario(values, where="x")


def test_unknown_names_and_broken_files_are_refused(tmp_path):
    broken = tmp_path / "a.toml"
    broken.write_text("name = ")
    for name, text in (
        ("nothing", "unknown scenario"),
        (str(tmp_path / "b.toml"), "cannot read"),
        (str(broken), "is no TOML"),
    ):
        with pytest.raises(InvalidInput, match=text):
            load_scenario(name)


def test_every_scenario_of_the_catalogue_loads_under_its_file_name():
    for name, summary in scenarios().items():
        found = load_scenario(name)
        assert found.name == name
        assert summary
        assert found.source


def test_groups_of_batch_norm_set_the_batch_that_normalises():
    scenario = Scenario("x", Job("abci", 16, "resnet50", 32), batch_norm=BatchNorm(group=4))
    assert scenario.normalisation_batch == 128


def test_an_input_table_has_its_bandwidth_with_a_unit():
    table = {"cores": 40, "storage_bandwidth": "1.25 GB/s", "cached": 0.5}
    found = parse_scenario({"name": "x", "job": JOB, "input": table}, where="x")
    assert found.input == Input(40, 1.25e9, cached=0.5)
    assert parse_scenario({"name": "x", "job": JOB}, where="x").input is None


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"cores": 40, "storage_bandwidth": 1.25e9}, "storage_bandwidth as text with a unit"),
        ({"cores": 0, "storage_bandwidth": "1 GB/s"}, "input.cores must be 1 or more"),
        ({"cores": 4, "storage_bandwidth": "1 GB/s", "cached": 2}, "a fraction from 0 to 1"),
        ({"cores": 4}, "lacks a key; it takes storage_bandwidth"),
    ],
)
def test_an_input_that_means_nothing_is_refused(table, text):
    with pytest.raises(InvalidInput, match=text):
        parse_scenario({"name": "x", "job": JOB, "input": table}, where="x")


def test_scenarios_are_listed_with_what_they_assume(capsys):
    from simnet.cli.catalog import command

    command("scenarios", "sony-1088", json=True)
    row = json.loads(capsys.readouterr().out)
    assert (row["devices"], row["batch"], row["algorithm"]) == (1088, 34816, "torus2d")
    command("scenarios", "sony-1088")
    assert "assumed: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"job": {**JOB, "cluster": 5}}, "needs cluster as text"),
        ({"job": {**JOB, "precision": "fp8"}}, "precision of scenario 'x' must be one of"),
        ({"exchange": {"options": "a"}}, "needs options as a table"),
        ({"job": {**JOB, "model_options": 3}}, "needs model_options as a table"),
        ({"exchange": {"options": {"grid": ["a"]}}}, "needs options as a table"),
        ({"exchange": {"overlap": "yes"}}, "needs overlap as true or false"),
        ({"bandwidth": 3}, "needs bandwidth as a table"),
        ({"bandwidth": {"inter": "2"}}, "as factors by wire"),
        ({"variation": {"between_ranks": -1}}, "must be from 0 to below 1"),
        ({"assumed": "a"}, "needs assumed as a list"),
        ({"seed": -1}, "seed of scenario 'x'"),
        ({"seed": 1.5}, "needs seed as a whole number"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(changes, text):
    with pytest.raises(InvalidInput, match=text):
        parse_scenario({"name": "x", "job": JOB, **changes}, where="x")


def test_lists_of_options_are_as_good_as_tuples():
    given = changed(load_scenario("sony-1088"), {"exchange.options": {"grid": [16, 68]}})
    assert given.exchange.options == {"grid": (16, 68)}
    hash(tuple(given.exchange.options.items()))


def test_options_of_the_layer_table_reach_the_model():
    job = load_scenario("uber-16-tcp").with_job(model="inception_v3")
    with_factors, without = (StepModel(changed(job, {"job.model_options": {"scale": on}})) for on in (True, False))
    assert (len(with_factors.buckets), len(without.buckets)) == (284, 190)
    with pytest.raises(InvalidInput, match="inception_v3 takes no option 'depth'"):
        StepModel(changed(job, {"job.model_options": {"depth": 3}}))
    assert parse_change("model resnet101").apply(job.with_job(model_options={"scale": False})).job.model_options == {}
