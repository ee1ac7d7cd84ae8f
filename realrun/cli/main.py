"""Entry point of the `realrun` console script."""

from __future__ import annotations

from simnet.cli.app import command_line, run


def main() -> None:
    """Run `realrun`."""
    run(command_line("realrun.cli", summary="Run and measure collectives and training with PyTorch."))
