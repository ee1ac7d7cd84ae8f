"""Entry point of the `realrun` console script."""

from __future__ import annotations

import re
import sys

from simnet.cli.app import command_line, run

# What PyTorch says where host or device memory is at its end.
_OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory")


def main() -> None:
    """Run `realrun`."""
    try:
        run(_app)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("error: realrun needs PyTorch, and it is not installed; install simnet-testbed[real]", file=sys.stderr)
        sys.exit(2)
    except RuntimeError as error:
        if not _OUT_OF_MEMORY.search(str(error)):
            raise
        print("error: out of memory; ask for smaller sizes, batches or fewer ranks on a machine", file=sys.stderr)
        sys.exit(3)


def _app() -> None:
    command_line("realrun.cli", summary="Run and measure collectives and training with PyTorch.")()
