from __future__ import annotations

import pytest

import simnet as sn
from simnet.errors import InvalidInput


def test_a_sweep_of_collectives_is_one_table() -> None:
    grid = {"cluster": "abci", "ranks": [4, 8], "algorithm": ["ring", "torus2d"], "sizes": "1M"}
    table = sn.sweep(grid)
    assert len(table) == 4
    assert table.groupby("algorithm")["time_s"].apply(lambda t: t.is_monotonic_increasing).all()


def test_public_names_are_those_listed() -> None:
    assert all(hasattr(sn, name) for name in sn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'predictt'"):
        _ = sn.predictt


def test_unknown_settings_are_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="unknown setting 'rank'"):
        sn.predict_collective(rank=4)
    with pytest.raises(InvalidInput, match="needs ranks"):
        sn.predict_collective(cluster="abci")
    with pytest.raises(InvalidInput, match="abci"):
        sn.cluster("abcii")
