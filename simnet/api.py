"""The plain functions behind the command line: what a notebook calls after `import simnet as sn`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnet import catalog as _catalog
from simnet.errors import InvalidInput
from simnet.hardware import Cluster as _Cluster
from simnet.schedule import Schedule as _Schedule

if TYPE_CHECKING:
    import pandas as pd

    from simnet.comparison import Comparison
    from simnet.hardware import Cluster
    from simnet.prediction import RunPrediction, StepPrediction
    from simnet.scenario import Scenario


def cluster(name: str, *, catalog: str | Path | None = None) -> Cluster:
    """Return a machine of the catalogue, or of a folder or file of your own, as a record."""
    return _catalog.load_cluster(name, catalog)


def predict(
    scenario: str | Scenario, changes: Mapping[str, Any] | None = None, *, catalog: str | Path | None = None
) -> StepPrediction:
    """Predict one training step of a scenario: time, speed and efficiencies with 80 % intervals, and a breakdown.

    Parameters
    ----------
    scenario : name in the catalogue, path of a TOML file, or a record
    changes : fields to change first, by dotted name, such as {"job.devices": 64, "bandwidth.inter": 2.0};
        another number of devices leaves the grid of the schedule to its default
    catalog : folder with catalogue files of your own

    Examples
    --------
    >>> import simnet as sn
    >>> one = sn.predict("sony-1088", {"job.devices": 1})
    >>> one.efficiency_device.value
    1.0
    """
    from simnet.prediction import predict_step

    return predict_step(_scenario(scenario, changes, catalog), catalog=catalog)


def predict_run(
    scenario: str | Scenario, changes: Mapping[str, Any] | None = None, *, catalog: str | Path | None = None
) -> RunPrediction:
    """Predict the whole run of a scenario's recipe: time to train and the steps it is made of; see `predict`."""
    from simnet import prediction

    return prediction.predict_run(_scenario(scenario, changes, catalog), catalog=catalog)


def _scenario(scenario: str | Scenario, changes: Mapping[str, Any] | None, catalog: str | Path | None) -> Scenario:
    from simnet.prediction import with_devices
    from simnet.scenario import changed, load_scenario

    found = load_scenario(scenario, catalog) if isinstance(scenario, str) else scenario
    changes = changes or {}
    if isinstance(changes.get("job.devices"), int) and changes["job.devices"] != found.job.devices:
        found = with_devices(found, changes["job.devices"])
    return changed(found, changes)


def predict_collective(**settings: Any) -> pd.DataFrame:
    """Predict a collective on a cluster: one row per size, columns as in measurements, SI units.

    Parameters
    ----------
    settings : those of `simnet.collective_prediction.predict_collective`: ranks, cluster, algorithm, grid,
        ranks_per_node, sizes, dtype, engine, bandwidth, latency, ... With algorithm="auto" every row has the
        fastest algorithm of its size and the runner-up; `attrs["refused"]` says which were not tried, and why

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

    rows, refused = _collective_rows(settings)
    table = pd.DataFrame(rows)
    table.attrs["refused"] = refused
    return table


def compare(
    predicted: str | Path, measured: str | Path, *, profiles: Sequence[str | Path] = ()
) -> Comparison:  # fmt: skip
    """Put predicted rows (`--json` output) beside a log of any format; error figures on hold-out rows only.

    Parameters
    ----------
    profiles : files the predictions were made with, which tell the rows that are no hold-out
    """
    from simnet import comparison
    from simnet.importers.logs import read_log
    from simnet.profiles import named_profiles

    first, second = read_log(predicted), read_log(measured)
    if not first.predictions:
        return comparison.compare_logs(first.measurements, second.measurements)
    return comparison.compare(first.predictions, second.measurements, profiles=named_profiles(profiles))


def answer(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows for one point of a sweep, plain values only.

    Parameters
    ----------
    settings : those of `predict_collective`; or `scenario`, `catalog` and changes by dotted name as in `predict`, with
        `run = true` for the time to train beside the step.
    """
    if "scenario" not in settings:
        return _collective_rows(settings)[0]
    changes = {name: value for name, value in settings.items() if name not in ("scenario", "run", "catalog")}
    if not settings.get("run"):
        return [_step_row(predict(settings["scenario"], changes, catalog=settings.get("catalog")))]
    found = predict_run(settings["scenario"], changes, catalog=settings.get("catalog"))
    return [_step_row(found.step) | found.time_s.columns("train_s")]


def _step_row(step: StepPrediction) -> dict[str, Any]:
    row: dict[str, Any] = {
        "scenario": step.scenario, "devices": step.devices, "per_device_batch": step.per_device_batch,
        "global_batch": step.global_batch,
    }  # fmt: skip
    for name in ("step_s", "samples_per_s", "efficiency_device", "efficiency_node"):
        row |= getattr(step, name).columns(name)
    return row | {f"{part}_s": value for part, value in step.parts_s.items()} | {"basis": step.basis}


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "ranks": ((Integral,), "a whole number"),
    "ranks_per_node": ((Integral,), "a whole number"),
    "cluster": ((str, _Cluster), "a name of the catalogue, a .toml file or a record"),
    "algorithm": ((str, _Schedule), "a name of the catalogue or a schedule"),
    "grid": ((str, tuple, list), 'text such as "4x4" or whole numbers'),
    "sizes": ((str, Integral, Sequence), 'text such as "4:32M:2" or whole bytes'),
    "bandwidth": ((str, Real), "text such as '12.5 GB/s' or bytes/s"),
    "latency": ((str, Real), "text such as '1.5 us' or s"),
    "dtype": ((str,), "a name such as float"),
    "engine": ((str,), "auto, estimate or simulate"),
    "catalog": ((str, Path), "a folder"),
}


def _is(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _collective_rows(settings: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows, and algorithms that were not tried with the reason."""
    from dataclasses import asdict
    from inspect import signature

    from simnet import collective_prediction
    from simnet.costs.registry import of_text

    known = signature(collective_prediction.predict_collective).parameters
    for name in settings:
        if name not in known:
            raise InvalidInput(f"unknown setting {name!r}, got {settings[name]!r}; settings are {', '.join(known)}")
    if "ranks" not in settings:
        raise InvalidInput("a collective needs ranks, got none; give ranks=16, say")
    for name, (kinds, wanted) in _KINDS.items():
        if settings.get(name) is not None and not _is(settings[name], kinds):
            raise InvalidInput(f"{name} must be {wanted}, got {settings[name]!r}")
    cost = settings.get("cost")
    priced = {**settings, "cost": of_text(cost)} if isinstance(cost, str) else dict(settings)
    if settings.get("algorithm") == "auto":
        return _chosen_rows(priced)
    return [asdict(row) for row in collective_prediction.predict_collective(**priced)], {}


def _chosen_rows(settings: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    from dataclasses import asdict

    from simnet.choice import choose
    from simnet.collective_prediction import find_site

    for name in ("grid", "profile", "engine"):
        if settings.pop(name, None) not in (None, "auto"):
            raise InvalidInput(f"algorithm 'auto' takes no {name}; name an algorithm or leave {name} out")
    del settings["algorithm"]
    sizes = settings.pop("sizes", "4:32M:2")
    of_choice = {name: settings.pop(name) for name in ("dtype", "cost") if name in settings}
    choice = choose(find_site(**settings), sizes, **of_choice)
    return [asdict(row) for row in choice.rows], choice.refused
