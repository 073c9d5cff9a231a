"""Answers that were decided all at once and leave some a turn of the loop.

When a group's generation begins, or its assignments are durable, all its members are answered in one turn of its
actor. That decision is one step, as in Kafka. But to encode and to send the answers of 5,000 members takes ten times as
long, and a heartbeat of another group would wait for all of it. So they wait here, and each turn of the loop sends a
few: first come, first served within a group, and the groups take turns, so a small one does not wait for a large one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ...actors.engine_ports import ReplyTo
from ...actors.group.in_flight import deliver_reply

ANSWERS_A_TURN = 32
"""About a millisecond of encoding and sending: half of what actors have of a turn."""


class Backlog:
    """Values on their way to the places that take them. ``soon`` calls back when this turn of the loop is over."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._lanes: OrderedDict[str, deque[tuple[ReplyTo, Any]]] = OrderedDict()  # of groups, the next one first

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def add(self, group_id: str, place: ReplyTo, value: Any) -> None:
        """An answer for a member of a group."""
        lane = self._lanes.get(group_id)
        if lane is None:
            if not self._lanes:
                self._soon(self._turn)
            lane = self._lanes[group_id] = deque()
        lane.append((place, value))

    def deliver_all(self) -> None:
        """Now, whoever has to wait for it: there will be no other turn."""
        while self._lanes:
            self._deliver_next()

    def drop(self) -> None:
        """Nobody is answered any more."""
        self._lanes.clear()

    def _turn(self) -> None:
        for _ in range(ANSWERS_A_TURN):
            if not self._lanes:
                return
            self._deliver_next()
        if self._lanes:
            self._soon(self._turn)

    def _deliver_next(self) -> None:
        group_id, lane = next(iter(self._lanes.items()))
        place, value = lane.popleft()
        if lane:
            self._lanes.move_to_end(group_id)
        else:
            del self._lanes[group_id]
        deliver_reply(place, value)
