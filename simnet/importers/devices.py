"""Which device of the catalogue a file means."""

from __future__ import annotations

from functools import cache

from simnet.catalog import load_device
from simnet.hardware import Device
from simnet.importers.machine import Remarks

# By CUDA compute capability: name where devices are linked directly, name where they are not.
_BY_SM = {
    60: ("p100-sxm2", "p100-pcie"), 61: ("p40", "p40"), 70: ("v100-sxm2", "v100-pcie"),
    80: ("a100-sxm4-40gb", "a100-sxm4-40gb"), 90: ("h100-sxm5", "h100-sxm5"),
}  # fmt: skip


def chosen_device(wanted: str | None, sm: int | None, linked: bool, remarks: Remarks) -> Device:
    """Return the device asked for, else the one of that compute capability, else a generic one, and say so."""
    if wanted is not None:
        return load_device(wanted)
    if sm in _BY_SM:
        name = _BY_SM[sm][0 if linked else 1]
        remarks.assume(
            f"devices of compute capability {sm // 10}.{sm % 10} were taken as {name}; --device names another"
        )
        return load_device(name)
    remarks.assume("the file does not name the device: a generic one of 10 TFLOP/s; --device names another")
    return _generic()


@cache
def _generic() -> Device:
    return load_device("generic")


_NVLINKS = {"p100": "nvlink1", "v100": "nvlink2", "a100": "nvlink3", "h100": "nvlink4"}


def nvlink_of(device: str) -> str | None:
    """Generation of NVLink that a device of the catalogue has, where its name tells."""
    return next((link for start, link in _NVLINKS.items() if device.startswith(start)), None)
