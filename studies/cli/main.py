"""Entry point of the `studies` console script."""

from __future__ import annotations

from simnet.cli.app import command_line, run


def main() -> None:
    """Run `studies`."""
    run(_app)


def _app() -> None:
    command_line("studies.cli", summary="Reproductions and what-if studies, each with claims that can fail.")()
