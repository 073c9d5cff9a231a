"""Records the requests and answers of a simulated run. Checkers listen to it, and a failure prints it.

Times are seconds of the virtual loop. An exchange has four events: sent and received by a client, arrived and answered
at the coordinator. Lost messages lack the later events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from ....actors.group.events import GroupEvent
from .loop import Process, VirtualLoop

LINES_KEPT = 20_000  # of the timeline


class Exchange:
    """A request and its answer. ``incarnation``: the number of the coordinator's process that it was sent to.

    ``arrived_at``, ``answered_at``: counted in events, since several happen at the same virtual time; infinity for
    events that did not happen.
    """

    __slots__ = (
        *("answer", "answered_at", "answered_s", "arrived_at", "arrived_s", "client", "is_answered", "is_lost"),
        *("incarnation", "message", "number", "process", "received_s", "sent_s"),
    )

    def __init__(
        self, number: int, client: str, process: Process, incarnation: int, message: Any, sent_s: float
    ) -> None:
        self.number = number
        self.client = client
        self.process = process
        self.incarnation = incarnation
        self.message = message
        self.sent_s = sent_s
        self.arrived_s: float | None = None
        self.arrived_at = inf
        self.answered_s: float | None = None
        self.answered_at = inf
        self.received_s: float | None = None
        self.answer: Any = None
        self.is_answered = self.is_lost = False

    def __repr__(self) -> str:
        return f"{self.client} #{self.number} {self.message}"


class Listener:
    """Notified of each exchange, and of each event of a group. All methods do nothing by default."""

    def sent(self, exchange: Exchange) -> None: ...

    def reached(self, exchange: Exchange) -> None:
        """The request is in a socket of the coordinator, which has not read it yet."""

    def arrived(self, exchange: Exchange) -> None: ...

    def answered(self, exchange: Exchange) -> None: ...

    def received(self, exchange: Exchange) -> None: ...

    def lost(self, exchange: Exchange) -> None: ...

    def group_changed(self, group_id: str, event: GroupEvent) -> None: ...

    def coordinator_starts(self) -> None:
        """The next process of the coordinator starts; the events of its groups begin with those that it loads."""


class History:
    """The exchanges of one run. ``exchanges``: their number. ``events``: arrivals and answers at the coordinator.

    It is also the ``actors.group.event_log.GroupObserver`` of the coordinator.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.exchanges = 0
        self.events = 0
        self.listeners: list[Listener] = []
        self._loop = loop
        self._lines: deque[tuple[float, str, Any]] = deque(maxlen=LINES_KEPT)

    def tell(self, text: str) -> None:
        """Add a line to the timeline."""
        self._lines.append((self._loop.time(), text, None))

    def sent(self, client: str, process: Process, incarnation: int, message: Any) -> Exchange:
        self.exchanges += 1
        exchange = Exchange(self.exchanges, client, process, incarnation, message, self._loop.time())
        self._add_line("sends", exchange)
        for listener in self.listeners:
            listener.sent(exchange)
        return exchange

    def reached(self, exchange: Exchange) -> None:
        for listener in self.listeners:
            listener.reached(exchange)

    def arrived(self, exchange: Exchange) -> None:
        exchange.arrived_s = self._loop.time()
        self.events += 1
        exchange.arrived_at = self.events
        self._add_line("arrives", exchange)
        for listener in self.listeners:
            listener.arrived(exchange)

    def answered(self, exchange: Exchange) -> None:
        exchange.answered_s = self._loop.time()
        self.events += 1
        exchange.answered_at = self.events
        self._add_line("is answered", exchange)
        for listener in self.listeners:
            listener.answered(exchange)

    def received(self, exchange: Exchange) -> None:
        exchange.received_s = self._loop.time()
        self._add_line("receives", exchange)
        for listener in self.listeners:
            listener.received(exchange)

    def lost(self, exchange: Exchange) -> None:
        exchange.is_lost = True
        self._add_line("loses", exchange)
        for listener in self.listeners:
            listener.lost(exchange)

    def observe(self, group_id: str, events: Sequence[GroupEvent]) -> None:
        for event in events:
            self.tell(f"group {group_id!r}: {event}")
            for listener in self.listeners:
                listener.group_changed(group_id, event)

    def coordinator_starts(self, name: str) -> None:
        self.tell(f"{name} starts")
        for listener in self.listeners:
            listener.coordinator_starts()

    def _add_line(self, description: str, exchange: Exchange) -> None:
        self._lines.append((self._loop.time(), description, exchange))

    def timeline(self) -> list[str]:
        """All lines of the timeline, oldest first."""
        return [_line(*line) for line in self._lines]


def _line(time_s: float, text: str, exchange: Exchange | None) -> str:
    if exchange is None:
        return f"{time_s:12.6f}  {text}"
    message = exchange.answer if text in ("is answered", "receives") else exchange.message
    return f"{time_s:12.6f}  {exchange.client} {text} #{exchange.number}: {_short(message)}"


def _short(value: Any) -> str:
    """A message without its empty fields."""
    fields = getattr(value, "_asdict", None)
    if fields is None:
        return getattr(value, "name", None) or repr(value)
    field_texts = (
        f"{name}={_shown(value)}" for name, value in fields().items() if value not in (None, "", (), b"", -1, False)
    )
    return f"{type(value).__name__}({', '.join(field_texts)})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        if getattr(value, "_fields", None) is not None:
            return _short(value)
        return f"({', '.join(_shown(item) for item in value)})"
    return getattr(value, "name", None) or repr(value)


def last_lines(lines: Iterable[str], last: int) -> str:
    """The last lines, after a line with the number of those before."""
    all_lines = list(lines)
    omitted = len(all_lines) - last
    head = [f"... {omitted} lines before"] if omitted > 0 else []
    return "\n".join(head + all_lines[-last:])
