"""FaultInterceptor: records requests and answers of a coordinator under test in the timeline, and applies the faults.

A request from a socket is an ``InterceptedCall``, one from this process a ``LocalExchange``. Both implement
``faults.Exchange``; everything else treats them alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ....actors.engine_ports import ReplyTo
from ....actors.error_reply import error_reply
from ....actors.errors import ErrorCode
from ....actors.messages import GroupRequest
from ...common.shared_bytes import SharedBytes
from ...kafka.call import Call, ResponseChannel
from ...kafka.codec.schemas import Schema
from ...kafka.connections.over_limit import NamedClients
from ...kafka.error_response import decode_response, encode_error_response, error_names_in
from ...kafka.services import MessageRouter, Origin
from ...member.channel import ChannelLost
from .clock import DelayedCall, MovableClock
from .facts import CONSUMER_HEARTBEAT, RequestFacts, api_name, describe_answer, describe_request, facts_of, message_api
from .faults import Faults, RequestFault
from .presence import Presence
from .timeline import Timeline

NO_ANSWER = "no answer is wanted"


class LocalClient:
    """A client in this process; ``is_open`` until it disconnects."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.is_open = True


class FaultInterceptor:
    """Implements ``runtime.kafka.interceptor.Interceptor``. It is kept when the node restarts."""

    def __init__(self, clock: MovableClock, timeline: Timeline, faults: Faults[Any], presence: Presence) -> None:
        self.clock = clock
        self.timeline = timeline
        self.faults = faults
        self.presence = presence
        self._local: dict[Origin, LocalClient] = {}
        self._refused = NamedClients()

    def call(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> InterceptedCall:
        return InterceptedCall(self, connection, schema, correlation_id, request)

    def handle(self, call: Call, handle: Callable[[Call], None]) -> None:
        assert isinstance(call, InterceptedCall), "it was made by ``call``"
        self.presence.note_request(call.interception.facts, call.connection)
        call.begin(handle)

    def refused(self, connection: ResponseChannel, reason: str) -> None:
        """The timeline has a client once for each reason, since clients connect again and again."""
        if self._refused.add(connection, reason):
            self.timeline.note("refused", reason, who=connection.client_id)

    def ask(self, router: MessageRouter, message: GroupRequest, origin: Origin, reply: ReplyTo) -> None:
        client = self._local.setdefault(origin, LocalClient(origin.client_id))
        exchange = LocalExchange(self, router, message, client, reply)
        self.presence.note_request(exchange.facts, client)
        exchange.begin()

    def disconnected(self, origin: Origin) -> None:
        client = self._local.pop(origin, None)
        if client is not None:
            client.is_open = False


JOINING_APIS = frozenset({"JoinGroup", CONSUMER_HEARTBEAT})


class Interception:
    """One request: its fault, if any, and its number in the timeline."""

    __slots__ = ("facts", "fault", "interceptor", "number")

    def __init__(self, interceptor: FaultInterceptor, facts: RequestFacts, request: Any) -> None:
        self.interceptor = interceptor
        self.facts = facts
        self.number = interceptor.timeline.request(facts, describe_request(request))
        self.fault = interceptor.faults.find(facts)

    def before(self, exchange: Any) -> bool:
        """Apply a fault of the request; True if it was applied and the request must not be handled now."""
        return self._apply_fault(exchange, after=False)

    def after(self, exchange: Any) -> bool:
        """Apply a fault of the answer; True if it was applied and the answer must not be sent now."""
        return self._apply_fault(exchange, after=True)

    def _apply_fault(self, exchange: Any, after: bool) -> bool:
        fault = self.fault
        if not isinstance(fault, RequestFault) or fault.after is not after:
            return False
        self.fault = None
        self.interceptor.faults.apply(fault, self.facts, exchange)
        return True

    def answered(self, answer: Any) -> None:
        self.interceptor.timeline.answer(self.number, self.facts, error_names_in(answer), describe_answer(answer))

    def note_joined(self, answer: Any, client: Any) -> None:
        """Record the member id from the answer of a request that joins."""
        if self.facts.api in JOINING_APIS and answer.member_id:
            self.interceptor.presence.note_connection(self.facts.groups[0], answer.member_id, client)


class InterceptedCall(Call):
    """A call whose answer goes through the interceptor."""

    __slots__ = ("_body", "_handle", "_interceptor", "interception")

    def __init__(
        self,
        interceptor: FaultInterceptor,
        connection: ResponseChannel,
        schema: Schema,
        correlation_id: int,
        request: Any,
    ) -> None:
        super().__init__(connection, schema, correlation_id, request)
        self._interceptor = interceptor
        self._body = b""
        facts = facts_of(api_name(schema.name), schema.version, connection.client_id, request)
        self.interception = Interception(interceptor, facts, request)

    def begin(self, handle: Callable[[Call], None]) -> None:
        self._handle = handle
        if not self.interception.before(self):
            handle(self)

    def respond_with_bytes(self, body: bytes | SharedBytes) -> None:
        self._body = body = bytes(body)
        answer = self._read(body)
        self.interception.note_joined(answer, self.connection)
        if not self.interception.after(self):
            self.send_answer()

    def respond_with_nothing(self) -> None:
        if not self.interception.after(self):
            self._interceptor.timeline.answer(self.interception.number, self.interception.facts, [], NO_ANSWER)
            super().respond_with_nothing()

    def proceed(self) -> None:
        try:
            self._handle(self)
        except Exception:
            self.fail()

    def send_answer(self) -> None:
        if self.connection.is_open:  # otherwise the coordinator was killed, or the client has disconnected
            self.interception.answered(self._read(self._body))
        super().respond_with_bytes(self._body)

    def refuse(self, code: Any) -> None:
        body = encode_error_response(self.schema, self.request, code)
        if body is None:
            raise ValueError(f"{self.interception.facts.api} version {self.version} has no place for an error")
        self._body = body
        self.send_answer()

    def disconnect(self) -> None:
        self.connection.close()
        super().respond_with_nothing()  # ends the call; nothing is sent on a closed connection

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        DelayedCall(asyncio.get_running_loop(), self._interceptor.clock, delay_ms, step)

    def _read(self, body: bytes) -> Any:
        return decode_response(self.schema, body)


class LocalExchange:
    """A message from this process, and the reply slot for its answer."""

    def __init__(
        self,
        interceptor: FaultInterceptor,
        router: MessageRouter,
        message: GroupRequest,
        client: LocalClient,
        reply: ReplyTo,
    ) -> None:
        self._interceptor = interceptor
        self._router = router
        self._message = message
        self._client = client
        self._reply = reply
        self._answer: Any = None
        self._interception = Interception(
            interceptor, facts_of(message_api(message), None, client.client_id, message), message
        )

    @property
    def facts(self) -> RequestFacts:
        return self._interception.facts

    def begin(self) -> None:
        if not self._interception.before(self):
            self.proceed()

    def set(self, value: Any = None) -> None:
        self._answer = value
        self._interception.note_joined(value, self._client)
        if not self._interception.after(self):
            self.send_answer()

    def set_exception(self, exc_info: Any = None) -> None:
        self._interceptor.timeline.answer(self._interception.number, self.facts, [repr(exc_info[1])], "")
        self._reply.set_exception(exc_info)

    def proceed(self) -> None:
        self._router.post(self._message, self)

    def send_answer(self) -> None:
        self._interception.answered(self._answer)
        self._reply.set(self._answer)

    def refuse(self, code: Any) -> None:
        self._answer = error_reply(self._message, ErrorCode(int(code)))
        self.send_answer()

    def disconnect(self) -> None:
        error = ChannelLost("a fault has closed the connection to the coordinator")
        self._reply.set_exception((ChannelLost, error, None))

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        DelayedCall(asyncio.get_running_loop(), self._interceptor.clock, delay_ms, step)
