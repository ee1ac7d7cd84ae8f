"""What a measurement was made on, as plain data that goes into every record."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_VARIABLES = re.compile(r"(NCCL|GLOO|UCX|OMPI_MCA|FI)_\w+|OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES")
_PACKAGES = ("simnet-testbed", "torch", "numpy")
_NET, _CPUS, _PCI = Path("/sys/class/net"), Path("/sys/devices/system/node"), Path("/sys/bus/pci/devices")


def fingerprint(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Describe this host: cores, GPUs, NICs, versions, tuning variables and topology."""
    return {**_host(), "variables": tuning_variables(environ), "load_average": load_average()}


@cache
def _host() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "cores": num_cores(),
        "cpu": cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": gpus(),
        "nics": nics(),
        "versions": versions(),
        "tcp_congestion_control": _line(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        "topology": topology(),
    }


def load_average() -> float:
    """Processes that ran or waited for a core over the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def tuning_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of the environment that steer communication libraries and threads."""
    return {name: value for name, value in sorted(environ.items()) if _VARIABLES.fullmatch(name)}


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """Name of the processor as the kernel gives it; empty where it gives none."""
    match = re.search(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return match[1] if match else platform.processor()


def gpus() -> list[dict[str, Any]]:
    """CUDA devices of this host."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [{"name": p.name, "memory_bytes": p.total_memory, "multiprocessors": p.multi_processor_count} for p in found]


def nics() -> list[dict[str, Any]]:
    """Network interfaces: name, speed in bytes/s where the driver tells, MTU, state, driver."""
    return [_nic(_NET / name) for name in sorted(name for _, name in socket.if_nameindex())]


def _nic(path: Path) -> dict[str, Any]:
    megabits = _line(path / "speed")
    known = megabits.isdigit() and int(megabits) > 0
    driver = path / "device" / "driver"
    return {
        "name": path.name,
        "speed_bytes_per_s": int(megabits) * 1e6 / 8 if known else None,
        "mtu": int(_line(path / "mtu") or 0),
        "state": _line(path / "operstate"),
        "driver": driver.resolve().name if driver.exists() else None,
    }


def versions() -> dict[str, str]:
    """Versions of Python, kernel, the packages that matter, and NCCL where it is built in."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found | _cuda_versions()


def _cuda_versions() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"cuda": str(torch.version.cuda), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}


def topology() -> dict[str, Any]:
    """NUMA nodes with their cores, and what nvidia-smi says about paths between GPUs and NICs."""
    nodes = {path.name: _line(path / "cpulist") for path in sorted(_CPUS.glob("node[0-9]*"))}
    return {"numa_cores": nodes, "nvidia_smi": _nvidia_smi()}


def _nvidia_smi() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        return subprocess.run([program, "topo", "-m"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def run_environment(hosts: Iterable[str], *, backend: str, device: str, launcher: str) -> dict[str, Any]:
    """Fingerprint of this host with what the whole run looked like.

    `ranks_exceed_cores` marks runs in which ranks of this host shared cores: their times say little
    about a network.
    """
    names = list(hosts)
    here = names.count(socket.gethostname())
    return {
        **fingerprint(),
        "hosts": sorted(set(names)),
        "ranks_on_this_host": here,
        "ranks_exceed_cores": here > num_cores(),
        "backend": backend,
        "device": device,
        "launcher": launcher,
    }


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _line(path: Path) -> str:
    return _text(path).strip()
