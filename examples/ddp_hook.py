"""Train a small network with DistributedDataParallel and an all-reduce of simnet.

torchrun --standalone --nproc-per-node=2 examples/ddp_hook.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import realrun


def main() -> None:
    """Fit a random function; the two lines that use realrun are the import and the hook."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else "cpu"
    torch.manual_seed(rank)
    network = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    model = DistributedDataParallel(network)
    model.register_comm_hook(None, realrun.ddp_hook(algorithm="halving_doubling"))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = torch.randn(64, 32, device=device)
    target = data.sum(dim=1, keepdim=True).tanh()
    for step in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
