"""What a lab consists of: hosts, switches, cables with a rate, and the way packets take. Pure data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from simnet.errors import InvalidInput
from simnet.fabric import Fabric, Link, Vertex, shortest_path
from simnet.units import GBIT_PER_S, BytesPerSecond

NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
LAB = re.compile(rf"realrun-({NAME.pattern})-")
MAX_HOSTS = 64
MIN_RATE = 1e-3 * GBIT_PER_S


@dataclass(frozen=True, slots=True)
class Cable:
    """A full-duplex connection; each direction carries `rate` bytes/s of Ethernet frames."""

    a: Vertex
    b: Vertex
    rate: BytesPerSecond


@dataclass(frozen=True, slots=True)
class Plan:
    """A lab before it exists. Where `routed`, hosts pass packets on; else switches connect them."""

    name: str
    topology: str
    hosts: tuple[Vertex, ...]
    switches: tuple[Vertex, ...]
    cables: tuple[Cable, ...]
    routed: bool = False
    grid: tuple[int, ...] = ()

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """Hosts, then switches: one namespace each."""
        return self.hosts + self.switches

    @property
    def total_rate(self) -> BytesPerSecond:
        """Bytes/s the machine pushes when every direction of every cable is full."""
        return 2 * sum(cable.rate for cable in self.cables)

    def namespace(self, vertex: Vertex) -> str:
        """Name of a vertex's network namespace."""
        return f"{prefix(self.name)}{vertex}"

    def address(self, host: Vertex) -> str:
        """IPv4 address ranks on this host use."""
        return f"10.77.0.{self.hosts.index(host) + 1}"

    def interface(self, host: Vertex) -> str:
        """Interface that carries the host's address."""
        return "lab0" if self.routed else self.port(host, self.neighbours(host)[0])

    def port(self, vertex: Vertex, neighbour: Vertex) -> str:
        """Interface of a vertex that leads to a neighbour."""
        return f"to-{neighbour}"

    def neighbours(self, vertex: Vertex) -> list[Vertex]:
        """Vertices at the other end of this vertex's cables."""
        return [c.b if c.a == vertex else c.a for c in self.cables if vertex in (c.a, c.b)]

    def route(self, src: Vertex, dst: Vertex) -> list[Vertex]:
        """Vertices a packet passes, ends included."""
        fabric = self.fabric()
        links = [fabric.links[index] for index in fabric.route(src, dst)]
        return [src, *(link.dst for link in links)]

    def fabric(self) -> Fabric:
        """The same network as the simulator sees it: two links a cable, no latency of its own."""
        links = [Link(*ends, 0.0, c.rate, "cable") for c in self.cables for ends in ((c.a, c.b), (c.b, c.a))]
        router = _dimension_order(self.grid) if self.topology == "torus2d" else shortest_path
        return Fabric(links, router=router)

    def record(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Plan:
        """Read back what `record` gave."""
        cables = tuple(Cable(**cable) for cable in record["cables"])
        tuples = {key: tuple(record[key]) for key in ("hosts", "switches", "grid")}
        return cls(**{**record, **tuples, "cables": cables})


def prefix(name: str) -> str:
    """Return how every namespace of the lab of this name begins; nothing else on the machine may begin so."""
    if not NAME.fullmatch(name):
        raise InvalidInput(f"a lab's name is 1 to 12 lower-case letters and digits, a letter first, got {name!r}")
    return f"realrun-{name}-"


def star(hosts: int, rate: BytesPerSecond) -> tuple[tuple[Vertex, ...], tuple[Cable, ...]]:
    """Every host on one switch."""
    return ("sw0",), tuple(Cable(host(k), "sw0", rate) for k in range(hosts))


def two_tier(hosts: int, rate: BytesPerSecond, uplink: BytesPerSecond) -> tuple[tuple[Vertex, ...], tuple[Cable, ...]]:
    """Half of the hosts on each of two leaf switches, which one spine switch joins."""
    if hosts < 4 or hosts % 2:
        raise InvalidInput(f"two-tier needs an even number of 4 or more hosts, two leaves of half each, got {hosts}")
    leaf = [f"sw{1 + 2 * k // hosts}" for k in range(hosts)]
    down = [Cable(host(k), leaf[k], rate) for k in range(hosts)]
    return ("sw0", "sw1", "sw2"), (*down, Cable("sw1", "sw0", uplink), Cable("sw2", "sw0", uplink))


def ring(hosts: int, rate: BytesPerSecond) -> tuple[Cable, ...]:
    """Every host cabled to the next; two hosts share one cable."""
    return tuple(Cable(host(a), host(b), rate) for a, b in _cycle(range(hosts)))


def torus2d(grid: tuple[int, int], rate: BytesPerSecond) -> tuple[Cable, ...]:
    """A row-major grid of hosts, every row and every column a ring; one cable per pair of neighbours."""
    rows, columns = grid
    if min(grid) < 2:
        raise InvalidInput(f"torus2d needs a grid of 2 or more by 2 or more, got {rows}x{columns}; use ring")
    along = [pair for r in range(rows) for pair in _cycle(range(r * columns, (r + 1) * columns))]
    across = [pair for c in range(columns) for pair in _cycle(range(c, rows * columns, columns))]
    return tuple(Cable(host(a), host(b), rate) for a, b in along + across)


def host(index: int) -> Vertex:
    """Vertex of the host that runs rank `index`."""
    return f"h{index}"


def _cycle(members: Iterable[int]) -> list[tuple[int, int]]:
    around = list(members)
    return list(pairwise(around if len(around) == 2 else [*around, around[0]]))


def plan(
    topology: str,
    hosts: int,
    rate: BytesPerSecond,
    *,
    uplink: BytesPerSecond | None = None,
    grid: tuple[int, int] | None = None,
    name: str = "lab",
) -> Plan:
    """Lay out a lab.

    Parameters
    ----------
    rate : of every host's cables, bytes/s of Ethernet frames, each way
    uplink : of the cables between switches (two-tier only), bytes/s
    grid : rows, columns (torus2d only); the most square one by default

    Raises
    ------
    InvalidInput : unknown topology, too few or too many hosts, or an option the topology does not take.
    """
    prefix(name)
    _require(topology, hosts, rate, uplink, grid)
    vertices = tuple(host(k) for k in range(hosts))
    match topology:
        case "star":
            switches, cables = star(hosts, rate)
            return Plan(name, topology, vertices, switches, cables)
        case "two-tier":
            switches, cables = two_tier(hosts, rate, rate if uplink is None else uplink)
            return Plan(name, topology, vertices, switches, cables)
        case "ring":
            return Plan(name, topology, vertices, (), ring(hosts, rate), routed=True)
        case _:
            shape = square(hosts) if grid is None else grid
            return Plan(name, topology, vertices, (), torus2d(shape, rate), routed=True, grid=shape)


def square(count: int) -> tuple[int, int]:
    """Return the most square grid of `count` cells, rows not above columns."""
    rows = next(r for r in range(int(count**0.5), 0, -1) if count % r == 0)
    return rows, count // rows


TOPOLOGIES = ("star", "two-tier", "ring", "torus2d")


def _require(topology: str, hosts: int, rate: float, uplink: float | None, grid: tuple[int, int] | None) -> None:
    if topology not in TOPOLOGIES:
        raise InvalidInput(f"unknown lab topology {topology!r}; choose one of {', '.join(TOPOLOGIES)}")
    if not 2 <= hosts <= MAX_HOSTS:
        raise InvalidInput(f"a lab has 2 to {MAX_HOSTS} hosts, got {hosts}")
    for what, value in (("rate", rate), ("uplink", uplink)):
        if value is not None and not value >= MIN_RATE:
            raise InvalidInput(f"{what} must be 1 Mbit/s or more, got {value:g} bytes/s; tc loses precision below")
    if uplink is not None and topology != "two-tier":
        raise InvalidInput(f"only two-tier has uplinks, got an uplink for {topology}; leave it out")
    if grid is not None and topology != "torus2d":
        raise InvalidInput(f"only torus2d has a grid, got one for {topology}; leave it out")
    if grid is not None and grid[0] * grid[1] != hosts:
        raise InvalidInput(f"a grid of {grid[0]}x{grid[1]} holds {grid[0] * grid[1]} hosts, got {hosts} hosts")


def _dimension_order(grid: tuple[int, ...]) -> Callable[[Any, Vertex, Vertex], list[Vertex]]:
    """Along the row first, then along the column, the short way round; a tie goes to higher indices."""
    rows, columns = grid

    def route(_graph: Any, src: Vertex, dst: Vertex) -> list[Vertex]:
        (r0, c0), (r1, c1) = (divmod(int(v.removeprefix("h")), columns) for v in (src, dst))
        cells = [(r0, c) for c in _walk(c0, c1, columns)] + [(r, c1) for r in _walk(r0, r1, rows)[1:]]
        return [host(r * columns + c) for r, c in cells]

    return route


def _walk(start: int, end: int, length: int) -> list[int]:
    ahead = (end - start) % length
    step, count = (1, ahead) if ahead <= length - ahead else (-1, length - ahead)
    return [(start + step * k) % length for k in range(count + 1)]
