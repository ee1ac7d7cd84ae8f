"""Entry point of the `realrun` console script."""

from __future__ import annotations

import sys

from simnet.cli.app import command_line, run


def main() -> None:
    """Run `realrun`."""
    try:
        run(_app)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("error: realrun needs PyTorch, and it is not installed; install simnet-testbed[real]", file=sys.stderr)
        sys.exit(2)


def _app() -> None:
    command_line("realrun.cli", summary="Run and measure collectives and training with PyTorch.")()
