"""The shards that a member owns. Gives them to the user as an Assignment, and revokes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from .member_log import MemberLog
from .shards import Assignment, Shard, ShardOwner, ShardState, TopicPartition, unfinished_tasks

log = logging.getLogger("callboard.member")


SLOW_S = 5.0
"""Work that takes longer to end is logged, because the rebalance waits for it."""

ADVICE = (
    "use code that can be cancelled; blocking code must check assignment.is_over inside `with assignment:`, and "
    "shard.is_revoked in a handler of member.run()"
)


class OwnedShards:
    """The shards that a member owns, by partition, and the Assignment that the user has."""

    __slots__ = (
        "_assignment",
        "_changed",
        "_end",
        "_failure",
        "_has_changed",
        "_has_released",
        "_log",
        "_owner",
        "_running_on_lost",
        "generation",
        "shards",
    )

    def __init__(self, owner: ShardOwner, member_log: MemberLog) -> None:
        self.shards: dict[TopicPartition, Shard] = {}
        self.generation = -1
        self._owner = owner
        self._log = member_log
        self._assignment: Assignment | None = None  # the last one that next_assignment() returned
        self._changed = asyncio.Event()
        self._has_changed = False
        self._has_released = False  # a shard was released since the user's last assignment
        self._running_on_lost: set[asyncio.Future[Any]] = set()  # tasks that still run on lost shards
        self._failure: BaseException | None = None  # the error of a task on a shard; raised once
        self._end: BaseException | None = None  # why there will be no further assignment

    async def next_assignment(self) -> Assignment:
        """Wait for a change, then return all owned shards. Raises the error of a task that failed."""
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._end is not None:
                raise self._end
            if self._has_changed:
                break
            self._changed.clear()
            await self._changed.wait()
        self._has_changed = False
        before = set() if self._assignment is None else set(self._assignment.shards)
        shards = tuple(sorted(self.shards.values(), key=_sort_key))
        kept = tuple(shard for shard in shards if shard in before)
        self._assignment = Assignment(self._owner, self.generation, shards, kept)
        return self._assignment

    def current_assignment(self) -> Assignment | None:
        """The one that ``next_assignment`` returned last, unless it is over."""
        return None if self._assignment is None or self._assignment.is_over else self._assignment

    def new_shard(self, partition: TopicPartition, resource: str, name: int | str, token: int) -> Shard:
        """Create a shard that ``add`` may add. ``token``: the generation that assigned it."""
        return Shard(self._owner, resource, name, partition, token)

    def add(self, shards: Sequence[Shard], generation: int) -> None:
        """Add shards. The user gets a new assignment, unless nothing has changed since the last one."""
        if not shards and not self._has_released and self.generation >= 0:
            return
        self._has_released = False
        self.shards.update((shard.topic_partition, shard) for shard in shards)
        self.generation = generation
        self._end_assignment()
        self._has_changed = True
        self._changed.set()
        self._log.assigned(shards, len(self.shards))

    async def revoke(self, partitions: Iterable[TopicPartition], allowed_s: float) -> None:
        """Cancel the tasks on these shards, await them for at most ``allowed_s``, remove the shards."""
        shards = [self.shards[partition] for partition in partitions if partition in self.shards]
        if not shards:
            return
        self._has_released = True
        for shard in shards:
            shard.set_state(ShardState.REVOKED)
        pending = unfinished_tasks(shards) | self._end_assignment()
        await self._wait_and_warn(pending, allowed_s, "revoked")
        for shard in shards:
            shard.set_state(ShardState.LOST)
            if self.shards.get(shard.topic_partition) is shard:
                del self.shards[shard.topic_partition]
        self._log.revoked(shards, len(self.shards))

    def lose_all(self, reason: str) -> None:
        """Remove all shards at once."""
        shards = tuple(self.shards.values())
        self._log.lost(shards, reason)
        self.shards = {}
        for shard in shards:
            shard.set_state(ShardState.LOST)
        if shards:
            self._has_released = True
            self._running_on_lost |= unfinished_tasks(shards) | self._end_assignment()

    async def wait_for_lost(self, allowed_s: float) -> None:
        """Wait for tasks that still run on lost shards, so that no two run on a shard that returns."""
        pending = {task for task in self._running_on_lost if not task.done()}
        self._running_on_lost = set()
        await self._wait_and_warn(pending, allowed_s, "lost")

    async def wait_for_lost_at_most(self, allowed_s: float) -> None:
        """The same, without a warning. A later ``wait_for_lost`` waits for the rest."""
        self._running_on_lost = {task for task in self._running_on_lost if not task.done()}
        if self._running_on_lost:
            await asyncio.wait(self._running_on_lost, timeout=max(allowed_s, 0))

    def fail(self, failure: BaseException) -> None:
        """A task on a shard has failed: end the assignment and raise the error to the user."""
        if self._failure is None:
            self._failure = failure
        else:
            log.error("another task on a member's shards has failed", exc_info=failure)
        self._end_assignment()
        self._changed.set()

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on a shard that the member owns or owned."""
        return (
            worker in self._running_on_lost
            or (self._assignment is not None and self._assignment.is_run_by(worker))
            or any(worker in shard.tasks for shard in self.shards.values())
        )

    def log_failure(self) -> None:
        """Log a failure that ``next_assignment`` has not raised."""
        if self._failure is not None:
            log.error("a task on a member's shards has failed while they were revoked", exc_info=self._failure)

    def end(self, error: BaseException) -> None:
        """Remove all shards; ``next_assignment`` raises ``error`` from now on."""
        self.lose_all(str(error))
        self._end = self._end or error
        self._changed.set()

    def _end_assignment(self) -> set[asyncio.Future[Any]]:
        """End the user's assignment. Returns its unfinished tasks."""
        if self._assignment is None:
            return set()
        self._assignment.end()
        return self._assignment.unfinished_tasks()

    async def _wait_and_warn(self, pending: set[asyncio.Future[Any]], allowed_s: float, reason: str) -> None:
        if not pending:
            return
        _, late = await asyncio.wait(pending, timeout=min(allowed_s, SLOW_S))
        if late and allowed_s > SLOW_S:
            log.warning(
                "work on %s shards has not ended within %.1f s; other members wait for it; %s", reason, SLOW_S, ADVICE
            )
            _, late = await asyncio.wait(late, timeout=allowed_s - SLOW_S)
        if late:
            log.warning(
                "work on %s shards has not ended within %.1f s; the next owner may begin: %s; %s",
                reason,
                allowed_s,
                ", ".join(sorted(map(repr, late))),
                ADVICE,
            )


def _sort_key(shard: Shard) -> tuple[str, bool, int | str]:
    return shard.resource, isinstance(shard.name, str), shard.name
