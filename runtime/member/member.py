"""Member: one of those who share out resources among them. What a user of a group holds in hands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Self, Unpack

from .channel import Connector
from .commits import commit
from .errors import HasLeft
from .membership import Membership
from .named import check_text, find_wanted
from .terms import MemberArguments, make_options
from .work import Assignment, Progress, Shard

log = logging.getLogger("callboard.member")

_CHANCE = Random()
"""Spreads retries and first heartbeats in time, and nothing else."""


class Member:
    """A member of ``group``: ``async with`` joins, its end hands everything back and leaves.

    ``options`` are those of ``MemberOptions``. Raises ValueError for one that makes no sense. It lives on the loop on
    which it is entered, once. All that it does in the background is in its tasks; errors of theirs come out of
    ``assignments`` and ``run``. ``random`` is for retries that do not come all at once.
    """

    def __init__(
        self, connector: Connector, group: str, *, random: Random | None = None, **options: Unpack[MemberArguments]
    ) -> None:
        if not isinstance(group, str) or not group:
            raise ValueError(f"group {group!r}: expected a name that is not empty, as in 'resize-images'")
        check_text("group", group)
        self._options = make_options(options)
        self._membership = Membership(connector, group, self._options, self, random or _CHANCE)
        self._refresher: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._is_entered = False

    @property
    def group_id(self) -> str:
        return self._membership.group_id

    @property
    def member_id(self) -> str:
        """As the coordinator knows it; empty while it has given none."""
        return self._membership.identity[0]

    @property
    def generation(self) -> int:
        """The one that this member is in, -1 for none."""
        return self._membership.identity[1]

    @property
    def is_leader(self) -> bool:
        """Whether this member shared out the work last."""
        return self._membership.is_leader

    @property
    def shards(self) -> tuple[Shard, ...]:
        """What is held at this moment."""
        return tuple(self._membership.holdings.held.values())

    async def __aenter__(self) -> Self:
        if self._leaving is not None or self._is_entered:
            raise RuntimeError("this member was entered before; make another one")
        self._is_entered = True
        try:
            wanted = await find_wanted(self._options.resources)
        except BaseException:
            self._is_entered = False
            raise
        if self._leaving is not None:
            raise HasLeft(f"this member of group {self.group_id!r} left before it had begun; make another one")
        self._membership.start(wanted)
        self._refresher = asyncio.get_running_loop().create_task(self._refresh())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Cancel and await what runs on the work, hand it back, leave the group (a static member does not).

        A second call waits for the first. If the caller is cancelled, it goes on by itself. What runs on the work may
        call it too: it is cancelled there, and in its cleanup does not wait, since it would wait for its own end.
        """
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        caller = asyncio.current_task()
        if caller is None or not caller.cancelling() or not self.is_run_by(caller):
            await asyncio.shield(self._leaving)

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on what the member holds, or held."""
        return self._membership.holdings.is_run_by(worker)

    async def _leave(self) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
        await self._membership.leave()
        self._membership.holdings.tell_failures()

    async def assignments(self) -> AsyncIterator[Assignment]:
        """An Assignment each time what is held has changed; it ends when the member leaves.

        Raises Fenced and MemberError when it cannot go on, and the errors of tasks that ran on the assignment.
        """
        with suppress(HasLeft):
            while True:
                assignment = await self.next_assignment()
                yield assignment

    async def next_assignment(self) -> Assignment:
        """The next of ``assignments``. Raises MemberError, too, when the member has left."""
        if not self._is_entered and self._leaving is None:
            raise RuntimeError("this member does not take part yet: use it inside of `async with`")
        return await self._membership.holdings.next_assignment()

    async def run(self, handler: Callable[[Shard], Coroutine[Any, Any, object]]) -> None:
        """For each shard that is acquired a task ``handler(shard)``, cancelled and awaited when the shard goes.

        Shares that stay are not disturbed. Returns when the member leaves; an error of a handler is raised, after
        leaving the group.
        """
        served: set[Shard] = set()
        try:
            while True:
                assignment = await self.next_assignment()
                for shard in assignment.shards:
                    if shard not in served:
                        assignment.create_task(_begin(handler, shard), shard)
                served = set(assignment.shards)
        except HasLeft:
            return
        finally:
            await self.leave()

    def commit(self, shard: Shard, next_offset: int, note: str = "") -> Coroutine[Any, Any, Progress]:
        """See ``Shard.commit``."""
        return commit(self._membership, shard, next_offset, note)

    def has_failed(self, error: BaseException) -> None:
        """For the work: something that ran on it has failed."""
        self._membership.holdings.fail(error)

    async def _refresh(self) -> None:
        """Ask functions among the resources again and again; a change makes the member join again."""
        if not any(callable(amount) for amount in self._options.resources.values()):
            return
        while True:
            await asyncio.sleep(self._options.refresh_interval_ms / 1000)
            try:
                wanted = await find_wanted(self._options.resources)
                await self._membership.want(wanted)
            except Exception:
                log.exception("the resources of group %r could not be refreshed; they stay as they are", self.group_id)


def _begin(handler: Callable[[Shard], Coroutine[Any, Any, object]], shard: Shard) -> Coroutine[Any, Any, object]:
    """Raises TypeError for what is no coroutine function."""
    begun: object = handler(shard) if callable(handler) else handler
    if not asyncio.iscoroutine(begun):
        raise TypeError(f"handler {handler!r}: expected a coroutine function, as in `async def handle(shard): ...`")
    return begun
