"""ForwardedRequests: the admin methods' requests on a node of a cluster, which asks the owner of each group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import ExplainGroup, GroupRequest
from ...actors.recorder.recorded import GroupRecorded
from ..common.logs import get_logger
from ..kafka.audit.group_changes import CHANGING
from ..kafka.codec.message_json import read_message, write_message
from ..kafka.node_subjects import (
    SUBJECTS,
    FindOffsets,
    LastRebalance,
    OffsetsFound,
    ReadRebalances,
    ReadTopics,
    RebalancesRead,
    TopicsRead,
)
from ..kafka.questions import NotReached, OtherNode, Questions
from ..node.group_figures import TopicRange, TopicRanges
from .admin_requests import Recorded
from .audited_requests import METHODS, asked_by
from .cluster_resets import ClusterResets
from .node_requests import NodeRequests
from .node_resets import NodeResets
from .results import PartitionRange, TopicDescription

log = get_logger("callboard.cluster")

if TYPE_CHECKING:
    from ..node.node import Node

ATTEMPTS: Final = 2
RETRY_PAUSE_S: Final = 0.2
"""A partition that moves has its next owner after some tenths of a second."""

ANSWER_S: Final = 1.7
"""For both attempts. Who asks over HTTP gets an answer within two seconds."""

NOT_HANDLED: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # the other node knows another register
    )
)
"""Errors of nodes that have not changed the group, so that a change may be sent again."""

MOVING: Final = NOT_HANDLED | {ErrorCode.COORDINATOR_NOT_AVAILABLE}


class ForwardedRequests(NodeRequests):
    """``AdminRequests`` of a node that is asked about any group. Topics are known to all nodes."""

    def __init__(self, node: Node, questions: Questions) -> None:
        super().__init__(node)
        self._questions = questions

    async def ask(self, message: GroupRequest) -> Any:
        subject = SUBJECTS.get(type(message).__name__)
        if subject is None:
            return await super().ask(message)
        here = partial(super().ask, message)
        return await self._at_owner(message, here, partial(self._forward, message, subject.reply))

    async def _recorded(self, group: str) -> Recorded:
        there = partial(self._forward, ExplainGroup(group), GroupRecorded)
        answer = await self._at_owner(ExplainGroup(group), partial(super()._recorded, group), there)
        if isinstance(answer, Recorded):
            return answer
        if answer.error:
            raise CoordinatorError(answer.error, f"group {group!r}: {answer.error.name}")
        return Recorded(answer.records, answer.now)

    async def last_rebalances(self, groups: Sequence[str]) -> Mapping[str, LastRebalance]:
        """Without those of a node that does not answer."""
        by_owner: dict[OtherNode, list[str]] = {}
        for group in groups:
            owner = self._questions.owner(group)
            if owner is not None:
                by_owner.setdefault(owner, []).append(group)
        found = await asyncio.gather(*(self._last_rebalances_at(owner, own) for owner, own in by_owner.items()))
        return {group: last for each in found for group, last in each.items()}

    async def _last_rebalances_at(self, owner: OtherNode, groups: Sequence[str]) -> Mapping[str, LastRebalance]:
        if owner.is_own:
            return await super().last_rebalances(groups)
        try:
            message = write_message(ReadRebalances(tuple(groups)))
            content = await self._questions.ask(owner, "ReadRebalances", "", message, b"")
        except (CoordinatorError, NotReached) as error:
            log.info("the last rebalances of groups are not known", reason=str(error))
            return {}
        read: RebalancesRead = read_message(RebalancesRead, content)
        return {each.group: each for each in read.rebalances}

    async def resets(self) -> NodeResets:
        return ClusterResets(await self.loaded(), self._questions)

    # Topics ----------------------------------------------------------------------------------------------------------

    async def ranges(self, names: Iterable[str]) -> TopicRanges:
        """Without those of a topic whose leader does not answer."""
        by_leader: dict[OtherNode, list[str]] = {}
        for name in names:
            leader = self._questions.leader(name)
            if leader is not None:
                by_leader.setdefault(leader, []).append(name)
        found = await asyncio.gather(*(self._ranges_at(leader, topics) for leader, topics in by_leader.items()))
        return {name: offsets for ranges in found for name, offsets in ranges.items()}

    async def _ranges_at(self, leader: OtherNode, names: Sequence[str]) -> TopicRanges:
        if leader.is_own:
            return await super().ranges(names)
        try:
            content = await self._questions.ask(leader, "ReadTopics", "", write_message(ReadTopics(tuple(names))), b"")
        except (CoordinatorError, NotReached) as error:
            log.info("the offsets of topics are not known", reason=str(error))
            return {}
        return ranges_of(content)

    async def offsets_since(self, name: str, numbers: Sequence[int], time_ms: int) -> Mapping[int, int]:
        leader = self._questions.leader(name)
        if leader is not None and leader.is_own:
            return await super().offsets_since(name, numbers, time_ms)
        await super().describe_topic(name)  # it raises if there is no such topic
        found = OffsetsFound(None)
        if leader is not None:
            message = write_message(FindOffsets(name, time_ms))
            try:
                content = await self._questions.ask(leader, "FindOffsets", "", message, b"")
            except NotReached as error:
                raise _no_leader(name) from error
            found = read_message(OffsetsFound, content)
        if found.offsets is None:
            raise _no_leader(name)
        return dict(found.offsets)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Raises CoordinatorError also if its leader does not answer."""
        return (await self._with_ranges([await super().describe_topic(name)]))[0]

    async def topics(self) -> Sequence[TopicDescription]:
        return await self._with_ranges(await super().topics())

    async def _with_ranges(self, topics: Sequence[TopicDescription]) -> Sequence[TopicDescription]:
        ranges = await self.ranges([topic.name for topic in topics if not topic.is_internal])
        missing = next((topic.name for topic in topics if not topic.is_internal and topic.name not in ranges), None)
        if missing is not None:
            raise _no_leader(missing)
        return [topic if topic.is_internal else _with_range(topic, ranges[topic.name]) for topic in topics]

    # Groups ----------------------------------------------------------------------------------------------------------

    async def _at_owner(
        self,
        message: GroupRequest,
        here: Callable[[], Awaitable[Any]],
        there: Callable[[OtherNode], Awaitable[Any]],
    ) -> Any:
        """Ask the owner, and once more if the partition moves meanwhile. Raises CoordinatorError."""
        problem = ""
        is_change = type(message) in CHANGING and not getattr(message, "is_plan", False)
        try:
            async with asyncio.timeout(ANSWER_S):
                for attempt in range(ATTEMPTS):
                    await asyncio.sleep(attempt * RETRY_PAUSE_S)
                    owner = self._questions.owner(message.group_id)
                    if owner is None or (owner.is_own and not self._questions.has_lease()):
                        problem = "no node owns its partition"
                        continue
                    problem = f"node {owner.node_id} has not answered within {ANSWER_S} s"
                    answer = await _attempt(partial(here) if owner.is_own else partial(there, owner), is_change)
                    if not isinstance(answer, Problem):
                        return answer
                    problem = answer
        except TimeoutError:
            problem += "; the change may still be made" if is_change else ""
        raise _unavailable(message.group_id, problem)

    async def _forward(self, message: GroupRequest, reply: Any, owner: OtherNode) -> Any:
        name, group = type(message).__name__, message.group_id
        caller = asked_by(METHODS.get(type(message), ""))
        caller = caller._replace(asked=caller.asked._replace(asked_on=self._node.services.cluster.node_id))
        content = await self._questions.ask(owner, name, group, write_message(message), write_message(caller))
        return read_message(reply, content)


def ranges_of(content: bytes) -> TopicRanges:
    """In the answer to ReadTopics."""
    read: TopicsRead = read_message(TopicsRead, content)
    return {name: TopicRange(starts, ends) for name, starts, ends in read.topics}


def _with_range(topic: TopicDescription, known: TopicRange) -> TopicDescription:
    return replace(topic, partitions=tuple(map(PartitionRange, known.starts, known.ends)))


def _no_leader(topic: str) -> CoordinatorError:
    text = f"topic {topic!r}: the node that leads it does not answer: ask again in some seconds"
    return CoordinatorError(ErrorCode.LEADER_NOT_AVAILABLE, text)


class Problem(str):
    """Why the owner of a group was not found, or has not answered."""


async def _attempt(ask: Callable[[], Awaitable[Any]], is_change: bool) -> Any:
    """The answer, or a Problem after which the owner is asked again. Raises CoordinatorError."""
    try:
        answer = await ask()
    except NotReached as error:
        if is_change and error.was_sent:
            text = f"{error}; the change may have been made: look before you repeat it"
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from error
        return Problem(error)
    except CoordinatorError as error:
        if error.code not in (NOT_HANDLED if is_change else MOVING):
            raise
        return Problem(error)
    code = error_of_reply(answer)
    return Problem(code.name) if code in (NOT_HANDLED if is_change else MOVING) else answer


def error_of_reply(reply: Any) -> ErrorCode:
    """The error code of an answer about a group: of the whole, or the first of a commit."""
    if isinstance(reply, ErrorCode):
        return reply
    errors = getattr(reply, "errors", None)
    error: ErrorCode = getattr(reply, "error", ErrorCode.NONE) if errors is None else next(iter(errors), ErrorCode.NONE)
    return error


def _unavailable(group: str, problem: str) -> CoordinatorError:
    text = f"group {group!r} is between two nodes of the cluster, or its node does not answer ({problem})"
    return CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{text}: ask again in some seconds")
