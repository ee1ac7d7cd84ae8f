"""What every command line of this project shares: discovery, errors to exit codes, rows to stdout."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any, NoReturn

import typer

from simnet.errors import SimnetError


def command_line(package: str, *, summary: str) -> typer.Typer:
    """Build a Typer app from a package: every module with a function `command` is one subcommand.

    A module may instead hold a Typer app named `group`. The subcommand's name is the module's, unless
    the module sets `NAME` (for words Python keeps for itself, such as import).
    """
    app = typer.Typer(
        help=summary, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
        rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback(help=summary)(_no_options)
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        name = getattr(module, "NAME", info.name.replace("_", "-"))
        if hasattr(module, "command"):
            app.command(name)(module.command)
        elif hasattr(module, "group"):
            app.add_typer(module.group, name=name)
    return app


def _no_options() -> None:
    """Keep subcommands even where there is only one."""


def run(app: Callable[[], Any]) -> NoReturn:
    """Run a command line; an error of ours becomes one sentence on stderr and its exit code."""
    try:
        app()
    except SimnetError as error:
        _leave(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except MemoryError as error:
        _leave(f"out of memory ({error}); ask for fewer ranks, sizes or draws", 3)
    except SystemExit as leaving:
        # Typer turns a closed pipe into exit code 1; whoever reads through `head` has had its answer.
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise
    except OSError as error:
        if error.filename is None:
            raise
        _leave(f"{error.filename}: {error.strerror}; name another file", 2)
    sys.exit(0)


def _leave(sentence: str, exit_code: int) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(exit_code)


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr while it is open; call what it yields with (done, total)."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def record(row: Any) -> dict[str, Any]:
    """Return a row as a plain mapping."""
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else dict(row)


def print_json(rows: Iterable[Mapping[str, Any] | Any]) -> None:
    """Write one JSON object per line; numbers are SI, keys are stable."""
    for row in rows:
        print(json.dumps(record(row), default=_plain, allow_nan=False), flush=True)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"cannot write {type(value).__name__} as JSON")
