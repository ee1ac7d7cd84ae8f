"""Models of this package and of a folder of your own: `models/NAME.toml` in the folder, or any .toml file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simnet.catalog.loader import FOLDER_VARIABLE
from simnet.errors import InvalidInput
from simnet.models import registry, table
from simnet.workload import Model


def load_model(name: str, folder: str | Path | None = None, /, **options: Any) -> Model:
    """Read a model of the folder or of a .toml file, or build one of this package's.

    Raises
    ------
    InvalidInput : there is none of that name, its file is wrong, or it does not take an option.
    """
    path = Path(name) if name.endswith(".toml") else _own(folder).get(name)
    if path is None:
        return registry.build(name, **options)
    given = sorted(key for key, value in options.items() if value is not None)
    if given:
        raise InvalidInput(f"{path} is a fixed layer table and takes no options, got {', '.join(given)}")
    return _read(path)


def _read(path: Path) -> Model:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"model file {path} cannot be read: {error}") from error
    return table.loads(text, place=str(path))


def _own(folder: str | Path | None) -> dict[str, Path]:
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        return {}
    if not Path(chosen).is_dir():
        raise InvalidInput(f"the catalogue folder {chosen} is no folder; correct --catalog or {FOLDER_VARIABLE}")
    return {path.stem: path for path in sorted(Path(chosen, "models").glob("*.toml"))}


def model_rows(folder: str | Path | None = None) -> Iterator[dict[str, Any]]:
    """Give one row per model: name, parameters, flop and bytes of one sample, and the source."""
    own = _own(folder)
    for name in sorted({*registry.models(), *own}):
        yield _row(name, load_model(name, folder), own.get(name))


def _row(name: str, model: Model, path: Path | None) -> dict[str, Any]:
    return {
        "name": name,
        "summary": f"layer table of {path}" if path else registry.find(name).summary,
        "sample": model.sample,
        "options": [option for option, _ in model.options],
        "parameters": model.num_parameters,
        "gradient_bytes_float32": model.gradient_bytes(),
        "forward_flop": model.forward_flop,
        "training_flop": model.training_flop,
        "activation_bytes_float32": model.activation_bytes(),
        "layers": len(model.layers),
        "source": model.source,
    }
