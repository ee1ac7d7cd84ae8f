"""Every notebook is executed from top to bottom, and is committed with its results."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def figures(notebook: nbformat.NotebookNode) -> list[float]:
    """All numbers that the cells of a notebook print."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    texts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)
    return [float(number.replace(",", "")) for text in texts for number in re.findall(r"\d[\d,]*\.?\d*", text)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    shown = figures(notebook)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, startup_timeout=300, resources=place).execute()
    stale = f"run jupyter nbconvert --execute --inplace notebooks/{path.name}: it shows figures of another version"
    assert figures(notebook) == pytest.approx(shown, rel=0.02, abs=0.002), stale


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_is_readable_without_running_it(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert all(output.output_type != "error" for cell in cells for output in cell.outputs)
