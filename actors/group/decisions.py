"""DecisionQueue: at most one entry with a group's state is in flight. Pure.

A decision reads the soft state, and its records change that state at once. What comes while an entry is in flight
waits. When the entry is durable all that waits is decided together, and becomes the next entry. So no decision runs on
a state that another one is about to change, and many decisions cost one append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..base import DEFERRED
from ..engine_ports import ReplyTo
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..records import Record
from ..steps import SHORT_WORK_ITEMS, Steps, run_steps
from .contexts import APPEND_ERRORS, deliver_reply, own_append_error
from .effects import Effects
from .reset_messages import ResetOffsets

RECORDS_PER_ENTRY = 500
"""An entry gets no further decisions when it has so many records."""

DECISIONS_PER_STEP = 4
"""A decision may look at all members of the group."""

ITEMS_PER_DECISION = 64
"""The length of a decision, in items of ``Effects.run``."""


class Cause(NamedTuple):
    """A request and where its reply goes, or the name of a deadline that has passed, for which nobody waits."""

    message: Any
    reply: ReplyTo | None = None


class Decided(NamedTuple):
    """``value``: the reply, when ``records`` are durable. They have changed the soft state.

    ``ends_group``: when they are durable the group becomes one of another kind, or it may, because it has no members.
    The next entry has no decision about the requests that wait: the actor handles them again.
    """

    value: Any
    records: Sequence[Record] = ()
    ends_group: bool = False


class DecisionsContext(NamedTuple):
    """Context of an entry: the decisions in it, each with its reply."""

    decisions: tuple[tuple[Cause, Any], ...]

    @property
    def replies(self) -> tuple[ReplyTo, ...]:
        return tuple(cause.reply for cause, _ in self.decisions if cause.reply is not None)

    @property
    def is_divisible(self) -> bool:
        return len(self.decisions) > 1

    def answer(self, error: ErrorCode) -> None:
        client_error = APPEND_ERRORS.get(error, error)
        for cause, value in self.decisions:
            if cause.reply is not None:
                told = own_append_error(error) if isinstance(cause.message, ResetOffsets) else client_error
                deliver_reply(cause.reply, error_reply(cause.message, told) if told else value)


class DecisionQueue:
    """``decide``: decides about a request, or a deadline that has passed, on the soft state. ``size``: of a decision,
    in items of ``Effects.run``. A long one is made in steps, during which the group gets no other message.
    """

    __slots__ = ("_decide", "_decisions_max", "_size", "_undelivered", "in_flight", "waiting")

    def __init__(
        self, decide: Callable[[Any, Effects], Steps[Decided]], size: Callable[[Any], int] = lambda _message: 0
    ) -> None:
        self.waiting: deque[Cause] = deque()
        self.in_flight: DecisionsContext | None = None
        self._decide = decide
        self._size = size
        self._decisions_max: int | None = None  # of the next entry; None: any number
        self._undelivered: list[tuple[Cause, Any]] = []  # decisions of an entry that is not complete yet

    @property
    def is_idle(self) -> bool:
        """Not while a decision is made in steps, which may have changed a part of the soft state."""
        return self.in_flight is None and not self.waiting and not self._undelivered

    def submit(self, message: Any, reply: ReplyTo | None, effects: Effects) -> Any:
        """Decide now, or when the entry in flight is done. Returns the reply, or DEFERRED."""
        if self.in_flight is not None or self.waiting:
            self.waiting.append(Cause(message, reply))
            return DEFERRED
        if self._size(message) > SHORT_WORK_ITEMS:
            self.waiting.append(Cause(message, reply))
            self._decide_waiting(effects)
            return DEFERRED
        value, records, _ = run_steps(self._decide(message, effects))
        if not records:
            return value
        self._append(((Cause(message, reply), value),), records, effects)
        return DEFERRED

    def appended(self, effects: Effects) -> None:
        """The entry in flight is durable."""
        self.in_flight, self._decisions_max = None, None
        self._decide_waiting(effects)

    def append_failed(self, error: ErrorCode, effects: Effects) -> None:
        """The entry in flight could not be appended, and the soft state is the durable one again.

        If the entry was too large, its decisions are made again, half of them at first.
        """
        failed, self.in_flight, self._decisions_max = self.in_flight, None, None
        if failed is not None and failed.is_divisible and error is ErrorCode.MESSAGE_TOO_LARGE:
            self.waiting.extendleft(cause for cause, _ in reversed(failed.decisions))
            self._decisions_max = len(failed.decisions) // 2
        self._decide_waiting(effects)

    def take_requests(self) -> list[tuple[Any, ReplyTo]]:
        """The requests that wait, which the actor is to handle again. Deadlines and results stay."""
        taken = [(cause.message, cause.reply) for cause in self.waiting if cause.reply is not None]
        self.waiting = deque(cause for cause in self.waiting if cause.reply is None)
        return taken

    def refuse_all(self, error: ErrorCode, effects: Effects) -> None:
        """Reply to all requests that wait. The entry in flight is answered by its context."""
        undelivered = [cause for cause, _ in self._undelivered]
        for cause in (*undelivered, *self.waiting):
            if cause.reply is not None:
                effects.answer(cause.reply, error_reply(cause.message, error))
        self.waiting.clear()
        self._undelivered.clear()

    def _decide_waiting(self, effects: Effects) -> None:
        if self.waiting:
            effects.run(self._decide_in_steps(effects), self._size_of_waiting())

    def _size_of_waiting(self) -> int:
        """The sizes of decisions are only asked for if they decide whether the work is short: there are few then."""
        size = len(self.waiting) * ITEMS_PER_DECISION
        if size > SHORT_WORK_ITEMS:
            return size
        return max(size, *(self._size(cause.message) for cause in self.waiting))

    def _decide_in_steps(self, effects: Effects) -> Steps[None]:
        records: list[Record] = []
        while self.waiting and self._has_room(records):
            cause = self.waiting.popleft()
            self._undelivered.append((cause, None))  # first: a bug must not lose its reply
            value, added, ends_group = yield from self._decide(cause.message, effects)
            self._undelivered[-1] = cause, value
            records += added
            if ends_group:
                break
            if not len(self._undelivered) % DECISIONS_PER_STEP:
                yield
        decisions, self._undelivered = tuple(self._undelivered), []
        if records:
            self._append(decisions, records, effects)
            return
        for cause, value in decisions:
            effects.answer(cause.reply, value)

    def _has_room(self, records: Sequence[Record]) -> bool:
        """For one more decision. There is always room until there are records: else nothing would go on."""
        if not records:
            return True
        return len(records) < RECORDS_PER_ENTRY and len(self._undelivered) != self._decisions_max

    def _append(self, decisions: tuple[tuple[Cause, Any], ...], records: Sequence[Record], effects: Effects) -> None:
        self.in_flight = DecisionsContext(decisions)
        effects.records, effects.context = tuple(records), self.in_flight
