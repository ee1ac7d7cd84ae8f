"""Make a planned lab out of network namespaces, and remove it; needs root, iproute2 and Linux.

Every interface is created inside a namespace of the lab, so removing those namespaces removes
everything, and nothing else on the machine is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from realrun.lab.plan import LAB, MIN_RATE, Cable, Plan, plan, prefix
from simnet.errors import InvalidInput, Unsupported
from simnet.units import GBIT_PER_S

STATE = Path("/run/realrun-lab")
BURST_BYTES = 8 * 1514
QUEUE_BYTES = 4 * 2**20
SEND_BUFFER_BYTES = 128 * 1024
# What one connection may have in its own port's queue, and the largest packet before segmentation.
# Left at the system's 1 MiB and 64 KiB, acknowledgements and gloo's notices wait 5 ms and more behind data.
QUEUED_BYTES = 8192
SEGMENTS = 2
MAX_RATE_PER_CORE = 0.6 * GBIT_PER_S
CONGESTION_CONTROLS = ("reno", "cubic")


def up(plan: Plan, *, congestion: str = "reno") -> None:
    """Create the lab.

    Raises
    ------
    InvalidInput : not root, a tool is missing, the name is taken, or the rates are
        more than this machine's cores can push.
    Unsupported : the kernel lacks a part (veth, bridge, tbf).
    """
    require_tools()
    _require_rate(plan)
    if congestion not in CONGESTION_CONTROLS:
        raise InvalidInput(f"congestion control must be reno or cubic, got {congestion!r}; a rate-based one paces")
    if namespaces(plan.name):
        raise InvalidInput(f"a lab named {plan.name!r} exists; remove it with realrun lab down, or give another --name")
    STATE.mkdir(parents=True, exist_ok=True)
    _state_file(plan.name).write_text(json.dumps(plan.record()))
    try:
        _build(plan, congestion)
    except BaseException:
        down(plan.name)
        raise


def _build(plan: Plan, congestion: str) -> None:
    for vertex in plan.vertices:
        _call("ip", "netns", "add", plan.namespace(vertex))
    for vertex in plan.vertices:
        _settings(plan, vertex, congestion)
    for cable in plan.cables:
        _connect(plan, cable)
    for switch in plan.switches:
        _bridge(plan, switch)
    for vertex in plan.hosts:
        _address(plan, vertex)
    if plan.routed:
        for vertex in plan.hosts:
            _routes(plan, vertex)


def _settings(plan: Plan, vertex: str, congestion: str) -> None:
    """Fix what TCP does: a known window rule, a bounded send buffer, no memory of earlier connections."""
    values = {
        "net.ipv4.tcp_wmem": f"4096 {SEND_BUFFER_BYTES} {SEND_BUFFER_BYTES}",
        "net.ipv4.tcp_limit_output_bytes": str(QUEUED_BYTES),
        "net.ipv4.tcp_slow_start_after_idle": "0",
        "net.ipv4.tcp_no_metrics_save": "1",
        "net.ipv4.ip_forward": "1" if plan.routed else "0",
        "net.ipv4.conf.all.rp_filter": "0",
        "net.ipv4.conf.default.rp_filter": "0",
        "net.ipv4.conf.all.send_redirects": "0",
        "net.ipv4.conf.default.send_redirects": "0",
        "net.ipv6.conf.all.disable_ipv6": "1",
        "net.ipv6.conf.default.disable_ipv6": "1",
    }
    space = plan.namespace(vertex)
    present = {key: value for key, value in values.items() if _known_setting(key)}
    _call("ip", "netns", "exec", space, "sysctl", "-q", *(f"{key}={value}" for key, value in present.items()))
    _call("ip", "-n", space, "link", "set", "lo", "up")
    _congestion(space, congestion)


def _congestion(space: str, name: str) -> None:
    setting = f"net.ipv4.tcp_congestion_control={name}"
    if subprocess.run(
        ["ip", "netns", "exec", space, "sysctl", "-q", setting], capture_output=True, check=False
    ).returncode:
        allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().strip()
        raise Unsupported(
            f"this machine does not let a namespace use {name}: net.ipv4.tcp_allowed_congestion_control lists "
            f"{allowed}; use --congestion reno"
        )


def _known_setting(key: str) -> bool:
    """Whether this kernel has the setting; IPv6 may be absent, and then needs no switching off."""
    return not key.startswith("net.ipv6") or Path("/proc/sys/net/ipv6").exists()


def _connect(plan: Plan, cable: Cable) -> None:
    (a, b), (space_a, space_b) = (cable.a, cable.b), (plan.namespace(cable.a), plan.namespace(cable.b))
    port_a, port_b = plan.port(a, b), plan.port(b, a)
    _call("ip", "-n", space_a, "link", "add", port_a, "type", "veth", "peer", "name", port_b, "netns", space_b)
    for space, port in ((space_a, port_a), (space_b, port_b)):
        _call("ip", "-n", space, "link", "set", port, "gso_max_segs", str(SEGMENTS), "up")
        _call(
            *("tc", "-n", space, "qdisc", "add", "dev", port, "root", "tbf"),
            *("rate", f"{round(cable.rate * 8)}bit", "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES)),
        )


def _bridge(plan: Plan, switch: str) -> None:
    space = plan.namespace(switch)
    _call("ip", "-n", space, "link", "add", "br0", "type", "bridge")
    _call("ip", "-n", space, "link", "set", "br0", "up")
    for neighbour in plan.neighbours(switch):
        _call("ip", "-n", space, "link", "set", plan.port(switch, neighbour), "master", "br0")


def _address(plan: Plan, host: str) -> None:
    space, interface = plan.namespace(host), plan.interface(host)
    if plan.routed:
        # A bridge without ports stands in for a second loopback device, which not every kernel has.
        _call("ip", "-n", space, "link", "add", interface, "type", "bridge")
        _call("ip", "-n", space, "link", "set", interface, "up")
    _call("ip", "-n", space, "address", "add", f"{plan.address(host)}/{32 if plan.routed else 24}", "dev", interface)


def _routes(plan: Plan, host: str) -> None:
    own = plan.address(host)
    for other in plan.hosts:
        if other != host:
            hop = plan.route(host, other)[1]
            via = () if hop == other else ("via", plan.address(hop), "onlink")
            way = (*via, "dev", plan.port(host, hop), "src", own)
            _call("ip", "-n", plan.namespace(host), "route", "add", f"{plan.address(other)}/32", *way)


def down(name: str) -> int:
    """End every process in the lab, remove its namespaces and with them all its links; return how many went.

    Also removes what a crash left half built. A lab that does not exist is not an error.
    """
    require_tools()
    found = namespaces(name)
    for space in found:
        _end_processes(space)
    for space in found:
        _call("ip", "netns", "delete", space)
    _state_file(name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other labs have their plans there
        STATE.rmdir()
    return len(found)


def _end_processes(space: str) -> None:
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        for process in processes(space):
            send(process, number)
        while processes(space) and time.monotonic() < deadline:
            time.sleep(0.02)


def send(process: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def processes(space: str) -> list[int]:
    """Return ids of the processes that live in a namespace."""
    return [int(line) for line in _call("ip", "netns", "pids", space).split()]


def namespaces(name: str) -> list[str]:
    """Return the namespaces of the lab of this name that exist now."""
    lines = _call("ip", "netns", "list").splitlines()
    return [line.split()[0] for line in lines if line.startswith(prefix(name))]


def names() -> list[str]:
    """Return the names of the labs of which there is anything, also those that a killed command left."""
    found = (LAB.match(line) for line in _call("ip", "netns", "list").splitlines())
    return sorted({match[1] for match in found if match})


def require_lab(*plans: Plan) -> None:
    """Raise what keeps this machine from any of the labs; builds the smallest there is, and removes it."""
    require_tools()
    for made in plans:
        _require_rate(made)
    smallest = plan("star", 2, MIN_RATE, name=f"try{os.getpid() % 10**8}")
    up(smallest)
    down(smallest.name)


def current(name: str) -> Plan:
    """Return the plan of the lab that is up.

    Raises
    ------
    InvalidInput : there is no such lab, or only remains of one.
    """
    require_tools()
    file = _state_file(name)
    if not file.exists():
        others = f", or name one of those that are up: {', '.join(names())}" if names() else ""
        raise InvalidInput(f"there is no lab named {name!r}; make one with realrun lab up{others}")
    plan = Plan.of_record(json.loads(file.read_text()))
    if set(namespaces(name)) != {plan.namespace(vertex) for vertex in plan.vertices}:
        raise InvalidInput(f"the lab {name!r} is not whole; remove it with realrun lab down and make it anew")
    return plan


def _state_file(name: str) -> Path:
    return STATE / f"{prefix(name)}plan.json"


def require_tools() -> None:
    """Raise InvalidInput where this machine or user cannot have a lab."""
    if not sys.platform.startswith("linux"):
        raise InvalidInput(f"a lab needs Linux network namespaces, this is {sys.platform}; measure on loopback instead")
    if os.geteuid() != 0:
        raise InvalidInput("a lab needs root to create network namespaces; run the same command with sudo")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise InvalidInput(f"a lab needs the command {tool!r}; install the package iproute2")


def _require_rate(plan: Plan) -> None:
    cores = len(os.sched_getaffinity(0))
    limit = MAX_RATE_PER_CORE * cores
    if plan.total_rate > limit:
        raise InvalidInput(
            f"all directions of all cables together carry {plan.total_rate / GBIT_PER_S:g} Gbit/s, more than the "
            f"{limit / GBIT_PER_S:g} Gbit/s that {cores} cores push in time; use a lower --rate or fewer hosts"
        )


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise Unsupported(
            f"{' '.join(command)} failed: {said}; "
            "the kernel may lack this part (veth, bridge, tbf), or a container may not use it"
        )
    return done.stdout
