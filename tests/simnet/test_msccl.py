from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from simnet.algorithms.registry import algorithms, build
from simnet.collective import Kind
from simnet.collective_prediction import predict_collective
from simnet.combine import relabel
from simnet.errors import Deadlock, InvalidInput, InvalidSchedule, SimnetError, Unsupported, WrongResult
from simnet.exporters.msccl import write_msccl
from simnet.importers.msccl import parse_msccl, read_msccl
from simnet.interpreters.check import check
from simnet.programs.lowering import to_schedule
from simnet.programs.values import check_program
from simnet.schedule import Step
from simnet.verification import read_schedule, schedules, verify_program

DATA = Path(__file__).parent.parent / "data" / "msccl"


def _xml(*gpus: str, coll: str = "allreduce", chunks: int = 1, inplace: int = 1, scratch: int = 0) -> str:
    body = "".join(
        f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">{blocks}</gpu>'
        for rank, blocks in enumerate(gpus)
    )
    head = f'name="t" proto="LL" nchannels="2" nchunksperloop="{chunks}" ngpus="{len(gpus)}"'
    return f'<algo {head} coll="{coll}" inplace="{inplace}" outofplace="{1 - inplace}">{body}</algo>'


def _tb(number: int, steps: str, *, send: int = -1, recv: int = -1, chan: int = 0) -> str:
    """Steps are words like "s i0" or "rrc i0 after 1.0" (block 1, step 0)."""
    lines = []
    for index, text in enumerate(steps.split(", ")):
        word, src, *rest = text.split()
        dst = rest[0] if rest and rest[0] != "after" else src
        block, step = rest[rest.index("after") + 1].split(".") if "after" in rest else ("-1", "-1")
        cells = f'srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}" cnt="1"'
        lines.append(f'<step s="{index}" type="{word}" {cells} depid="{block}" deps="{step}" hasdep="0"/>')
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">{"".join(lines)}</tb>'


PAIR = (_tb(0, "s i0, r i0", send=1, recv=1), _tb(0, "rrc i0, s i0", send=0, recv=0))


def test_a_hand_written_pair_is_correct() -> None:
    assert check_program(parse_msccl(_xml(*PAIR))) == 2


@pytest.mark.parametrize("name", algorithms())
def test_programs_written_and_read_again_still_hold_without_buffering(name: str) -> None:
    for schedule in schedules(algorithms()[name], max_ranks=5):
        program = parse_msccl("\n".join(write_msccl(schedule)))
        check_program(program, slots=0)
        check(to_schedule(program, slots=0))


def test_several_ranges_of_one_message_need_no_buffering_in_any_order() -> None:
    """What lands in scratch is moved after the whole step was received, or ranks would wait for each other."""
    schedule = build("bruck_all_to_all", 4)
    backwards = [Step(*(getattr(step, column.name)[::-1] for column in fields(Step))) for step in schedule.expand()]
    turned = replace(schedule, items=lambda: iter(backwards))
    check(turned)
    check_program(parse_msccl("\n".join(write_msccl(turned))), slots=0)


def test_a_written_program_states_sizes_and_collective() -> None:
    lines = list(write_msccl(build("torus2d", 6), min_bytes=1024, max_bytes=4096, proto="LL"))
    assert 'minBytes="1024" maxBytes="4096"' in lines[0]
    assert 'coll="allreduce"' in lines[0]
    assert 'ngpus="6"' in lines[0]


@pytest.mark.parametrize("program", sorted(DATA.glob("*.xml")), ids=lambda path: path.stem)
def test_look_alikes_of_real_programs_verify_and_become_schedules(program: Path) -> None:
    row = verify_program(read_msccl(program), slots=1)
    assert row["steps"] is not None


def test_real_programs_verify_or_are_refused_with_a_sentence(samples: Path) -> None:
    files = sorted((samples / "msccl_xml").glob("*.xml"))
    assert files
    for file in files:
        verify_program(read_msccl(file), slots=1)
    with pytest.raises(Deadlock, match=r"where a connection buffers one message \(slots 1\) it runs"):
        verify_program(read_msccl(samples / "msccl_xml" / "azure_ncv4_ar_hier_12_Simple.xml"), slots=0)
    assert verify_program(read_msccl(samples / "msccl_xml" / "azure_ndv4_r48ll.xml"), slots=0)["messages"] == 896


def test_everyone_sends_first_is_a_deadlock_under_rendezvous_only() -> None:
    both = _xml(_tb(0, "s i0, rrc i0", send=1, recv=1), _tb(0, "s i0, rrc i0", send=0, recv=0))
    with pytest.raises(Deadlock, match=r"rank 0, block 0, step 0, waits for a receive by rank 1.*slots 1"):
        check_program(parse_msccl(both))
    assert check_program(parse_msccl(both), slots=1) == 2


def test_everyone_receives_first_is_a_deadlock_with_any_buffer() -> None:
    both = _xml(_tb(0, "rrc i0, s i0", send=1, recv=1), _tb(0, "rrc i0, s i0", send=0, recv=0))
    with pytest.raises(Deadlock, match="buffering does not help"):
        check_program(parse_msccl(both))
    with pytest.raises(Deadlock, match="waits for a send by"):
        check_program(parse_msccl(both), slots=8)


def test_parity_of_channels_on_an_odd_ring_does_not_match() -> None:
    def blocks(rank: int) -> str:
        parity = rank % 2
        return _tb(0, "s i0", send=(rank + 1) % 3, chan=parity) + _tb(1, "rrc i0", recv=(rank - 1) % 3, chan=parity)

    with pytest.raises(InvalidSchedule, match="connection 0 to 1, channel 0: rank 1 has no block for it"):
        check_program(parse_msccl(_xml(*map(blocks, range(3)))))


def test_a_dependency_cycle_is_a_deadlock() -> None:
    waits = _tb(0, "s i0 after 1.0", send=1) + _tb(1, "r i0 after 0.0", recv=1)
    with pytest.raises(Deadlock, match=r"waits for step 0 of rank 0, block 1.*waits for step 0 of rank 0, block 0"):
        check_program(parse_msccl(_xml(waits, _tb(0, "rrc i0, s i0", send=0, recv=0))))


def test_a_missing_dependency_is_a_race() -> None:
    reader = _tb(0, "rrc i0, s i0", send=0, recv=0)
    racing = _tb(0, "s i0", send=1) + _tb(1, "r i0", recv=1)
    assert check_program(parse_msccl(_xml(racing, reader)))
    split = _tb(0, "rrc i0", recv=0) + _tb(1, "s i0", send=0)
    with pytest.raises(InvalidSchedule, match="add a dependency"):
        check_program(parse_msccl(_xml(_tb(0, "s i0, r i0", send=1, recv=1), split)), slots=1)


FIRST, SECOND = PAIR
FAULTS = {
    "a receive too many": (
        FIRST,
        _tb(0, "rrc i0, rrc i0, s i0", send=0, recv=0),
        InvalidSchedule,
        "1 messages are sent",
    ),
    "a copy for a sum": (FIRST, _tb(0, "r i0, s i0", send=0, recv=0), WrongResult, "lacks ranks"),
    "added twice": (
        _tb(0, "s i0, s i0, r i0", send=1, recv=1),
        _tb(0, "rrc i0, rrc i0, s i0", send=0, recv=0),
        WrongResult,
        "too much of ranks",
    ),
    "garbage sent": (_tb(0, "s s0, r i0", send=1, recv=1), SECOND, WrongResult, "sends data it never received"),
    "two senders": (_tb(0, "s i0", send=1) + _tb(1, "s i0", send=1), SECOND, InvalidSchedule, "share the connection"),
    "no answer": (_tb(0, "s i0", send=1), _tb(0, "rrc i0", recv=0), WrongResult, "chunk 0 is wrong.*never written"),
}


@pytest.mark.parametrize(("first", "second", "error", "text"), FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_found(first: str, second: str, error: type[SimnetError], text: str) -> None:
    with pytest.raises(error, match=text):
        check_program(parse_msccl(_xml(first, second, scratch=1)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: x[: len(x) // 2], "no readable XML"),
        (lambda x: x.replace("algo", "graph"), "starts with <graph>"),
        (lambda x: x.replace('ngpus="2"', 'ngpus="3"'), "has gpus"),
        (lambda x: x.replace('ngpus="2"', 'ngpus="two"'), "no whole number: 'two'"),
        (lambda x: x.replace('coll="allreduce"', 'coll="custom"'), "collective 'custom' has no known result"),
        (lambda x: x.replace('type="rrc"', 'type="rrx"'), "unknown type 'rrx'"),
        (lambda x: x.replace('srcbuf="i"', 'srcbuf="q"'), "unknown buffer 'q'"),
        (lambda x: x.replace('srcoff="0"', 'srcoff="7"'), "beyond its buffer"),
        (lambda x: x.replace('send="1"', 'send="9"'), "talks to ranks"),
        (lambda x: x.replace('s="1" type', 's="5" type'), "does not number its steps"),
        (lambda x: x.replace('depid="-1" deps="-1"', 'depid="4" deps="0"'), "which do not exist"),
        (lambda x: x.replace('nchunksperloop="1"', 'nchunksperloop="1000000000000"'), "is a number damaged?"),
        (lambda x: x.replace('ngpus="2"', 'ngpus="1000000000000"'), "has gpus"),
        (lambda x: x.replace('nchunksperloop="1"', ""), "lacks the attribute nchunksperloop"),
        (lambda x: x.replace("<algo", '<!DOCTYPE a [<!ENTITY b "c">]><algo'), "no readable XML"),
    ],
)
def test_files_that_are_not_right_are_refused_with_a_sentence(change: Callable[[str], str], text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(text)):
        parse_msccl(change(_xml(*PAIR)))


def test_a_file_cut_anywhere_is_refused_or_read_never_a_traceback() -> None:
    text = "\n".join(write_msccl(build("ring", 3)))
    for end in range(0, len(text), 37):
        with pytest.raises(InvalidInput):
            parse_msccl(text[:end])


def test_a_program_that_moves_data_inside_a_rank_is_verified_but_not_timed() -> None:
    moves = _tb(0, "cpy i0 s0, s s0, r i0", send=1, recv=1)
    program = parse_msccl(_xml(moves, PAIR[1], scratch=1))
    row = verify_program(program)
    assert row["messages"] == 2
    assert "can be verified but not timed" in row["reason"]


def test_roots_other_than_rank_0_and_bad_sizes_are_refused() -> None:
    with pytest.raises(Unsupported, match="starts at rank 0, not 2"):
        write_msccl(relabel(build("chain_broadcast", 3), [2, 1, 0]))
    with pytest.raises(InvalidInput, match="minBytes must be 0 to maxBytes"):
        write_msccl(build("ring", 3), min_bytes=5, max_bytes=1)


def test_out_of_place_all_to_all_keeps_inputs_until_they_are_sent() -> None:
    blocks = [
        "".join(
            _tb(2 * k, f"s i{peer}", send=peer) + _tb(2 * k + 1, f"r o{peer}", recv=peer)
            for k, peer in enumerate(p for p in range(3) if p != rank)
        )
        + _tb(9, f"cpy i{rank} o{rank}")
        for rank in range(3)
    ]
    program = parse_msccl(_xml(*blocks, coll="alltoall", chunks=3, inplace=0))
    check_program(program)
    schedule = to_schedule(program)
    assert schedule.collective.kind is Kind.ALL_TO_ALL
    check(schedule)


def test_damaged_programs_are_refused_or_checked_never_a_traceback() -> None:
    rng, texts = random.Random(1), [path.read_text() for path in sorted(DATA.glob("*.xml"))]
    verdicts = set()
    for _ in range(300):
        text = rng.choice(texts)
        number = rng.choice(list(re.finditer(r'"(-?\d+)"', text)))
        value = rng.choice([-5, -1, 0, 1, 2, 3, 99, 10**12])
        try:
            verify_program(parse_msccl(f"{text[: number.start(1)]}{value}{text[number.end(1) :]}"), slots=1)
            verdicts.add("right")
        except SimnetError as error:
            verdicts.add(type(error).__name__)
    assert verdicts >= {"right", "InvalidInput", "InvalidSchedule", "WrongResult"}


def test_other_peoples_programs_are_timed_like_our_own() -> None:
    ring = read_schedule(DATA / "ring_4.xml")
    sizes, uniform = [64, 1 << 20], {"cluster": "uniform", "bandwidth": "12.5 GB/s", "latency": "1 us"}
    theirs = predict_collective(ranks=4, algorithm=ring, sizes=sizes, **uniform)
    ours = predict_collective(ranks=4, algorithm="ring", sizes=sizes, **uniform)
    assert [row.time_s for row in theirs] == pytest.approx([row.time_s for row in ours], rel=1e-12)
    with pytest.raises(InvalidInput, match="is for 4 ranks, got ranks 5"):
        predict_collective(ranks=5, algorithm=ring, sizes=sizes, **uniform)
