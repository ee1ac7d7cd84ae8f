from __future__ import annotations

import io
import itertools
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from realrun.input_pipeline import Augmentation, Images, ahead, cut
from realrun.jpeg import Region, decode, dimensions
from realrun.records import Reader, index, shard_of, synthetic_images, write_shards
from simnet.errors import InvalidInput

simplejpeg = pytest.importorskip("simplejpeg")
pytest.importorskip("turbojpeg")

SIZE = {"width": 83, "height": 61}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, synthetic_images(24, num_classes=3, **SIZE), per_shard=10)
    return folder


def _image(sampling: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (61, 83, 3)).astype(np.uint8)
    return simplejpeg.encode_jpeg(pixels, quality=85, colorsubsampling=sampling)


@pytest.mark.parametrize("sampling", ["444", "422", "420", "440", "411"])
@pytest.mark.parametrize(
    "region", [Region(0, 0, 83, 61), Region(13, 17, 30, 20), Region(82, 60, 1, 1), Region(31, 0, 52, 61)]
)
def test_decoding_a_region_gives_the_pixels_of_the_whole_image_cut(sampling: str, region: Region) -> None:
    data = _image(sampling)
    assert np.array_equal(decode(data, region), cut(data, region))


def test_grey_images_become_rgb() -> None:
    grey = np.full((16, 16, 1), 77, np.uint8)
    data = simplejpeg.encode_jpeg(grey, colorspace="GRAY", colorsubsampling="Gray")
    assert decode(data, Region(3, 3, 5, 5)).shape == (5, 5, 3)
    assert np.abs(decode(data).astype(int) - 77).max() <= 2


@pytest.mark.parametrize("region", [Region(0, 0, 83, 61), Region(13, 17, 30, 20)])
def test_images_for_four_inks_become_rgb(region: Region) -> None:
    inks = np.random.default_rng(0).integers(0, 256, (61, 83, 4)).astype(np.uint8)
    inks[..., 3] = 255  # no black: what is left is the colours themselves
    data = simplejpeg.encode_jpeg(inks, colorspace="CMYK", quality=100)
    found = decode(data, region)
    assert np.array_equal(found, cut(data, region))
    rows, columns = slice(region.y, region.y + region.height), slice(region.x, region.x + region.width)
    assert np.abs(found.astype(int) - inks[rows, columns, :3]).mean() < 40  # colours are stored at half resolution


def test_stray_bytes_are_passed_over_and_an_image_that_was_cut_is_refused() -> None:
    data, part = _image("420"), Region(0, 0, 83, 61)
    stray = data[:-2] + b"\0\0" + data[-2:]
    for decoded in (decode, cut):
        assert np.array_equal(decoded(stray, part), decode(data))
        for end in (len(data) // 2, 20, 0):
            with pytest.raises(InvalidInput, match="not a JPEG image"):
                decoded(data[:end], part)


@pytest.mark.parametrize("region", [True, False])
def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path, region: bool) -> None:
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fine.jpg").write_bytes(_image("420"))
    (tmp_path / "1" / "a.jpg").write_bytes(b"\x89PNG and so on")
    data = Images(tmp_path, augmentation=Augmentation(16, region=region), workers=1)
    with pytest.raises(InvalidInput, match=r"1/a\.jpg: this is not a JPEG image .*; replace it or take it out"):
        data.train(np.arange(data.num_train), epoch=0)


def test_images_are_halved_while_they_keep_enough_pixels() -> None:
    data = next(iter(synthetic_images(1, width=400, height=300)))[0]
    assert decode(data, at_least=150).shape == (150, 200, 3)
    assert decode(data, at_least=151).shape == (300, 400, 3)
    assert decode(data, Region(100, 100, 160, 160), at_least=40).shape == (40, 40, 3)


@pytest.mark.parametrize("region", [Region(-1, 0, 5, 5), Region(80, 0, 5, 5), Region(0, 0, 0, 5)])
def test_a_region_outside_the_image_is_refused(region: Region) -> None:
    with pytest.raises(InvalidInput, match="not inside the image of 83x61"):
        decode(_image("420"), region)


@pytest.mark.parametrize("data", [b"", b"not an image", b"\xff\xd8\xff"])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a JPEG image"):
        decode(data)


def test_shards_and_folders_hold_the_same_images(shards: Path, tmp_path: Path) -> None:
    found = index(shards)
    for number, (data, label) in enumerate(synthetic_images(24, num_classes=3, **SIZE)):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / f"{number:08d}.jpg").write_bytes(data)
    in_folders = index(tmp_path)
    assert len(found) == len(in_folders) == 24
    assert sorted(r.label for r in found) == sorted(r.label for r in in_folders)
    contents = [{Reader(records).read(k) for k in range(24)} for records in (found, in_folders)]
    assert contents[0] == contents[1]


def test_ranks_read_parts_that_join_to_the_whole(shards: Path) -> None:
    found = index(shards)
    parts = [shard_of(found, rank, 5) for rank in range(5)]
    assert [record for part in parts for record in part] == found
    assert {len(part) for part in parts} <= {4, 5}


def test_the_cache_keeps_what_it_read_first_and_never_more_than_it_may(shards: Path) -> None:
    records = index(shards)
    reader = Reader(records, cache=records[0].size + records[1].size)
    for _, number in itertools.product(range(2), range(6)):
        reader.read(number)
    assert (reader.hits, reader.misses) == (2, 10)


@pytest.mark.parametrize("kept", [0, 1, 2000, 5000, -1024, -1])
def test_shards_that_were_cut_are_refused_wherever_they_end(shards: Path, tmp_path: Path, kept: int) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as whole:
        for number, (data, label) in enumerate(synthetic_images(3, **SIZE)):
            member = tarfile.TarInfo(f"{label}/{number}.jpg")
            member.size = len(data)
            whole.addfile(member, io.BytesIO(data))
        end = whole.offset
    assert len(index(archive)) == 3
    content = archive.read_bytes()[: end + 1024]
    archive.write_bytes(content[:kept])
    with pytest.raises(InvalidInput, match=r"a\.tar"):
        index(archive)


def test_what_is_no_tar_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"hello" * 400)
    with pytest.raises(InvalidInput, match="not a plain tar file"):
        index(tmp_path)


def test_images_without_a_class_are_refused(tmp_path: Path) -> None:
    (tmp_path / "lonely.jpg").write_bytes(_image("420"))
    with pytest.raises(InvalidInput, match="no JPEG images in class folders"):
        index(tmp_path)


def test_batches_do_not_depend_on_workers_or_on_how_they_are_decoded(shards: Path) -> None:
    samples = np.array([0, 5, 7])
    made = [
        Images(shards, augmentation=Augmentation(32, region=region), workers=workers).train(samples, epoch=3)
        for region, workers in ((True, 1), (True, 3), (False, 2))
    ]
    for images, labels in made[1:]:
        assert torch.equal(images, made[0][0])
        assert torch.equal(labels, made[0][1])
    assert made[0][0].shape == (3, 3, 32, 32)


def test_every_epoch_crops_anew_and_validation_does_not(shards: Path) -> None:
    data = Images(shards, augmentation=Augmentation(16), workers=1)
    first, second = (data.train(np.array([1]), epoch=e)[0] for e in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(data.validation(np.array([0]))[0], data.validation(np.array([0]))[0])
    assert data.num_train + data.num_validation == 24
    assert data.num_validation == 3


def test_crops_lie_inside_and_keep_area_and_aspect() -> None:
    plan, rng = Augmentation(), np.random.default_rng(1)
    for _ in range(200):
        part = plan.crop((500, 375), rng)
        assert part.x + part.width <= 500
        assert part.y + part.height <= 375
        assert 0.07 <= part.width * part.height / (500 * 375) <= 1.0
        assert 0.7 <= part.width / part.height <= 1.4


def test_stages_say_what_they_cost(shards: Path) -> None:
    data = Images(shards, augmentation=Augmentation(32), workers=2)
    data.train(np.arange(8), epoch=0)
    table = {row["stage"]: row for row in data.stages.table()}
    assert data.stages.samples == 8
    assert table["decode"]["time_s"] > 0
    assert table["all stages"]["time_s"] == pytest.approx(sum(table[s]["time_s"] for s in list(table)[:-1]))


def test_prefetching_keeps_the_order_and_runs_ahead() -> None:
    started: list[int] = []

    def work(number: int) -> int:
        started.append(number)
        return number

    results = ahead((lambda k=k: work(k) for k in range(5)), depth=2)
    assert next(results) == 0
    deadline = time.monotonic() + 60
    while len(started) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert started[:3] == [0, 1, 2]
    assert list(results) == [1, 2, 3, 4]


def test_an_error_while_prefetching_comes_in_its_turn_and_leaves_no_thread() -> None:
    def fail() -> int:
        raise InvalidInput("broken image")

    calls: Iterator = iter([lambda: 1, fail, lambda: 3])
    results = ahead(calls, depth=3)
    assert next(results) == 1
    with pytest.raises(InvalidInput, match="broken image"):
        next(results)
    assert not [t for t in threading.enumerate() if t.name.startswith("prefetch")]


def test_the_header_tells_the_size() -> None:
    assert dimensions(_image("420")) == (83, 61)
