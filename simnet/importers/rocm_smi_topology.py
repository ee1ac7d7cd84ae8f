"""`rocm-smi --showtopo`: weights, hops and link types between the GPUs of a node, as three matrices.

Source: headings that rocm-smi prints above each matrix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from simnet.errors import InvalidInput
from simnet.hardware import Cluster, Layout, Node
from simnet.importers.devices import chosen_device
from simnet.importers.machine import Machine, Remarks
from simnet.importers.wires import open_pcie, wire

FORMAT = "rocm-smi --showtopo"

_TITLES = {"Weight": "weight", "Hops": "hops", "Link Type": "type"}
_TITLE = re.compile(r"=+ (Weight|Hops|Link Type) between two GPUs =+")
_ROW = re.compile(r"^\s*(GPU\d+)\s+(\S.*?)\s*$")
_END = "End of ROCm SMI Log"

Cells = dict[str, list[str]]


def detect(text: str) -> bool:
    """Whether a heading of rocm-smi stands in the text."""
    return "between two GPUs" in text and _TITLE.search(text) is not None


def read(text: str, name: str, *, device: str | None = None) -> list[Machine]:
    """Read the one machine of the file.

    Raises
    ------
    InvalidInput : a matrix lacks, lacks rows or cells, or contradicts itself.
    """
    tables = _tables(text.splitlines(), name)
    if "type" not in tables:
        raise InvalidInput(f"{name} lacks the matrix of link types between two GPUs; it was cut or mixed up")
    gpus = list(tables["type"])
    for title, table in tables.items():
        _require_whole(table, gpus, title, name)
    remarks = Remarks()
    if _END not in text:
        remarks.skip("the log's last line is missing: the file was cut below the matrices")
    pairs = Counter(tables["type"][a][gpus.index(b)] for a, b in combinations(gpus, 2))
    hops = Counter(tables["hops"][a][gpus.index(b)] for a, b in combinations(gpus, 2)) if "hops" in tables else {}
    facts = {"gpus": len(gpus), "matrices": len(tables), "gpu_pairs": dict(pairs), "hops": dict(hops)}
    return [remarks.machine(name, _cluster(tables["type"], gpus, name, device, remarks), facts)]


def _tables(lines: Sequence[str], name: str) -> dict[str, Cells]:
    tables: dict[str, Cells] = {}
    title, columns = "", 0
    for number, line in enumerate(lines, 1):
        if found := _TITLE.search(line):
            title, columns = _TITLES[found[1]], 0
            if title in tables:
                raise InvalidInput(f"{name}, line {number}: a second matrix of {found[1]}; give one host per file")
            tables[title] = {}
        elif line.startswith("="):
            title = ""
        elif title and not columns and re.fullmatch(r"\s*(GPU\d+\s*)+", line):
            columns = len(line.split())
        elif title and (row := _ROW.match(line)):
            cells = row[2].split()
            if len(cells) != columns or row[1] in tables[title]:
                raise InvalidInput(
                    f"{name}, line {number}: {row[1]} has {len(cells)} of {columns} cells, or comes twice"
                )
            tables[title][row[1]] = cells
    return tables


def _require_whole(table: Cells, gpus: list[str], title: str, name: str) -> None:
    if list(table) != gpus or gpus != [f"GPU{i}" for i in range(len(gpus))] or not gpus:
        raise InvalidInput(f"{name}: the matrix of {title} does not have one row per GPU in order; lines were lost")
    if any(len(cells) != len(gpus) for cells in table.values()):
        raise InvalidInput(f"{name}: the matrix of {title} has other columns than rows; lines were lost")
    for (i, a), (j, b) in combinations(enumerate(gpus), 2):
        if table[a][j] != table[b][i] or table[a][i] != "0":
            raise InvalidInput(f"{name}: the matrix of {title} contradicts itself between {a} and {b}")


def _cluster(table: Cells, gpus: list[str], name: str, wanted: str | None, remarks: Remarks) -> Cluster:
    rows = [f"{gpu.lower()} host slot" for gpu in gpus]
    for (_, a), (j, b) in combinations(enumerate(gpus), 2):
        if table[a][j] == "XGMI":
            rows.append(f"{a.lower()} {b.lower()} xgmi")
        elif table[a][j] != "PCIE":
            raise InvalidInput(f"{name}: {a} and {b} are linked by {table[a][j]!r}, which is neither XGMI nor PCIE")
    remarks.assume("rocm-smi gives no speeds: one xGMI link a pair, 25 to 64 GB/s; PCIe to the host, 10 to 53 GB/s")
    chosen = chosen_device(wanted, None, True, remarks)
    devices = tuple(gpu.lower() for gpu in gpus)
    wires = {"slot": open_pcie(latency=0.5), "xgmi": wire("xgmi")}
    layout = Layout("drawn_node", wires, {"devices": devices, "ports": devices, "links": tuple(rows)})
    network = Layout("single_switch", {"port": wire("ideal")})
    summary = f"{len(gpus)} x {chosen.name}, as rocm-smi shows {name}"
    return Cluster(name, summary, Node(chosen, len(gpus), layout), 1, network, {"file": f"{name}, {FORMAT}"})
