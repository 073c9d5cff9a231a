"""Processes of one cluster in virtual time, each with a coordinator and members, that die and freeze."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from cluster.simulated_store import SimulatedStore

from callboard.actors.error_reply import error_reply
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import GroupRequest
from callboard.runtime.cluster.connection import ClusterConnection
from callboard.runtime.cluster.register import Register
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.embed.cluster_part import ClusterPart
from callboard.runtime.embed.group_owners import GroupOwner
from callboard.runtime.kafka.services import Origin
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.member.local import LocalConnector
from callboard.runtime.member.member import Member
from callboard.runtime.node.environment import MEMORY, WorkClocks, in_memory
from callboard.runtime.node.node import Node
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import PLAINTEXT
from callboard.runtime.settings.table import Options, Settings
from callboard.runtime.testing.simulation.loop import LoopClock, Process, VirtualLoop

COUNTS = PartitionCounts(4, 1)
SETTINGS = Settings(
    group_initial_rebalance_delay_ms=0,
    group_generation_from_clock=True,
    offsets_topic_num_partitions=COUNTS.offsets,
    transaction_state_log_num_partitions=COUNTS.transactions,
)
DELAY_S = 0.003


class SimulatedWorker:
    """A process with a node and members. ``others``: all processes by port."""

    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        port: int,
        store: SimulatedStore,
        others: dict[int, SimulatedWorker],
        topics: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.process = Process(loop, name)
        self.name = name
        self.port = port
        self.channels: list[WireChannel] = []  # to this process
        self.loop = loop
        self.draw = random.Random(f"{name}/{port}")  # a process that starts again is another session
        self._store = store
        self._others = others
        self._topics = tuple(topics)
        self._node: Node | None = None
        self._source: Any = None
        others[port] = self

    async def serve(
        self, work: Callable[[Member], Coroutine[Any, Any, None]], groups: Sequence[str], **options: Any
    ) -> None:
        """Run a node, and a member of each group that works."""
        local = LocalConnector()
        part = ClusterPart(local)
        part.connector.open_remote = self._open_remote
        environment = SessionEnvironment(now=self.loop.time, token=partial(self.draw.randbytes, 8))
        connection = ClusterConnection(
            self._store.client(),
            self.name,
            {PLAINTEXT: Address(self.name, self.port)},
            COUNTS,
            max_message_bytes=1_000_000,
            on_failed=part.refuse,
            environment=environment,
        )
        part.attach(connection.ownership)
        self._source = connection.ownership
        clocks = WorkClocks(self.loop.time)
        memory = replace(in_memory(), clock=LoopClock(self.loop), work_clocks=clocks, cluster=connection)
        local.node = self._node = await Node.open(SETTINGS, Options(data=MEMORY, topics=self._topics), memory)
        await part.wait_until_joined()
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                member = Member(part.connector, group, random=self.draw, clock_s=self.loop.time, **options)
                tasks.create_task(self._take_part(member, work))

    async def _take_part(self, member: Member, work: Callable[[Member], Coroutine[Any, Any, None]]) -> None:
        async with member:
            await work(member)

    async def _open_remote(self, owner: GroupOwner, client_id: str) -> WireChannel:
        await asyncio.sleep(DELAY_S)
        peer = self._others[owner.address.port]
        if peer.process.is_dead:
            raise ChannelLost(f"{peer.name} is dead")
        return WireChannel(self, peer, client_id)

    def receive(self, message: GroupRequest, client_id: str, answer: Callable[[Any], None]) -> None:
        """Handle a request of another process, as a connection does."""
        if self._node is None or not self._source.has_lease():
            answer(error_reply(message, ErrorCode.NOT_COORDINATOR))
        else:
            reply = self._node.local.ask(message, Origin(client_id, "/10.0.0.1", 0))
            reply.on_done(lambda done: answer(done.get(timeout=0)))

    @property
    def register(self) -> Register | None:
        """The newest version that this process has read."""
        register: Register | None = None if self._source is None else self._source.register
        return register

    async def stop(self) -> None:
        """The node gives its partitions away, then the process ends."""
        assert self._node is not None
        await self.process.start(self._node.stop())
        self.kill()

    def kill(self) -> None:
        """The system closes its connections."""
        self.process.kill()
        for channel in list(self.channels):
            self.loop.call_soon(channel.close, context=channel.own.process.context)


class WireEnd(Protocol):
    """A process that opens connections: one with a node, or a client."""

    loop: VirtualLoop
    process: Process


class WireChannel:
    """A connection of one process to another."""

    def __init__(self, own: WireEnd, peer: SimulatedWorker, client_id: str) -> None:
        self.own = own
        self._peer = peer
        self._client_id = client_id
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._is_closed = False
        peer.channels.append(self)

    async def ask(self, message: GroupRequest) -> Any:
        if self._is_closed:
            raise ChannelLost("the connection is closed")
        loop = self.own.loop
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[future] = None
        arrive = partial(self._peer.receive, message, self._client_id, partial(self._send_back, future))
        loop.call_later(DELAY_S, arrive, context=self._peer.process.context)
        return await future

    def _send_back(self, future: asyncio.Future[Any], answer: Any) -> None:
        self.own.loop.call_later(DELAY_S, self._answered, future, answer, context=self.own.process.context)

    def _answered(self, future: asyncio.Future[Any], answer: Any) -> None:
        if self._waiting.pop(future, 0) is None and not future.done():
            future.set_result(answer)

    def close(self) -> None:
        self._is_closed = True
        if self in self._peer.channels:
            self._peer.channels.remove(self)
        while self._waiting:
            future, _ = self._waiting.popitem()
            if not future.done():
                future.set_exception(ChannelLost("the connection was lost"))
