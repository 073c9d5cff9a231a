"""Helpers for tests of members: virtual time, a scripted coordinator, and a network that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from callboard.actors.error_reply import error_reply
from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.messages import (
    Committed,
    DescribeGroup,
    Fetched,
    FetchedOffset,
    GroupRequest,
    Heartbeat,
    Joined,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    Left,
    OffsetCommit,
    OffsetFetch,
    Synced,
    SyncGroup,
)
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.kafka.services import Origin
from callboard.runtime.member.channel import Channel, ChannelLost, Connector
from callboard.runtime.member.local import LocalConnector
from callboard.runtime.member.member import Member
from callboard.runtime.member.shards import Assignment
from callboard.runtime.node.environment import MEMORY, WorkClocks, in_memory
from callboard.runtime.node.node import Node
from callboard.runtime.settings.table import Options, Settings
from callboard.runtime.testing.simulation.loop import LoopClock, VirtualLoop
from callboard.runtime.testing.simulation.loop import run as run_virtually

GROUP = "workers"
MEMBER_ID = "member-1"
P = ParamSpec("P")
T = TypeVar("T")


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on a virtual loop: waits take no real time, and a wait without an end is an error."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtually(test(*args, **kwargs))

    return run


def member_on_loop_time(connector: Connector, group: str = GROUP, **options: Any) -> Member:
    """A member whose lease uses the clock of the running loop, which may be a virtual one."""
    return Member(connector, group, **{"clock_s": asyncio.get_running_loop().time, **options})


async def next_assignment_of(member: Member, count: int = 1, **options: Any) -> Assignment:
    """Wait for the member's next assignment with ``count`` shards."""
    async with asyncio.timeout(300):
        while True:
            assignment = await member.next_assignment()
            if len(assignment.shards) == count:
                return assignment


async def wait_until(condition: Callable[[], bool], step_s: float = 0.01) -> None:
    """Poll a condition, on the loop's clock. Raises TimeoutError."""
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(step_s)


Answer = Callable[[Any], Any]


def topic_id_of(topic: str) -> bytes:
    """The id of a topic at a scripted coordinator."""
    return topic.encode().ljust(16)


class ScriptedConnector:
    """A connector to a scripted coordinator with one member, the leader.

    ``next_answers`` precede the default answers. An answer is an error code, a whole answer, an exception to raise, or
    a future to await.
    """

    def __init__(self) -> None:
        self.requests: list[GroupRequest] = []
        self.request_times_s: list[float] = []
        self.opened = 0
        self.request_channels: list[ScriptedChannel] = []  # the channel of each request
        self.topics: dict[str, int] = {}
        self.topic_errors: list[ErrorCode] = []
        self.next_answers: dict[type, list[Any]] = {}
        self.generation = 1
        self.next_offset = -1
        self.session_ms = 10_000
        self._assignments: Mapping[str, bytes] = {}
        self._protocol = ""

    def answer_next(self, kind: type, *answers: Any) -> None:
        """Set the next answers to requests of this kind."""
        self.next_answers.setdefault(kind, []).extend(answers)

    def count(self, kind: type) -> int:
        return sum(type(request) is kind for request in self.requests)

    def last_request(self, kind: type) -> Any:
        return next(request for request in reversed(self.requests) if type(request) is kind)

    async def open(self, client_id: str) -> ScriptedChannel:
        self.opened += 1
        return ScriptedChannel(self)

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        """Raises the next errors of ``topic_errors``, each once."""
        if self.topic_errors:
            raise CoordinatorError(self.topic_errors.pop(0), "the topics cannot be written")
        self.topics.update(partitions)

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        return {topic: topic_id_of(topic) for topic in topics if topic in self.topics}

    async def consumer_session_timeout_ms(self, group_id: str) -> int:
        return self.session_ms

    async def answer(self, message: GroupRequest) -> Any:
        self.requests.append(message)
        self.request_times_s.append(asyncio.get_running_loop().time())
        answers = self.next_answers.get(type(message))
        if not answers:
            return self._default_answer(message)
        answer = answers.pop(0)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        if answer is ErrorCode.NONE:
            return self._default_answer(message)
        if isinstance(answer, ErrorCode):
            return self._refusal(message, answer)
        return answer

    def _refusal(self, message: GroupRequest, error: ErrorCode) -> Any:
        if isinstance(message, JoinGroup) and error is ErrorCode.MEMBER_ID_REQUIRED:
            return Joined(error, MEMBER_ID)
        return error_reply(message, error)

    def _default_answer(self, message: GroupRequest) -> Any:
        match message:
            case JoinGroup(member_id=""):
                return Joined(ErrorCode.MEMBER_ID_REQUIRED, MEMBER_ID)
            case JoinGroup():
                offer = message.protocols[0]
                self.generation += 1
                me = JoinedMember(message.member_id, message.group_instance_id, offer.metadata)
                names = message.member_id, self.generation, "consumer", offer.name, message.member_id
                return Joined(ErrorCode.NONE, *names, (me,))
            case SyncGroup():
                return Synced(ErrorCode.NONE, "consumer", message.protocol_name, dict(message.assignments)[MEMBER_ID])
            case OffsetFetch():
                rows = ((topic, tuple(self._row(one) for one in each)) for topic, each in message.topics or ())
                return Fetched(ErrorCode.NONE, tuple(rows))
            case OffsetCommit():
                return Committed((ErrorCode.NONE,) * len(message.commits), "synced")
            case LeaveGroup():
                return Left(ErrorCode.NONE)
            case Heartbeat():
                return ErrorCode.NONE
        raise AssertionError(f"a member asks for {message!r}")

    def _row(self, partition: int) -> FetchedOffset:
        return FetchedOffset(partition, self.next_offset, -1, "", ErrorCode.NONE)


class ScriptedChannel:
    def __init__(self, connector: ScriptedConnector) -> None:
        self._connector = connector
        self._pending: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    async def ask(self, message: GroupRequest) -> Any:
        if self._is_closed:
            raise ChannelLost("the scripted channel is closed")
        self._connector.request_channels.append(self)
        answering = asyncio.ensure_future(self._connector.answer(message))
        self._pending.add(answering)
        try:
            await asyncio.wait({answering})
            if answering.cancelled():
                raise ChannelLost("the scripted channel is closed")
            return answering.result()
        finally:
            answering.cancel()
            self._pending.discard(answering)

    def close(self) -> None:
        self._is_closed = True
        for answering in tuple(self._pending):
            answering.cancel()


def unanswered() -> asyncio.Future[Any]:
    """An answer that never arrives."""
    return asyncio.get_running_loop().create_future()


class CutConnector:
    """A connector whose network can be cut, so that requests or their answers are lost.

    A request that lost its answer waits until its channel is closed, also when the network works again, as on a dead
    connection.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.loses_requests = False
        self.loses_answers = False

    async def open(self, client_id: str) -> CutChannel:
        if self.loses_requests or self.loses_answers:
            await asyncio.sleep(1)
            raise ChannelLost("the network is cut")
        return CutChannel(self, await self._inner.open(client_id))

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        await self._inner.ensure_topics(partitions)

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        counts: dict[str, int] = await self._inner.partitions(topics)
        return counts

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        ids: dict[str, bytes] = await self._inner.topic_ids(topics)
        return ids

    async def consumer_session_timeout_ms(self, group_id: str) -> int:
        session_ms: int = await self._inner.consumer_session_timeout_ms(group_id)
        return session_ms


class CutChannel:
    def __init__(self, connector: CutConnector, inner: Channel) -> None:
        self._connector = connector
        self._inner = inner
        self._closed = asyncio.Event()
        self._has_lost = False  # a connection answers in order, so it answers nothing more then

    async def ask(self, message: GroupRequest) -> Any:
        if self._connector.loses_requests or self._has_lost:
            await self._wait_until_closed()
        asking = asyncio.ensure_future(self._inner.ask(message))
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
            if self._connector.loses_answers or not asking.done():
                await self._wait_until_closed()
            return asking.result()
        finally:
            closing.cancel()
            if not asking.done():
                asking.cancel()
            elif not asking.cancelled():
                asking.exception()

    async def _wait_until_closed(self) -> None:
        self._has_lost = True
        await self._closed.wait()
        raise ChannelLost("the channel was closed")

    def close(self) -> None:
        """Close it without a notice to the coordinator, where pending requests remain."""
        self._closed.set()


@asynccontextmanager
async def local_coordinator(**settings: Any) -> AsyncIterator[LocalConnector]:
    """A connector to a coordinator in memory, on the virtual loop's clock, without initial rebalance delay."""
    defaults = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 2}
    connector = LocalConnector(await start_node(Settings(**{**defaults, **settings})))
    try:
        yield connector
    finally:
        assert connector.node is not None
        await connector.node.stop()


async def start_node(settings: Settings, **changes: Any) -> Node:
    loop = asyncio.get_running_loop()
    environment = in_memory()
    if isinstance(loop, VirtualLoop):
        environment = replace(environment, clock=LoopClock(loop), work_clocks=WorkClocks(loop.time))
    return await Node.open(settings, Options(data=MEMORY), replace(environment, **changes))


async def restart_node(connector: LocalConnector) -> None:
    """Kill the coordinator and start another one on the durable data."""
    old = connector.node
    assert old is not None
    connector.node = None
    disk = old.environment.disk
    assert isinstance(disk, MemoryDisk)
    old.halt()
    await asyncio.sleep(1)
    connector.node = await start_node(old.settings, disk=disk.for_next_process())


async def group_state(connector: LocalConnector) -> str:
    assert connector.node is not None
    described = await connector.node.local.ask(DescribeGroup(GROUP), Origin("test", "/127.0.0.1", 0))
    assert described.error is ErrorCode.NONE
    return str(described.state)


@asynccontextmanager
async def background(coro: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a task, which is cancelled at the end."""
    task = asyncio.create_task(coro)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
