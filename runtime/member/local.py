"""LocalConnector: members reach a coordinator in this process, without a socket and without encoding."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ...actors.consumer_group.decision_environment import OwnSettings
from ...actors.consumer_group.messages import ConsumerHeartbeat
from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import GroupRequest, JoinGroup
from ..disk.group_commit import outcome_of
from ..engine.reply import Reply
from ..kafka.services import Origin
from ..node.local_requests import LocalRequests
from ..node.node import Node
from ..topics.store import NewTopic
from .channel import ChannelLost

CLIENT_HOST = "/127.0.0.1"
"""The host of a local member in a description of its group."""


class LocalConnector:
    """``node``: the coordinator, None while there is none. A node closes its channels when it ends.

    ``loop``: the event loop of the coordinator and its members; not checked if None.
    """

    def __init__(self, node: Node | None = None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.node = node
        self._loop = loop
        self._ids = itertools.count()

    async def open(self, client_id: str) -> LocalChannel:
        return LocalChannel(self._running_node().local, Origin(client_id, CLIENT_HOST, next(self._ids)))

    async def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        node = self._running_node()
        topics, admin = node.topics, node.services.topic_admin
        missing = [NewTopic(name, count) for name, count in partitions.items() if topics.get(name) is None]
        if missing:
            for created in await outcome_of(partial(admin.create, missing)):
                if isinstance(created, CoordinatorError) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise created
        for name, count in partitions.items():
            topic = topics.get(name)
            if topic is not None and len(topic.partitions) < count:
                error = await outcome_of(partial(admin.grow, topic, count))
                if error is not None and len(topic.partitions) < count:  # another member may have added them
                    raise error

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        catalogue = self._running_node().topics
        topics_by_name = ((name, catalogue.get(name)) for name in topics)
        return {name: len(topic.partitions) for name, topic in topics_by_name if topic is not None}

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        catalogue = self._running_node().topics
        topics_by_name = ((name, catalogue.get(name)) for name in topics)
        return {name: topic.topic_id.bytes for name, topic in topics_by_name if topic is not None}

    async def consumer_session_timeout_ms(self, group_id: str) -> int:
        services = self._running_node().services
        return OwnSettings(group_id, services.settings, services.configs.groups.effective).session_timeout_ms

    def _running_node(self) -> Node:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "this member was made by a Coordinator of another event loop: use it there, or reach that Coordinator "
                "with listen='127.0.0.1:0' and callboard.connect(coordinator.bootstrap)"
            )
        if self.node is None:
            raise ChannelLost("the coordinator is not running; it is restarting or was stopped")
        return self.node


class LocalChannel:
    """Puts requests into the group's mailbox, in order."""

    __slots__ = ("_is_closed", "_loop", "_origin", "_pending", "_requests")

    def __init__(self, requests: LocalRequests, origin: Origin) -> None:
        self._requests = requests
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self._pending: dict[asyncio.Future[Any], _ReplySlot] = {}
        self._is_closed = False
        requests.channels[self] = None

    def ask(self, message: GroupRequest) -> asyncio.Future[Any]:
        if self._is_closed:
            raise ChannelLost("the channel is closed")
        if isinstance(message, JoinGroup | ConsumerHeartbeat):
            message = message._replace(client_host=self._origin.client_host)
        answer: asyncio.Future[Any] = self._loop.create_future()
        slot = _ReplySlot(answer, self._pending)
        node = self._requests
        if node.interceptor is None:
            node.post(message, slot)
        else:
            node.ask(message, self._origin).on_done(slot.set_from_reply)
        return answer

    def close(self) -> None:
        self._is_closed = True
        self._requests.channels.pop(self, None)
        if self._requests.interceptor is not None:
            self._requests.interceptor.disconnected(self._origin)
        for slot in tuple(self._pending.values()):
            slot.fail(ChannelLost("the channel was closed"))


class _ReplySlot:
    """The reply slot of one request (``actors.engine_ports.ReplyTo``). A cancelled request drops its answer."""

    __slots__ = ("_answer", "_pending")

    def __init__(self, answer: asyncio.Future[Any], pending: dict[asyncio.Future[Any], _ReplySlot]) -> None:
        self._answer = answer
        self._pending = pending
        pending[answer] = self

    def set(self, value: Any = None) -> None:
        answer = self._answer
        self._pending.pop(answer, None)
        if not answer.done():
            answer.set_result(value)

    def set_exception(self, exc_info: Any = None) -> None:
        error = exc_info[1] if exc_info else None
        self.fail(ChannelLost(f"the coordinator could not answer: {error!r}"))

    def fail(self, error: ChannelLost) -> None:
        self._pending.pop(self._answer, None)
        if not self._answer.done():
            self._answer.set_exception(error)

    def set_from_reply(self, reply: Reply) -> None:
        """Set the answer from a reply that went through the interceptor."""
        try:
            self.set(reply.get(timeout=0))
        except Exception as error:
            self.fail(ChannelLost(f"the coordinator could not answer: {error!r}"))
