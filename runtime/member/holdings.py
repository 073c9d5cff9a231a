"""What a member holds at the moment, how it gets into the user's hands, and how it is taken out of them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from .work import Assignment, Owner, Shard, Stage, TopicPartition, unfinished

log = logging.getLogger("callboard.member")


class Holdings:
    """The shards that a member owns, by partition, and the Assignment that the user has."""

    __slots__ = (
        "_assignment",
        "_end",
        "_failure",
        "_has_lost",
        "_has_news",
        "_lingering",
        "_news",
        "_owner",
        "generation",
        "held",
    )

    def __init__(self, owner: Owner) -> None:
        self.held: dict[TopicPartition, Shard] = {}
        self.generation = -1
        self._owner = owner
        self._assignment: Assignment | None = None  # the last that was given to the user
        self._news = asyncio.Event()
        self._has_news = False
        self._has_lost = False  # something, since the user was last told of news
        self._lingering: set[asyncio.Future[Any]] = set()  # what still runs on shards that are gone
        self._failure: BaseException | None = None  # of something that ran on a shard; told once
        self._end: BaseException | None = None  # why there will never be work again

    async def next_assignment(self) -> Assignment:
        """What is held, as soon as it is another than what was given out last. Raises what has failed."""
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._end is not None:
                raise self._end
            if self._has_news:
                break
            self._news.clear()
            await self._news.wait()
        self._has_news = False
        before = set() if self._assignment is None else set(self._assignment.shards)
        shards = tuple(sorted(self.held.values(), key=_order))
        kept = tuple(shard for shard in shards if shard in before)
        self._assignment = Assignment(self._owner, self.generation, shards, kept)
        return self._assignment

    def acquire(self, shards: Sequence[Shard], generation: int) -> None:
        """These are held from now on. The user will hear of it, unless nothing has changed since the last time."""
        if not shards and not self._has_lost and self.generation >= 0:
            return
        self._has_lost = False
        self.held.update((shard.topic_partition, shard) for shard in shards)
        self.generation = generation
        self._end_work()
        self._has_news = True
        self._news.set()

    async def hand_back(self, partitions: Iterable[TopicPartition], until_s: float) -> None:
        """Stop what runs on these shards, and wait for its end, at most ``until_s`` on the loop's clock."""
        shards = [self.held[partition] for partition in partitions if partition in self.held]
        if not shards:
            return
        self._has_lost = True
        for shard in shards:
            shard.move_to(Stage.WANTED_BACK)
        pending = unfinished(shards) | self._end_work()
        await self._wait(pending, until_s, "handed back")
        for shard in shards:
            shard.move_to(Stage.GONE)
            if self.held.get(shard.topic_partition) is shard:
                del self.held[shard.topic_partition]

    def lose_all(self) -> None:
        """Nothing is held any more, from this moment."""
        shards = tuple(self.held.values())
        self.held = {}
        for shard in shards:
            shard.move_to(Stage.GONE)
        if shards:
            self._has_lost = True
            self._lingering |= unfinished(shards) | self._end_work()

    async def settle(self, until_s: float) -> None:
        """Wait for what still runs on shards that are gone, so that nothing runs twice on one that comes back."""
        pending = {one for one in self._lingering if not one.done()}
        self._lingering = set()
        await self._wait(pending, until_s, "lost")

    async def outlast(self, until_s: float) -> None:
        """The same, at most so long, and whoever calls ``settle`` later waits on."""
        self._lingering = {one for one in self._lingering if not one.done()}
        if self._lingering:
            await asyncio.wait(self._lingering, timeout=max(until_s - asyncio.get_running_loop().time(), 0))

    def fail(self, failure: BaseException) -> None:
        """Something that ran on a shard has failed: the user's work ends, and hears why."""
        if self._failure is None:
            self._failure = failure
        else:
            log.error("something more has failed on the work of a member", exc_info=failure)
        self._end_work()
        self._news.set()

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on what is held, or was."""
        return (
            worker in self._lingering
            or (self._assignment is not None and self._assignment.is_run_by(worker))
            or any(worker in shard.tasks for shard in self.held.values())
        )

    def tell_failures(self) -> None:
        """At the end: what nobody has heard of by ``next_assignment``."""
        if self._failure is not None:
            log.error("something has failed while a member handed its work back", exc_info=self._failure)

    def end(self, error: BaseException) -> None:
        """There will be no work any more."""
        self.lose_all()
        self._end = self._end or error
        self._news.set()

    def _end_work(self) -> set[asyncio.Future[Any]]:
        """The user's Assignment is over; what of it has not ended yet."""
        if self._assignment is None:
            return set()
        self._assignment.end()
        return self._assignment.unfinished()

    async def _wait(self, pending: set[asyncio.Future[Any]], until_s: float, what: str) -> None:
        if not pending:
            return
        allowed_s = max(until_s - asyncio.get_running_loop().time(), 0)
        _, late = await asyncio.wait(pending, timeout=allowed_s)
        if late:
            log.warning(
                "work that was %s has not ended within %.1f s, and is given up: %s; await what can be cancelled, and "
                "let blocking code look at shard.is_over",
                what,
                allowed_s,
                ", ".join(sorted(map(repr, late))),
            )


def _order(shard: Shard) -> tuple[str, bool, int | str]:
    return shard.resource, isinstance(shard.name, str), shard.name
