"""Whether a static share of a contended link is the whole truth.

It is, where all flows of a connected component begin within 1e-12 relative of each other with the same
wire bytes, and nothing else is in flight on their links: then faster flows end first, and taking them
away changes nothing for the slower ones, whose narrowest links they do not use.
"""

from __future__ import annotations

import numpy as np

from simnet.interpreters.messages import BoolArray
from simnet.interpreters.network import INSTANT, Incidence
from simnet.interpreters.stages import Price, Stage
from simnet.paths import FloatArray
from simnet.schedule import IntArray

OUT_OF_STEP = "share links but are out of step or carry different sizes"


class Lockstep:
    """Watch the contended links of a schedule, stage by stage; without links it watches nothing.

    Attributes
    ----------
    holds : for which columns of the batch everything so far was exact, (batch,)
    reason : the first thing that was not
    pairs : messages of the present stage that share links with others, and the first of those
    """

    def __init__(self, num_links: int, batch: int) -> None:
        self.holds: BoolArray = np.ones(batch, bool)
        self.reason = ""
        self._busy = np.zeros((num_links, batch))
        self.pairs: tuple[IntArray, IntArray] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._loads: Incidence | None = None

    @property
    def watches(self) -> bool:
        """Whether the present stage has messages on contended links, and it is still open what they mean."""
        return self._loads is not None

    def enter(self, stage: Stage) -> None:
        """Take up a stage: the connected components of its flows."""
        matters = len(stage.loads.flow) > 0 and len(self._busy) > 0 and bool(self.holds.any())
        self._loads = stage.loads if matters else None
        if self._loads is not None:
            component = stage.pattern.component
            together = np.flatnonzero(component != np.arange(len(component)))
            self.pairs = (together, component[together])

    def watch(self, stage: Stage, price: Price, start: FloatArray) -> None:
        """Look at the messages of one repetition, which start at these times, s, (num_messages, batch)."""
        if self._loads is None:
            return
        flow, link = self._loads.flow, self._loads.link
        sent, delay, wire, carried = (
            np.broadcast_to(part, start.shape)
            for part in (np.isfinite(price.cost), price.delay, price.wire, price.wire_bytes)
        )
        wire_start = start + delay
        one, first = self.pairs
        apart = np.abs(wire_start[one] - wire_start[first]) > INSTANT * wire_start[first]
        apart |= carried[one] != carried[first]
        apart &= sent[one] | sent[first]
        self._note(stage, one, apart, OUT_OF_STEP)
        if not self.holds.any():
            return
        early = sent[flow] & (wire_start[flow] < self._busy[link] * (1 - INSTANT))
        self._note(stage, flow, early, "start while earlier messages are still on their links")
        ends = np.where(sent, wire_start + wire, 0.0)
        np.maximum.at(self._busy, link, ends[flow])

    def compare(
        self, stage: Stage, start: FloatArray, first: FloatArray, sent: BoolArray, differ: BoolArray | None
    ) -> None:
        """Look at a later repetition: starts of the first and second messages of `pairs`, s, (num_pairs, batch).

        sent : of which pairs one is sent at all; differ : which pairs carry different sizes. What was in flight
        before has been looked at in the first repetition, and later ones of a stage in lockstep cannot meet it.
        """
        apart = np.abs(start - first) > INSTANT * first
        if differ is not None:
            apart |= differ
        apart &= sent
        if apart.any():
            self._note(stage, self.pairs[0], apart, OUT_OF_STEP)

    def leave(self, stage: Stage, clock: FloatArray) -> None:
        """Take it that the links of a stage were busy until their ranks were done, clocks (lanes, batch)."""
        flow, link = stage.loads.flow, stage.loads.link
        ends = np.maximum(clock[stage.src_lane[flow]], clock[stage.dst_lane[flow]])
        np.maximum.at(self._busy, link, ends)

    def _note(self, stage: Stage, flow: IntArray, broken: BoolArray, text: str) -> None:
        columns = broken.any(axis=0)
        if not columns.any():
            return
        if not self.reason:
            row = int(flow[np.argmax(broken.any(axis=1))])
            src, dst = int(stage.found.src[row]), int(stage.found.dst[row])
            self.reason = f"messages of {stage.setting.schedule.name} (rank {src} to {dst} among them) {text}"
        self.holds &= ~columns
