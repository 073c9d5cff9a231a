"""The timeline: the events of a coordinator, in order and with their times, to explain a failed test."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ....actors.text import printable
from ...embed.node_requests import ORIGIN
from .facts import RequestFacts

TEST_CLIENT_ID = ORIGIN.client_id
EVENTS_MAX = 10_000
"""Older events are dropped. So many take some megabytes."""

LINES_MAX = 300
"""The default limit of lines in ``text``."""

ROUTINE_APIS = frozenset({"ApiVersions", "Fetch", "Heartbeat", "ListOffsets", "Metadata"})
"""Frequent requests that ``text`` omits unless the answer is an error.

So are heartbeats of the consumer protocol that say nothing new, unless the answer does.
"""

ROUTINE_LOCAL_APIS = frozenset({"ConsumerGroupDescribe", "DescribeGroups", "ListGroups", "OffsetFetch"})
"""The same for the test's own reads, such as ``coordinator.describe``."""

WIDTH_MAX = 24  # of a column


class Event(NamedTuple):
    """``kind``: request, answer, timer, state, member, offsets, fault, clock, test or node. ``who``: a client's id.

    ``at_ms``: the coordinator's time since it was made. ``number`` is the same for a request and its answer, 0 for the
    others. ``is_quiet``: shown only with ``everything``.
    """

    at_ms: int
    kind: str
    group: str
    who: str
    what: str
    number: int = 0
    is_quiet: bool = False


class Timeline:
    """Events are added on the coordinator's loop, and may be read on any thread."""

    def __init__(self, now_ms: Callable[[], int], events_max: int = EVENTS_MAX) -> None:
        self._now_ms = now_ms
        self._events: deque[Event] = deque(maxlen=events_max)
        self._forgotten = 0
        self._numbers = 0
        self._short: dict[str, str] = {}

    # Adding events ---------------------------------------------------------------------------------------------------

    def request(self, facts: RequestFacts, details: str) -> int:
        """Add a request. Returns its number, which its answer must use."""
        self._numbers += 1
        words = [api_with_version(facts), *map(self.short, facts.members), *facts.instances, details]
        self._add(facts, "request", ", ".join(filter(None, words)), self._numbers)
        return self._numbers

    def answer(self, number: int, facts: RequestFacts, errors: Sequence[str], outcome: str) -> None:
        """Add the answer of a request."""
        text = ", ".join(errors) if errors else ", ".join(filter(None, ("NONE", outcome)))
        is_news = bool(errors) or (facts.epoch is not None and outcome != f"epoch {facts.epoch}")
        self._add(facts, "answer", f"{api_with_version(facts)} -> {text}", number, is_news)

    def note(self, kind: str, what: str, group: str = "", who: str = "") -> None:
        """Add another event."""
        self._append(Event(self._now_ms(), kind, group, who, what))

    def note_test(self, test: str) -> None:
        """Add the begin of a test that shares the coordinator. Any thread may call it."""
        self._append(Event(self._now_ms(), "test", "", "", f"{test} begins"))

    def short(self, member_id: str) -> str:
        """A short name of a member, "m1". ``members`` maps it back to the id."""
        return self._short.setdefault(member_id, f"m{len(self._short) + 1}")

    def _add(self, facts: RequestFacts, kind: str, description: str, number: int, is_news: bool = False) -> None:
        is_routine = facts.api in ROUTINE_APIS or facts.epoch is not None
        is_quiet = not is_news and (is_routine or _is_test_read(facts))
        self._append(
            Event(self._now_ms(), kind, ", ".join(facts.groups), facts.client_id, description, number, is_quiet)
        )

    def _append(self, event: Event) -> None:
        self._forgotten += len(self._events) == self._events.maxlen
        self._events.append(event)

    # Reading events --------------------------------------------------------------------------------------------------

    @property
    def events(self) -> tuple[Event, ...]:
        """All kept events, oldest first."""
        return tuple(self._events)

    @property
    def members(self) -> dict[str, str]:
        """The member id of each short name."""
        return {short: member_id for member_id, short in dict(self._short).items()}

    def text(self, *, everything: bool = False, lines: int = LINES_MAX) -> str:
        """A line for each event. A request and its answer share a line if no event came between them.

        ``everything``: with heartbeats and fetches that were answered without an error. At most the last ``lines``.
        """
        rows = list(_rows(self.events, everything))
        if lines < 1:
            raise ValueError(f"lines={lines}: expected 1 or more")
        dropped = len(rows) - lines
        body = _aligned([("seconds", "group", "client", "what"), *rows[-lines:]])
        head = [f"(the first {dropped} lines are left out)"] if dropped > 0 else []
        legend = [f"{short} is {printable(member_id)}" for short, member_id in self.members.items()]
        return "\n".join((*head, *body, *legend))

    def json(self) -> str:
        """All events, for tools: ``{"events": [...], "members": {...}, "forgotten": 0}``."""
        events = [_plain(event) for event in self.events]
        return json.dumps({"events": events, "members": self.members, "forgotten": self._forgotten}, indent=1)


def _is_test_read(facts: RequestFacts) -> bool:
    return facts.client_id == TEST_CLIENT_ID and facts.version is None and facts.api in ROUTINE_LOCAL_APIS


def api_with_version(facts: RequestFacts) -> str:
    return facts.api if facts.version is None else f"{facts.api} v{facts.version}"


def _plain(event: Event) -> dict[str, Any]:
    fields = event._asdict()
    del fields["is_quiet"]
    return {"at_s": fields.pop("at_ms") / 1000, **fields}


Row = tuple[str, str, str, str]


def _rows(events: Sequence[Event], everything: bool) -> Iterator[Row]:
    failed_numbers = {event.number for event in events if event.kind == "answer" and not event.is_quiet}
    shown_events = [event for event in events if everything or not event.is_quiet or event.number in failed_numbers]
    merged = False
    for event, next_event in zip(shown_events, [*shown_events[1:], None], strict=True):
        if merged:
            merged = False
            continue
        description = event.what
        if event.kind == "request" and next_event is not None and next_event.number == event.number:
            description += next_event.what[next_event.what.index(" -> ") :]
            merged = True
        elif event.kind not in ("request", "answer"):
            description = f"{event.kind}: {description}"
        yield f"{event.at_ms / 1000:.3f}", printable(event.group), printable(event.who), printable(description)


def _aligned(rows: Sequence[Row]) -> Iterable[str]:
    cut = [tuple(_cut(cell) for cell in row[:-1]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    for cells, row in zip(cut, rows, strict=True):
        time, *columns = (
            cell.rjust(width) if index == 0 else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield "  ".join((time, *columns, row[-1])).rstrip()


def _cut(cell: str) -> str:
    return cell if len(cell) <= WIDTH_MAX else f"{cell[: WIDTH_MAX - 1]}…"
