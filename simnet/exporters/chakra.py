"""Write a schedule as Chakra execution traces, one per rank: sends and receives with their dependencies.

A trace is a stream of protobuf messages, each after its length as a varint. The few field types it needs are
written here, so that no protobuf runtime is needed.

Source of the format: mlcommons/chakra, schema/protobuf/et_def.proto; attribute types as ASTRA-sim's feeder reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from simnet.exporters.rank_steps import Exchange, rank_steps
from simnet.schedule import Schedule

SEND_NODE, RECV_NODE = 5, 6
_ID, _NAME, _TYPE, _DATA_DEPS, _ATTRIBUTES = 1, 2, 3, 5, 10
_INT32, _INT64, _BOOL = 7, 9, 27


def write_chakra(schedule: Schedule, count: int, rank: int, *, itemsize: int = 4) -> Iterator[bytes]:
    """Yield the pieces of `name.{rank}.et`; `count` elements of `itemsize` bytes per rank.

    Additions are not in the trace: they take no time there.
    """
    yield _delimited(_text(1, "0.0.4"))
    number = 0
    before: dict[int, list[int]] = {}
    for exchanges in rank_steps(schedule, count, rank, itemsize=itemsize):
        now: dict[int, list[int]] = {}
        for one in exchanges:
            yield _delimited(_node(number, one, rank, before.get(one.channel, []), schedule.num_channels))
            now.setdefault(one.channel, []).append(number)
            number += 1
        before |= now


def _node(number: int, one: Exchange, rank: int, needs: list[int], channels: int) -> bytes:
    src, dst = (rank, one.peer) if one.sends else (one.peer, rank)
    name = f"{'SEND' if one.sends else 'RECV'}_{src}_{dst}_{one.tag}"
    deps = b"".join(_varint(need) for need in needs)
    return b"".join((
        _number(_ID, number),
        _text(_NAME, name),
        _number(_TYPE, SEND_NODE if one.sends else RECV_NODE),
        _bytes(_DATA_DEPS, deps) if deps else b"",
        _attribute("is_cpu_op", _BOOL, 0),
        _attribute("comm_size", _INT64, one.num_bytes),
        _attribute("comm_src", _INT32, src),
        _attribute("comm_dst", _INT32, dst),
        _attribute("comm_tag", _INT32, one.tag * channels + one.channel),
    ))  # fmt: skip


def _attribute(name: str, field: int, value: int) -> bytes:
    return _bytes(_ATTRIBUTES, _text(1, name) + _number(field, value))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _delimited(message: bytes) -> bytes:
    return _varint(len(message)) + message
