"""The built wheel, installed without torch outside the clone, answers."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run(
        [str(c) for c in command], check=False, cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_answers_without_torch_and_without_the_repository(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    bin_folder = tmp_path / "env" / "bin"
    constraints = ROOT / "constraints.txt"
    _run(bin_folder / "python", "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=tmp_path)
    assert "torch" not in _run(bin_folder / "python", "-m", "pip", "list", cwd=tmp_path).split()
    devices = [
        json.loads(line)
        for line in _run(bin_folder / "simnet", "catalog", "devices", "--json", cwd=tmp_path).splitlines()
    ]
    assert {"v100-sxm2", "p100-sxm2", "tpu-v3"} <= {row["name"] for row in devices}
    rows = _run(bin_folder / "studies", "run", "seeds", "--json", "--out", tmp_path / "reports", cwd=tmp_path)
    assert len(rows.splitlines()) == 18
