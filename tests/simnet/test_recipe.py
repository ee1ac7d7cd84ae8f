import pytest

from simnet.catalog.listing import KINDS
from simnet.errors import InvalidInput
from simnet.recipe import Evaluation, Phase, Recipe, constant, find, recipes


def test_sony_doubles_its_batch():
    sony = find("sony")
    assert (sony.batch_at(0), sony.batch_at(29.9), sony.batch_at(30), sony.batch_at(89.9)) == (
        34816, 34816, 69632, 69632,
    )  # fmt: skip
    assert sony.epochs == 90


def test_an_epoch_after_the_end_is_refused():
    with pytest.raises(InvalidInput, match="there is no epoch 90"):
        find("goyal").batch_at(90)


def test_a_published_batch_converges_and_a_larger_one_is_unknown():
    goyal = find("goyal")
    assert goyal.converges == "yes"
    assert goyal.starting_at(8193).converges == "unknown"


def test_a_schedule_grows_in_proportion():
    phases = find("smith").starting_at(4096).phases
    assert [phase.batch for phase in phases] == [4096, 8192]


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_trained_at_its_own_batch(name):
    recipe = find(name)
    assert recipe.converges == "yes"
    assert recipe.source


def test_an_unknown_recipe_lists_the_known():
    with pytest.raises(InvalidInput, match=r"unknown recipe 'sonny'.*sony"):
        find("sonny")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Phase(0, 256), "more than 0 epochs"),
        (lambda: Phase(float("inf"), 256), "more than 0 epochs"),
        (lambda: Phase(90, 0), "batch of 1 or more"),
        (lambda: Phase(90, 2.5), "batch of 1 or more"),
        (lambda: Evaluation(every=0), "every 1 or more epochs"),
        (lambda: Recipe("x", "resnet50", (), 1, ""), "has no phases"),
        (lambda: Recipe("x", "resnet50", constant(1, 1), 1, "", samples=0), "1 or more training samples"),
    ],
)
def test_records_that_mean_nothing_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_recipes_are_listed_with_their_schedules():
    rows = {row["name"]: row for row in KINDS["recipes"]()}
    assert rows.keys() == recipes().keys()
    assert rows["sony"]["phases"] == [[30, 34816], [60, 69632]]
