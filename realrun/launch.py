"""How ranks come to be: started by torchrun, srun or mpirun, or, alone, as local processes.

| launcher | recognised by | rendezvous |
|---|---|---|
| torchrun, or any that sets its variables | RANK, WORLD_SIZE | MASTER_ADDR, MASTER_PORT |
| srun | SLURM_PROCID inside a job step | first node of the job, a port made from the job id |
| mpirun of Open MPI, MPICH, Intel MPI | OMPI_COMM_WORLD_RANK, PMI_RANK | MASTER_ADDR, or this host if all are on it |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from realrun.stall import is_connection_error
from simnet.errors import Incomplete, InvalidInput
from simnet.units import Seconds

DEFAULT_PORT = 29500
Task: TypeAlias = Callable[..., Iterator[Any]] | str
_MOST_LOCAL_RANKS = 256
LONGEST_TIMEOUT = 1e6


@dataclass(frozen=True, slots=True)
class Launch:
    """The place of this process in a run that somebody else started."""

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int

    def __str__(self) -> str:
        return f"launched by {self.launcher}: {self.world_size} ranks, {self.local_world_size} on this host"


def detect(environ: Mapping[str, str] = os.environ) -> Launch | None:
    """Return this process's place as its launcher tells it, None where no launcher did.

    Raises
    ------
    InvalidInput : a launcher's variables are there and do not say where ranks can meet.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        return _torchrun(environ)
    if environ.get("SLURM_STEP_ID", "").isdigit() and "SLURM_PROCID" in environ:
        return _srun(environ)
    if "OMPI_COMM_WORLD_RANK" in environ:
        return _mpirun(environ, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_")
    if "PMI_RANK" in environ:
        return _mpirun(environ, "PMI_RANK", "PMI_SIZE", "MPI_LOCAL")
    return None


def _torchrun(environ: Mapping[str, str]) -> Launch:
    rank, size = _whole(environ, "RANK"), _whole(environ, "WORLD_SIZE")
    local = int(environ.get("LOCAL_RANK", rank))
    address, port = environ.get("MASTER_ADDR", "127.0.0.1"), int(environ.get("MASTER_PORT", DEFAULT_PORT))
    name = "torchrun" if "TORCHELASTIC_RUN_ID" in environ else "RANK and WORLD_SIZE"
    return Launch(name, rank, size, local, int(environ.get("LOCAL_WORLD_SIZE", size)), address, port)


def _srun(environ: Mapping[str, str]) -> Launch:
    rank, size = _whole(environ, "SLURM_PROCID"), _whole(environ, "SLURM_NTASKS")
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "127.0.0.1")
    address = environ.get("MASTER_ADDR", first_node(nodes))
    port = int(environ.get("MASTER_PORT", 20000 + int(environ.get("SLURM_JOB_ID", 0)) % 12000))
    here = re.match(r"\d+", environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_NTASKS_PER_NODE", "")))
    local_size = int(here[0]) if here else size
    return Launch("srun", rank, size, int(environ.get("SLURM_LOCALID", 0)), local_size, address, port)


def _mpirun(environ: Mapping[str, str], rank_name: str, size_name: str, local: str) -> Launch:
    rank, size = _whole(environ, rank_name), _whole(environ, size_name)
    local_rank = int(environ.get(f"{local}RANK", environ.get(f"{local}RANKID", rank)))
    local_size = int(environ.get(f"{local}SIZE", environ.get(f"{local}NRANKS", size)))
    address = environ.get("MASTER_ADDR", "127.0.0.1" if local_size == size else "")
    if not address:
        raise InvalidInput(
            f"mpirun started {size} ranks, {local_size} on this host, and MASTER_ADDR does not say where they meet; "
            "add -x MASTER_ADDR=<first host> (Open MPI) or -genv MASTER_ADDR <first host>"
        )
    return Launch("mpirun", rank, size, local_rank, local_size, address, int(environ.get("MASTER_PORT", DEFAULT_PORT)))


def _whole(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text.isdigit():
        raise InvalidInput(f"{name} must be a whole number, got {text!r}; the launcher's environment is incomplete")
    return int(text)


def first_node(nodes: str) -> str:
    """First host of a Slurm node list: "gpu[03-07,12],login" gives "gpu03"."""
    match = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\]([^,]*))?", nodes)
    if match is None:
        raise InvalidInput(f"the node list {nodes!r} names no host; set MASTER_ADDR")
    return match[1] + (match[2] or "") + (match[3] or "")


def choose_backend(backend: str | None, local_world_size: int) -> str:
    """Return the backend asked for, else nccl where every local rank has a CUDA device, else gloo.

    Raises
    ------
    InvalidInput : nccl without enough devices, or a backend that this torch was built without.
    """
    import torch
    import torch.distributed as dist

    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if backend is None:
        return "nccl" if devices >= local_world_size and dist.is_nccl_available() else "gloo"
    if backend == "nccl" and devices < local_world_size:
        raise InvalidInput(
            f"backend nccl needs a CUDA device per rank: {local_world_size} ranks, {devices} devices here; "
            "use --backend gloo"
        )
    if not dist.is_backend_available(backend):
        raise InvalidInput(f"this torch was built without the backend {backend!r}; use gloo")
    return backend


def join(launch: Launch, *, backend: str | None = None, timeout: Seconds = 60.0) -> str:
    """Initialise torch.distributed as the launcher says and return the backend chosen.

    Raises
    ------
    InvalidInput : the port at which they should meet is taken.
    Incomplete : the ranks did not all come within the time limit.
    """
    import torch
    import torch.distributed as dist

    chosen = choose_backend(backend, launch.local_world_size)
    if chosen == "nccl":
        torch.cuda.set_device(launch.local_rank)
    meeting = f"tcp://{launch.master_addr}:{launch.master_port}"
    limit = timedelta(seconds=timeout)
    try:
        dist.init_process_group(chosen, meeting, limit, launch.world_size, launch.rank)
    except (RuntimeError, dist.DistError) as error:
        if "EADDRINUSE" in str(error):
            raise InvalidInput(
                f"ranks should meet at port {launch.master_port} of this host, and another program has it; "
                "set MASTER_PORT to a free one on every rank"
            ) from error
        raise Incomplete(
            f"rank {launch.rank} of {launch.world_size} could not meet the others at {meeting} within {timeout:g} s: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return chosen


def stream(
    function: Task,
    *args: Any,
    ranks: int | None,
    backend: str | None = None,
    timeout: Seconds = 60.0,
) -> Iterator[Any]:
    """Run a generator function on all ranks and yield what rank 0 yields; other ranks of a launched run yield nothing.

    Parameters
    ----------
    ranks : how many to start where no launcher did; under one, its own number or None.

    Raises
    ------
    InvalidInput : no launcher and no `ranks`, another number than the launcher started, more ranks than one
        machine can hold, an unknown backend, nccl without a device per rank, or a time limit of 0 s.
    """
    if backend not in (None, "gloo", "nccl"):
        raise InvalidInput(f"backend must be gloo or nccl, got {backend!r}")
    if not 0 < timeout <= LONGEST_TIMEOUT:
        raise InvalidInput(f"timeout must be above 0 s and at most {LONGEST_TIMEOUT:g} s, got {timeout:g} s")
    launch = detect()
    if launch is None:
        yield from _stream_local(function, args, ranks, backend, timeout)
        return
    if ranks not in (None, launch.world_size):
        raise InvalidInput(f"{launch.launcher} started {launch.world_size} ranks, --ranks says {ranks}; leave it out")
    yield from _stream_launched(launch, function, args, backend, timeout)


def _stream_local(
    function: Task,
    args: tuple[Any, ...],
    ranks: int | None,
    backend: str | None,
    timeout: Seconds,
) -> Iterator[Any]:
    from realrun.ranks import RankPool

    if ranks is None:
        raise InvalidInput("--ranks is needed: no launcher (torchrun, srun, mpirun) started this process")
    if ranks > _MOST_LOCAL_RANKS:
        raise InvalidInput(
            f"one machine takes at most {_MOST_LOCAL_RANKS} ranks, each a process, got {ranks}; use torchrun on several"
        )
    if backend == "nccl":
        choose_backend(backend, ranks)
    with RankPool(ranks, backend=backend or "gloo", timeout=timeout) as pool:
        yield from pool.stream(function, *args)


def _stream_launched(
    launch: Launch, function: Task, args: tuple[Any, ...], backend: str | None, timeout: Seconds
) -> Iterator[Any]:
    import torch.distributed as dist

    from realrun.rank_process import reference, resolve

    join(launch, backend=backend, timeout=timeout)
    try:
        for row in resolve(*reference(function))(*args):
            if launch.rank == 0:
                yield row
    except (RuntimeError, dist.DistError) as error:
        if not is_connection_error(error):
            raise
        raise Incomplete(f"rank {launch.rank} lost the others: {str(error).splitlines()[0]}") from error
    finally:
        dist.destroy_process_group()
