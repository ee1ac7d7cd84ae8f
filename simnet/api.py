"""The plain functions behind the command line: what a notebook calls after `import simnet as sn`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnet import catalog as _catalog
from simnet.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from simnet.comparison import Comparison
    from simnet.hardware import Cluster


def cluster(name: str, *, catalog: str | Path | None = None) -> Cluster:
    """Return a machine of the catalogue, or of a folder or file of your own, as a record."""
    return _catalog.load_cluster(name, catalog)


def predict_collective(**settings: Any) -> pd.DataFrame:
    """Predict a collective on a cluster: one row per size, columns as in measurements, SI units.

    Parameters
    ----------
    settings : those of `simnet.collective_prediction.predict_collective`: ranks, cluster, algorithm, grid,
        ranks_per_node, sizes, dtype, engine, bandwidth, latency, ...

    Examples
    --------
    >>> import simnet as sn
    >>> row = sn.predict_collective(
    ...     cluster="uniform", bandwidth="12.5 GB/s", latency="1 us", ranks=16, algorithm="ring", sizes=51_200_000
    ... ).iloc[0]
    >>> float(round(row.time_s * 1e6, 3))
    7710.0
    """
    import pandas as pd

    return pd.DataFrame(_collective_rows(settings))


def compare(predicted: str | Path, measured: str | Path) -> Comparison:
    """Put predicted rows (`--json` output) beside a log of any format; error figures on hold-out rows only."""
    from simnet import comparison
    from simnet.importers.logs import read_log

    first, second = read_log(predicted), read_log(measured)
    if not first.predictions:
        return comparison.compare_logs(first.measurements, second.measurements)
    return comparison.compare(first.predictions, second.measurements)


def answer(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows for one point of a sweep, plain values only."""
    return _collective_rows(settings)


def _collective_rows(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    from dataclasses import asdict
    from inspect import signature

    from simnet import collective_prediction

    known = signature(collective_prediction.predict_collective).parameters
    for name in settings:
        if name not in known:
            raise InvalidInput(f"unknown setting {name!r}, got {settings[name]!r}; settings are {', '.join(known)}")
    if "ranks" not in settings:
        raise InvalidInput("a collective needs ranks, got none; give ranks=16, say")
    return [asdict(row) for row in collective_prediction.predict_collective(**settings)]
