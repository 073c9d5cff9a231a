"""A network in memory between members and the coordinator: delays, broken channels and disconnected hosts.

It carries messages, not bytes, with TCP's guarantees: messages on one channel arrive in order or not at all; messages
on two channels arrive in any order. When a channel is lost, it is unknown whether its requests were handled. Messages
that are held while a host is disconnected arrive when it is connected again, unless the channel breaks before.

The coordinator's end handles requests as a connection does: heartbeats and commits overlap, any other request waits
until the requests before it are answered, and answers leave in the order of their requests.
"""

from __future__ import annotations

import random
from asyncio import Future, sleep
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from ....actors.consumer_group.messages import ConsumerHeartbeat
from ....actors.error_reply import error_reply
from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.messages import Heartbeat, OffsetCommit
from ...member.channel import ChannelLost
from .fault_draw import FaultDraw
from .history import Exchange, History
from .loop import Process, VirtualLoop
from .reading import SocketReading

DELAY_MS = (0.05, 0.5, 3.0)
"""The longest delay of a message: on one machine, in one data centre, between two."""

SLOW_MS = 400.0  # added for a slow host
CONNECT_TIMEOUT_S = 5.0
CONNECT_RETRY_S = 0.25  # between two checks whether a host is reachable again
OVERLAPPING = (Heartbeat, ConsumerHeartbeat, OffsetCommit)


class NetworkServer(Protocol):
    """The coordinator as seen by the network. It ends with its process."""

    number: int
    process: Process

    def post(self, message: Any, client_id: str, reply_slot: Any) -> None:
        """Pass a request to the coordinator. Its answer goes to the slot (``actors.engine_ports.ReplyTo``)."""

    def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        """Raises ChannelLost if the coordinator dies during the request, CoordinatorError if it refuses."""

    def partitions(self, topics: Iterable[str]) -> dict[str, int]: ...

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]: ...

    def consumer_session_timeout_ms(self, group_id: str) -> int: ...


class Host:
    """A machine with clients, and the state of its network."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.is_cut = False
        self.is_slow = False


class Network:
    """All hosts, the server, and the channels between them."""

    def __init__(self, loop: VirtualLoop, draw: random.Random, faults: FaultDraw, history: History) -> None:
        self.loop = loop
        self.draw = draw
        self.faults = faults
        self.history = history
        self.loss = 0.0
        """The probability that sending a request breaks its channel."""
        self.late_s = 0.0
        """The longest time for which a request of a broken channel may be on its way, beside the usual delay."""
        self.server: NetworkServer | None = None
        self.reading = SocketReading(loop)
        self.channels: list[SimulatedChannel] = []
        self._hosts: dict[str, Host] = {}
        self._delay_ms = draw.choice(DELAY_MS)

    def host(self, name: str, process: Process) -> Host:
        """The host ``name``. A process that is started there later replaces a killed one."""
        host = self._hosts.setdefault(name, Host(name, process))
        host.process = process
        return host

    def hosts(self) -> list[Host]:
        return list(self._hosts.values())

    def cut(self, name: str, breaks: bool) -> None:
        """Disconnect a host from the coordinator. ``breaks``: its channels are lost."""
        self._hosts[name].is_cut = True
        for channel in self._channels_of(name) if breaks else ():
            channel.break_channel()

    def heal(self, name: str) -> None:
        self._hosts[name].is_cut = False
        for channel in self._channels_of(name):
            channel.resume()

    def heal_all(self) -> None:
        for host in self._hosts.values():
            host.is_slow = False
            self.heal(host.name)
        self.loss = 0.0
        if self.server is not None:
            self.reading.resume(self.server.process.context)

    def overload(self, seconds: float) -> None:
        """Let the coordinator read no sockets for so long, as if it had more requests than it can handle."""
        if self.server is not None:
            self.reading.pause(seconds, self.server.process.context)

    def server_started(self, server: NetworkServer) -> None:
        self.server = server

    def server_ended(self) -> None:
        """The coordinator's process has ended, and all channels with it."""
        self.server = None
        self.reading.reset()
        for channel in list(self.channels):
            channel.break_channel()

    def disconnect(self, name: str) -> None:
        """Close all channels of a host, as when its process was killed."""
        for channel in self._channels_of(name):
            channel.break_channel()

    def delay_s(self, host: Host) -> float:
        """The delay of the next message."""
        delay_max_ms = self._delay_ms + (SLOW_MS if host.is_slow else 0)
        return self.draw.random() * delay_max_ms / 1000

    def _channels_of(self, name: str) -> list[SimulatedChannel]:
        return [channel for channel in self.channels if channel.host.name == name]


class SimulatedConnector:
    """The ``Connector`` of one host."""

    def __init__(self, network: Network, host: Host) -> None:
        self._network = network
        self._host = host

    async def open(self, client_id: str) -> SimulatedChannel:
        return SimulatedChannel(self._network, self._host, await self._connect_to_server(), client_id)

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        (await self._connect_to_server()).ensure_topics(partitions)

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return (await self._connect_to_server()).partitions(topics)

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        return (await self._connect_to_server()).topic_ids(topics)

    async def consumer_session_timeout_ms(self, group_id: str) -> int:
        return (await self._connect_to_server()).consumer_session_timeout_ms(group_id)

    async def _connect_to_server(self) -> NetworkServer:
        network, loop = self._network, self._network.loop
        give_up_s = loop.time() + CONNECT_TIMEOUT_S
        await sleep(network.delay_s(self._host))
        while self._host.is_cut and loop.time() < give_up_s:
            await sleep(CONNECT_RETRY_S)
        await sleep(network.delay_s(self._host))
        if self._host.is_cut:
            raise ChannelLost(f"{self._host.name} could not reach the coordinator within {CONNECT_TIMEOUT_S:g} s")
        if network.server is None:
            raise ChannelLost(f"the coordinator refused the connection of {self._host.name}: it is down")
        return network.server


class SimulatedChannel:
    """A ``runtime.member.Channel`` to one process of the coordinator."""

    def __init__(self, network: Network, host: Host, server: NetworkServer, client_id: str) -> None:
        self.host = host
        self._network = network
        self._loop = network.loop
        self._server = server
        self._client_id = client_id
        self._process = host.process
        self._is_lost = False
        self._waiting: dict[Exchange, Future[Any]] = {}
        self._to_server = _Direction(network, host, server.process)
        self._to_client = _Direction(network, host, host.process)
        self._queue: deque[Exchange] = deque()  # at the coordinator, not started
        self._started: list[Exchange] = []  # in order; answers leave from the front
        network.channels.append(self)

    async def ask(self, message: Any) -> Any:
        if self._is_lost:
            raise ChannelLost("the channel was lost before")
        network = self._network
        exchange = network.history.sent(self.host.name, self._process, self._server.number, message)
        future = self._loop.create_future()
        self._waiting[exchange] = future
        breaks = network.loss > 0 and network.draw.random() < network.loss
        if breaks and network.faults.permits("lose a channel", f"of {self.host.name}, with {type(message).__name__}"):
            self._break_with_request(exchange)
        else:
            self._to_server.send(partial(self._arrive, exchange))
        try:
            return await future
        finally:
            self._waiting.pop(exchange, None)

    def close(self) -> None:
        self.break_channel()

    def break_channel(self) -> None:
        """Break the channel. Requests in transit may still arrive; answers do not."""
        if self._is_lost:
            return
        self._is_lost = True
        self._network.channels.remove(self)
        if self._network.draw.random() < 0.5:
            self._to_server.drop()
        self._to_client.drop()
        waiting, self._waiting = self._waiting, {}
        for exchange, future in waiting.items():
            self._network.history.lost(exchange)
            self._loop.call_soon(_fail_future, future, context=self._process.context)

    def resume(self) -> None:
        """The host is connected again: deliver the held messages."""
        self._to_server.resume()
        self._to_client.resume()

    def _break_with_request(self, exchange: Exchange) -> None:
        """Break the channel before or after the request arrives, which may be much later."""
        network = self._network
        if network.late_s:
            self._to_server.hold(network.draw.random() * network.late_s)
        if network.draw.random() < 0.5:
            self._to_server.send(partial(self._arrive, exchange))
        self._loop.call_later(self._network.delay_s(self.host), self.break_channel)

    # At the coordinator ----------------------------------------------------------------------------------------------

    def _arrive(self, exchange: Exchange) -> None:
        self._network.history.reached(exchange)
        self._network.reading.arrive(partial(self._read, exchange))

    def _read(self, exchange: Exchange) -> None:
        self._queue.append(exchange)
        self._start_requests()

    def _start_requests(self) -> None:
        """Start as many requests as may overlap."""
        queue, started = self._queue, self._started
        while queue and not self._server.process.is_dead:
            overlaps = isinstance(queue[0].message, OVERLAPPING)
            if started and not (overlaps and isinstance(started[-1].message, OVERLAPPING)):
                return
            exchange = queue.popleft()
            started.append(exchange)
            self._network.history.arrived(exchange)
            self._server.post(
                exchange.message, self._client_id, SimulatedReplySlot(partial(self._answered, exchange), exchange)
            )

    def _answered(self, exchange: Exchange, answer: Any) -> None:
        exchange.answer = answer
        exchange.is_answered = True
        self._network.history.answered(exchange)
        started = self._started
        while started and started[0].is_answered:
            answered_exchange = started.pop(0)
            if not self._is_lost:
                self._to_client.send(partial(self._deliver, answered_exchange))
        self._start_requests()

    def _deliver(self, exchange: Exchange) -> None:
        future = self._waiting.get(exchange)
        if future is not None and not future.done():
            self._network.history.received(exchange)
            future.set_result(exchange.answer)


class SimulatedReplySlot:
    """The slot for an answer at the coordinator (``actors.engine_ports.ReplyTo``)."""

    __slots__ = ("_done", "_exchange")

    def __init__(self, done: Callable[[Any], None], exchange: Exchange) -> None:
        self._done = done
        self._exchange = exchange

    def set(self, value: Any = None) -> None:
        self._done(value)

    def set_exception(self, exc_info: Any = None) -> None:
        """Convert an error to an answer, as a connection does."""
        error = exc_info[1] if exc_info else None
        code = error.code if isinstance(error, CoordinatorError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self._done(error_reply(self._exchange.message, code))


class _Direction:
    """One direction of a channel. Messages arrive in order."""

    def __init__(self, network: Network, host: Host, receiver: Process) -> None:
        self._network = network
        self._host = host
        self._receiver = receiver
        self._line: deque[Callable[[], None]] = deque()
        self._held_deliveries = 0  # deliveries held while the host is disconnected
        self._next_free_s = 0.0

    def send(self, deliver: Callable[[], None]) -> None:
        self._line.append(deliver)
        self._schedule()

    def hold(self, seconds: float) -> None:
        """All messages from now on take so much longer."""
        self._next_free_s = max(self._next_free_s, self._network.loop.time() + seconds)

    def _schedule(self) -> None:
        loop = self._network.loop
        self._next_free_s = max(self._next_free_s, loop.time() + self._network.delay_s(self._host))
        loop.call_at(self._next_free_s, self._next, context=self._receiver.context)

    def _next(self) -> None:
        if self._host.is_cut:
            self._held_deliveries += 1
        elif self._line:
            self._line.popleft()()

    def resume(self) -> None:
        held_count, self._held_deliveries = self._held_deliveries, 0
        for _ in range(held_count):
            self._schedule()

    def drop(self) -> None:
        self._line.clear()


def _fail_future(future: Future[Any]) -> None:
    if not future.done():
        future.set_exception(ChannelLost("the channel was lost; its requests may have been handled"))
