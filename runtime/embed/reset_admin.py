"""ResetAdmin: the admin methods that reset a running group, watch what becomes of it, and undo a reset."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.group.reset_messages import DescribeReset, ResetDescribed
from ..node.reset_records import ResetPartition, ResetRecord
from .arguments import check_group
from .in_pieces import map_in_pieces, run_in_pieces
from .reset_progress import Presence, progress_of
from .reset_targets import Chosen, describe_topics, fetch_offsets, resolve_targets
from .reset_undo import Now, UnknownChange, check_undo, later_resets
from .resets import change_of, make_reset, plan_reset
from .results import (
    GroupDescription,
    GroupReset,
    ResetChange,
    ResetProgress,
    ResetTargets,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    from .admin_requests import AdminRequests

WATCH_INTERVAL_S = 0.1
RETURN_TIMEOUT_S = 60.0


class ResetAdmin:
    """Of a coordinator, on its event loop."""

    def _requests(self) -> AdminRequests:
        raise NotImplementedError

    async def describe(self, group: str) -> GroupDescription:
        raise NotImplementedError

    async def evict_and_reset(
        self, group: str, targets: ResetTargets, *, reason: str = "", dry_run: bool = False
    ) -> GroupReset:
        """Remove all members of a group and set its offsets, as one durable change. Returns what was changed.

        A running consumer joins again and continues at the new offsets. What it has done since its last commit is done
        again. With ``dry_run`` nothing is changed. Offsets outside of a partition are moved to its nearest end. Raises
        CoordinatorError: GROUP_ID_NOT_FOUND for an unknown group, UNSTABLE_OFFSET_COMMIT while an open transaction has
        an offset of such a partition, INVALID_REQUEST for a target that the coordinator cannot know.
        """
        check_group(group)
        topics = await describe_topics(self._requests(), targets)
        chosen = await resolve_targets(self._requests(), group, targets, topics)
        ids = {name: topic.topic_id.hex for name, topic in topics.items()}
        return await self._reset(group, chosen, ids, reason, dry_run)

    async def undo_reset(self, change_id: str, *, reason: str = "", dry_run: bool = False) -> GroupReset:
        """Reset a group to what it had before an earlier reset. Raises CoordinatorError, also if that is not safe."""
        requests = self._requests()
        records = await requests.resets()
        record = await _known(requests, change_id)
        later = later_resets(record, await records.of_group(record.group, needs_all=True))
        topics = {name: await _topic(requests, name) for name in record.topic_ids}
        await run_in_pieces(check_undo(record, Now(later, await fetch_offsets(requests, record.group), topics)))
        chosen = dict(await map_in_pieces(_before, record.partitions))
        why = reason or f"undo of change {change_id}"
        return await self._reset(record.group, chosen, record.topic_ids, why, dry_run, change_id)

    async def _reset(
        self,
        group: str,
        chosen: Mapping[TopicPartition, Chosen],
        topic_ids: dict[str, str],
        reason: str,
        dry_run: bool,
        undoes: str = "",
    ) -> GroupReset:
        requests, described = self._requests(), await self.describe(group)
        if dry_run:
            return await plan_reset(requests, described, chosen)
        return await make_reset(requests, described, chosen, topic_ids, reason, undoes)

    # What has become of it -------------------------------------------------------------------------------------------

    async def resets(self, group: str) -> tuple[ResetChange, ...]:
        """The last resets of a group that were recorded, the newest first: of the last 100 of all groups."""
        check_group(group)
        records = await self._requests().resets()
        return tuple([await change_of(record) for record in await records.of_group(group)])

    async def reset_progress(self, change_id: str) -> ResetProgress:
        """Which members that a reset has removed are back, and which positions they have fetched."""
        requests = self._requests()
        record = await _known(requests, change_id)
        return await self._progress(requests, record)

    async def watch_reset(self, change_id: str, timeout_s: float = RETURN_TIMEOUT_S) -> ResetProgress:
        """Wait until all members that a reset has removed are back and have fetched their positions.

        After the time it returns who is not back. It does not raise TimeoutError.
        """
        if not timeout_s >= 0:
            raise ValueError(f"timeout_s={timeout_s!r}: expected a number of seconds >= 0")
        requests, loop = self._requests(), asyncio.get_running_loop()
        record, deadline_s = await _known(requests, change_id), loop.time() + timeout_s
        progress = await self._progress(requests, record)
        while not progress.is_complete and loop.time() < deadline_s:
            await asyncio.sleep(min(WATCH_INTERVAL_S, timeout_s))
            progress = await self._progress(requests, record)
        return progress

    async def _progress(self, requests: AdminRequests, record: ResetRecord) -> ResetProgress:
        reset: ResetDescribed = await requests.ask(DescribeReset(record.group))
        described: GroupDescription | None = None
        if reset.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            described = await self.describe(record.group)
        return progress_of(record, Presence(described, reset, (await requests.resets()).now_ms()))


def _before(each: ResetPartition) -> tuple[TopicPartition, Chosen]:
    return (each.topic, each.partition), Chosen(each.before)


async def _known(requests: AdminRequests, change_id: str) -> ResetRecord:
    """Raises UnknownChange."""
    record = await (await requests.resets()).find(change_id)
    if record is None:
        raise UnknownChange(change_id)
    return record


async def _topic(requests: AdminRequests, name: str) -> TopicDescription | None:
    try:
        return await requests.describe_topic(name)
    except CoordinatorError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise
