"""Write a schedule as Chakra execution traces, one per rank: sends and receives with their dependencies.

A trace is a stream of protobuf messages, each after its length as a varint. The few field types it needs are
written here, so that no protobuf runtime is needed.

Where additions take time, each is a compute node behind the receive. Its duration is in whole microseconds, as the
format has it, and 0 of them are 1 ns to ASTRA-sim; its operations and bytes let ASTRA-sim's roofline do without.

Source of the format: mlcommons/chakra, schema/protobuf/et_def.proto; attribute types as ASTRA-sim's feeder reads
them; how it runs compute nodes: astra-sim/workload/Workload.cc.
"""

from __future__ import annotations

from collections.abc import Iterator

from simnet.exporters.rank_steps import Exchange, rank_steps, require_gamma
from simnet.schedule import Schedule
from simnet.units import US, SecondsPerByte

COMP_NODE, SEND_NODE, RECV_NODE = 4, 5, 6
_ID, _NAME, _TYPE, _DATA_DEPS, _DURATION, _ATTRIBUTES = 1, 2, 3, 5, 7, 10
_INT32, _INT64, _BOOL = 7, 9, 27


def write_chakra(
    schedule: Schedule, count: int, rank: int, *, itemsize: int = 4, gamma: SecondsPerByte = 0.0
) -> Iterator[bytes]:
    """Yield the pieces of `name.{rank}.et`.

    Parameters
    ----------
    count : elements per rank; itemsize : bytes per element
    gamma : s per byte that a rank adds; at 0 the trace has no compute nodes

    Raises
    ------
    InvalidInput : gamma below 0; and as for `rank_steps`.
    """
    require_gamma(gamma)
    yield _delimited(_text(1, "0.0.4"))
    number = 0
    before: dict[int, list[int]] = {}
    for exchanges in rank_steps(schedule, count, rank, itemsize=itemsize):
        now: dict[int, list[int]] = {}
        for one in exchanges:
            yield _delimited(_node(number, one, rank, before.get(one.channel, []), schedule.num_channels))
            number += 1
            if one.added and gamma:
                yield _delimited(_addition(number, one, gamma, itemsize))
                number += 1
            now.setdefault(one.channel, []).append(number - 1)
        before |= now


def _addition(number: int, one: Exchange, gamma: SecondsPerByte, itemsize: int) -> bytes:
    return b"".join((
        _number(_ID, number),
        _text(_NAME, f"ADD_{one.peer}_{one.tag}"),
        _number(_TYPE, COMP_NODE),
        _bytes(_DATA_DEPS, _varint(number - 1)),
        _number(_DURATION, round(one.added * gamma / US)),
        _attribute("is_cpu_op", _BOOL, 0),
        _attribute("num_ops", _INT64, one.added // itemsize),
        _attribute("tensor_size", _INT64, one.added),
    ))  # fmt: skip


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
