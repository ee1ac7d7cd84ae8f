"""Commands as a user types them, run in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from simnet.cli.app import command_line


def run(*arguments: str) -> str:
    """Return what a command prints; errors that are not meant for the terminal come out."""
    outcome = CliRunner().invoke(command_line("simnet.cli", summary="test"), list(arguments))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.stdout


def rows(*arguments: str) -> list[dict[str, Any]]:
    """Return the JSON objects a command prints."""
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]
