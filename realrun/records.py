"""Where compressed images lie: a folder of class folders, or tar shards; read in parallel, kept in memory.

A shard is a plain tar file. An image's class is the text of `name.cls` beside `name.jpg`, or else the
folder it is in.
"""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput
from simnet.units import Bytes

SUFFIXES = (".jpg", ".jpeg")


@dataclass(frozen=True, slots=True)
class Record:
    """One compressed image: bytes `offset` to `offset + size` of a file, and its class by name."""

    path: Path
    offset: int
    size: Bytes
    label: str

    def __str__(self) -> str:
        return f"{self.path}, {self.size} bytes from {self.offset}" if self.offset else str(self.path)


def index(path: Path, *, workers: int = 4) -> list[Record]:
    """List the images of a folder, of a tar file, or of a folder of tar shards; shards are parsed in parallel.

    The order is that of the names, so it is the same everywhere.

    Raises
    ------
    InvalidInput : nothing there, or an image without a class.
    """
    shards = [path] if path.is_file() else sorted(path.glob("*.tar"))
    if shards:
        with ThreadPoolExecutor(workers) as pool:
            records = [record for part in pool.map(_parse, shards) for record in part]
    else:
        files = sorted(f for f in path.rglob("*") if f.suffix.lower() in SUFFIXES and f.parent != path)
        records = [Record(f, 0, f.stat().st_size, f.parent.relative_to(path).as_posix()) for f in files]
    if not records:
        raise InvalidInput(f"{path} holds no JPEG images in class folders and no tar shards of them")
    return records


def _parse(shard: Path) -> list[Record]:
    try:
        with tarfile.open(shard, "r:") as archive:
            members = [m for m in archive.getmembers() if m.isfile()]
            classes = {_stem(m.name): _text(archive, m) for m in members if m.name.endswith(".cls")}
    except (tarfile.TarError, OSError) as error:
        raise InvalidInput(f"{shard} is not a plain tar file: {error}; write shards uncompressed") from error
    _require_whole(shard, members)
    return [_record(shard, m, classes) for m in members if PurePosixPath(m.name).suffix.lower() in SUFFIXES]


def _require_whole(shard: Path, members: list[tarfile.TarInfo]) -> None:
    """A whole tar file ends with two blocks of zeros; one that was cut between two images would seem complete."""
    end = max((m.offset_data + -(-m.size // 512) * 512 for m in members), default=0)
    size = shard.stat().st_size
    if size < end + 2 * 512:
        raise InvalidInput(f"{shard} was cut: it has {size} bytes and needs {end + 1024}; write or copy it again")


def _record(shard: Path, member: tarfile.TarInfo, classes: dict[str, str]) -> Record:
    label = classes.get(_stem(member.name)) or PurePosixPath(member.name).parent.as_posix()
    if label in ("", "."):
        raise InvalidInput(f"{shard}: {member.name} has no class; put a .cls file beside it or use class folders")
    return Record(shard, member.offset_data, member.size, label)


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = archive.extractfile(member)
    return content.read().decode().strip() if content else ""


def shard_of(records: list[Record], rank: int, world_size: int) -> list[Record]:
    """Return the images of one rank where every rank reads its own part: equal numbers, give or take one."""
    bounds = [k * len(records) // world_size for k in (rank, rank + 1)]
    return records[bounds[0] : bounds[1]]


def write_shards(folder: Path, images: Iterable[tuple[bytes, str]], *, per_shard: int = 256) -> list[Path]:
    """Pack compressed images with their classes into tar shards of so many images each."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[Path] = []
    archive: tarfile.TarFile | None = None
    for number, (data, label) in enumerate(images):
        if number % per_shard == 0:
            if archive is not None:
                archive.close()
            shards.append(folder / f"shard-{len(shards):05d}.tar")
            archive = tarfile.open(shards[-1], "w")  # noqa: SIM115
        assert archive is not None
        for suffix, content in ((".jpg", data), (".cls", label.encode())):
            member = tarfile.TarInfo(f"{number:08d}{suffix}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    if archive is not None:
        archive.close()
    return shards


def synthetic_images(
    count: int, *, num_classes: int = 10, width: int = 500, height: int = 375, quality: int = 90, seed: int = 0
) -> Iterator[tuple[bytes, str]]:
    """Make JPEG images of ImageNet's usual size and weight on the spot, about 100 kB each.

    Source: 150 GB over 1,281,167 images, 117 kB each (NVIDIA technical blog on DALI).
    """
    import simplejpeg

    for number in range(count):
        rng = np.random.default_rng([seed, number])
        pixels = _scene(rng, width, height)
        yield simplejpeg.encode_jpeg(pixels, quality=quality), f"class{number % num_classes:04d}"


def _scene(rng: np.random.Generator, width: int, height: int) -> npt.NDArray[np.uint8]:
    """Blocks of colour under noise: compresses about as photographs do."""
    coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3))
    smooth = np.kron(coarse, np.ones((8, 8, 1)))[:height, :width]
    noise = rng.normal(0, 12, smooth.shape)
    return np.ascontiguousarray(np.clip(smooth * 0.7 + 40 + noise, 0, 255).astype(np.uint8))


class Reader:
    """Reads compressed images and keeps them in memory up to `cache` bytes; safe to use from many threads.

    What was read first stays (a pinned cache): a fraction c of the images in it serves c of the reads, which the
    least recently used rule does not when an epoch's order is random.
    """

    def __init__(self, records: list[Record], *, cache: Bytes = 0) -> None:
        self.records, self.cache = records, cache
        self._kept: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self._used = 0
        self.hits = self.misses = 0

    def read(self, number: int) -> bytes:
        """Return the bytes of one image."""
        kept = self._kept.get(number)
        if kept is not None:
            self.hits += 1
            return kept
        record = self.records[number]
        with record.path.open("rb") as file:
            file.seek(record.offset)
            data = file.read(record.size)
        if len(data) != record.size:
            raise InvalidInput(f"{record.path} ends before an image of {record.size} bytes at {record.offset}")
        self._keep(number, data)
        return data

    def _keep(self, number: int, data: bytes) -> None:
        with self._lock:
            self.misses += 1
            if number not in self._kept and self._used + len(data) <= self.cache:
                self._kept[number] = data
                self._used += len(data)
