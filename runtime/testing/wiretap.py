"""The tap of a coordinator under test: what is asked and answered goes to the timeline, and meets the faults.

A request that came by a socket is a ``TappedCall``, one from within the process a ``LocalExchange``; both are an
``Exchange``, and all else is the same for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...actors.engine_ports import ReplyTo
from ...actors.errors import ErrorCode
from ...actors.messages import GroupRequest
from ...actors.refusal import refusal
from ..kafka.call import Call, ResponseChannel
from ..kafka.refusing import error_body, errors_in, read_answer
from ..kafka.schemas import Schema
from ..kafka.services import GroupRouter, Origin
from ..member.channel import ChannelLost
from .clock import Later, MovableClock
from .facts import Facts, api_name, details, facts_of, message_api, outcome
from .faults import Faults, RequestFault
from .silence import Presence
from .timeline import Timeline

NO_ANSWER = "no answer is wanted"


class LocalSpeaker:
    """Somebody in this process, until it hangs up."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.is_open = True


class Wiretap:
    """``runtime.tap.Tap``. It outlives its node: after a restart the next one has it."""

    def __init__(self, clock: MovableClock, timeline: Timeline, faults: Faults[Any], presence: Presence) -> None:
        self.clock = clock
        self.timeline = timeline
        self.faults = faults
        self.presence = presence
        self._local: dict[Origin, LocalSpeaker] = {}

    def call(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> TappedCall:
        return TappedCall(self, connection, schema, correlation_id, request)

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        assert isinstance(call, TappedCall), "it was made by ``call``"
        self.presence.heard(call.facts, call.connection)
        call.begin(handle)

    def ask(self, router: GroupRouter, message: GroupRequest, origin: Origin, reply: ReplyTo) -> None:
        speaker = self._local.setdefault(origin, LocalSpeaker(origin.client_id))
        exchange = LocalExchange(self, router, message, speaker, reply)
        self.presence.heard(exchange.facts, speaker)
        exchange.begin()

    def gone(self, origin: Origin) -> None:
        speaker = self._local.pop(origin, None)
        if speaker is not None:
            speaker.is_open = False


class Meeting:
    """Where an exchange meets its fault, and is written down. ``number`` is the timeline's."""

    __slots__ = ("facts", "fault", "number", "tap")

    def __init__(self, tap: Wiretap, facts: Facts, request: Any) -> None:
        self.tap = tap
        self.facts = facts
        self.number = tap.timeline.request(facts, details(request))
        self.fault = tap.faults.find(facts)

    def before(self, exchange: Any) -> bool:
        """Whether the fault has struck instead of the request's being handled."""
        return self._strikes(exchange, after=False)

    def behind(self, exchange: Any) -> bool:
        """The same for its answer."""
        return self._strikes(exchange, after=True)

    def _strikes(self, exchange: Any, after: bool) -> bool:
        fault = self.fault
        if not isinstance(fault, RequestFault) or fault.after is not after:
            return False
        self.fault = None
        self.tap.faults.strike(fault, self.facts, exchange)
        return True

    def answered(self, answer: Any) -> None:
        self.tap.timeline.answer(self.number, self.facts, errors_in(answer), outcome(answer))

    def note_joined(self, answer: Any, speaker: Any) -> None:
        """A JoinGroup's answer says who it is that has asked."""
        if self.facts.api == "JoinGroup" and answer.member_id:
            self.tap.presence.spoke(self.facts.groups[0], answer.member_id, speaker)


class TappedCall(Call):
    """A call whose answer passes the tap."""

    __slots__ = ("_body", "_handle", "_meeting", "_tap")

    def __init__(
        self, tap: Wiretap, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any
    ) -> None:
        super().__init__(connection, schema, correlation_id, request)
        self._tap = tap
        self._body = b""
        facts = facts_of(api_name(schema.name), schema.version, connection.client_id, request)
        self._meeting = Meeting(tap, facts, request)

    @property
    def facts(self) -> Facts:
        return self._meeting.facts

    def begin(self, handle: Callable[[Call], None]) -> None:
        self._handle = handle
        if not self._meeting.before(self):
            handle(self)

    def reply_bytes(self, body: bytes) -> None:
        self._body = body
        answer = self._read(body)
        self._meeting.note_joined(answer, self.connection)
        if not self._meeting.behind(self):
            self.let_out()

    def reply_nothing(self) -> None:
        if not self._meeting.behind(self):
            self._tap.timeline.answer(self._meeting.number, self.facts, [], NO_ANSWER)
            super().reply_nothing()

    def go_on(self) -> None:
        try:
            self._handle(self)
        except Exception:
            self.fail()

    def let_out(self) -> None:
        if self.connection.is_open:  # else nobody hears it: the coordinator was killed, or the client is gone
            self._meeting.answered(self._read(self._body))
        super().reply_bytes(self._body)

    def refuse(self, code: Any) -> None:
        body = error_body(self.schema, self.request, code)
        if body is None:
            raise ValueError(f"{self.facts.api} version {self.version} has no place for an error")
        self._body = body
        self.let_out()

    def hang_up(self) -> None:
        self.connection.close()
        super().reply_nothing()  # so that it is not waited for; nothing is sent any more

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        Later(asyncio.get_running_loop(), self._tap.clock, delay_ms, step)

    def _read(self, body: bytes) -> Any:
        return read_answer(self.schema, body)


class LocalExchange:
    """A message from within the process; the place where the group puts its answer."""

    def __init__(
        self, tap: Wiretap, router: GroupRouter, message: GroupRequest, speaker: LocalSpeaker, reply: ReplyTo
    ) -> None:
        self._tap = tap
        self._router = router
        self._message = message
        self._speaker = speaker
        self._reply = reply
        self._answer: Any = None
        self._meeting = Meeting(tap, facts_of(message_api(message), None, speaker.client_id, message), message)

    @property
    def facts(self) -> Facts:
        return self._meeting.facts

    def begin(self) -> None:
        if not self._meeting.before(self):
            self.go_on()

    def set(self, value: Any = None) -> None:
        self._answer = value
        self._meeting.note_joined(value, self._speaker)
        if not self._meeting.behind(self):
            self.let_out()

    def set_exception(self, exc_info: Any = None) -> None:
        self._tap.timeline.answer(self._meeting.number, self.facts, [repr(exc_info[1])], "")
        self._reply.set_exception(exc_info)

    def go_on(self) -> None:
        self._router.post(self._message, self)

    def let_out(self) -> None:
        self._meeting.answered(self._answer)
        self._reply.set(self._answer)

    def refuse(self, code: Any) -> None:
        self._answer = refusal(self._message, ErrorCode(int(code)))
        self.let_out()

    def hang_up(self) -> None:
        lost = ChannelLost("a fault has cut the way to the coordinator")
        self._reply.set_exception((ChannelLost, lost, None))

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        Later(asyncio.get_running_loop(), self._tap.clock, delay_ms, step)
