"""The connection of one client: handles its requests, and sends the responses in the requests' order.

Bytes are split by ``framing``, decoded by ``request_decoding``, and ordered by ``pending_requests``. The table in
``connection_phase`` says when requests are handled and when the connection ends; ``holds``, when the socket is read.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from ...engine.reply import Reply
from ...settings.address import is_loopback
from ..api import Route
from ..authentication.authenticator import Authenticator, SessionRoutes
from ..authentication.principal import ANONYMOUS, Principal
from ..authorization.grants import Grants
from ..call import Call, with_header
from ..quotas.throttling import mute
from .addresses import host_and_port, java_address
from .connection_phase import Event, Phase, next_phase
from .connection_ports import Pool, RouteSource
from .framing import BYTES_PER_TURN, FRAMES_PER_TURN, HEADER_BYTES, BadRequest, FrameSplitter, route_key_of
from .handling_job import LARGE_REQUEST_BYTES, as_bad_request, handle_large, run_handler, run_in_slices
from .holds import Hold, Holds
from .output import WRITE_BYTES, Output
from .pending_requests import MAX_CALLS_OPEN, SMALL_REQUEST_BYTES, PendingRequests, QueuedRequest
from .rejection import report_rejection
from .request_decoding import decode_client_id, decode_request, open_route
from .request_names import UNKNOWN, schema_name
from .time_budget import TINY_BYTES
from .transport import Transport
from .unread_bytes import count_unread

ONLY_BEHIND = {Hold.BEHIND}


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, pool: Pool[Connection], listener: str) -> None:
        """``listener``: the name of the one that the client has connected to."""
        self.services = pool.server
        self.listener = listener
        self.phase = Phase.HANDSHAKE
        self.client_id = ""
        self.client_host = ""
        self.software = ""
        self.principal = ANONYMOUS
        self.grants: Grants | None = None
        self.authenticator: Authenticator | None = None
        self.peer = "an unknown peer"  # for the log
        self.transport: Transport
        self.splitter = FrameSplitter()
        self.requests = PendingRequests()
        self.output = Output()
        self._pool = pool
        self._budget = pool.budget
        self._routes: RouteSource = pool.server.routes.loaded
        self._raw_client_id = b""
        self.holds = Holds(self.update_reading)
        self.meter = pool.meter
        self.idle_checks = 0  # since bytes arrived or were sent, or a request was unanswered

    @property
    def is_local(self) -> bool:
        """Whether the client has a loopback address. False if it was reset before it was accepted: it has none then."""
        peer = self.transport.get_extra_info("peername")
        return isinstance(peer, tuple) and is_loopback(peer[0])

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed the connection."""
        return self.phase.is_open

    @property
    def is_authenticating(self) -> bool:
        return self.phase is Phase.AUTHENTICATING

    @property
    def unread_request(self) -> str:
        """The name of the first request that waits for its turn, or is incomplete."""
        queue = self.requests.queue
        return schema_name(queue[0].route.schema) if queue else self.splitter.next_request

    @property
    def unsent_request(self) -> str:
        """The name of the request whose response was given to the client last."""
        schema = self.requests.answered_last
        return UNKNOWN if schema is None else schema_name(schema)

    # From the socket -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a client of a listener without TLS."""
        self.accept(cast("asyncio.Transport", transport))
        if self.phase is Phase.HANDSHAKE:
            self.end_handshake()

    def accept(self, transport: Transport) -> None:
        """A client has connected. Closes the transport if there are too many connections."""
        self.transport = transport
        if peer := transport.get_extra_info("peername"):
            self.client_host, self.peer = java_address(peer[0]), host_and_port(peer[0], peer[1])
        if not self._pool.add(self):
            self.abort()

    def end_handshake(self) -> None:
        """The TLS handshake is over, if there is one."""
        self._advance(Event.CONNECTED)
        sasl = self.services.sasl.get(self.listener)
        if sasl is None:
            self._advance(Event.AUTHENTICATED)
        else:
            self.authenticator = Authenticator(self, sasl)

    def authenticated(self, principal: Principal, rest: bytes, again: Authenticator | None) -> None:
        """Serve requests from now on, see ``authenticator.Authenticating``."""
        self.principal, self.authenticator = principal, again
        self._raw_client_id = self.client_id.encode()
        if again is not None:
            self._routes = SessionRoutes(self.services.routes, again)
        self.hold(Hold.AUTHENTICATING, is_held=False)
        self._advance(Event.AUTHENTICATED)
        self._receive(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep pending requests: a member stays in its group until its session expires, as in Kafka.

        Queued requests are kept too, and handled after the pending one: a consumer that closes during a rebalance sends
        LeaveGroup after its pending JoinGroup and disconnects. The connection stays in the pool until all requests are
        handled.
        """
        self._pool.lost(self)
        self.output.clear()
        self.services.buffers.unsent.set(self, 0)
        self.splitter.drop_partial()
        count_unread(self)
        self._advance(Event.LOST)

    def data_received(self, data: bytes) -> None:
        """Handle the requests that may be handled now. If the time of this iteration is spent, only tiny ones are."""
        if self.meter is not None and self.meter.measures(self, Connection.data_received, data):
            return
        splitter = self.splitter
        if len(data) > TINY_BYTES or splitter.partial_bytes or splitter.rest:
            self._receive_in_time(data)
        else:
            self._receive(data)

    def _receive_in_time(self, data: bytes) -> None:
        budget = self._budget
        if budget.is_spent and not self.is_authenticating and self.splitter.hold(data):
            self._wait_for_turn(data)
        else:
            begin_ns = budget.begin()
            self._receive(data)
            budget.end(begin_ns)

    def _wait_for_turn(self, data: bytes) -> None:
        """Handle received bytes in a turn. The socket is not read meanwhile if it has been read twice already."""
        self.idle_checks = 0
        if not self.phase.takes_requests:
            self.splitter.drop()
        elif len(self.splitter.rest) > len(data):
            self.holds.add(Hold.BEHIND)
        else:
            self._pool.schedule_turn(self)
        count_unread(self)

    def _receive(self, data: bytes) -> None:
        """Handle the requests that may be handled now, and queue the others.

        After those of one turn (``framing``) the connection waits for its next one, and its socket is not read
        meanwhile. JoinGroup and SyncGroup wait for a turn too (``Pool.schedule_turn``): if the requests of thousands of
        members were handled in one iteration of the loop, all other clients would wait for them.
        """
        self.idle_checks = 0
        phase, splitter = self.phase, self.splitter
        if not phase.takes_requests and not splitter.rest:
            if phase is Phase.AUTHENTICATING and self.authenticator is not None:
                self.authenticator.receive(data)
            return  # the socket is still read, so that a disconnect is noticed
        max_bytes = self.services.settings.socket_request_max_bytes
        requests = self.requests
        try:
            for buffer, route_key, correlation_id, start, body_start, end in splitter.feed(data, max_bytes):
                route = self._routes.get(route_key) or open_route(self.services.routes, route_key)
                if requests.queue or requests.has_exclusive_call or not (route.overlaps or requests.is_empty):
                    self._queue(QueuedRequest(route, correlation_id, buffer[start:end], body_start - start))
                elif route.comes_in_bursts:
                    self._queue(QueuedRequest(route, correlation_id, buffer[start:end], body_start - start))
                    self._pool.schedule_turn(self)
                else:
                    self._handle(route, correlation_id, buffer, start, body_start, end)
                    if self.phase is not phase:
                        return  # the handler has closed the connection
            if splitter.rest:
                self.holds.add(Hold.BEHIND)
            if splitter.partial_bytes or splitter.rest or requests.queue or requests.counted_bytes:
                count_unread(self)
        except BadRequest as error:
            if requests.queue and not requests.calls:
                self._handle_queued()  # an earlier request waits only for its iteration
            if self.phase.takes_requests:  # otherwise that one was bad too
                self.reject(error, drops_queued=False)

    def take_turn(self) -> int:
        """Handle queued requests, then received bytes that are not split. Returns how many requests there may be."""
        if self.meter is not None and self.meter.measures(self, Connection.take_turn):
            return 2 * FRAMES_PER_TURN
        queued = min(len(self.requests.queue), FRAMES_PER_TURN)
        self.send_responses(has_turn=True)
        if not self.splitter.rest:
            return queued
        if self.holds.reasons - ONLY_BEHIND:
            self.holds.add(Hold.BEHIND)
            return queued
        self._take_rest()
        return queued + FRAMES_PER_TURN

    def _take_rest(self) -> None:
        """Handle the next of the received requests that are not split yet."""
        self._receive(b"")
        if not self.splitter.rest and Hold.BEHIND in self.holds.reasons:
            self.holds.remove(Hold.BEHIND)
        if self.requests.counted_bytes:
            self.services.buffers.unread.renew(self, self.requests.counted_bytes)
        if self.phase.is_ending:
            self._end_if_answered()

    def pause_writing(self) -> None:
        """The client does not read its responses: read no more requests."""
        self.output.is_paused = True
        self.services.buffers.unsent.set(self, self.output.unsent_bytes)
        self.holds.add(Hold.PEER_SLOW)

    def resume_writing(self) -> None:
        self.output.is_paused = False
        self.idle_checks = 0
        self._write_waiting()

    # Requests --------------------------------------------------------------------------------------------------------

    def _queue(self, request: QueuedRequest) -> None:
        self.requests.add_queued(request)
        if self.requests.is_full:
            self.holds.add(Hold.TOO_MANY_REQUESTS)

    def _handle(self, route: Route, correlation_id: int, data: bytes, start: int, body_start: int, end: int) -> None:
        """Decode and handle a request. Raises BadRequest. The positions are those of ``framing.Frame``."""
        raw_client_id = data[start + HEADER_BYTES : body_start]
        if raw_client_id != self._raw_client_id:
            self.client_id = decode_client_id(raw_client_id)
            self._raw_client_id = raw_client_id
        if end - body_start > LARGE_REQUEST_BYTES:
            handle_large(self, route, correlation_id, data, body_start, end)
            return
        request = decode_request(route, data, body_start, end)
        interceptor = self.services.interceptor
        if (
            route.answer_at_once is not None
            and not self.requests.calls
            and interceptor is None
            and self._answer_at_once(route, correlation_id, request)
        ):
            return
        call = (Call if interceptor is None else interceptor.call)(self, route.schema, correlation_id, request)
        requests = self.requests
        requests.calls.append(call)
        if not route.overlaps:
            requests.has_exclusive_call = True
        elif len(requests.calls) >= MAX_CALLS_OPEN or (
            end - start > SMALL_REQUEST_BYTES and requests.count_open(call, end - start)
        ):
            self.holds.add(Hold.TOO_MANY_REQUESTS)
        try:
            if interceptor is not None:
                interceptor.handle(call, partial(run_handler, self, route))
            elif (steps := route.handle(call)) is not None:
                run_in_slices(self, route, call, steps)
        except Exception as error:
            requests.remove_call(call)
            raise as_bad_request(error, route) from error

    def _answer_at_once(self, route: Route, correlation_id: int, request: Any) -> bool:
        """Answer without a call, if possible. The connection must have no calls, whose responses would be earlier."""
        assert route.answer_at_once is not None, "checked by the caller"
        try:
            body = route.answer_at_once(self, route.schema, request)
        except Exception as error:
            raise as_bad_request(error, route) from error
        if body is None:
            return False
        requests = self.requests
        requests.answered_at_once.append(with_header(route.schema, correlation_id, body))
        requests.answered_last = route.schema
        if len(requests.answered_at_once) >= MAX_CALLS_OPEN:
            self.holds.add(Hold.TOO_MANY_REQUESTS)
        if not self.output.is_scheduled:
            self.on_response_ready()
        return True

    def _handle_queued(self) -> None:
        """Handle queued requests up to one that has to wait, at most those of one turn."""
        left_frames, left_bytes = FRAMES_PER_TURN, BYTES_PER_TURN
        try:
            while left_frames and left_bytes > 0:
                if Hold.PEER_SLOW in self.holds.reasons or (request := self.requests.take_queued()) is None:
                    break
                route, correlation_id, frame, body_start = request
                left_frames -= 1
                left_bytes -= len(frame)
                if self.authenticator is not None:  # its session may have ended meanwhile, or begun again
                    route = self._routes.get(route_key_of(frame)) or route
                self._handle(route, correlation_id, frame, 0, body_start, len(frame))
            else:
                if self.requests.queue:
                    self._pool.schedule_turn(self)
            if self.requests.counted_bytes:
                count_unread(self)
        except BadRequest as error:
            self.reject(error)

    # Responses -------------------------------------------------------------------------------------------------------

    def on_response_ready(self) -> None:
        """Schedule the responses: those of one iteration of the loop are sent in one write."""
        if not self.output.is_scheduled:
            self.output.is_scheduled = True
            self._pool.schedule_responses(self)

    def send_responses(self, *, has_turn: bool = False) -> None:
        """Send the responses that are ready, in the order of the requests; then handle queued requests.

        If the time of this iteration is spent, they are handled when the connection ``has_turn``.
        """
        output = self.output
        output.is_scheduled = False
        payloads = self.requests.take_answered()
        if self.meter is not None and payloads:
            self.meter.throttle(self, payloads)
        if payloads and self.phase.is_open:
            data = payloads[0] if len(payloads) == 1 else b"".join(payloads)
            if len(data) <= WRITE_BYTES and not output.waiting_bytes:
                self.transport.write(data if type(data) is bytes else bytes(data))
            else:
                output.add(data)
        if output.waiting_bytes:
            self._write_waiting()
        if self.requests.queue:
            if self._budget.is_spent and not has_turn:
                self._pool.schedule_turn(self)
            else:
                begin_ns = self._budget.begin()
                self._handle_queued()
                self._budget.end(begin_ns)
        if self.holds.reasons and Hold.TOO_MANY_REQUESTS in self.holds.reasons and self.requests.has_room:
            self.holds.remove(Hold.TOO_MANY_REQUESTS)
        if self.phase.is_ending:
            self._end_if_answered()

    def _write_waiting(self) -> None:
        """Write the next bytes of a large response if the transport takes them; handle no requests before the last."""
        output = self.output
        if output.waiting_bytes and not output.is_paused:
            self.transport.write(output.take())  # may call ``pause_writing``
            self.services.buffers.unsent.renew(self, output.unsent_bytes)
        else:
            self.services.buffers.unsent.set(self, output.unsent_bytes)
        if output.is_blocked:
            self.holds.add(Hold.PEER_SLOW)
            if not output.is_paused:
                self.on_response_ready()  # the next bytes, after the other connections
            return
        self.holds.remove(Hold.PEER_SLOW)
        if self.requests.queue:
            self.on_response_ready()  # handles the queued requests
        if self.phase.is_ending:
            self._end_if_answered()

    # Reading ---------------------------------------------------------------------------------------------------------

    def pause_until(self, room: Reply) -> None:
        """Stop reading requests until ``room`` is settled."""
        self.holds.add(Hold.GROUP_FULL)
        room.on_done(lambda _room: self.holds.remove(Hold.GROUP_FULL))

    def mute(self, delay_ms: int) -> None:
        """Read and handle no requests for a time, because the client is above a quota (KIP-219)."""
        mute(self, self.holds, delay_ms)

    def hold(self, hold: Hold, *, is_held: bool) -> None:
        """Do not read the socket for this reason, or no longer."""
        self.holds.replace(hold, is_held=is_held)

    def update_reading(self) -> None:
        """Read the socket if it is open and nothing holds it. Received requests get a turn if only they hold it."""
        reasons = self.holds.reasons
        if self.phase.is_open and reasons:
            self.transport.pause_reading()
        elif self.phase.is_open:
            self.transport.resume_reading()
            if self.authenticator is not None:
                self.authenticator.time_limit.begin()
        if reasons == ONLY_BEHIND:
            self._pool.schedule_turn(self)

    def count_idle_checks(self) -> int:
        """Check for activity; return how many checks in a row, with this one, found none (see ``idle.py``)."""
        if self.requests.calls and not self.output.is_blocked:
            self.idle_checks = 0  # its response will count as activity
            return 0
        self.idle_checks += 1
        return self.idle_checks - 1

    # Closing ---------------------------------------------------------------------------------------------------------

    def reject(self, error: BadRequest, *, drops_queued: bool = True) -> None:
        """Close the connection after the responses to earlier requests, as in Kafka.

        ``drops_queued``: the queued requests are later ones.
        """
        interceptor = self.services.interceptor
        report_rejection(self, self.services.over_limit, error)
        if interceptor is not None:
            interceptor.refused(self, str(error))
        if drops_queued:
            self.requests.drop_queued()
        self._drop_unsplit()
        self.holds.remove(Hold.TOO_MANY_REQUESTS)
        self._advance(Event.BAD_REQUEST)

    def stop_reading(self) -> None:
        """Read no more requests, because the server is stopping. Close the socket after the last response."""
        self._drop_requests()
        self.holds.add(Hold.STOPPING)
        self._advance(Event.STOP)

    def close(self) -> None:
        """Close the socket after the responses that are already answered."""
        if self.output.waiting_bytes:
            self.transport.write(self.output.take_all())
        self._drop_requests()
        self._advance(Event.CLOSE)

    def close_idle(self) -> None:
        """Close an idle connection. What a client has not read in all this time is dropped."""
        if self.output.is_blocked or not self.phase.is_open:
            self.abort()
        else:
            self.close()

    def abort(self) -> None:
        """Close at once, without sending what is buffered."""
        self.output.clear()
        self.close()
        self.transport.abort()

    def _advance(self, event: Event) -> None:
        """Enter the next phase."""
        self.phase = phase = next_phase(self.phase, event)
        if phase is Phase.CLOSING:
            self.transport.close()
        elif phase is Phase.CLOSED:
            self._drop_requests()
            self._pool.discard(self)
            self._release()
        elif phase.is_ending:
            self._end_if_answered()

    def _release(self) -> None:
        """Leave nothing to the garbage collector, which runs rarely: buffers and names of clients are large."""
        self.holds.release()
        if self.authenticator is not None:
            self.authenticator.release()
            self.authenticator = None
            self._routes = self.services.routes.loaded

    def _drop_requests(self) -> None:
        """Forget the requests that are not handled yet."""
        self.requests.drop_queued()
        self._drop_unsplit()

    def _drop_unsplit(self) -> None:
        self.splitter.drop()
        if Hold.BEHIND in self.holds.reasons:
            self.holds.remove(Hold.BEHIND)

    def _end_if_answered(self) -> None:
        """The requests of a client that did not read its responses, and is gone, are not handled."""
        requests = self.requests
        has_more = requests.queue or self.splitter.rest
        if (
            requests.is_empty
            and not self.output.waiting_bytes
            and (not has_more or Hold.PEER_SLOW in self.holds.reasons)
        ):
            self._advance(Event.ALL_ANSWERED)
