"""`nvidia-smi topo -m`: how every pair of GPUs and NICs of a node is linked; several hosts in one file.

The matrix names the worst thing on the way of every pair; a tree that gives the same answers is built from it.
`nvidia-smi topo -p2p` prints a matrix of the same shape that tells nothing about links; it is told apart.

Source: legend that nvidia-smi prints below the matrix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, Node, Wire
from simnet.importers.devices import chosen_device, nvlink_of
from simnet.importers.machine import Machine, Remarks
from simnet.importers.nearest import nearest_ports, ring_order
from simnet.importers.wires import open_pcie, wire

FORMAT = "nvidia-smi topo -m"

_CODE = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC")
_PEER = {"OK", "CNS", "GNS", "TNS", "NS", "U"}
_HEADER = re.compile(r"^\s*GPU0")
_PREFIXED = re.compile(r"^(\S+): ?\s+GPU0(?!\s+X)")
_NAME = r"GPU\d+|NIC\d+|[a-z][a-z0-9_]*\d"
_NAMES = re.compile(_NAME)
_ROW = re.compile(rf"^\s*({_NAME})\s+(\S.*)$")
_HOST = re.compile(r"(\S+)\s+nvidia-smi topo -m")
_LEGEND = re.compile(r"^\s*(NIC\d+): (\S+)\s*$")
# Largest sum of NVLinks a device of each generation has.
_GENERATIONS = ((4, "nvlink1"), (6, "nvlink2"), (12, "nvlink3"), (18, "nvlink4"))


def detect(text: str) -> bool:
    """Whether a line begins a matrix and a row of it follows somewhere."""
    rows = r"^(\S+: )?\s*GPU\d+\s+\S"
    lines = text.splitlines()
    headed = any(_HEADER.match(line) or _PREFIXED.match(line) for line in lines)
    return headed and any(re.match(rows, line) for line in lines)


@dataclass(slots=True)
class _Matrix:
    host: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)

    def cell(self, a: str, b: str) -> str:
        return self.rows[a][self.columns.index(b)]

    @property
    def gpus(self) -> list[str]:
        return [name for name in self.columns if name.startswith("GPU")]

    @property
    def others(self) -> list[str]:
        return [name for name in self.columns if not name.startswith("GPU")]


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read one machine per matrix.

    Raises
    ------
    InvalidInput : a matrix that lacks rows or cells, or contradicts itself, or tells peer access and not links.
    """
    matrices = [matrix for host, lines in _by_host(text.splitlines()) for matrix in _matrices(lines, name, host)]
    if not matrices:
        raise InvalidInput(f"{name} has no matrix of nvidia-smi topo -m that begins with a line of device names")
    for matrix in matrices:
        _require_whole(matrix, name)
    labels = [_label(matrix, index, len(matrices), name) for index, matrix in enumerate(matrices)]
    return [_machine(matrix, label, device) for matrix, label in zip(matrices, labels, strict=True)]


def _label(matrix: _Matrix, index: int, count: int, name: str) -> str:
    return matrix.host or (name if count == 1 else f"{name}-{index + 1}")


def _by_host(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Lines of every host whose name a parallel shell has put before them ("node01: "), else all lines."""
    hosts = dict.fromkeys(found[1] for line in lines if (found := _PREFIXED.match(line)))
    for host in hosts:
        start = f"{host}: "
        yield host, [line[len(start) :] for line in lines if line.startswith(start)]
    if not hosts:
        yield "", list(lines)


def _matrices(lines: Sequence[str], name: str, host: str) -> Iterator[_Matrix]:
    matrix = None
    for number, line in enumerate(lines, 1):
        if found := _HOST.search(line):
            host = found[1]
        if _HEADER.match(line) and not _is_row(line):
            if matrix is not None:
                yield matrix
            matrix, host = _Matrix(host, _columns(line)), ""
        elif _is_row(line):
            if matrix is None:
                raise InvalidInput(f"{name}, line {number}: a row of a matrix before its line of device names")
            _add(matrix, line, f"{name}, line {number}")
        elif matrix is not None and (entry := _LEGEND.match(line)):
            matrix.legend[entry[1]] = entry[2]
    if matrix is not None:
        yield matrix


def _is_row(line: str) -> bool:
    match = _ROW.match(line)
    if match is None:
        return False
    first = match[2].split()[0]
    return bool(_CODE.fullmatch(first)) or first in _PEER


def _columns(line: str) -> tuple[str, ...]:
    head = re.split(r"CPU Affinity|NUMA", line)[0]
    words = head.split()
    return tuple(_NAMES.findall(words[0])) if len(words) == 1 and words[0].count("GPU") > 1 else tuple(words)


def _add(matrix: _Matrix, line: str, where: str) -> None:
    match = _ROW.match(line)
    assert match is not None
    cells = tuple(match[2].split()[: len(matrix.columns)])
    bad = next((cell for cell in cells if not _CODE.fullmatch(cell) and cell not in _PEER), None)
    if len(cells) < len(matrix.columns) or bad is not None:
        raise InvalidInput(
            f"{where}: row {match[1]} has {len(cells)} of {len(matrix.columns)} cells"
            + (f" and {bad!r}, which is no kind of link" if bad else "") + "; the file was cut or mixed up"
        )  # fmt: skip
    if matrix.rows.setdefault(match[1], cells) != cells:
        raise InvalidInput(f"{where}: a second row {match[1]} that differs from the first; files were mixed up")


def _require_whole(matrix: _Matrix, name: str) -> None:
    where = f"{name}{f', host {matrix.host}' if matrix.host else ''}"
    if any(cell in _PEER for cells in matrix.rows.values() for cell in cells):
        raise InvalidInput(
            f"{where} is nvidia-smi topo -p2p, which tells who may access whom and nothing about links; "
            "give nvidia-smi topo -m"
        )
    if Counter(matrix.columns) != Counter(matrix.rows.keys()):
        lacks = sorted(set(matrix.columns) ^ set(matrix.rows)) or ["a name that is unique"]
        raise InvalidInput(f"{where}: rows and columns of the matrix differ in {', '.join(lacks)}; lines were lost")
    for a, b in combinations(matrix.columns, 2):
        if matrix.cell(a, b) != matrix.cell(b, a):
            raise InvalidInput(
                f"{where}: {a} to {b} is {matrix.cell(a, b)} but {b} to {a} is {matrix.cell(b, a)}; the file is damaged"
            )
    wrong = [a for a in matrix.columns if matrix.cell(a, a) != "X"]
    if wrong:
        raise InvalidInput(f"{where}: row {wrong[0]} is not its own X; columns were mixed up")


def _facts(matrix: _Matrix) -> dict[str, Any]:
    between = Counter(matrix.cell(a, b) for a, b in combinations(matrix.gpus, 2))
    to_nics = Counter(matrix.cell(a, b) for a in matrix.gpus for b in matrix.others)
    return {
        "gpus": len(matrix.gpus),
        "nics": len(matrix.others),
        "columns": len(matrix.columns),
        "gpu_pairs": dict(between),
        "gpu_nic_pairs": dict(to_nics),
        "nic_names": matrix.legend,
    }


def _machine(matrix: _Matrix, name: str, wanted: str | None) -> Machine:
    remarks = Remarks()
    _inspect(matrix, remarks)
    rows, wires = _tree(matrix, remarks)
    links = {pair: int(code[2:]) for pair in combinations(matrix.gpus, 2) if (code := matrix.cell(*pair))[:2] == "NV"}
    rows += _nvlinks(matrix, links, wires, remarks, known=nvlink_of(wanted or ""))
    devices = tuple(gpu.lower() for gpu in ring_order(matrix.gpus, links))
    if devices != tuple(gpu.lower() for gpu in matrix.gpus):
        remarks.assume(f"ranks follow a cycle of NVLinks: {' '.join(devices)}")
    ports = nearest_ports(rows, devices, [nic.lower() for nic in matrix.others])
    chosen = chosen_device(wanted, None, bool(links), remarks)
    layout = Layout("drawn_node", wires, {"devices": devices, "ports": ports, "links": tuple(rows)})
    remarks.assume("the matrix gives no speed of the NICs: 12.5 GB/s a port, used only with several nodes")
    summary = f"{len(devices)} x {chosen.name}, {len(matrix.others)} NICs, as nvidia-smi shows {name}"
    network = Layout("single_switch", {"port": wire("ideal")})
    cluster = Cluster(name, summary, Node(chosen, len(devices), layout), 1, network, {"file": f"{name}, {FORMAT}"})
    return remarks.machine(name, cluster, _facts(matrix))


def _inspect(matrix: _Matrix, remarks: Remarks) -> None:
    for a, b in combinations(matrix.others, 2):
        if matrix.cell(a, b) == "PIX":
            remarks.warn(f"{a} and {b} sit behind one PCIe bridge and share its link")
    sums = {gpu: sum(_count(matrix.cell(gpu, other)) for other in matrix.gpus if other != gpu) for gpu in matrix.gpus}
    most = max(sums.values(), default=0)
    for gpu, total in sums.items():
        if total < most:
            remarks.warn(f"{gpu} counts {total} NVLinks where another device counts {most}")


def _count(code: str) -> int:
    return int(code[2:]) if code.startswith("NV") else 0


# From the nearest on: below one bridge, several bridges, one host bridge, one memory domain, the machine.
_LEVELS = (("PIX", "plx"), ("PXB", "pxb"), ("PHB", "host"), ("NODE", "numa"))
_DEPTH = {code: depth for depth, (code, _) in enumerate(_LEVELS)} | {"SYS": len(_LEVELS), "SOC": len(_LEVELS)}


def _tree(matrix: _Matrix, remarks: Remarks) -> tuple[list[str], dict[str, Wire]]:
    """Rows of links of a tree in which every pair meets at the level the matrix names, and the wires."""
    names = list(matrix.columns)
    below = {name: name.lower() for name in names}
    rows: dict[str, None] = {}
    for depth, (_, prefix) in enumerate(_LEVELS):
        joined = [group for group in _groups(matrix, names, depth) if len({below[name] for name in group}) > 1]
        for index, group in enumerate(joined):
            rows |= {f"{below[name]} {prefix}{index} {_kind(below[name])}": None for name in group}
            below |= dict.fromkeys(group, f"{prefix}{index}")
    rows |= dict.fromkeys(_above(list(dict.fromkeys(below.values())), [name.lower() for name in names]))
    remarks.assume("the matrix gives no speed of PCIe: PCI Express 3 or later, 16 lanes, 10 to 53 GB/s")
    remarks.assume("the matrix gives no speed between processors: 16 to 60 GB/s")
    return list(rows), {"slot": open_pcie(latency=0.5), "pcie": open_pcie(latency=0.0), "socket": wire("memory")}


def _above(roots: list[str], leaves: list[str]) -> Iterator[str]:
    """Rows that join what no PCIe link joins: sockets pair by pair, and devices alone over one vertex."""
    alone = [root for root in roots if root in leaves] if len(roots) > 1 else []
    sockets = [root for root in roots if root not in leaves] + ["system"] * bool(alone)
    yield from (f"{root} system {_kind(root)}" for root in alone)
    yield from (f"{a} {b} socket" for a, b in combinations(sockets, 2))


def _kind(vertex: str) -> str:
    return "slot" if vertex.startswith("gpu") else "pcie"


def _groups(matrix: _Matrix, names: list[str], depth: int) -> list[list[str]]:
    """Names that are joined, directly or over others, by PCIe links of at most that level."""
    groups: list[list[str]] = []
    for name in names:
        joined = [g for g in groups if any(_DEPTH.get(matrix.cell(name, other), 99) <= depth for other in g)]
        groups = [g for g in groups if g not in joined]
        groups.append([member for g in joined for member in g] + [name])
    return groups


def _nvlinks(
    matrix: _Matrix,
    links: dict[tuple[str, str], int],
    wires: dict[str, Wire],
    remarks: Remarks,
    *,
    known: str | None,
) -> list[str]:
    if not links:
        return []
    counts, pairs = set(links.values()), len(matrix.gpus) * (len(matrix.gpus) - 1) // 2
    each = max(sum(n for pair, n in links.items() if gpu in pair) for gpu in matrix.gpus)
    switched = len(counts) == 1 and len(links) == pairs and each > 18
    total = next(iter(counts)) if switched else each
    kind = known or next((name for most, name in _GENERATIONS if total <= most), "nvlink4")
    if known is None:
        remarks.assume(f"the generation of NVLink was taken from {total} links a device: {kind}; --device tells it")
    if switched:
        remarks.assume("every pair counts all links of a device, so an NVSwitch stands between them")
        wires["nvlink"] = wire(kind, latency=0.5)
        return [f"{gpu.lower()} nvswitch nvlink {total}" for gpu in matrix.gpus]
    wires["nvlink"] = wire(kind)
    return [f"{a.lower()} {b.lower()} nvlink {n}" for (a, b), n in links.items()]
