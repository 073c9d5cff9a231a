"""A network in memory between members and their coordinator: it delays, breaks and cuts, as a seed says.

It carries messages, not bytes, and keeps what TCP keeps: what is sent on one channel arrives in its order or not at
all, and what is sent on two arrives in any order. What is lost is the channel: then nobody knows whether what was asked
has happened. What a cut holds up arrives when it is healed, unless the channel breaks before.

The far end takes requests as a connection does: heartbeats and commits overlap, everything else is taken when the
requests before it are answered, and answers leave in the order of their requests.
"""

from __future__ import annotations

import random
from asyncio import Future, sleep
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.messages import Heartbeat, OffsetCommit
from ....actors.refusal import refusal
from ...member.channel import ChannelLost
from .fault_draw import FaultDraw
from .history import Exchange, History
from .loop import Process, VirtualLoop

DELAY_MS = (0.05, 0.5, 3.0)
"""What a message needs at most: on one machine, in one data centre, between two."""

SLOW_MS = 400.0  # more, for a member that is slow
CONNECT_TIMEOUT_S = 5.0
CONNECT_RETRY_S = 0.25  # between two looks whether a cut is healed
OVERLAPPING = (Heartbeat, OffsetCommit)


class NetworkServer(Protocol):
    """A coordinator, as the network sees it; None of these outlive its process."""

    number: int
    process: Process

    def post(self, message: Any, client_id: str, reply_slot: Any) -> None:
        """Hand a request over; its answer goes to ``reply_slot`` (``actors.engine_ports.ReplyTo``)."""

    def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        """Raises ChannelLost when it dies of it, CoordinatorError when it refuses."""

    def partitions(self, topics: Iterable[str]) -> dict[str, int]: ...


class Host:
    """Where clients run: what the network does to all of them at once."""

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
        """How often sending a request breaks its channel, as a probability."""
        self.server: NetworkServer | None = None
        self.channels: list[SimulatedChannel] = []
        self._hosts: dict[str, Host] = {}
        self._delay_ms = draw.choice(DELAY_MS)

    def host(self, name: str, process: Process) -> Host:
        """A machine of that name; a process that is started anew there comes after one that was killed."""
        host = self._hosts.setdefault(name, Host(name, process))
        host.process = process
        return host

    def hosts(self) -> list[Host]:
        return list(self._hosts.values())

    def cut(self, name: str, breaks: bool) -> None:
        """From now on nothing passes between that host and the coordinator. ``breaks``: its channels are lost."""
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

    def server_started(self, server: NetworkServer) -> None:
        self.server = server

    def server_ended(self) -> None:
        """The coordinator's process is gone, and with it all channels."""
        self.server = None
        for channel in list(self.channels):
            channel.break_channel()

    def disconnect(self, name: str) -> None:
        """All channels of a host end: its process was killed, or the machine took them."""
        for channel in self._channels_of(name):
            channel.break_channel()

    def delay_s(self, host: Host) -> float:
        """What the next message needs."""
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

    async def _connect_to_server(self) -> NetworkServer:
        network, loop = self._network, self._network.loop
        give_up_s = loop.time() + CONNECT_TIMEOUT_S
        await sleep(network.delay_s(self._host))
        while self._host.is_cut and loop.time() < give_up_s:
            await sleep(CONNECT_RETRY_S)
        await sleep(network.delay_s(self._host))
        if self._host.is_cut:
            raise ChannelLost(f"no way from {self._host.name} to the coordinator within {CONNECT_TIMEOUT_S:g} s")
        if network.server is None:
            raise ChannelLost(f"nobody listens where {self._host.name} looks for the coordinator")
        return network.server


class SimulatedChannel:
    """``runtime.member.Channel`` to one life of the coordinator."""

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
        self._queue: deque[Exchange] = deque()  # at the far end, not taken yet
        self._started: list[Exchange] = []  # taken, in order; answers leave from the front
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
        """The channel is lost. What is on its way to the coordinator may arrive; answers do not."""
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
        """A cut is healed: what it has held up goes on its way."""
        self._to_server.resume()
        self._to_client.resume()

    def _break_with_request(self, exchange: Exchange) -> None:
        """Before the request was heard of, or after."""
        if self._network.draw.random() < 0.5:
            self._to_server.send(partial(self._arrive, exchange))
        self._loop.call_later(self._network.delay_s(self.host), self.break_channel)

    # At the far end --------------------------------------------------------------------------------------------------

    def _arrive(self, exchange: Exchange) -> None:
        self._queue.append(exchange)
        self._start_requests()

    def _start_requests(self) -> None:
        """As many as may be under way together."""
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
            done = started.pop(0)
            if not self._is_lost:
                self._to_client.send(partial(self._deliver, done))
        self._start_requests()

    def _deliver(self, exchange: Exchange) -> None:
        future = self._waiting.get(exchange)
        if future is not None and not future.done():
            self._network.history.received(exchange)
            future.set_result(exchange.answer)


class SimulatedReplySlot:
    """Where an answer goes at the far end (``actors.engine_ports.ReplyTo``)."""

    __slots__ = ("_done", "_exchange")

    def __init__(self, done: Callable[[Any], None], exchange: Exchange) -> None:
        self._done = done
        self._exchange = exchange

    def set(self, value: Any = None) -> None:
        self._done(value)

    def set_exception(self, exc_info: Any = None) -> None:
        """As a connection tells its client."""
        error = exc_info[1] if exc_info else None
        code = error.code if isinstance(error, CoordinatorError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self._done(refusal(self._exchange.message, code))


class _Direction:
    """One direction of a channel: a line of messages, each of which arrives behind the one before it."""

    def __init__(self, network: Network, host: Host, receiver: Process) -> None:
        self._network = network
        self._host = host
        self._receiver = receiver
        self._line: deque[Callable[[], None]] = deque()
        self._held_deliveries = 0  # deliveries that a cut has swallowed
        self._next_free_s = 0.0

    def send(self, deliver: Callable[[], None]) -> None:
        self._line.append(deliver)
        self._schedule()

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
        held, self._held_deliveries = self._held_deliveries, 0
        for _ in range(held):
            self._schedule()

    def drop(self) -> None:
        self._line.clear()


def _fail_future(future: Future[Any]) -> None:
    if not future.done():
        future.set_exception(ChannelLost("the channel was lost; whatever was asked may have happened"))
