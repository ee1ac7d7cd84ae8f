"""A lane's thread must not outlive the interpreter: one that comes back from torch's code then aborts the process."""

import subprocess
import sys

PROGRAM = """
import sys, threading, time
import torch
import torch.distributed as dist
from realrun import lanes

lanes.EXIT_GRACE = float(sys.argv[1])
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

def work():
    time.sleep(0.2)
    square = torch.ones(1000, 1000)
    print(torch.mm(square, square)[0, 0].item())

def wait_for_a_silent_peer():
    threading.Event().wait()

lanes.HostLane(dist.group.WORLD, timeout=10.0).submit(globals()[sys.argv[2]], in_thread=True)
print("the program ends")
sys.exit(4)
"""


def ended(grace: float, task: str) -> tuple[int, list[str], list[str]]:
    command = [sys.executable, "-c", PROGRAM, str(grace), task]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    return found.returncode, found.stdout.splitlines(), found.stderr.splitlines()


def test_a_program_that_ends_while_a_lane_works_ends_in_order():
    assert ended(200.0, "work") == (4, ["the program ends", "1000.0"], [])


def test_a_program_that_ends_while_a_lane_waits_for_a_silent_peer_says_so_and_does_not_abort():
    code, printed, errors = ended(0.1, "wait_for_a_silent_peer")
    assert (code, printed) == (3, ["the program ends"])
    assert len(errors) == 1
    assert "the program ended while a collective had not" in errors[0]
