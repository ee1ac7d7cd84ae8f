"""Options that commands about one collective share."""

from __future__ import annotations

from typing import Annotated

import typer

Ranks = Annotated[int, typer.Option(help="How many devices take part.")]
Cluster = Annotated[str, typer.Option(help="A name from `simnet catalog clusters`, or uniform.")]
Bandwidth = Annotated[str | None, typer.Option(help="Of every port of uniform, such as '12.5 GB/s'.")]
Latency = Annotated[str | None, typer.Option(help="Of every message on uniform, such as '1 us'.")]
Algorithm = Annotated[str, typer.Option(help="A name from `simnet catalog algorithms`.")]
Grid = Annotated[str | None, typer.Option(help="Grid of torus algorithms, such as 4x4.")]
RanksPerNode = Annotated[int | None, typer.Option(help="Devices used of every node; default all.")]
Size = Annotated[str, typer.Option(help="Bytes per rank; K, M, G = 2**10, 20, 30.")]
Dtype = Annotated[str, typer.Option(help="float, double, half, bfloat16, int8, ...")]
Catalog = Annotated[str | None, typer.Option(help="Folder with catalogue files of your own.")]
