"""Every combination of a grid, answered once: resumable, on all cores or on any executor."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnet.errors import InvalidInput, SimnetError

if TYPE_CHECKING:
    import pandas as pd

Point = dict[str, Any]
Rows = list[dict[str, Any]]
Answer = Callable[[Point], Rows]
Progress = Callable[[int, int], None]


def points(grid: Mapping[str, Any]) -> list[Point]:
    """Return every combination: a list in the grid is varied, anything else is the same everywhere.

    Raises
    ------
    InvalidInput : the grid is empty, or one of its lists is.
    """
    if not grid:
        raise InvalidInput(
            "a sweep needs a grid of at least one setting, got none; give cluster, ranks, algorithm, ..."
        )
    for name, values in grid.items():
        if isinstance(values, Sequence) and not isinstance(values, str) and not values:
            raise InvalidInput(f"grid setting {name!r} is an empty list; give at least one value or leave it out")
    varied = [values if isinstance(values, list | tuple) else [values] for values in grid.values()]
    return [dict(zip(grid, combination, strict=True)) for combination in itertools.product(*varied)]


def sweep(
    grid: Mapping[str, Any],
    *,
    out: Path | None = None,
    executor: Executor | None = None,
    num_processes: int = 1,
    dask_address: str | None = None,
    progress: Progress | None = None,
    answer: Answer | None = None,
) -> pd.DataFrame:
    """Answer every point of the grid and return one table, a column for each setting that varies.

    Parameters
    ----------
    grid : settings of `simnet.predict_collective`, or of `simnet.predict` where it names a scenario;
        a list is varied.
    out : CSV file. A journal beside it keeps every finished point, so that the same call after an
        interruption answers only what is missing.
    executor : anything with `submit`; otherwise the Dask cluster at `dask_address`; otherwise `num_processes` here.

    Notes
    -----
    A point that is refused (a grid that does not multiply to the ranks, say) becomes a row with its
    `refused` column set to the reason; it stops nothing.
    """
    answer = answer or _default_answer
    executor = executor or (_dask_executor(dask_address) if dask_address else None)
    todo = points(grid)
    if out and (out.is_dir() or not out.parent.is_dir()):
        raise InvalidInput(f"cannot write the table {out}; name a file in a folder that exists")
    journal = _Journal(out.with_name(out.name + ".journal")) if out else _Journal(None)
    done = {key: rows for key, rows in journal.read() if key in {_key(point) for point in todo}}
    for point, rows in _answers([p for p in todo if _key(p) not in done], answer, executor, num_processes):
        done[_key(point)] = rows
        journal.append(_key(point), rows)
        if progress:
            progress(len(done), len(todo))
    table = _table(grid, todo, done)
    if out:
        table.to_csv(out, index=False)
    return table


def load_grid(path: Path) -> dict[str, Any]:
    """Read a grid from a TOML file.

    Raises
    ------
    InvalidInput : the file cannot be read, is not TOML, or gives a bandwidth or a latency without a unit.
    """
    try:
        grid = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read the grid {path}: {error.strerror}; name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}; write lines such as ranks = [4, 16]") from error
    for name in ("bandwidth", "latency"):
        values = grid.get(name, "")
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str):
                raise InvalidInput(f'{name} in {path} needs a unit, got {value!r}; write "12.5 GB/s" or "1.5 us"')
    return grid


def _dask_executor(address: str) -> Executor:
    try:
        from distributed import Client
    except ImportError as error:
        raise InvalidInput("a Dask sweep needs Dask; pip install 'simnet-testbed[scale]'") from error
    try:
        executor: Executor = Client(address, timeout="10s").get_executor()  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no Dask scheduler answers at {address!r}; start one and give tcp://host:port") from error
    return executor


def _default_answer(point: Point) -> Rows:
    from simnet.api import answer

    return answer(point)


def _safely(answer: Answer, point: Point) -> Rows:
    try:
        return answer(point)
    except SimnetError as error:
        return [{"refused": str(error)}]


def _answers(
    todo: list[Point], answer: Answer, executor: Executor | None, num_processes: int
) -> Iterator[tuple[Point, Rows]]:
    if num_processes < 1:
        raise InvalidInput(f"num_processes must be 1 or more, got {num_processes}")
    if executor is not None:
        yield from _submitted(todo, answer, executor)
    elif num_processes == 1:
        yield from ((point, _safely(answer, point)) for point in todo)
    else:
        with ProcessPoolExecutor(num_processes) as pool:
            yield from _submitted(todo, answer, pool)


def _submitted(todo: list[Point], answer: Answer, executor: Executor) -> Iterator[tuple[Point, Rows]]:
    futures: dict[Future[Rows], Point] = {executor.submit(_safely, answer, point): point for point in todo}
    for future in as_completed(futures):
        yield futures[future], future.result()


def _key(point: Point) -> str:
    from simnet import __version__

    text = json.dumps([__version__, point], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class _Journal:
    """Finished points, one JSON line each; a line that was cut short is not there."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def read(self) -> Iterator[tuple[str, Rows]]:
        if self.path is None or not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
            with suppress(ValueError, KeyError, TypeError):
                if line.endswith("\n"):
                    entry = json.loads(line)
                    yield entry["point"], entry["rows"]

    def append(self, key: str, rows: Rows) -> None:
        if self.path is None:
            return
        torn = self.path.exists() and self.path.stat().st_size and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * bool(torn) + json.dumps({"point": key, "rows": rows}, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _table(grid: Mapping[str, Any], todo: list[Point], done: Mapping[str, Rows]) -> pd.DataFrame:
    import pandas as pd

    varied = [name for name, values in grid.items() if isinstance(values, list | tuple)]
    rows: Rows = []
    for point in todo:
        settings = {name: point[name] for name in varied}
        rows += [{**settings, **{k: v for k, v in row.items() if k not in settings}} for row in done[_key(point)]]
    table = pd.DataFrame(rows)
    return table.astype({name: "Int64" for name in table if _counts(rows, str(name)) and table[name].isna().any()})


def _counts(rows: Rows, name: str) -> bool:
    """Whether a column holds whole numbers; pandas would make them floats where a refused row has none."""
    return all(type(row[name]) is int for row in rows if row.get(name) is not None)
