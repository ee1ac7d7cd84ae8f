"""`realrun layers`: the layer table of a torch network of your own, for `simnet` to predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    network: Annotated[str, typer.Argument(help="FILE.py:function or package.module:function that builds it.")],
    *,
    shape: Annotated[str, typer.Option(help="Of one sample: 3x224x224 for an image, 128 for a sequence.")],
    tokens: Annotated[bool, typer.Option("--tokens", help="Samples are whole numbers, such as words.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write models/NAME.toml of a catalogue folder, or any file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per layer.")] = False,
) -> None:
    """Run a network once without data and list its layers: operations, memory traffic and parameters of one sample."""
    import re
    from dataclasses import asdict

    import torch

    from realrun.layer_table import layer_table, load_module
    from simnet.cli.app import print_json
    from simnet.errors import InvalidInput
    from simnet.models.table import dumps
    from simnet.units import format_si

    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape):
        raise InvalidInput(f"--shape is written 3x224x224, got {shape!r}")
    extents = (1, *map(int, shape.split("x")))
    example = torch.zeros(extents, dtype=torch.long if tokens else torch.float32, device="meta")
    name = out.stem if out is not None else network.rpartition(":")[2]
    found = layer_table(load_module(network), example, name=name, source=network)
    if out is not None:
        try:
            out.write_text(dumps(found), encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"cannot write the table to {out}: {error.strerror}; name another file") from error
    if json:
        print_json(asdict(layer) for layer in found.layers)
        return
    print(
        f"{found.name}: {len(found.layers)} layers, {found.num_parameters:,} parameters, "
        f"{format_si(found.forward_flop, 'FLOP')} forward, {format_si(found.activation_bytes(), 'B')} kept a sample"
    )
