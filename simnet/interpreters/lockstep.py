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


class Lockstep:
    """Watch the contended links of a schedule, stage by stage.

    Attributes
    ----------
    holds : for which columns of the batch everything so far was exact, (batch,)
    reason : the first thing that was not
    """

    def __init__(self, num_links: int, batch: int) -> None:
        self.holds: BoolArray = np.ones(batch, bool)
        self.reason = ""
        self._busy = np.zeros((num_links, batch))
        self._component: IntArray = np.zeros(0, np.int64)
        self._loads: Incidence | None = None

    @property
    def watches(self) -> bool:
        """Whether the present stage has messages on contended links."""
        return self._loads is not None

    def enter(self, stage: Stage) -> None:
        """Take up a stage: the connected components of its flows."""
        self._loads = stage.loads if len(stage.loads.flow) else None
        if self._loads is not None:
            self._component = components(stage.loads)

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
        first = self._component[flow]
        apart = np.abs(wire_start[flow] - wire_start[first]) > INSTANT * wire_start[first]
        apart |= carried[flow] != carried[first]
        apart &= sent[flow] | sent[first]
        self._note(stage, flow, apart, "share links but are out of step or carry different sizes")
        early = sent[flow] & (wire_start[flow] < self._busy[link] * (1 - INSTANT))
        self._note(stage, flow, early, "start while earlier messages are still on their links")
        ends = np.where(sent, wire_start + wire, 0.0)
        np.maximum.at(self._busy, link, ends[flow])

    def _note(self, stage: Stage, flow: IntArray, broken: BoolArray, text: str) -> None:
        columns = broken.any(axis=0)
        if not columns.any():
            return
        if not self.reason:
            row = int(flow[np.argmax(broken.any(axis=1))])
            src, dst = int(stage.found.src[row]), int(stage.found.dst[row])
            self.reason = f"messages of {stage.setting.schedule.name} (rank {src} to {dst} among them) {text}"
        self.holds &= ~columns


def components(incidence: Incidence) -> IntArray:
    """Lowest flow number of each flow's connected component, (num_flows,); flows alone are their own."""
    from_flow = np.arange(incidence.num_flows)
    names, link = np.unique(incidence.link, return_inverse=True)
    link, flow = link.reshape(-1), incidence.flow
    while True:
        lowest = np.full(len(names), incidence.num_flows)
        np.minimum.at(lowest, link, from_flow[flow])
        new = from_flow.copy()
        np.minimum.at(new, flow, lowest[link])
        new = new[new]
        if np.array_equal(new, from_flow):
            return new
        from_flow = new
