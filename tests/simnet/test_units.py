from __future__ import annotations

import pytest

from simnet.errors import InvalidInput
from simnet.units import Dimension, format_duration, format_si, parse, parse_size, parse_sizes


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("1 GB/s", Dimension.BANDWIDTH, 1e9),
        ("25 Gbit/s", Dimension.BANDWIDTH, 3.125e9),
        ("25 Gb/s", Dimension.BANDWIDTH, None),
        ("100 Mbit/s", Dimension.BANDWIDTH, 12.5e6),
        ("1 GiB/s", Dimension.BANDWIDTH, 2**30),
        ("1.5 us", Dimension.TIME, 1.5e-6),
        ("32 MiB", Dimension.INFORMATION, 2**25),
        ("10 KB", Dimension.INFORMATION, 1e4),
        ("15.7 TFLOP/s", Dimension.COMPUTE, 15.7e12),
        ("16 GT/s", Dimension.TRANSFERS, 16e9),
        ("129000 USD", Dimension.MONEY, 129000),
        ("32", Dimension.INFORMATION, None),
        ("32M", Dimension.INFORMATION, None),
        ("100mbit", Dimension.INFORMATION, None),
        ("1 GB", Dimension.BANDWIDTH, None),
        ("fast", Dimension.BANDWIDTH, None),
        ("", Dimension.TIME, None),
    ],
)
def test_border_text_is_read_exactly_or_refused(text: str, dimension: Dimension, value: float | None) -> None:
    if value is None:
        with pytest.raises(InvalidInput, match="write"):
            parse(text, dimension)
    else:
        assert parse(text, dimension) == pytest.approx(value, rel=1e-12)


def test_sizes_follow_the_grammar_of_nccl_tests() -> None:
    assert parse_sizes("4:32:2") == [4, 8, 16, 32]
    assert parse_sizes("1K,2M") == [1024, 2 * 2**20]
    assert parse_size("1G") == 2**30


@pytest.mark.parametrize("text", ["32M:4:2", "4:32M:1", "1.5M", "4MB", "4:8:x", "-4", "", "0:8:2", "1:2:3:4"])
def test_sizes_outside_the_grammar_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_sizes(text)


def test_numbers_are_formatted_for_humans() -> None:
    assert format_si(12.5e9, "B/s") == "12.5 GB/s"
    assert format_si(10.23e-3, "s") == "10.23 ms"
    assert format_duration(86400.0 * 14) == "14 days"
