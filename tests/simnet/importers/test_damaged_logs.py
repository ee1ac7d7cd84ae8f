"""A damaged log gives a sentence, or rows of the whole log; never a traceback, never a wrong number."""

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnet.errors import SimnetError
from simnet.importers.logs import read_log, stream_log
from simnet.importers.record import Log
from simnet.results import Measurement

DATA = Path(__file__).parents[2] / "data" / "logs"
FILES = sorted(path for path in DATA.iterdir() if path.name != "started_no_result.log")

Row = tuple[str, int | None, int, float]


def rows(log: Log) -> set[Row]:
    return {(row.collective, row.ranks, row.size_bytes, row.time_s) for row in log.measurements}


def whole(path: Path) -> set[Row]:
    return rows(read_log(path))


def survivors(data: bytes, folder: Path, name: str) -> set[Row]:
    """Rows of a damaged file; a refusal must be one sentence."""
    path = folder / name.removesuffix(".gz")
    path.write_bytes(data)
    try:
        return rows(read_log(path))
    except SimnetError as error:
        sentence = str(error)
    assert sentence.strip()
    assert "\n" not in sentence
    return set()


def wrong(found: set[Row], truth: set[Row]) -> set[Row]:
    """Rows that are none of the whole log's; unknown ranks are no wrong ranks."""
    if {ranks for _, ranks, _, _ in truth} == {1}:
        found = {row for row in found if row[1] is not None}
    times = {(size, time) for _, _, size, time in truth}
    names = {(name, size, time) for name, _, size, time in truth}
    return {
        row
        for row in found - truth
        if (row[2], row[3]) not in times or (row[1] is not None and (row[0], row[2], row[3]) in names)
    }


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def shuffled(lines: list[bytes], seed: int) -> list[bytes]:
    mixed = list(lines)
    random.Random(seed).shuffle(mixed)
    return mixed


def cuts(data: bytes, most: int) -> Iterator[int]:
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    yield from ends[:: max(1, len(ends) // most)]
    yield from range(1, len(data), max(1, len(data) // most))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_cut_log_gives_only_rows_of_the_whole_one(path: Path, tmp_path: Path) -> None:
    data, truth = content(path), whole(path)
    for end in cuts(data, 12):
        assert not wrong(survivors(data[:end], tmp_path, path.name), truth), data[max(0, end - 90) : end]


DAMAGES: dict[str, Callable[[list[bytes], random.Random], list[bytes]]] = {
    "dropped": lambda lines, chance: [line for line in lines if chance.random() > 0.15],
    "doubled": lambda lines, chance: [line for line in lines for _ in range(1 + (chance.random() < 0.2))],
    "shuffled": lambda lines, chance: sorted(lines, key=lambda _: chance.random()),
}


@pytest.mark.parametrize("damage", DAMAGES)
@given(path=st.sampled_from(FILES), seed=st.integers(0, 10**6))
def test_lines_dropped_doubled_or_shuffled(
    path: Path, seed: int, damage: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = DAMAGES[damage](content(path).splitlines(keepends=True), random.Random(seed))
    found = survivors(b"".join(lines), tmp_path_factory.mktemp("d"), path.name)
    assert not wrong(found, whole(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_line_ends_and_byte_order_marks_change_nothing(path: Path, tmp_path: Path) -> None:
    data, truth = content(path), whole(path)
    text = data.decode()
    for variant in (
        data.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + data, text.encode("utf-16"), gzip.compress(data),
    ):  # fmt: skip
        assert survivors(variant, tmp_path, path.name) == truth


@given(path=st.sampled_from(FILES), seed=st.integers(0, 10**6))
def test_bytes_that_are_no_text_damage_only_their_rows(
    path: Path, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance, data = random.Random(seed), bytearray(content(path))
    for _ in range(5):
        data[chance.randrange(len(data))] = 0xFF
    assert not wrong(survivors(bytes(data), tmp_path_factory.mktemp("d"), path.name), whole(path))


def test_random_bytes_are_refused(tmp_path: Path) -> None:
    for seed in range(20):
        data = random.Random(seed).randbytes(3000)
        assert survivors(data, tmp_path, "noise.log") == set()
    assert survivors(b"", tmp_path, "empty.log") == set()
    assert survivors(b"\x1f\x8bnot gzip at all", tmp_path, "broken.log") == set()


LOG_FOLDERS = ("nccl_tests", "nccl_debug", "osu", "imb", "mlperf", "profiler", "chakra_kineto", "scaling")
NO_ROWS = {"torch_profiler_key_averages_h100.txt", "dlperf_resnet50_bert_v100_1to32.md"}


@pytest.mark.slow
@pytest.mark.parametrize("folder", LOG_FOLDERS)
def test_real_logs_damaged(samples: Path, folder: str, tmp_path: Path) -> None:
    for path in sorted((samples / folder).iterdir()):
        data = content(path)
        truth = set() if path.name in NO_ROWS else whole(path)
        most = 40 if len(data) < 30_000 else 12 if len(data) < 400_000 else 2
        for end in cuts(data, most):
            assert not wrong(survivors(data[:end], tmp_path, path.name), truth), (path.name, end)
        lines = data.splitlines(keepends=True)
        for name, damage in DAMAGES.items():
            for seed in range(3 if len(data) < 100_000 else 1):
                damaged = b"".join(damage(lines, random.Random(seed)))
                assert not wrong(survivors(damaged, tmp_path, path.name), truth), (path.name, name, seed)


@pytest.mark.slow
def test_100_mb_stream_in_under_200_mb(tmp_path: Path) -> None:
    """In its own process, so that the peak is the reader's."""
    import subprocess
    import sys

    path, line = (
        tmp_path / "large.log",
        "host0:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/1\n" * 600,
    )
    text = (DATA / "new_8_ranks.log").read_text()
    with path.open("w") as file:
        while file.tell() < 100 * 2**20:
            file.write(text + line)
    code = (
        "import sys\nfrom simnet.importers.logs import stream_log\n"
        "rows = sum(type(item).__name__ == 'Measurement' for item in stream_log(sys.argv[1]))\n"
        "status = open('/proc/self/status').read()\n"  # ru_maxrss would count the test's own memory before exec
        "print(rows, status.split('VmHWM:')[1].split()[0])"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    found, peak_kib = map(int, out.split())
    assert found == 46 * path.read_text().count("Avg bus bandwidth")
    assert peak_kib < 200 * 1024


def test_streaming_gives_the_rows_of_reading() -> None:
    for path in FILES:
        streamed = [item for item in stream_log(path) if isinstance(item, Measurement)]
        assert tuple(streamed) == read_log(path).measurements
