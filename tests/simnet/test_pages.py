import doctest
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "name",
    [
        "reference/models", "reference/input-pipeline", "reference/time-to-train", "how-to/add-a-model",
        "how-to/find-the-slow-stage",
    ],
)  # fmt: skip
def test_examples_of_the_page_give_what_it_says(name):
    failed, tried = doctest.testfile(str(PAGES / f"{name}.md"), module_relative=False, verbose=False)
    assert tried > 0
    assert failed == 0
