"""The documentation runs: every `$ command` of a console block, every link, the builder without a warning."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from simnet.cli.app import command_line

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("simnet", "realrun", "studies")
RUN = "from simnet.cli.main import main; main()"
# What the page's own measurement says where other work on the machine disturbed it; then it is made anew.
UNREST = "the rows contradict each other"
NEEDS_MORE = re.compile(r"realrun (lab|calibrate)|srun|torchrun|mpirun|closed-loop|--out /|cluster-job")


def console_blocks(page: Path) -> list[str]:
    return re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands(block: str) -> list[str]:
    joined = block.replace("\\\n", " ")
    return [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]


def pages_with_commands() -> list[Path]:
    return [page for page in PAGES if page.exists() and console_blocks(page)]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", pages_with_commands(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_a_page_runs_in_order(page: Path, tmp_path: Path) -> None:
    chosen = [command for block in console_blocks(page) for command in commands(block)]
    chosen = [command for command in chosen if command.startswith(PROGRAMS) and not NEEDS_MORE.search(command)]
    if not chosen:
        pytest.skip("all commands of this page need a cluster or root")
    for attempt in range(1, 4):
        failed = first_failure(chosen, tmp_path / str(attempt))
        if UNREST not in failed:
            break
    assert not failed, f"{page.name}: {failed}"


def first_failure(chosen: list[str], folder: Path) -> str:
    """Run commands in a new folder; the first that fails with all it printed, or nothing."""
    folder.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in chosen:
        result = subprocess.run(
            command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if result.returncode:
            return f"$ {command}\n{result.stdout}{result.stderr}"
    return ""


def parts(block: str) -> list[list[str]]:
    """Commands of a console block, each with the lines of the answer that the page shows."""
    found = re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.M)
    return [part.rstrip().splitlines() for part in found if part.strip()]


def blocks_with_answers() -> list[str]:
    return [b for page in PAGES for b in console_blocks(page) if any(len(part) > 1 for part in parts(b))]


@pytest.mark.parametrize("block", blocks_with_answers(), ids=lambda block: block.splitlines()[0][2:])
def test_an_answer_that_a_page_shows_is_what_is_printed(block: str, tmp_path: Path) -> None:
    for command, *shown in parts(block):
        words = [sys.executable, "-c", RUN, *shlex.split(command)[1:]]
        printed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        lines = ["...", *(line.rstrip() for line in printed.splitlines())]
        assert [line for line in shown if line.strip() not in lines and line.rstrip() not in lines] == [], printed


def unknown_options(command: str) -> list[str]:
    """Options of a documented command that its program does not have; nothing is run."""
    words = shlex.split(command.split(" > ", maxsplit=1)[0], comments=True)
    found = typer.main.get_command(command_line(f"{words.pop(0)}.cli", summary=""))
    while words and (inner := getattr(found, "commands", {}).get(words[0])):
        found, words = inner, words[1:]
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words
    return [word for word in own if word.startswith("--") and word.split("=")[0] not in known]


def every_command(page: Path) -> list[str]:
    blocks = re.findall(r"^```(?:console|text|shell|sh|)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = (line for block in blocks for line in block.replace("\\\n", " ").splitlines())
    plain = (re.sub(r"^(\$ )?(sudo )?", "", line) for line in lines)
    return [line for line in plain if re.match(rf"({'|'.join(PROGRAMS)}) [a-z]", line)]


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_option_of_a_documented_command_exists(page: Path) -> None:
    wrong = {command: unknown for command in every_command(page) if (unknown := unknown_options(command))}
    assert not wrong


@pytest.mark.parametrize("page", [p for p in PAGES if p.exists()], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_relative_link_of_a_page_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to {missing}"


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", ROOT / "docs", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
