"""Wires from what topology files write: "16.0 GT/s PCIe" x 16, "4xHDR", counts of NVLinks, Mbit/s of NICs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from simnet.catalog import load_link
from simnet.errors import InvalidInput
from simnet.hardware import LinkType, Quantity, Wire
from simnet.units import GBIT_PER_S, BytesPerSecond, Dimension, parse

_PCIE_TYPES = ((8.0, "pcie3-x16"), (16.0, "pcie4-x16"), (64.0, "pcie5-x16"))
# Share of the raw rate that data reach, with packet headers off: as the catalogue has it for PCI Express 3.
_PCIE_SHARE, _PCIE_LOW, _PCIE_HIGH = 0.79, 0.65, 0.84
# Gbit/s of data a lane carries; InfiniBand Trade Association, road map.
_LANES = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0,
    "HDR": 50.0, "NDR": 100.0, "XDR": 200.0,
}  # fmt: skip
_RATE = re.compile(r"(\d+)x\s?([A-Z]+\d*)")
_IB_TYPES = {"SDR": "ib-sdr", "DDR": "ib-ddr", "QDR": "ib-qdr", "FDR10": "ib-fdr", "FDR": "ib-fdr", "EDR": "ib-edr"}
_IB_TYPES |= {"HDR": "ib-hdr", "NDR": "ib-ndr", "XDR": "ib-ndr"}


@cache
def catalogue_link(name: str) -> LinkType:
    """Link type of the package's own catalogue."""
    return load_link(name)


def exact(bandwidth: BytesPerSecond, source: str) -> Quantity:
    """A bandwidth as a file states it."""
    return Quantity(bandwidth, bandwidth, bandwidth, source)


def wire(name: str, *, bandwidth: Quantity | None = None, latency: float = 1.0, width: float = 1.0) -> Wire:
    """A wire of a catalogue type, with another bandwidth where given and a part of its latency."""
    link = catalogue_link(name)
    chosen = bandwidth or link.bandwidth
    return Wire(replace(link, bandwidth=chosen, latency=link.latency.scaled(latency)), width)


def pcie_raw(speed: str, width: int) -> BytesPerSecond | None:
    """Bytes/s of a PCIe link before packet headers, MT/s times width; None where the file leaves it open.

    Raises
    ------
    InvalidInput : a speed of another form, or a width that no link has.
    """
    text = speed.replace("PCIe", "").strip()
    if not text or text.lower().startswith("unknown") or width == 0:
        return None
    if width not in (1, 2, 4, 8, 12, 16, 32):
        raise InvalidInput(f"a PCIe link has 1 to 32 lanes, got {width}")
    rate = parse(text, Dimension.TRANSFERS, name="speed of a PCIe link") / 1e9
    coding = 8 / 10 if rate <= 5 else 128 / 130 if rate <= 32 else 242 / 256
    return rate * 1e9 / 8 * width * coding


def pcie(raw: BytesPerSecond, source: str, *, latency: float) -> Wire:
    """A PCIe wire of that raw rate; data reach 65 to 84 % of it."""
    lane = raw / 16 / (128 / 130) * 8 / 1e9
    name = next(kind for limit, kind in _PCIE_TYPES if lane <= limit or kind == "pcie5-x16")
    text = f"{source}: {raw / 1e9:.4g} GB/s raw; 65 to 84 % of it after packet headers"
    bandwidth = Quantity(raw * _PCIE_SHARE, raw * _PCIE_LOW, raw * _PCIE_HIGH, text)
    return wire(name, bandwidth=bandwidth, latency=latency)


def open_pcie(*, latency: float) -> Wire:
    """A PCIe wire of 16 lanes and unknown generation, 3 to 5."""
    source = "the file gives no speed: 16 lanes of PCI Express 3 to 5"
    return wire("pcie4-x16", bandwidth=Quantity(25e9, 10e9, 53e9, source), latency=latency)


def infiniband_rate(text: str) -> BytesPerSecond | None:
    """Bytes/s of "4xHDR" or "4x EDR"; None for a rate nobody knows."""
    match = _RATE.fullmatch(text.strip())
    if match is None or match[2] not in _LANES or int(match[1]) not in (1, 2, 4, 8, 12):
        return None
    return int(match[1]) * _LANES[match[2]] * GBIT_PER_S


def infiniband(text: str, source: str, *, latency: float) -> Wire:
    """An InfiniBand wire of a rate such as "4xHDR"."""
    rate, match = infiniband_rate(text), _RATE.fullmatch(text.strip())
    assert rate is not None
    assert match is not None
    return wire(_IB_TYPES[match[2]], bandwidth=exact(rate, f"{source}: {text}"), latency=latency)


def port(mbit_per_s: float, source: str) -> Wire:
    """The wire of a NIC of that many Mbit/s, from device to device."""
    known = {100_000: "ib-edr", 200_000: "ib-hdr", 400_000: "ib-ndr"}
    name = known.get(round(mbit_per_s), "ethernet-100g" if mbit_per_s >= 100_000 else "ethernet-10g")
    return wire(name, bandwidth=exact(mbit_per_s * 1e6 / 8, f"{source}: {mbit_per_s:g} Mbit/s"))


def infiniband_sum(counts: Mapping[str, int], source: str, *, latency: float) -> Wire:
    """Cables of several rates between the same two ends, as one wire of all their bandwidth."""
    widest = max(counts, key=lambda rate: infiniband_rate(rate) or 0.0)
    total = sum(count * (infiniband_rate(rate) or 0.0) for rate, count in counts.items())
    text = " and ".join(f"{count} of {rate}" for rate, count in sorted(counts.items()))
    one = infiniband(widest, source, latency=latency)
    return replace(one, link=replace(one.link, bandwidth=exact(total, f"{source}: {text}")))
