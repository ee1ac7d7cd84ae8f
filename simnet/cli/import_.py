"""`simnet import`: what machine a file describes, and a cluster to predict on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NAME = "import"


def command(
    file: Annotated[Path, typer.Argument(help="Topology XML of NCCL, nvidia-smi topo -m, ibnetdiscover, ...")],
    *,
    out: Annotated[Path | None, typer.Option(help="Write the machine as a cluster file, for --cluster.")] = None,
    machine: Annotated[str | None, typer.Option(help="Which one, where the file holds several.")] = None,
    device: Annotated[str | None, typer.Option(help="Device of the catalogue where the file names none.")] = None,
    nodes: Annotated[int | None, typer.Option(help="So many of that node behind one switch.")] = None,
    port: Annotated[str | None, typer.Option(help="Link type of the NICs, for --nodes above 1.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per machine.")] = False,
) -> None:
    """Recognise a file, print the machine in it and what looks wrong, write it as a cluster; logs give their rows."""
    import sys

    from simnet.catalog.writer import cluster_toml
    from simnet.cli.app import print_json
    from simnet.cli.log import command as log_command
    from simnet.errors import InvalidInput
    from simnet.importers.report import lines, row, select
    from simnet.importers.topology import formats, is_topology, read_topology

    if not is_topology(file):
        try:
            log_command([file], json=json)
        except InvalidInput as error:
            raise InvalidInput(f"{error}; it is no topology of {', '.join(formats())} either") from error
        return
    found = read_topology(file, device=device)
    chosen = select(found, machine, num_nodes=nodes, port=port)
    if json:
        print_json(row(found, one) for one in chosen)
    else:
        for one in chosen:
            for line in lines(found, one):
                print(line)
    usable = [one.cluster for one in chosen if one.cluster is not None]
    if not usable:
        raise InvalidInput(f"{file} holds no machine to predict on: {chosen[0].reason}")
    if out is None:
        return
    if len(usable) > 1:
        raise InvalidInput(f"{file} holds {len(usable)} machines; choose one to write with --machine")
    try:
        out.write_text(cluster_toml(usable[0]), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot write {out}: {error.strerror}; name a folder that exists") from error
    print(f"wrote {out}", file=sys.stderr)
