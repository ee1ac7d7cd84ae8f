"""A lane's thread must not outlive the interpreter."""

import subprocess
import sys

LEAVES_A_TASK_BEHIND = """
import torch
import torch.distributed as dist
from realrun.lanes import HostLane

store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
square = torch.ones(3000, 3000)
HostLane(dist.group.WORLD, timeout=10.0).submit(lambda: print(torch.mm(square, square)[0, 0].item()), in_thread=True)
"""


def test_a_program_that_ends_while_a_lane_works_ends_in_order():
    ended = subprocess.run([sys.executable, "-c", LEAVES_A_TASK_BEHIND], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip() == "3000.0"
