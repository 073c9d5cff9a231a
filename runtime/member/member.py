"""Member: one worker of a consumer group. This is the class that users work with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Self, Unpack

from ..common.context_forms import AsyncForm
from ..common.one_process import OfOneProcess
from ..engine.clock import boottime_s
from ..engine.completion import run_to_completion
from .channel import Connector
from .errors import HasLeft
from .offset_commit import commit_offset
from .options import MemberArguments, make_options
from .protocols import find_protocol
from .resources import check_text, evaluate_resources
from .shards import Assignment, CommitResult, Shard

log = logging.getLogger("callboard.member")

_RANDOM = SystemRandom()
"""For jitter, and for member ids, which must differ between processes that were forked."""


class Member(OfOneProcess, AsyncForm):
    """A member of ``group``: ``async with`` joins, its end releases the shards and leaves.

    ``options`` are those of ``MemberOptions``; a bad one raises ValueError. A member is entered once, on one event
    loop. ``assignments`` and ``run`` raise the errors of its background tasks. ``random``: for jitter and member ids.
    ``clock_s``: for the lease; must advance while the machine is suspended, and may be read in any thread.
    """

    def __init__(
        self,
        connector: Connector,
        group: str,
        *,
        random: Random | None = None,
        clock_s: Callable[[], float] = boottime_s,
        **options: Unpack[MemberArguments],
    ) -> None:
        if not isinstance(group, str) or not group:
            raise ValueError(f"group {group!r}: expected a name that is not empty, as in 'resize-images'")
        check_text("group", group)
        self._options = make_options(options)
        make_membership = find_protocol(self._options.protocol)
        self._membership = make_membership(connector, group, self._options, self, random or _RANDOM, clock_s)
        self._refresher: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._is_entered = False
        self._is_running = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def group_id(self) -> str:
        return self._membership.group_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator assigned, empty before the first join; in the consumer protocol its own id."""
        return self._membership.identity[0]

    @property
    def generation(self) -> int:
        """The generation of this member, or its epoch in the consumer protocol; -1 for none."""
        return self._membership.identity[1]

    @property
    def is_leader(self) -> bool:
        """Whether this member computed the last assignment. In the consumer protocol the coordinator does."""
        return self._membership.is_leader

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards owned at this moment."""
        return tuple(self._membership.owned.shards.values())

    async def __aenter__(self) -> Self:
        if self._leaving is not None or self._is_entered:
            raise RuntimeError("this member was entered before; make another one")
        self._is_entered = True
        try:
            resources = await evaluate_resources(self._options.resources)
        except BaseException:
            self._is_entered = False
            raise
        if self._leaving is not None:
            raise HasLeft(f"this member of group {self.group_id!r} left before it had joined; make another one")
        self._membership.start(resources)
        self._loop = asyncio.get_running_loop()
        self._refresher = self._loop.create_task(self._refresh())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_run_by(asyncio.current_task()):
            await self.leave()
        else:
            await run_to_completion(self.start_leaving())

    async def leave(self) -> None:
        """Cancel and await the tasks on the shards, release them, leave the group (a static member does not).

        A second call waits for the first. It continues if the caller is cancelled. A task on a shard may call it: the
        task is cancelled, and in its cleanup the call returns at once, since it would wait for its own end.
        """
        self._check_loop()
        leaving = self.start_leaving()
        caller = asyncio.current_task()
        if caller is None or not caller.cancelling() or not self.is_run_by(caller):
            await asyncio.shield(leaving)

    def start_leaving(self) -> asyncio.Task[None]:
        """Leave, unless that was done before. Returns the task that does it."""
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        return self._leaving

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on a shard that the member owns or owned."""
        return self._membership.owned.is_run_by(worker)

    async def _leave(self) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
        await self._membership.leave()
        self._membership.owned.log_failure()

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield an Assignment each time the shards have changed; end when the member leaves.

        Raises Fenced and MemberError if the member cannot continue, and the errors of tasks on the assignment.
        """
        with suppress(HasLeft):
            while True:
                assignment = await self.next_assignment()
                yield assignment

    async def next_assignment(self) -> Assignment:
        """Wait for the next of ``assignments``. Raises MemberError, also after the member has left."""
        if not self._is_entered and self._leaving is None:
            raise RuntimeError("this member has not joined yet: use it inside `async with`")
        self._check_loop()
        return await self._membership.owned.next_assignment()

    async def run(self, handler: Callable[[Shard], Coroutine[Any, Any, object]]) -> None:
        """Run a task ``handler(shard)`` for each shard; cancel and await it when the shard is revoked or lost.

        Tasks of other shards are not interrupted. Begins with the shards of the assignment that was returned last, if
        it is not over. Returns when the member leaves. If a handler fails, the member leaves the group, then its error
        is raised. Raises RuntimeError while another call runs.
        """
        if self._is_running:
            raise RuntimeError("run() of this member was called before, and would call a second handler for each shard")
        self._is_running = True
        running: set[Shard] = set()
        try:
            assignment = self._membership.owned.current_assignment()
            while True:
                assignment = assignment or await self.next_assignment()
                for shard in assignment.shards:
                    if shard not in running:
                        task = assignment.create_task(_start_handler(handler, shard), shard)
                        task.add_done_callback(partial(self._log_foreign_cancellation, shard))
                running, assignment = set(assignment.shards), None
        except HasLeft:
            return
        finally:
            self._is_running = False
            await self.leave()

    def _log_foreign_cancellation(self, shard: Shard, handler: asyncio.Task[object]) -> None:
        if handler.cancelled() and not shard.is_revoked and self._leaving is None:
            log.warning(
                "the handler of %r was cancelled, but not by the member: nothing works on this shard now", shard
            )

    def commit(self, shard: Shard, next_offset: int, note: str = "") -> Coroutine[Any, Any, CommitResult]:
        """See ``Shard.commit``."""
        return commit_offset(self._membership, self._check_loop, shard, next_offset, note)

    def _check_loop(self) -> None:
        """Raises RuntimeError on another event loop, which could not wait for the member's tasks and answers."""
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "this member joined on another event loop: await it there, as with asyncio.run_coroutine_threadsafe(), "
                "or use a member of Coordinator.in_thread() or connect_in_thread(), which any thread may call"
            )

    def report_failure(self, error: BaseException) -> None:
        """Called by Assignment if one of its tasks fails."""
        self._membership.owned.fail(error)

    def lease_left_s(self) -> float:
        """See ``Shard.lease_left_s``. May be called in any thread."""
        return self._membership.lease.left_s()

    async def _refresh(self) -> None:
        """Call the functions among the resources periodically; rejoin if a result has changed."""
        if not any(callable(amount) for amount in self._options.resources.values()):
            return
        level = logging.ERROR
        while True:
            await asyncio.sleep(self._options.refresh_interval_ms / 1000)
            try:
                resources = await evaluate_resources(self._options.resources)
                await self._membership.set_resources(resources)
            except Exception:
                text = "the resources of group %r could not be refreshed; they stay as they are"
                log.log(level, text, self.group_id, exc_info=True)
                level = logging.DEBUG  # the next failures: an outage would fill the log with tracebacks
            else:
                if level == logging.DEBUG:
                    log.info("the resources of group %r are refreshed again", self.group_id)
                level = logging.ERROR


def _start_handler(
    handler: Callable[[Shard], Coroutine[Any, Any, object]], shard: Shard
) -> Coroutine[Any, Any, object]:
    """Raises TypeError if ``handler`` is not a coroutine function."""
    coro: object = handler(shard) if callable(handler) else None  # a coroutine is used up by one shard
    if not asyncio.iscoroutine(coro):
        raise TypeError(f"handler {handler!r}: expected a coroutine function, as in `async def handle(shard): ...`")
    return coro
