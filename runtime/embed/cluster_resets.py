"""ClusterResets: the records of resets of all nodes of a cluster. Each node keeps those that it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ..common.logs import get_logger
from ..kafka.codec.message_json import read_message, write_message
from ..kafka.node_subjects import ReadResets, ResetsRead
from ..kafka.questions import NotReached, OtherNode, Questions
from ..node.reset_records import ResetRecord, parse_record
from .node_resets import NodeResets

if TYPE_CHECKING:
    from ..node.node import Node

log = get_logger("callboard.cluster")


class Found(NamedTuple):
    """What the other nodes have. ``silent``: the ids of those that have not answered."""

    records: Sequence[ResetRecord]
    silent: Sequence[int]


class ClusterResets(NodeResets):
    """On one node. New records are kept there."""

    def __init__(self, node: Node, questions: Questions) -> None:
        super().__init__(node)
        self._questions = questions

    async def find(self, change_id: str) -> ResetRecord | None:
        """Raises CoordinatorError also if a node does not answer that may have the record."""
        own = await super().find(change_id)
        if own is not None:
            return own
        found = await self._ask_others(ReadResets("", change_id))
        if found.records:
            return found.records[0]
        if found.silent:
            raise _silent(f"change {change_id!r}", found.silent)
        return None

    async def of_group(self, group: str, *, needs_all: bool = False) -> list[ResetRecord]:
        """By the clocks of the nodes. Without ``needs_all`` a node that does not answer is left out."""
        own = await super().of_group(group)
        found = await self._ask_others(ReadResets(group))
        if needs_all and found.silent:
            raise _silent(f"resets of group {group!r}", found.silent)
        return sorted((*own, *found.records), key=lambda record: record.made_ms, reverse=True)

    async def _ask_others(self, message: ReadResets) -> Found:
        nodes = [node for node in self._questions.partitions() if not node.is_own]
        answers = await asyncio.gather(*(self._ask(node, message) for node in nodes))
        silent = [node.node_id for node, records in zip(nodes, answers, strict=True) if records is None]
        return Found([record for records in answers for record in records or ()], silent)

    async def _ask(self, node: OtherNode, message: ReadResets) -> list[ResetRecord] | None:
        """None if the node does not answer."""
        try:
            content = await self._questions.ask(node, "ReadResets", message.group_id, write_message(message), b"")
        except (CoordinatorError, NotReached) as error:
            log.info("records of resets are not known", reason=str(error))
            return None
        read: ResetsRead = await asyncio.to_thread(read_message, ResetsRead, content)
        return [record for record in map(parse_record, read.records) if record is not None]


def _silent(what: str, nodes: Sequence[int]) -> CoordinatorError:
    names = f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
    text = f"{what}: {names} of the cluster, which may have a record of it, does not answer: ask again in some seconds"
    return CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
