"""The environment of a coordinator under test: a movable clock, an interceptor with faults, a timeline.

It is kept when the coordinator restarts: the next node uses the same harness.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...node.environment import Environment
from ...node.node import Node
from ...settings.listeners import PLAINTEXT
from .clock import MovableClock, MovableDispatcher
from .fault_interceptor import FaultInterceptor
from .faults import Faults
from .presence import Presence
from .recorder import TimelineRecorder
from .timeline import Timeline


class Harness:
    """A ``ClockOwner``. Call ``environment(...)`` before a node is made, and ``attach`` when it has started."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.presence = Presence()
        self.timeline = Timeline(self.clock.since_start_ms)
        self.faults: Faults[Any] = Faults(self._note_fault)
        self.interceptor = FaultInterceptor(self.clock, self.timeline, self.faults, self.presence)
        self.node: Node
        self._recorder = TimelineRecorder(self.timeline)

    def environment(self, environment: Environment) -> Environment:
        """A copy of the environment with the movable clock, which reports the events of groups to the timeline."""
        return replace(environment, clock=self.clock, dispatcher=MovableDispatcher, group_observer=self._recorder)

    def attach(self, node: Node) -> None:
        """Use a node that has just started."""
        self.node = node
        node.services.interceptor = self.interceptor
        self.faults.set_disk(node.environment.disk)
        self._recorder.attach(node)
        port = node.services.cluster.addresses[PLAINTEXT].port
        self.timeline.note("node", f"the coordinator listens on port {port}" if port else "the coordinator begins")

    def detach(self) -> None:
        """Stop using the node, which is about to end. May be called twice."""
        if self._recorder.is_attached:
            self.timeline.note("node", "the coordinator ends")
            self._recorder.end()

    def reset(self) -> None:
        """Remove the state of the ended node: disk faults, alarms, connections. Call it before the next one starts."""
        self.faults.clear_disk_faults()
        self.clock.clear_alarms()
        self.presence.clear_connections()
        self._recorder.begin()

    def note_move(self, moved_ms: int, silent: Iterable[str]) -> None:
        names = ", ".join(sorted(silent))
        moved = f"{moved_ms / 1000:.3f}".rstrip("0").rstrip(".")
        self.timeline.note("clock", f"moved by {moved} s" + (f", silent: {names}" if names else ""))

    def _note_fault(self, description: str, client: str, groups: tuple[str, ...]) -> None:
        self.timeline.note("fault", description, ", ".join(groups), client)
