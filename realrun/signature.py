"""Do all ranks ask for the same thing? Exchanged before the data, so that a mismatch is an error and no crash.

Without it a wrong count kills a gloo process, and a wrong dtype of equal size gives wrong numbers
without any error. Every rank sends its signature to rank 0 of the group, which answers with a verdict
that names the ranks that differ. Questions and answers have host-side groups of their own: gloo closes
all connections of a group in which one wait times out, and the answer must still get through.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from realrun.stall import Stall, Stalled
from simnet.errors import InvalidInput
from simnet.units import Seconds

_LENGTH = 1024
_LONGEST_TEXT, _MOST_ABSENT = 600, 32
_PROGRAM = "the signature exchange"


@dataclass(frozen=True, slots=True)
class Signature:
    """What one rank is about to do; `strides` is empty where ranks may differ in it."""

    operation: str
    dtype: str
    count: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    schedule: str

    def encode(self) -> str:
        """Return the signature as text that compares equal exactly where signatures do."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Court:
    """Two gloo groups of the same ranks."""

    questions: dist.ProcessGroup
    answers: dist.ProcessGroup

    @property
    def rank(self) -> int:
        """Rank of this process in both."""
        return dist.get_rank(self.questions)

    @property
    def world_size(self) -> int:
        """Ranks in both."""
        return dist.get_world_size(self.questions)

    def peer(self, rank: int) -> int:
        """Rank among all processes."""
        return dist.get_global_rank(self.questions, rank)


def agree(signature: Signature, court: Court, timeout: Seconds) -> None:
    """Return where every rank of the court brings the same signature.

    Raises
    ------
    InvalidInput : ranks differ; the text names them and what differs.
    Stalled : a rank did not come within the time limit.
    """
    if court.world_size == 1:
        return
    ask = _judge if court.rank == 0 else _inquire
    began = time.monotonic()
    verdict = ask(signature, court, timeout)
    waited = time.monotonic() - began
    if verdict["absent"]:
        raise Stalled(Stall(court.rank, verdict["absent"][0], 0, _PROGRAM, waited, waited < timeout))
    if verdict["difference"]:
        raise InvalidInput(verdict["difference"])


def _judge(own: Signature, court: Court, timeout: Seconds) -> dict[str, Any]:
    inbox = {peer: torch.empty(_LENGTH, dtype=torch.uint8) for peer in range(1, court.world_size)}
    works = {peer: dist.irecv(box, court.peer(peer), group=court.questions) for peer, box in inbox.items()}
    deadline = time.monotonic() + timeout
    absent = [peer for peer, work in works.items() if not _done(work, deadline)]
    present = {0: own.encode()} | {peer: _unpack(inbox[peer]) for peer in works if peer not in absent}
    verdict = {"absent": absent[:_MOST_ABSENT], "difference": "" if absent else difference(present)[:_LONGEST_TEXT]}
    answer = _pack(json.dumps(verdict))
    replies = [dist.isend(answer, court.peer(peer), group=court.answers) for peer in present if peer]
    for reply in replies:
        _done(reply, time.monotonic() + timeout)
    return verdict


def _inquire(own: Signature, court: Court, timeout: Seconds) -> dict[str, Any]:
    answer = torch.empty(_LENGTH, dtype=torch.uint8)
    reply = dist.irecv(answer, court.peer(0), group=court.answers)
    sent = dist.isend(_pack(own.encode()), court.peer(0), group=court.questions)
    patience = time.monotonic() + timeout * 1.25 + 1.0
    if _done(sent, patience) and _done(reply, patience):
        return dict(json.loads(_unpack(answer)))
    return {"absent": [0], "difference": ""}


def _done(work: Any, deadline: float) -> bool:
    try:
        work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
    except RuntimeError:
        return False
    return True


def difference(texts: dict[int, str]) -> str:
    """Sentence that names the ranks that differ from the majority, and in what; empty where all agree."""
    common = Counter(texts.values()).most_common(1)[0][0]
    odd = [rank for rank, text in sorted(texts.items()) if text != common]
    if not odd:
        return ""
    usual, found = json.loads(common), json.loads(texts[odd[0]])
    parts = [f"{key} {found[key]} instead of {usual[key]}" for key in usual if found[key] != usual[key]]
    return f"{_ranks(odd)} asked for something else than the other ranks: {', '.join(parts)}; make the calls equal"


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _pack(text: str) -> torch.Tensor:
    raw = text.encode()[:_LENGTH]
    return torch.frombuffer(bytearray(raw.ljust(_LENGTH, b"\0")), dtype=torch.uint8)


def _unpack(packed: torch.Tensor) -> str:
    return bytes(packed.tolist()).rstrip(b"\0").decode()
