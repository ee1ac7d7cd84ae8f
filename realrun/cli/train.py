"""`realrun train`: train a network on all ranks with any all-reduce schedule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from realrun.batch_control import BatchControl
    from realrun.learning_rate import LearningRate
    from realrun.train import Job


def command(
    *,
    model: Annotated[str, typer.Option(help="small-resnet, resnet50 or alexnet.")] = "small-resnet",
    data: Annotated[str, typer.Option(help="digits, synthetic, or a folder or tar shards of images.")] = "digits",
    ranks: Annotated[int | None, typer.Option(help="Local ranks to start; leave out under a launcher.")] = None,
    algorithm: Annotated[str, typer.Option(help="All-reduce from `simnet catalog algorithms`, or native.")] = "ring",
    grid: Annotated[str | None, typer.Option(help="Grid of torus2d, such as 2x2.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Group size of hierarchical.")] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 10,
    batch: Annotated[str, typer.Option(help="Samples per rank; 16@0,32@30 grows at epoch 30.")] = "32",
    batch_rate: Annotated[str, typer.Option(help="Rate while the batch grows: constant or linear.")] = "constant",
    accumulate: Annotated[int, typer.Option(help="Backward passes per step.")] = 1,
    rate: Annotated[float, typer.Option(help="Peak learning rate, at the first batch.")] = 0.1,
    scale_rate: Annotated[int | None, typer.Option(help="--rate is for this global batch; scale it linearly.")] = None,
    warm_up: Annotated[float, typer.Option(help="Epochs over which the rate climbs.")] = 0.0,
    decay: Annotated[str, typer.Option(help="polynomial, step or constant.")] = "polynomial",
    milestones: Annotated[str, typer.Option(help="Epochs of the steps of --decay step, such as 30,60,80.")] = "",
    optimizer: Annotated[str, typer.Option(help="sgd or lars.")] = "sgd",
    momentum: Annotated[float, typer.Option(help="Momentum.")] = 0.9,
    momentum_form: Annotated[str, typer.Option(help="LARS: rate_inside or rate_outside.")] = "rate_outside",
    weight_decay: Annotated[float, typer.Option(help="Of matrices and kernels; vectors do not decay.")] = 5e-5,
    eta: Annotated[float, typer.Option(help="LARS: trust coefficient.")] = 1e-3,
    label_smoothing: Annotated[float, typer.Option(help="0 to below 1.")] = 0.0,
    bn_ranks: Annotated[int, typer.Option(help="Ranks normalised together; 0 for all.")] = 1,
    bn_momentum: Annotated[float, typer.Option(help="Share of a new batch in the running statistics.")] = 0.1,
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    gradient_dtype: Annotated[str, typer.Option(help="Type in which gradients travel.")] = "float32",
    bucket: Annotated[str, typer.Option(help="Bytes after which a bucket of gradients closes.")] = "25 MiB",
    overlap: Annotated[bool, typer.Option(help="Exchange gradients during the backward pass.")] = True,
    resolution: Annotated[int | None, typer.Option(help="Pixels of a side (synthetic, images).")] = None,
    samples: Annotated[int | None, typer.Option(help="Training samples (synthetic).")] = None,
    shift: Annotated[int, typer.Option(help="Move training digits by up to this many pixels.")] = 0,
    seed: Annotated[int, typer.Option(help="Of weights, order and augmentation.")] = 0,
    checkpoint: Annotated[str | None, typer.Option(help="Written after every epoch; resumed from if there.")] = None,
    checkpoint_steps: Annotated[int | None, typer.Option(help="Write it after so many steps too.")] = None,
    backend: Annotated[str | None, typer.Option(help="gloo or nccl.")] = None,
    timeout: Annotated[str, typer.Option(help="A step without progress for this long ends the run.")] = "60 s",
    json: Annotated[bool, typer.Option("--json", help="One JSON object per epoch.")] = False,
) -> None:  # fmt: skip
    """Train on local ranks, or on those that torchrun, srun, mpirun or the lab started.

    The order of the data and the sums do not depend on the number of ranks: with --bn-ranks 0 and the same
    global batch, any number of ranks trains the same network.
    """
    _run(SimpleNamespace(**locals()))


def _run(asked: SimpleNamespace) -> None:
    from realrun.launch import detect
    from simnet.units import Dimension, parse

    job = _job(asked)
    limit = parse(asked.timeout, Dimension.TIME, name="--timeout")
    rows, launch = _rows(job, asked.ranks, asked.backend, limit), detect()
    if launch is not None and launch.rank > 0:
        for _ in rows:  # only rank 0 has anything to tell
            pass
        return
    _print(rows, json=asked.json)


def _job(asked: SimpleNamespace) -> Job:
    from realrun.batch_control import parse as parse_batch
    from realrun.train import Job
    from simnet.algorithms.grid import parse_grid
    from simnet.units import Dimension, parse

    batch = parse_batch(asked.batch, rate_rule=asked.batch_rate)
    rate = _rate(asked, batch)
    options = {"grid": parse_grid(asked.grid) if asked.grid else None, "ranks_per_node": asked.ranks_per_node}
    return Job(
        batch=batch, rate=rate, options={k: v for k, v in options.items() if v is not None},
        bucket_cap=round(parse(asked.bucket, Dimension.INFORMATION, name="--bucket")),
        **{name: getattr(asked, name) for name in _AS_ASKED},
    )  # fmt: skip


# Options that a job takes under the same name and as they are.
_AS_ASKED = (
    "model", "data", "epochs", "accumulate", "optimizer", "momentum", "momentum_form", "weight_decay", "eta",
    "label_smoothing", "bn_ranks", "bn_momentum", "precision", "gradient_dtype", "algorithm", "overlap", "resolution",
    "samples", "shift", "seed", "checkpoint", "checkpoint_steps",
)  # fmt: skip


def _rate(asked: SimpleNamespace, batch: BatchControl) -> LearningRate:
    from realrun.launch import detect
    from realrun.learning_rate import LearningRate, linear_scaling

    launch = detect()
    first = batch.per_rank(0) * (launch.world_size if launch else asked.ranks or 1)
    peak = asked.rate if asked.scale_rate is None else linear_scaling(asked.rate, first, base_batch=asked.scale_rate)
    return LearningRate(
        peak, asked.epochs, warm_up_epochs=asked.warm_up, decay=asked.decay,
        milestones=tuple(_numbers(asked.milestones)),
    )  # fmt: skip


def _numbers(text: str) -> list[float]:
    from simnet.errors import InvalidInput

    try:
        return [float(part) for part in text.split(",") if part]
    except ValueError as error:
        raise InvalidInput(f"--milestones must be epochs separated by commas, got {text!r}; write 30,60,80") from error


def _rows(job: Any, ranks: int | None, backend: str | None, timeout: float) -> Any:
    """One rank in this process where nobody asks for more."""
    from realrun.launch import choose_backend, detect, stream
    from realrun.rank_process import preload
    from realrun.train import train

    if detect() is None and ranks in (None, 1):
        if backend is not None:
            choose_backend(backend, 1)
        return train(job)
    preload("torch._dynamo", "realrun.train")
    return stream(train, job, ranks=ranks, backend=backend, timeout=timeout)


def _print(rows: Any, *, json: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from simnet.cli.app import print_json

    columns = (TextColumn("epoch {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console, last = Console(stderr=True), None
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("0", total=None)
        for row in rows:
            if row["kind"] == "step":
                progress.update(task, description=str(row["epoch"]), completed=row["step"], total=row["steps"])
            elif json:
                print_json([row])
            else:
                print(_line(row) if last else f"{_HEAD}\n{_line(row)}", flush=True)
                last = row
    if last is None and not json:
        console.print("no epoch is left to train: the checkpoint is complete; ask for more --epochs")
    if last and last["stages"]:
        print(*(_stage(stage) for stage in last["stages"]), sep="\n")


def _stage(row: Any) -> str:
    return f"{row['stage']:<10} {row['time_s'] * 1e3:>8.3f} ms an image {row['images_per_s']:>8.0f} images/s a worker"


_HEAD = "epoch  batch      rate     loss  accuracy  validation  images/s  waited (s)  time (s)"


def _line(row: Any) -> str:
    return (
        f"{row['epoch']:>5} {row['batch']:>6} {row['rate']:>9.4g} {row['loss']:>8.4f} {row['accuracy']:>9.4f} "
        f"{row['validation_accuracy']:>11.4f} {row['images_per_s']:>9.4g} {row['gradient_wait_s']:>11.3g} "
        f"{row['time_s']:>9.3g}"
    )
