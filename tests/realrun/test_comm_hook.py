"""Training with the DDP hook equals plain DDP, and both equal one process on the whole batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import realrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_hook.py"


def train(algorithm: str, rank: int, world_size: int, bucket_mib: float) -> list[float]:
    """Parameters after three steps of a small network; algorithm "" is plain DDP, "alone" one process."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 5))
    data, target = torch.randn(12, 20), torch.randn(12, 5)
    if algorithm != "alone":
        data, target = data[rank::world_size], target[rank::world_size]
        wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_mib)
        if algorithm:
            wrapped.register_comm_hook(None, realrun.ddp_hook(algorithm=algorithm))
        model = wrapped
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(data), target).backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])[::97].tolist()


def train_here(algorithm: str) -> list[float]:
    return train(algorithm, torch.distributed.get_rank(), torch.distributed.get_world_size(), 0.2)


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_training_with_the_hook_equals_plain_ddp_and_one_process(rank_pool, world_size, algorithm):
    alone = torch.tensor(train("alone", 0, 1, 0.2))
    hooked, plain = (torch.tensor(rank_pool(world_size).run(train_here, name)) for name in (algorithm, ""))
    assert torch.equal(hooked, hooked[:1].expand_as(hooked))
    assert torch.allclose(hooked, plain, rtol=0, atol=1e-5)
    assert torch.allclose(hooked[0], alone, rtol=0, atol=1e-5)


def half_of_the_ranks(as_state: bool) -> tuple[list[float], list[float]]:
    """Gradient of a model of two ranks each, by plain DDP and with the hook; unused layers and no_sync on the way."""
    halves = [torch.distributed.new_group([0, 1]), torch.distributed.new_group([2, 3])]
    rank = torch.distributed.get_rank()
    group, found = halves[rank // 2], []
    for hooked in (False, True):
        torch.manual_seed(0)
        layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 1)]).to(torch.bfloat16)
        model = DistributedDataParallel(_Some(layers), process_group=group, find_unused_parameters=True)
        if hooked and as_state:
            model.register_comm_hook(group, realrun.ddp_hook(algorithm="halving_doubling"))
        elif hooked:
            model.register_comm_hook(None, realrun.ddp_hook(algorithm="halving_doubling", group=group))
        image = torch.full((1, 8), float(rank + 1), dtype=torch.bfloat16)
        with model.no_sync():
            model(image).sum().backward()
        model(image).sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).tolist())
    return found[0], found[1]


class _Some(nn.Module):
    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers[1](image)


@pytest.mark.parametrize("as_state", [True, False])
def test_groups_unused_layers_accumulation_and_bf16_go_as_in_plain_ddp(rank_pool, as_state):
    for plain, hooked in rank_pool(4).run(half_of_the_ranks, as_state):
        assert hooked == plain


@pytest.mark.slow
def test_the_example_trains_under_torchrun():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(EXAMPLE)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, result.stderr
    assert "loss" in result.stdout
