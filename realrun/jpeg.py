"""Decode only the part of a JPEG image that is needed.

libjpeg-turbo 3 skips rows above and below a region, and blocks to its left and right, before the
inverse transform; its scaled inverse transform also halves images while it decodes. The Python
packages at hand decode whole images (simplejpeg, Pillow) or whole rows (pyvips), so this calls the
library directly, as the wheel `turbojpeg` bundles it, or as the system has it.

Source: libjpeg-turbo 3.0, turbojpeg.h (tj3SetCroppingRegion, tj3SetScalingFactor).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import threading
from collections.abc import Iterator
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_ubyte, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simnet.errors import InvalidInput, Unsupported

Pixels = npt.NDArray[np.uint8]

_DECOMPRESS, _RGB, _CMYK = 1, 0, 11
_SUBSAMPLING, _WIDTH, _HEIGHT, _COLORSPACE = 4, 5, 6, 8
_PRINTED = (3, 4)  # CMYK and YCCK
_WARNING = 0
# Real collections have images with stray bytes between markers, which decoders pass over.
HARMLESS = "extraneous bytes"
_BLOCK_WIDTH = {0: 8, 1: 16, 2: 16, 3: 8, 4: 8, 5: 32, 6: 8}
_HALVINGS = (8, 4, 2, 1)


@dataclass(frozen=True, slots=True)
class Region:
    """Pixels of an image: left, top, width, height."""

    x: int
    y: int
    width: int
    height: int


class _Rectangle(Structure):
    _fields_ = [("x", c_int), ("y", c_int), ("w", c_int), ("h", c_int)]


class _Fraction(Structure):
    _fields_ = [("num", c_int), ("denom", c_int)]


def _candidates() -> Iterator[str]:
    spec = importlib.util.find_spec("turbojpeg")
    if spec is not None and spec.origin is not None:
        beside = Path(spec.origin).parent
        for pattern in ("turbojpeg.libs/libturbojpeg*", ".dylibs/libturbojpeg*", "turbojpeg.libs/turbojpeg*.dll"):
            yield from map(str, sorted(beside.glob(pattern)))
    found = ctypes.util.find_library("turbojpeg")
    if found:
        yield found


@cache
def _library() -> Any:
    for name in _candidates():
        library = ctypes.CDLL(name)
        if hasattr(library, "tj3SetCroppingRegion"):
            return _declared(library)
    raise Unsupported(
        "no libjpeg-turbo 3 to decode regions with; install simnet-testbed[train], or decode whole images with "
        "region=False"
    )


def _declared(library: Any) -> Any:
    for name, result, arguments in (
        ("tj3Init", c_void_p, [c_int]),
        ("tj3Destroy", None, [c_void_p]),
        ("tj3GetErrorStr", c_char_p, [c_void_p]),
        ("tj3GetErrorCode", c_int, [c_void_p]),
        ("tj3Get", c_int, [c_void_p, c_int]),
        ("tj3DecompressHeader", c_int, [c_void_p, c_char_p, c_size_t]),
        ("tj3SetScalingFactor", c_int, [c_void_p, _Fraction]),
        ("tj3SetCroppingRegion", c_int, [c_void_p, _Rectangle]),
        ("tj3Decompress8", c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_ubyte), c_int, c_int]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class _Handle:
    """One decompressor; a thread has its own. Calls release the interpreter lock."""

    def __init__(self) -> None:
        self.library = _library()
        self.pointer = self.library.tj3Init(_DECOMPRESS)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self.library.tj3Destroy(self.pointer)

    def header(self, data: bytes) -> tuple[int, int, int]:
        self.check(self.library.tj3DecompressHeader(self.pointer, data, len(data)))
        width, height, sampling = (self.library.tj3Get(self.pointer, p) for p in (_WIDTH, _HEIGHT, _SUBSAMPLING))
        return width, height, _BLOCK_WIDTH.get(sampling, 32)

    def printed(self) -> bool:
        """Whether the image of the last header is for four inks."""
        return self.library.tj3Get(self.pointer, _COLORSPACE) in _PRINTED

    def check(self, code: int) -> None:
        """Raise what went wrong, but for what is harmless."""
        if not code:
            return
        text = self.library.tj3GetErrorStr(self.pointer).decode()
        if self.library.tj3GetErrorCode(self.pointer) != _WARNING or HARMLESS not in text:
            raise InvalidInput(f"this is not a JPEG image that can be decoded: {text}")


_own = threading.local()


def _handle() -> _Handle:
    if not hasattr(_own, "handle"):
        _own.handle = _Handle()
    handle: _Handle = _own.handle
    return handle


def dimensions(data: bytes) -> tuple[int, int]:
    """Width and height of a JPEG image, from its header."""
    return _handle().header(data)[:2]


def decode(data: bytes, region: Region | None = None, *, at_least: int | None = None) -> Pixels:
    """Decode a region of a JPEG image, the whole of it by default, shape (height, width, 3), RGB.

    Parameters
    ----------
    at_least : pixels the result's shorter side must keep; the image is halved while it is decoded, up to three
        times, as long as it keeps them. None decodes at full size.

    Raises
    ------
    InvalidInput : not a JPEG image, or the region is not inside it.
    Unsupported : no libjpeg-turbo 3 on this machine.
    """
    handle = _handle()
    width, height, block = handle.header(data)
    region = region or Region(0, 0, width, height)
    inside = region.x >= 0 and region.y >= 0 and region.x + region.width <= width and region.y + region.height <= height
    if not inside or region.width < 1 or region.height < 1:
        raise InvalidInput(f"the region {region} is not inside the image of {width}x{height}")
    eighths = _scale(min(region.width, region.height), at_least)
    x, y, w, h = (value * eighths // 8 for value in (region.x, region.y, region.width, region.height))
    left = x - x % max(1, block * eighths // 8)
    out = np.empty((max(1, h), max(1, w) + x - left, 4 if handle.printed() else 3), np.uint8)
    handle.check(handle.library.tj3SetScalingFactor(handle.pointer, _Fraction(1, 8 // eighths)))
    box = _Rectangle(left, y, out.shape[1], out.shape[0])
    handle.check(handle.library.tj3SetCroppingRegion(handle.pointer, box))
    pixels, kind = out.ctypes.data_as(POINTER(c_ubyte)), _CMYK if handle.printed() else _RGB
    handle.check(handle.library.tj3Decompress8(handle.pointer, data, len(data), pixels, out.strides[0], kind))
    return of_inks(out[:, x - left :]) if handle.printed() else out[:, x - left :]


def of_inks(pixels: Pixels) -> Pixels:
    """Return colours of what four inks leave, (height, width, 3); JPEG files hold CMYK inverted, as Adobe writes it."""
    return (pixels[..., :3].astype(np.uint16) * pixels[..., 3:] // 255).astype(np.uint8)


def _scale(shorter: int, at_least: int | None) -> int:
    """Eighths to decode at: 8, 4, 2 or 1, those the library transforms fastest."""
    if at_least is None:
        return 8
    fitting = [eighths for eighths in _HALVINGS if shorter * eighths // 8 >= at_least]
    return fitting[-1] if fitting else 8
