import doctest
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", ["models", "input-pipeline", "time-to-train"])
def test_examples_of_the_page_give_what_it_says(name):
    failed, tried = doctest.testfile(str(PAGES / f"{name}.md"), module_relative=False, verbose=False)
    assert tried > 0
    assert failed == 0
