"""Test your own collectives on local ranks; enable it with `pytest_plugins = ["realrun.testing"]`.

```python
def double(count):
    tensor = torch.ones(count)
    realrun.all_reduce(tensor, algorithm="ring")
    return tensor.sum().item()


def test_two_ranks_double(rank_pool):
    assert rank_pool(2).run(double, 5) == [10.0, 10.0]
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from realrun.rank_process import preload
from realrun.ranks import RankPool

preload("pytest", "torch._dynamo")  # optimizers import the latter, which takes seconds in every rank


@pytest.fixture(scope="session")
def rank_pool() -> Iterator[Callable[[int], RankPool]]:
    """Local ranks by world size, started once and kept for the session; a pool that failed is replaced."""
    pytest.importorskip("torch")
    pools: dict[int, RankPool] = {}

    def of(ranks: int) -> RankPool:
        if ranks not in pools or not pools[ranks].alive:
            pools[ranks] = RankPool(ranks, timeout=120.0)
        return pools[ranks]

    yield of
    for pool in pools.values():
        pool.close()
