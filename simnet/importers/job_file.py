"""Read a traced job that `simnet replay --save` wrote and somebody may have changed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simnet.errors import InvalidInput
from simnet.job import Operation, TraceJob
from simnet.units import Dimension, parse

_KEYS = ("num_steps", "world_size", "assumptions", "rank")
_RANK_KEYS = ("source", "recorded", "operation")
_OPERATION_KEYS = ("id", "name", "stream", "duration", "gap", "after", "collective", "size", "ranks")


def read_job(path: str | Path) -> list[TraceJob]:
    """Read the ranks of a job file.

    Raises
    ------
    InvalidInput : not readable, not such a file, an unknown key, a quantity without its unit, or a dependency on an
        operation that is not there or comes later.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; write one with simnet replay --save") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}; write one with simnet replay --save") from error
    _refuse_unknown(table, _KEYS, str(path))
    ranks = table.get("rank")
    if not isinstance(ranks, list) or not ranks or not all(isinstance(rank, Mapping) for rank in ranks):
        raise InvalidInput(f"{path} is no traced job: it has no tables [[rank]]; write one with simnet replay --save")
    return [_rank(table, rank, f"{path}, rank {index}") for index, rank in enumerate(ranks)]


def _rank(table: Mapping[str, Any], rank: Mapping[str, Any], where: str) -> TraceJob:
    _refuse_unknown(rank, _RANK_KEYS, where)
    rows = rank.get("operation")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInput(f"{where} has no tables [[rank.operation]]; a job does something")
    places: dict[int, int] = {}
    operations = []
    for index, row in enumerate(rows):
        operations.append(_operation(row, places, f"{where}, operation {row.get('id', index)}"))
        if row.get("id", index) in places:
            raise InvalidInput(f"{where} has two operations {row.get('id', index)}; give each an id of its own")
        places[row.get("id", index)] = index
    world = _whole(table.get("world_size"), "world_size", where, least=1)
    return TraceJob(
        str(rank.get("source", where)), tuple(operations), world,
        _whole(table.get("num_steps", 1), "num_steps", where, least=1) or 1,
        tuple(str(text) for text in table.get("assumptions", ())), _time(rank, "recorded", where),
    )  # fmt: skip


def _operation(row: Mapping[str, Any], places: Mapping[int, int], where: str) -> Operation:
    _refuse_unknown(row, _OPERATION_KEYS, where)
    after = row.get("after", [])
    unknown = [one for one in after if one not in places] if isinstance(after, list) else [after]
    if unknown:
        raise InvalidInput(f"{where} waits for operation {unknown[0]!r}, which does not come before it in its rank")
    size = row.get("size")
    return Operation(
        str(row.get("name", "")), _whole(row.get("stream", 0), "stream", where) or 0, _time(row, "duration", where),
        _time(row, "gap", where) if "gap" in row else 0.0, tuple(places[one] for one in after),
        str(row["collective"]) if "collective" in row else None,
        None if size is None else round(_quantity(size, Dimension.INFORMATION, "size", where)),
        _whole(row.get("ranks"), "ranks", where, least=1),
    )  # fmt: skip


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise InvalidInput(f"{where} has an unknown key {key!r}; it takes {', '.join(known)}")


def _whole(value: Any, key: str, where: str, *, least: int = 0) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise InvalidInput(f"{where} needs {key} as a whole number of {least} or more, got {value!r}")
    return value


def _time(row: Mapping[str, Any], key: str, where: str) -> float:
    if key not in row:
        raise InvalidInput(f'{where} lacks {key}; write {key} = "12.5 us"')
    return _quantity(row[key], Dimension.TIME, key, where)


def _quantity(value: Any, dimension: Dimension, key: str, where: str) -> float:
    if not isinstance(value, str):
        raise InvalidInput(f'{where} needs {key} as text with a unit, such as "12.5 us" or "4096 B", got {value!r}')
    found = parse(value, dimension, name=f"{key} in {where}")
    if found < 0:
        raise InvalidInput(f"{where} needs {key} of 0 or more, got {value!r}")
    return found
