"""The blocking API of a member, for programs with threads. The protocol runs on an event loop in another thread.

A thread cannot be cancelled, so it must check whether to stop. A handler of ``member.run`` works on one shard and
checks ``shard.is_revoked``. A body of ``with assignment:`` works on all shards and checks ``assignment.is_over``, which
is also true when only some of them move. Before other members get shards, the member waits for the end of both, at most
for the rebalance timeout.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from ..common.context_forms import BlockingForm
from ..common.one_process import OfOneProcess
from ..engine.clock import boottime_s
from ..engine.waiting import LoopClosed, is_of_parent, run_on_loop
from .channel import Connector
from .errors import HasLeft, MemberError, ShardLost
from .handler_threads import HandlerThreads
from .member import Member
from .options import MemberArguments
from .shards import Assignment, AssignmentBlock, CommitResult, Shard, ShardState

T = TypeVar("T")

LOOP_ENDED = "the event loop of this member has ended"


class LoopRunner:
    """Runs coroutines on a loop of another thread. ``check_caller`` raises RuntimeError where a wait cannot end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, check_caller: Callable[[], None]) -> None:
        self._loop = loop
        self._check_caller = check_caller

    @property
    def is_of_parent(self) -> bool:
        """Whether this process is a fork of that of the loop."""
        return is_of_parent(self._loop)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call a function on the loop, without waiting for it. Does nothing when the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def run(self, coro: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Wait for a result. Raises TimeoutError, MemberError when the loop has ended, and RuntimeError."""
        try:
            self._check_caller()
        except RuntimeError:
            coro.close()
            raise
        try:
            return run_on_loop(coro, self._loop, timeout_s)
        except (CancelledError, LoopClosed) as error:
            raise MemberError(LOOP_ENDED) from error


class BlockingShard:
    """The blocking form of ``Shard``. ``revoked`` and ``lost`` are ``threading.Event``s."""

    def __init__(self, shard: Shard, runner: LoopRunner) -> None:
        self.resource = shard.resource
        self.name = shard.name
        self.token = shard.token
        self.revoked = threading.Event()
        self.lost = threading.Event()
        self._shard = shard
        self._runner = runner
        shard.on_state_change = self._on_state_change
        self._on_state_change(shard.state)

    def __repr__(self) -> str:
        return repr(self._shard)

    @property
    def next_offset(self) -> int | None:
        return self._shard.next_offset

    @property
    def note(self) -> str:
        return self._shard.note

    @property
    def is_revoked(self) -> bool:
        """Whether to stop work on it: it is being revoked, or is lost."""
        return self._shard.is_revoked

    @property
    def is_lost(self) -> bool:
        """Whether the member does not own it any more: commits raise ShardLost. See ``Shard.is_lost``."""
        return self._shard.is_lost

    @property
    def lease_left_s(self) -> float:
        """See ``Shard.lease_left_s``."""
        return self._shard.lease_left_s

    def commit(self, next_offset: int, note: str = "") -> CommitResult:
        """See ``Shard.commit``."""
        return self._runner.run(self._shard.commit(next_offset, note))

    def _on_state_change(self, state: ShardState) -> None:
        if state is not ShardState.OWNED:
            self.revoked.set()
        if state is ShardState.LOST:
            self.lost.set()


class BlockingAssignment:
    """The blocking form of ``Assignment``. Work on its shards inside ``with assignment:``.

    ``over`` is set when the assignment is over.
    """

    def __init__(self, assignment: Assignment, shards: dict[Shard, BlockingShard], runner: LoopRunner) -> None:
        self.generation = assignment.generation
        self.shards = tuple(shards[shard] for shard in assignment.shards)
        self.acquired = tuple(shards[shard] for shard in assignment.acquired)
        self.kept = tuple(shards[shard] for shard in assignment.kept)
        self.over = threading.Event()
        self._assignment = assignment
        self._runner = runner
        self._block: AssignmentBlock | None = None

    @property
    def is_over(self) -> bool:
        return self._assignment.is_over

    def shard(self, resource: str, name: int | str) -> BlockingShard:
        """Find a shard of this assignment. Raises KeyError if it has none with this name."""
        return self.shards[self._assignment.shards.index(self._assignment.shard(resource, name))]

    def commit(self, shard: BlockingShard, next_offset: int, note: str = "") -> CommitResult:
        """See ``Shard.commit``."""
        return shard.commit(next_offset, note)

    def __enter__(self) -> Self:
        self._block = self._runner.run(self._enter(threading.current_thread()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._block is not None, "not entered"
        self._runner.run(self._leave(self._block))
        return isinstance(error, ShardLost) and self._assignment.is_over

    async def _enter(self, worker: threading.Thread) -> AssignmentBlock:
        return self._assignment.enter(self.over.set, worker)

    async def _leave(self, block: AssignmentBlock) -> None:
        self._assignment.leave(block)


class BlockingMember(OfOneProcess, BlockingForm):
    """``Member`` for threads: ``with``, then ``member.run(handler)``, or ``for assignment in member.assignments()``.

    ``loop``: runs in another thread, for as long as the member is used. ``check_caller``: see ``LoopRunner``.
    """

    def __init__(
        self,
        connector: Connector,
        group: str,
        *,
        loop: asyncio.AbstractEventLoop,
        check_caller: Callable[[], None] = lambda: None,
        random: Random | None = None,
        clock_s: Callable[[], float] = boottime_s,
        **options: Unpack[MemberArguments],
    ) -> None:
        self._runner = LoopRunner(loop, check_caller)
        self._member = Member(connector, group, random=random, clock_s=clock_s, **options)
        self._shards: dict[Shard, BlockingShard] = {}
        self._undelivered: BlockingAssignment | None = None  # its caller may have been interrupted, or timed out
        self._handler_threads = HandlerThreads()
        self._calls: set[asyncio.Task[Any]] = set()  # other threads wait for them; they end when the member has left
        self._has_left = False  # set before the loop ends

    @property
    def group_id(self) -> str:
        return self._member.group_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator assigned; empty before the first join."""
        return self._member.member_id

    @property
    def generation(self) -> int:
        """The generation of this member, -1 for none."""
        return self._member.generation

    @property
    def is_leader(self) -> bool:
        return self._member.is_leader

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards owned at this moment, for inspection; work on those of ``next_assignment``."""
        return self._member.shards

    def __enter__(self) -> Self:
        self._runner.run(self._member.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the shards and leave the group. Raises RuntimeError inside ``with assignment:``.

        In a handler of ``run`` it returns at once, since it would wait for its own end. All shards are then revoked,
        and ``run`` returns when all handlers have ended. Does nothing in a forked process, which has no member.
        """
        if self._runner.is_of_parent:
            return
        try:
            self._runner.run(self._call(partial(self._leave, threading.current_thread())))
        except MemberError:
            if not self._has_left:  # it leaves before its loop ends
                raise

    def start_leaving(self) -> None:
        """Leave without waiting for it, for example in a signal handler. ``run`` returns when all handlers ended."""
        self._runner.call_soon(self._member.start_leaving)

    async def leave_on_loop(self) -> None:
        """``leave``, on the loop, before it ends. Also waits for the calls that other threads wait for."""
        await self._member.leave()
        self._has_left = True
        if self._calls:
            await asyncio.wait(self._calls)

    def has_work_in(self, thread: threading.Thread) -> bool:
        """Whether the thread runs a handler, or is inside ``with assignment:``. Called on the loop."""
        return thread in self._handler_threads or self._member.is_run_by(thread)

    async def _leave(self, caller: threading.Thread) -> None:
        if caller in self._handler_threads:
            self._member.start_leaving()
            return
        if self._member.is_run_by(caller):
            raise RuntimeError(
                "leave() waits for the end of the `with assignment:` that it is called in: call it after that"
            )
        await self._member.leave()

    def run(self, handler: Callable[[BlockingShard], object]) -> None:
        """Call ``handler(shard)`` for each shard, in a thread of its own. Returns when the member has left.

        The handler must return soon after ``shard.is_revoked`` becomes true; only then other members get the shard.
        Handlers of shards that stay with the member are not interrupted. If a handler fails, the member leaves the
        group, then its error is raised here. Raises Fenced and MemberError if the member cannot continue, and TypeError
        for a coroutine function.
        """
        if not callable(handler) or inspect.iscoroutinefunction(handler):
            raise _wrong_handler(handler)
        self._runner.run(self._call(partial(self._member.run, partial(self._run_handler, handler))))

    async def _run_handler(self, handler: Callable[[BlockingShard], object], shard: Shard) -> None:
        blocking = self._shards.get(shard) or BlockingShard(shard, self._runner)
        await self._handler_threads.run(partial(_call_handler, handler, blocking), shard)

    def assignments(self) -> Iterator[BlockingAssignment]:
        """Yield an assignment each time the shards have changed; end when the member leaves.

        Raises Fenced and MemberError when the member cannot go on.
        """
        with suppress(HasLeft):
            while True:
                assignment = self.next_assignment()
                yield assignment

    def next_assignment(self, timeout_s: float | None = None) -> BlockingAssignment:
        """Wait for the next of ``assignments``. Raises TimeoutError; the next call then waits for the same one."""
        assignment = self._runner.run(self._call(self._next_assignment), timeout_s)
        self._undelivered = None
        return assignment

    async def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        call = asyncio.current_task()
        assert call is not None, "run_on_loop makes a task"
        self._calls.add(call)
        try:
            return await function()
        finally:
            self._calls.discard(call)

    async def _next_assignment(self) -> BlockingAssignment:
        if self._undelivered is None:
            assignment = await self._member.next_assignment()
            self._shards = {
                shard: self._shards.get(shard) or BlockingShard(shard, self._runner) for shard in assignment.shards
            }
            self._undelivered = BlockingAssignment(assignment, self._shards, self._runner)
        return self._undelivered


def _call_handler(handler: Callable[[BlockingShard], object], shard: BlockingShard) -> None:
    """Raises TypeError for a result that nobody would run, as that of a lambda which calls a coroutine function."""
    result = handler(shard)
    if inspect.iscoroutine(result):
        result.close()
        raise _wrong_handler(handler)


def _wrong_handler(handler: object) -> TypeError:
    return TypeError(
        f"handler {handler!r}: expected a function that blocks, as in `def handle(shard): ...`; coroutine "
        f"functions are for a member of callboard.connect() or Coordinator"
    )
