"""A report as a reader sees it: rendered by a browser, its tables whole and its picture drawn."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from studies.registry import find
from studies.report import write
from studies.study import Claim, Picture, Result, Table

pytestmark = pytest.mark.browser

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
]  # fmt: skip


@pytest.fixture
def page(tmp_path: Path) -> Path:
    if not CHROMIUM:
        pytest.skip("no chromium on this machine; install the package chromium")
    rows = [{"id": "a<b", "predicted": 1.5, "published": 1.25}, {"id": "b", "predicted": 2.0, "published": 2.5}]
    picture = Picture("line", "a red block", lambda figure: figure.add_subplot().set_facecolor("red"))
    result = Result(rows, [Claim("rows are there", True)], [Table("Rows", rows)], [picture])
    write(find("seeds"), result, tmp_path)
    return tmp_path / "seeds.html"


def browser(page: Path, *options: str) -> str:
    command = [CHROMIUM, *QUIET, f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout


def test_tables_and_claims_reach_the_reader(page: Path) -> None:
    dom = browser(page, "--dump-dom")
    assert "a&lt;b" in dom, "text of a row is shown, not taken for a tag"
    assert "rows are there" in dom
    assert "1.25" in dom


def test_the_picture_is_inside_the_page_and_drawn(page: Path) -> None:
    shot = page.parent / "shot.png"
    for png in page.parent.glob("seeds-*.png"):
        png.unlink()
    browser(page, f"--screenshot={shot}", "--window-size=1200,1600")
    pixels = matplotlib.image.imread(shot)[..., :3]
    red = (pixels[..., 0] > 0.9) & (pixels[..., 1] < 0.1) & (pixels[..., 2] < 0.1)
    assert np.mean(red) > 0.02
