"""Scenario files: whole or refused with one sentence."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from simnet.changes import parse_change
from simnet.errors import InvalidInput
from simnet.prediction import predict_run, predict_step
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
        ({"name": "x", "job": {"cluster": "abci"}}, "lacks devices and model and per_device_batch; give them"),
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
        ({"cores": 4}, "lacks storage_bandwidth; give it"),
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


@pytest.mark.parametrize(
    ("table", "values", "text"),
    [
        ("exchange", {"options": {"grid": "4x4"}, "algorithm": "torus2d"}, r"grid of torus2d must be whole numbers"),
        ("exchange", {"options": {"leaders": "x"}, "algorithm": "hierarchical"}, "leaders of hierarchical must be"),
        ("exchange", {"algorithm": "direct_all_gather"}, "direct_all_gather is no all-reduce but all_gather"),
        ("exchange", {"compression": float("inf")}, "compression as a number, got inf"),
        ("exchange", {"bucket_options": {"capp": "5 MB"}}, "has no bucket option 'capp'; there are cap"),
        ("exchange", {"bucket_options": {"threshold": "5 MB"}}, "ddp takes no option 'threshold'"),
        ("batch_norm", {"group": 4, "tile": 2}, r"must have a batch_norm\.grid to lie in"),
        ("batch_norm", {"group": 4, "tile": 2, "grid": ["4", "4"]}, "grid as a list of whole numbers"),
        ("bandwidth", {"inter": True}, "as a table of numbers"),
        ("bandwidth", {"inter": float("inf")}, "cannot scale 'inter' by inf"),
        ("slow", {"nodes": {"9": 2}}, r"slow\.nodes names 9, and those of 16 devices end with 3"),
        ("slow", {"ranks": {"16": 2}}, r"slow\.ranks names 16, and those of 16 devices end with 15"),
        ("slow", {"nodes": {"a": 2}}, r"slow\.nodes names them by number, such as 3, got 'a'"),
        ("slow", {"nodes": {"1": 0.5}}, "a factor of 1 or more, got 1 = 0.5"),
        ("slow", {"late": {"1": 3}}, "late as times with units"),
        ("slow", {"links": {"x": 3}}, "named from where to where"),
        ("slow", {"links": {"n0/nic0 -> moon": 3}}, "has no link n0/nic0 -> moon; there is n0/nic0 -> "),
        ("run", {"epochs": 0.0}, "must last more than 0 epochs, got 0"),
        ("run", {"batches": [{"epochs": 1}]}, "batches lacks batch; give it as well"),
        ("run", {"batches": [1]}, r"as a list such as \[\{ epochs = 30"),
        ("run", {"epochs": 3, "batches": [{"epochs": 1, "batch": 64}]}, "either epochs or batches"),
        ("run", {"start_up": 3}, 'start_up as text with a unit, such as "20 s", got 3'),
        ("run", {"last_step": "half"}, "last_step must be one of pad, ragged, drop, got 'half'"),
        ("run", {"samples": 0, "epochs": 1}, "needs 1 or more training samples, got 0"),
    ],
)  # fmt: skip
def test_what_a_table_cannot_say_is_refused(table, values, text):
    with pytest.raises(InvalidInput, match=text):
        predict_run(parse_scenario({"name": "x", "draws": 1, "job": JOB, table: values}, where="x"))


def test_groups_of_a_model_without_batch_normalisation_are_refused():
    values = {"name": "x", "draws": 1, "job": {**JOB, "model": "vgg16"}, "batch_norm": {"group": 4}}
    with pytest.raises(InvalidInput, match="vgg16 has no batch normalisation to share in groups"):
        predict_step(parse_scenario(values, where="x"))


def test_caps_of_buckets_are_a_list_of_sizes():
    exchange = {"bucket_options": {"caps": ["1 MiB", "2 MiB"]}}
    found = parse_scenario({"name": "x", "job": JOB, "exchange": exchange}, where="x")
    assert found.exchange.bucket_options == {"caps": (2**20, 2**21)}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"job.devices": "16"}, "job needs devices as a whole number, got '16'"),
        ({"variation.between_ranks": "2 %"}, "variation needs between_ranks as a number"),
        ({"bandwidth.inter": "2"}, r"bandwidth\.inter must be a factor such as 2\.0, got '2'"),
        ({"exchange.bucket_options": {"cap": "5 ms"}}, "unit of another kind"),
        ({"draws": "many"}, "needs draws as a whole number"),
    ],
)
def test_changes_from_python_are_checked_like_a_file(changes, text):
    with pytest.raises(InvalidInput, match=text):
        changed(Scenario("x", Job("abci", 16, "resnet50", 32)), changes)


def test_changes_from_python_take_text_with_units_and_plain_si():
    plain = Scenario("x", Job("abci", 16, "resnet50", 32), input=Input(8, 1e9))
    for size in ({"cap": "2 MiB"}, {"cap": 2**21}):
        assert changed(plain, {"exchange.bucket_options": size}).exchange.bucket_options == {"cap": 2**21}
    found = changed(plain, {"input.storage_bandwidth": "2 GB/s", "exchange.options": {"grid": [4, 4]}})
    assert found.input is not None
    assert (found.input.storage_bandwidth, found.exchange.options) == (2e9, {"grid": (4, 4)})


@pytest.mark.parametrize(("columns", "rows"), [(2, 2), (4, 2), (2, 4), (3, 2), (2, 3), (4, 4), (5, 4), (4, 5)])
def test_neighbours_in_the_ring_of_a_tile_are_neighbours_in_the_grid(columns, rows):
    around = BatchNorm(columns * rows, (columns, rows), columns).members
    places = [divmod(rank, columns) for rank in around]
    assert sorted(around) == list(range(columns * rows))
    for (a, b), (c, d) in zip(places, [*places[1:], places[0]], strict=True):
        assert abs(a - c) + abs(b - d) == 1


@pytest.mark.parametrize(("columns", "rows"), [(1, 4), (4, 1), (3, 3)])
def test_a_tile_without_a_way_round_is_walked_row_by_row(columns, rows):
    places = [divmod(rank, columns) for rank in BatchNorm(columns * rows, (columns, rows), columns).members]
    assert sorted(places) == [(y, x) for y in range(rows) for x in range(columns)]
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in pairwise(places))
