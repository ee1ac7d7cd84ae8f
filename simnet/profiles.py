"""Profiles as TOML files: values with intervals, what they were fitted to, and when."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simnet.errors import InvalidInput
from simnet.results import (
    Fitted,
    FittedPoint,
    NcclFit,
    NcclLeftover,
    NcclSite,
    NcclVariant,
    Profile,
    ProfileInput,
    Segment,
)


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile as TOML; fields that are not set are left out."""
    import tomli_w

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps(_without_none(asdict(profile))), encoding="utf-8")


def read_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises
    ------
    InvalidInput : not readable, not TOML, or not a profile.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read profile {path}: {error.strerror}; write one with simnet calibrate") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"profile {path} is not TOML: {error}; write one with simnet calibrate") from error
    try:
        return _profile(table)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"profile {path} lacks or misstates {error}; write one with simnet calibrate") from error


def named_profiles(paths: Iterable[str | Path]) -> dict[str, Profile]:
    """Profiles by every name a prediction may call them: their own, and their file's."""
    found: dict[str, Profile] = {}
    for path in paths:
        profile = read_profile(path)
        found |= {profile.name: profile, str(path): profile}
    return found


def _profile(table: Mapping[str, Any]) -> Profile:
    gamma = table.get("gamma_s_per_byte")
    return Profile(
        name=str(table["name"]),
        segments=tuple(_segment(row) for row in (table.get("segments", ()) if "nccl" in table else table["segments"])),
        gamma_s_per_byte=None if gamma is None else Fitted(**gamma),
        created=table.get("created", ""),
        command=table.get("command", ""),
        inputs=tuple(ProfileInput(**row) for row in table.get("inputs", ())),
        points=tuple(FittedPoint(**row) for row in table.get("points", ())),
        refused=tuple(FittedPoint(**row) for row in table.get("refused", ())),
        assumptions=tuple(table.get("assumptions", ())),
        residuals=dict(table.get("residuals", {})),
        nccl=_nccl(table["nccl"]) if "nccl" in table else None,
    )


def _nccl(table: Mapping[str, Any]) -> NcclFit:
    variants = tuple(_variant(row) for row in table["variants"])
    if not variants:
        raise ValueError("nccl.variants: there is none")
    return NcclFit(NcclSite(**table["site"]), variants, float(table["error_per_doubling"]))


def _variant(row: Mapping[str, Any]) -> NcclVariant:
    factors = {name: Fitted(**row["factors"][name]) for name in row["factors"]}
    if not all(factor.value > 0 for factor in factors.values()):
        raise ValueError("nccl.variants.factors: one is not above 0")
    leftovers = tuple(
        NcclLeftover(
            one["ranks"], one["nodes"], tuple(one["sizes"]), tuple(one["log_ratio"]), tuple(one.get("modes", ()))
        )
        for one in row["leftovers"]
    )
    if not leftovers or not all(one.sizes and len(one.sizes) == len(one.log_ratio) for one in leftovers):
        raise ValueError("nccl.variants.leftovers: sizes and log_ratio, as many of each")
    if not all(len(one.modes) in (0, len(one.sizes)) for one in leftovers):
        raise ValueError("nccl.variants.leftovers.modes: one for each of sizes")
    return NcclVariant(
        row["ll128_inside"], row["ll128_across"], row["channels_per_nic"], factors, leftovers, row["error"]
    )  # fmt: skip


def _segment(row: Mapping[str, Any]) -> Segment:
    latency, bandwidth = Fitted(**row["latency_s"]), Fitted(**row["bandwidth_bytes_per_s"])
    if not latency.value >= 0 or not bandwidth.value > 0:
        raise ValueError(f"segments: latency {latency.value} s or bandwidth {bandwidth.value} bytes/s")
    return Segment(
        row.get("max_bytes"), latency, bandwidth, row.get("max_bytes_low"), row.get("max_bytes_high")
    )  # fmt: skip


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
