"""Entry point of the `simnet` console script."""

from __future__ import annotations

from simnet.cli.app import command_line, run


def main() -> None:
    """Run `simnet`."""
    run(_app)


def _app() -> None:
    command_line("simnet.cli", summary="Predict collectives, training steps and runs on a described cluster.")()
