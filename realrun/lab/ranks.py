"""One process per host of a lab, told its rank the way torchrun tells it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from realrun.lab.network import current, processes, send
from realrun.lab.plan import Plan
from simnet.errors import Incomplete, InvalidInput, Unsupported
from simnet.fabric import Vertex
from simnet.units import Seconds

MASTER_PORT = 29500
POLL_S = 0.02
GRACE: Seconds = 2.0


def environment(plan: Plan, rank: int) -> dict[str, str]:
    """Return the variables that tell a process its rank, peers and interface."""
    host = plan.hosts[rank]
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(plan.hosts)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "MASTER_ADDR": plan.address(plan.hosts[0]),
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": plan.interface(host),
        "REALRUN_LAB": plan.name,
        "REALRUN_LAB_TOPOLOGY": plan.topology,
        "REALRUN_LAB_HOST": host,
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


@dataclass(slots=True)
class Ranks:
    """Running processes, one per host; leaving the context ends those that still run."""

    plan: Plan
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self, *, timeout: Seconds | None = None) -> None:
        """Wait until all have ended well.

        Raises
        ------
        Incomplete : a rank failed (the others are ended), or the time is over.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while any(process.poll() is None for process in self.running):
            self._raise_for_failure()
            if deadline is not None and time.monotonic() > deadline:
                late = [rank for rank, process in enumerate(self.running) if process.poll() is None]
                self.stop()
                raise Incomplete(f"{_listed(late)} of the lab {self.plan.name!r} had not ended after {timeout:g} s")
            time.sleep(POLL_S)
        self._raise_for_failure()

    def _raise_for_failure(self) -> None:
        codes = [(rank, process.poll()) for rank, process in enumerate(self.running)]
        failed = [(rank, code) for rank, code in codes if code]
        if failed:
            self.stop()
            text = ", ".join(f"rank {rank} on {self.plan.hosts[rank]} ({_meaning(code)})" for rank, code in failed)
            raise Incomplete(f"failed in the lab {self.plan.name!r}: {text}; see its output above")

    def stop(self) -> None:
        """End what still runs, with the processes it started: first asked, then forced."""
        for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 5 * GRACE)):
            deadline = time.monotonic() + patience
            for process in self._started():
                send(process, number)
            while self._started() and time.monotonic() < deadline:
                time.sleep(POLL_S)

    def _started(self) -> list[int]:
        """Ids of the processes that run in the lab and belong to a rank; a rank's own id may be another's by now."""
        left = []
        for host, leader in zip(self.plan.hosts, self.running, strict=False):
            leader.poll()
            with contextlib.suppress(Unsupported):  # the lab was removed meanwhile, and with it what ran there
                left += [i for i in processes(self.plan.namespace(host)) if _group(i) == leader.pid]
        return left


def _group(process: int) -> int:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return 0


def _listed(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _meaning(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def start(
    plan: Plan,
    command: Sequence[str],
    *,
    stdout: Sequence[IO[Any] | int | None] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Ranks:
    """Start `command` on every host.

    Parameters
    ----------
    stdout : one per rank; by default all ranks write where this process writes
    extra : variables added for every rank
    """
    if not command:
        raise InvalidInput("no command to run in the lab; write: realrun lab run -- python train.py")
    ranks = Ranks(plan)
    for rank, host in enumerate(plan.hosts):
        variables = {**os.environ, **environment(plan, rank), **(extra or {})}
        target = None if stdout is None else stdout[rank]
        ranks.running.append(_start(plan, host, command, variables, target))
    return ranks


def _start(
    plan: Plan, host: Vertex, command: Sequence[str], variables: Mapping[str, str], stdout: IO[Any] | int | None
) -> subprocess.Popen[bytes]:
    inside = ["ip", "netns", "exec", plan.namespace(host), *command]
    return subprocess.Popen(
        inside, env=dict(variables), stdin=subprocess.DEVNULL, stdout=stdout, start_new_session=True
    )


def run(name: str, command: Sequence[str], *, timeout: Seconds | None = None) -> None:
    """Run `command` on every host of the lab that is up and wait for all; a request to end ends them too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    with start(current(name), command) as ranks:
        ranks.wait(timeout=timeout)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)
