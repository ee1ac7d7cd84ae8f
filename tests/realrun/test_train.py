"""Distributed training against one process on the same global batch; resuming against not stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from realrun.batch_control import BatchControl, BatchPhase, parse, uneven_totals
from realrun.batch_norm import GroupBatchNorm, join_groups, tiles
from realrun.data import InMemory, Synthetic, digits
from realrun.gradients import GradientBuckets, LossScale, reducer
from realrun.input_pipeline import STAGES
from realrun.learning_rate import LearningRate
from realrun.rank_process import preload
from realrun.records import synthetic_images, write_shards
from realrun.train import Job, Trainer, train
from simnet.algorithms.registry import algorithms
from simnet.collective import Kind
from simnet.errors import InvalidInput

# An optimizer loads torch._dynamo when it is made: once in the server instead of once in every rank.
preload("torch._dynamo", "realrun.train")

Pools = Callable[[int], Any]
FEW = 42


@cache
def _data() -> InMemory:
    whole = digits(shift=1)
    return replace(whole, images=whole.images[: FEW + 20], labels=whole.labels[: FEW + 20], num_train=FEW)


def _job(**changes: Any) -> Job:
    base = Job(
        epochs=2, batch=BatchControl((BatchPhase(0, 8),)), rate=LearningRate(0.05, 2, warm_up_epochs=1), bn_ranks=0,
        label_smoothing=0.1, bucket_cap=40_000,
    )  # fmt: skip
    return replace(base, **changes)


def weights_after(job: Job, data: InMemory) -> tuple[list[float], list[dict[str, Any]]]:
    torch.set_num_threads(1)
    trainer, rows = Trainer(job, data=data), []
    from realrun.train import epoch_rows

    while trainer.epoch < job.epochs:
        rows += [row for row in epoch_rows(trainer) if row["kind"] == "epoch"]
    return torch.cat([p.detach().flatten() for p in trainer.model.state_dict().values()]).tolist(), rows


def _alone(job: Job, ranks: int) -> tuple[list[float], list[dict[str, Any]]]:
    phases = tuple(BatchPhase(p.first_epoch, p.per_rank * ranks) for p in job.batch.phases)
    return weights_after(replace(job, batch=BatchControl(phases, job.batch.rate_rule), overlap=False), _data())


def _assert_alike(ours: list[list[float]], alone: list[float]) -> None:
    for weights in ours:
        np.testing.assert_allclose(weights, alone, rtol=1e-5, atol=1e-5)
        assert weights == ours[0]


ALL_REDUCES = sorted(algorithms(Kind.ALL_REDUCE))


@pytest.mark.parametrize("ranks", [2, 3])
def test_distributed_training_equals_one_process(rank_pool: Pools, ranks: int) -> None:
    job = _job(optimizer="lars", batch=parse("4@0,8@1", rate_rule="linear"), eta=0.02)
    answers = rank_pool(ranks).run(weights_after, job, _data())
    alone, rows = _alone(job, ranks)
    _assert_alike([weights for weights, _ in answers], alone)
    for ours, theirs in zip(answers[0][1], rows, strict=True):
        assert ours["batch"] == theirs["batch"]
        for key in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4), key


@pytest.mark.parametrize("algorithm", [*ALL_REDUCES, "native"])
def test_every_algorithm_trains_alike(rank_pool: Pools, algorithm: str) -> None:
    job = _job(epochs=1, algorithm=algorithm, rate=LearningRate(0.05, 1, decay="constant"))
    ours = [weights for weights, _ in rank_pool(4).run(weights_after, job, _data())]
    _assert_alike(ours, _alone(job, 4)[0])


def test_accumulation_gives_the_same_step_and_synchronises_once(rank_pool: Pools) -> None:
    assert rank_pool(2).run(messages_of_two_micro_steps) == [(5.0, 1), (5.0, 1)]


def messages_of_two_micro_steps() -> tuple[float, int]:
    """Micro gradients (1, 3) on rank 0 and (2, 4) on rank 1: the accumulated mean is 5."""
    weight, messages = torch.nn.Parameter(torch.zeros(1)), []
    plain = reducer("ring")
    assert plain is not None

    def reduce(flat: torch.Tensor) -> Any:
        messages.append(flat)
        return plain(flat)

    buckets = GradientBuckets([weight], reduce)
    buckets.begin()
    first, last = (1.0, 3.0) if dist.get_rank() == 0 else (2.0, 4.0)
    with buckets.accumulating():
        (first * weight / 2).sum().backward()
    (last * weight / 2).sum().backward()
    buckets.finish()
    assert weight.grad is not None
    return weight.grad.item(), len(messages)


def test_unequal_batches_are_weighted_by_their_samples(rank_pool: Pools) -> None:
    assert rank_pool(2).run(weighted_gradient, [[1.0, 2.0, 3.0], [10.0]]) == [4.0, 4.0]
    assert rank_pool(2).run(weighted_gradient, [[1.0, 1.0], []]) == [1.0, 1.0]


def weighted_gradient(samples: list[list[float]]) -> float:
    weight = torch.nn.Parameter(torch.zeros(1))
    buckets = GradientBuckets([weight], reducer("ring"))
    buckets.begin()
    ((weight * torch.tensor(samples[dist.get_rank()])).sum() / sum(map(len, samples))).backward()
    buckets.finish()
    assert weight.grad is not None
    return weight.grad.item()


def test_uneven_ends_do_not_hang_and_keep_the_mean_over_what_exists(rank_pool: Pools) -> None:
    assert rank_pool(2).run(uneven_gradients, [3, 2], [4.0, 8.0]) == [[6.0, 6.0, 4.0]] * 2


def uneven_gradients(steps: list[int], gradients: list[float]) -> list[float]:
    rank, weight = dist.get_rank(), torch.nn.Parameter(torch.zeros(1))
    buckets, found = GradientBuckets([weight], reducer("ring")), []
    for step, total in enumerate(uneven_totals(steps, 1)):
        buckets.begin()
        if step < steps[rank]:
            (gradients[rank] * weight / total).sum().backward()
        buckets.finish()
        assert weight.grad is not None
        found.append(weight.grad.item())
    return found


def test_batch_norm_of_unequal_batches_is_that_of_the_whole(rank_pool: Pools) -> None:
    for mean, variance, running in rank_pool(2).run(norm_of_five_values):
        assert (mean, variance) == (pytest.approx(4.0), pytest.approx(10.0))
        assert running == pytest.approx(12.5)


def norm_of_five_values() -> tuple[float, float, float]:
    from realrun.batch_norm import group_statistics

    x = torch.tensor([1.0, 2.0, 3.0, 4.0] if dist.get_rank() == 0 else [10.0])[:, None]
    mean, variance, _ = group_statistics(x, dist.group.WORLD)
    norm = GroupBatchNorm(1, group=dist.group.WORLD, momentum=1.0)
    norm(x)
    return mean.item(), variance.item(), norm.running_var.item()


@pytest.mark.parametrize("sizes", [(3, 5, 1), (4, 0, 2)])
def test_batch_norm_over_ranks_equals_one_big_batch_forward_and_backward(
    rank_pool: Pools, sizes: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    x, push = torch.randn(sum(sizes), 4, 3) * 2 + 5, torch.randn(sum(sizes), 4, 3)
    whole, big = x.clone().requires_grad_(), torch.nn.BatchNorm1d(4)
    out = big(whole)
    (out * push).sum().backward()
    answers = rank_pool(3).run(norm_of_a_share, x.numpy(), push.numpy(), sizes)
    assert whole.grad is not None
    np.testing.assert_allclose(np.concatenate([a[0] for a in answers]), out.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([a[1] for a in answers]), whole.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sum(a[2] for a in answers), big.weight.grad, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(answers[0][3], big.running_var, rtol=1e-5)


def norm_of_a_share(x: Any, push: Any, sizes: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    rank, ends = dist.get_rank(), np.cumsum(sizes)
    part = slice(ends[rank] - sizes[rank], ends[rank])
    own = torch.from_numpy(x[part]).requires_grad_()
    norm = GroupBatchNorm(4, group=join_groups([[0, 1, 2]]))
    out = norm(own)
    (out * torch.from_numpy(push[part])).sum().backward()
    assert own.grad is not None
    assert norm.weight.grad is not None
    return out.detach().numpy(), own.grad.numpy(), norm.weight.grad.numpy(), norm.running_var.numpy()


def test_groups_of_ranks_normalise_apart(rank_pool: Pools) -> None:
    assert rank_pool(4).run(mean_in_pairs) == [0.5, 0.5, 2.5, 2.5]


def mean_in_pairs() -> float:
    norm = GroupBatchNorm(1, group=join_groups(tiles(4, 2)), momentum=1.0)
    norm(torch.full((2, 1), float(dist.get_rank())))
    return norm.running_mean.item()


def _trained(job: Job) -> dict[str, Any]:
    assert job.checkpoint is not None
    for _ in train(job, data=_data()):
        pass
    return torch.load(job.checkpoint, weights_only=True)


@pytest.mark.parametrize(("optimizer", "precision"), [("lars", "float32"), ("sgd", "bfloat16")])
@pytest.mark.parametrize("stop", [2, 7])
def test_a_resumed_run_equals_one_that_did_not_stop_bit_for_bit(
    tmp_path: Path, optimizer: str, precision: str, stop: int
) -> None:
    torch.set_num_threads(1)
    job = _job(optimizer=optimizer, precision=precision, checkpoint=str(tmp_path / "whole"))
    whole = _trained(job)
    stopped = replace(job, checkpoint=str(tmp_path / "stopped"))
    _trained(replace(stopped, stop_after_steps=stop))
    resumed = _trained(stopped)
    assert resumed["epoch"] == whole["epoch"] == 2
    for name, value in whole["model"].items():
        assert torch.equal(value, resumed["model"][name]), name
    for index, state in whole["optimizer"]["state"].items():
        for key, value in state.items():
            assert value is None or torch.equal(value, resumed["optimizer"]["state"][index][key])


def test_a_killed_run_keeps_the_last_checkpoint_of_its_steps(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    job = _job(checkpoint=str(tmp_path / "run"), checkpoint_steps=2)
    rows = train(job, data=_data())
    while next(rows).get("step") != 3:
        pass
    rows.close()
    kept = torch.load(tmp_path / "run", weights_only=True)
    assert (kept["epoch"], kept["step"]) == (0, 2)
    whole = _trained(_job(checkpoint=str(tmp_path / "whole")))
    assert all(torch.equal(value, whole["model"][name]) for name, value in _trained(job)["model"].items())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no checkpoint",
        b"r" + bytes(range(1, 200)),
        nn.Linear(1, 1),
        [1, 2],
        torch.zeros(3),
        {"model": {}, "step": 0},
    ],
    ids=["empty", "text", "bytes", "whole network", "list", "tensor", "parts"],
)
def test_a_file_that_this_did_not_write_is_refused_in_one_sentence(tmp_path: Path, content: object) -> None:
    file = tmp_path / "run"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    with pytest.raises(InvalidInput) as refused:
        next(train(_job(checkpoint=str(file)), data=_data()))
    assert str(refused.value) == (
        f"{file} is no checkpoint of this job: realrun train did not write it; name another file"
    )


def test_a_checkpoint_of_another_network_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "run"
    torch.save(Trainer(_job(), data=_data()).state() | {"model": {}}, file)
    with pytest.raises(InvalidInput, match="holds another network or optimizer; give the options it was trained with"):
        next(train(_job(checkpoint=str(file)), data=_data()))


def test_a_checkpoint_from_inside_an_epoch_needs_as_many_ranks() -> None:
    trainer = Trainer(_job(), data=_data())
    state = trainer.state()
    with pytest.raises(InvalidInput, match="middle of an epoch by 4 ranks, got 1"):
        trainer.resume(state | {"step": 3, "world_size": 4})
    trainer.resume(state | {"step": 0, "world_size": 4})


def test_gradients_in_sixteen_bits_train_nearly_alike(rank_pool: Pools) -> None:
    job = _job(epochs=1, gradient_dtype="float16")
    ours = [weights for weights, _ in rank_pool(2).run(weights_after, job, _data())]
    assert ours[0] == ours[1]
    np.testing.assert_allclose(ours[0], _alone(replace(job, gradient_dtype="float32"), 2)[0], atol=2e-3)


def test_gradients_travel_in_the_type_asked_for() -> None:
    class Done:
        def wait(self) -> None:
            """Nothing was sent."""

    sent: list[torch.dtype] = []

    def reduce(flat: torch.Tensor) -> Done:
        sent.append(flat.dtype)
        flat.mul_(2)
        return Done()

    weight = torch.nn.Parameter(torch.ones(3))
    buckets = GradientBuckets([weight], reduce, wire_dtype=torch.float16)
    buckets.begin()
    weight.sum().backward()
    buckets.finish()
    assert sent == [torch.float16]
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_ranks_train_on_shards_of_images_as_one_does(rank_pool: Pools, tmp_path: Path) -> None:
    write_shards(tmp_path, synthetic_images(20, num_classes=2, width=40, height=32), per_shard=8)
    job = _job(epochs=1, data=str(tmp_path), resolution=16, batch=BatchControl((BatchPhase(0, 5),)))
    ours = rank_pool(2).run(epoch_of, job)
    alone = epoch_of(replace(job, batch=BatchControl((BatchPhase(0, 10),))))
    assert ours[0]["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert {stage["stage"] for stage in alone["stages"]} == {*STAGES, "all stages"}


def epoch_of(job: Job) -> dict[str, Any]:
    return [row for row in train(job) if row["kind"] == "epoch"][-1]


def test_half_precision_skips_steps_that_overflow() -> None:
    scale = LossScale(initial=8.0, interval=2)
    assert not scale.update(finite=False)
    assert (scale.value, scale.skipped) == (4.0, 1)
    assert scale.update(finite=True)
    assert scale.update(finite=True)
    assert scale.value == 8.0


def test_half_precision_trains_as_single_does() -> None:
    torch.set_num_threads(1)
    losses = [weights_after(_job(precision=precision), _data())[1][-1]["loss"] for precision in ("float32", "float16")]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_buckets_are_those_the_simulator_predicts() -> None:
    sizes = [10, 20, 300, 5, 400]
    parameters = [torch.nn.Parameter(torch.zeros(n)) for n in sizes]
    buckets = GradientBuckets(parameters, None, cap=1200, first=1200)
    assert [flat.numel() for flat in buckets.flats] == [400, 305, 30]


def test_synthetic_images_depend_on_their_number_alone() -> None:
    data = Synthetic(num_train=8, num_validation=2, resolution=16)
    images, labels = data.train(np.array([3, 5]), epoch=0)
    again, _ = data.train(np.array([5]), epoch=1)
    assert images.shape == (2, 3, 16, 16)
    assert labels.tolist() == [3, 5]
    assert torch.equal(images[1], again[0])


def test_jobs_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInput, match="precision must be one of float32, bfloat16, float16"):
        Job(precision="int8")
    with pytest.raises(InvalidInput, match="1 or more epochs"):
        Job(epochs=0)
    with pytest.raises(InvalidInput, match="no checkpoint is named to write every 3 steps"):
        Job(checkpoint_steps=3)


@pytest.mark.parametrize(
    "given",
    [
        {"seed": -1}, {"shift": -1}, {"weight_decay": -1.0}, {"momentum": 2.0}, {"bn_momentum": float("nan")},
        {"samples": 0}, {"bn_ranks": -1}, {"checkpoint": "c", "checkpoint_steps": 0},
    ],
    ids=str,
)  # fmt: skip
def test_figures_of_a_job_that_mean_nothing_are_refused(given: dict[str, Any]) -> None:
    name, value = list(given.items())[-1]
    with pytest.raises(InvalidInput, match=rf"^{name} must be .*, got {value:g}$"):
        Job(**given)
