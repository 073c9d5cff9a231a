"""Shard: one partition or name that a member owns. Assignment: all its shards at one time.

A shard leaves its member in one of two ways. In both, the tasks on it are cancelled. A shard that is *revoked*
accepts commits until everything on it has ended. A shard that is *lost* accepts none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from .errors import ShardLost

T = TypeVar("T")
TopicPartition = tuple[str, int]
"""A topic and a partition."""

Tasks = dict[asyncio.Task[Any], None]
"""A set in creation order, so that a simulation cancels tasks in the same order each time."""


class CommitResult(NamedTuple):
    """The result of a commit.

    ``durability``: "synced" survives a power loss, "written" the end of the coordinator's process. "" over TCP, where
    the protocol has no such field and the server's ``--sync`` decides.
    """

    durability: str


class ShardState(IntEnum):
    OWNED = 0
    REVOKED = 1  # stop; commits are still accepted
    LOST = 2  # commits are refused


class ShardOwner(Protocol):
    """The member that owns the shards."""

    def commit(self, shard: Shard, next_offset: int, note: str) -> Coroutine[Any, Any, CommitResult]: ...

    def report_failure(self, error: BaseException) -> None:
        """A task on a shard or an assignment has failed."""

    def lease_left_s(self) -> float:
        """The time until the end of the lease, 0 after it. May be called in any thread."""


class Shard:
    """One partition of a numbered resource, or one name, that this member owns.

    ``token`` is the generation in which the member got the shard. It grows with each change of owner, so a store that
    remembers the greatest token can refuse writes of former owners.

    ``next_offset`` is the offset that the group committed last for this shard: the first item that is not done yet, as
    in Kafka. None if the group has no committed offset; the caller then decides where to begin (``shard.next_offset or
    0``). ``note`` is the text that was committed with it, "" if none.
    """

    __slots__ = (
        *("_lost", "_owner", "_revoked", "_state", "on_state_change"),
        *(
            "acknowledged",
            "latest_commit",
            "name",
            "next_offset",
            "note",
            "resource",
            "tasks",
            "token",
            "topic_partition",
        ),
    )

    def __init__(
        self, owner: ShardOwner, resource: str, name: int | str, topic_partition: TopicPartition, token: int
    ) -> None:
        self.resource = resource
        self.name = name
        self.topic_partition = topic_partition
        self.token = token
        self.next_offset: int | None = None
        self.note = ""
        self.tasks: Tasks = {}
        self._owner = owner
        self._state = ShardState.OWNED
        self._revoked: asyncio.Event | None = None
        self._lost: asyncio.Event | None = None
        self.on_state_change: Callable[[ShardState], None] | None = None  # called after each change of the state
        self.latest_commit = 0, 0, ""  # the commit begun last: its number, offset and note
        self.acknowledged = 0, CommitResult("")  # the latest acknowledged commit: its number and result

    def __repr__(self) -> str:
        return f"Shard({self.resource!r}, {self.name!r}, token={self.token}, {self._state.name.lower()})"

    @property
    def number(self) -> int:
        """The number of a numbered shard. Raises TypeError for a named one."""
        if isinstance(self.name, int):
            return self.name
        raise TypeError(f"{self!r} has a name and no number; use shard.name")

    @property
    def state(self) -> ShardState:
        return self._state

    @property
    def is_revoked(self) -> bool:
        """Whether to stop work on it: it is being revoked, or is lost."""
        return self._state is not ShardState.OWNED or self.is_lost

    @property
    def is_lost(self) -> bool:
        """Whether the member does not own it any more: commits raise ShardLost, and another member may own it.

        Compares the lease's deadline with the clock. So it is true as soon as the lease is over, also if the process
        was stopped or its event loop blocked. ``lost`` is set, and tasks are cancelled, when the event loop runs next.
        """
        return self._state is ShardState.LOST or self._owner.lease_left_s() <= 0

    @property
    def lease_left_s(self) -> float:
        """Seconds for which the member may work on it without an answer from the coordinator; 0 when it is lost.

        Each answered heartbeat extends them to about ``session_timeout_ms`` minus ``lease_margin_ms``.
        """
        return 0.0 if self._state is ShardState.LOST else self._owner.lease_left_s()

    @property
    def revoked(self) -> asyncio.Event:
        """Set when the shard is being revoked, or is lost."""
        self._revoked = _make_event(self._revoked, self._state is not ShardState.OWNED)
        return self._revoked

    @property
    def lost(self) -> asyncio.Event:
        """Set when the shard is lost."""
        self._lost = _make_event(self._lost, self._state is ShardState.LOST)
        return self._lost

    def commit(self, next_offset: int, note: str = "") -> Coroutine[Any, Any, CommitResult]:
        """Commit the offset of the next item to process, as Kafka's consumers do: after item 42, ``commit(43)``.

        The next owner of the shard begins there. Retries through rebalances and restarts of the coordinator while the
        shard is owned. If several commits overlap, the one that was begun last wins. ``next_offset``: 0 to 2**63-1.
        ``note``: text, at most ``offset_metadata_max_bytes``. Raises ShardLost, CommitRefused, ValueError;
        RuntimeError on another event loop than the member's.
        """
        return self._owner.commit(self, next_offset, note)

    def set_state(self, state: ShardState) -> None:
        """Called by the member: move to a later state. Cancels the tasks on the shard."""
        if state <= self._state:
            return
        self._state = state
        for task in tuple(self.tasks):
            task.cancel()
        if self._revoked is not None:
            self._revoked.set()
        if self._lost is not None and state is ShardState.LOST:
            self._lost.set()
        if self.on_state_change is not None:
            self.on_state_change(state)


class AssignmentBlock:
    """A block that works on an Assignment: the body of ``async with``, or of ``with`` in a thread.

    ``stop`` is called when the assignment is over, ``done`` is set at the end of the block. ``worker``: task or thread.
    """

    __slots__ = ("done", "stop", "worker")

    def __init__(self, stop: Callable[[], object], done: asyncio.Future[None], worker: object) -> None:
        self.stop = stop
        self.done = done
        self.worker = worker


class Assignment:
    """All shards that a member owns, from one change to the next. Made by ``Member.assignments``.

    ``acquired``: shards that were not in the assignment before; ``kept``: those that were. ``async with assignment:``
    runs a body that is cancelled, without an error outside, when the assignment is over: shards were added, are revoked
    or lost. The member waits for the end of the body before it releases shards, and the body may commit until then.
    """

    def __init__(self, owner: ShardOwner, generation: int, shards: tuple[Shard, ...], kept: tuple[Shard, ...]) -> None:
        self.generation = generation
        self.shards = shards
        self.kept = kept
        before = set(kept)
        self.acquired = tuple(shard for shard in shards if shard not in before)
        self._has_ended = False
        self.blocks: list[AssignmentBlock] = []
        self.tasks: Tasks = {}
        self._owner = owner
        self._over: asyncio.Event | None = None
        self._async_block: _AsyncBlock | None = None

    def __repr__(self) -> str:
        return f"Assignment(generation={self.generation}, shards={self.shards!r})"

    def shard(self, resource: str, name: int | str) -> Shard:
        """Find a shard of this assignment. Raises KeyError if it has none with this name."""
        for shard in self.shards:
            if shard.resource == resource and shard.name == name:
                return shard
        raise KeyError(
            f"{resource!r}, {name!r} is no shard of this assignment, which has {[shard.name for shard in self.shards]}"
        )

    @property
    def is_over(self) -> bool:
        """Whether shards were added, are revoked or lost. True as soon as the lease is over, as ``Shard.is_lost``."""
        return self._has_ended or any(shard.is_lost for shard in self.shards[:1])

    @property
    def over(self) -> asyncio.Event:
        """Set when the assignment is over."""
        self._over = _make_event(self._over, self._has_ended)
        return self._over

    def commit(self, shard: Shard, next_offset: int, note: str = "") -> Coroutine[Any, Any, CommitResult]:
        """See ``Shard.commit``."""
        return self._owner.commit(shard, next_offset, note)

    def create_task(self, coro: Coroutine[Any, Any, T], shard: Shard | None = None) -> asyncio.Task[T]:
        """Run a coroutine while the member owns ``shard``; without ``shard``, until this assignment is over.

        It is then cancelled and awaited. If it fails, the assignment ends and ``assignments`` raises its error.
        """
        tasks = self.tasks if shard is None else shard.tasks
        task = asyncio.get_running_loop().create_task(coro)
        tasks[task] = None
        task.add_done_callback(partial(self._task_done, tasks))
        if self.is_over if shard is None else shard.is_revoked:
            task.cancel()
        return task

    def _task_done(self, tasks: Tasks, task: asyncio.Task[Any]) -> None:
        del tasks[task]
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, ShardLost):
            return
        self._owner.report_failure(error)

    def enter(self, stop: Callable[[], object], worker: object) -> AssignmentBlock:
        """Register a block. ``stop`` is called when the assignment is over, at once if it already is."""
        block = AssignmentBlock(stop, asyncio.get_running_loop().create_future(), worker)
        self.blocks.append(block)
        if self._has_ended:
            stop()
        return block

    def leave(self, block: AssignmentBlock) -> None:
        self.blocks.remove(block)
        if not block.done.done():
            block.done.set_result(None)

    def end(self) -> None:
        """Called by the member: end the assignment. Blocks and tasks are cancelled."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._over is not None:
            self._over.set()
        for block in self.blocks:
            block.stop()
        for task in tuple(self.tasks):
            task.cancel()

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on the assignment or one of its shards."""
        return (
            any(block.worker is worker for block in self.blocks)
            or worker in self.tasks
            or any(worker in shard.tasks for shard in self.shards)
        )

    def unfinished_tasks(self) -> set[asyncio.Future[Any]]:
        """Blocks and tasks of the assignment itself that have not ended."""
        return {*(block.done for block in self.blocks), *(task for task in self.tasks if not task.done())}

    async def __aenter__(self) -> Self:
        if self._async_block is not None:
            raise RuntimeError("this assignment has a body already; use create_task to run several tasks")
        self._async_block = _AsyncBlock(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._async_block is not None, "not entered"
        async_block, self._async_block = self._async_block, None
        return await async_block.exit(error)


class _AsyncBlock:
    """The body of an ``async with``, and the task that runs it. As in ``asyncio.timeout``, the count of cancellations
    shows whether the user cancelled the task too."""

    def __init__(self, assignment: Assignment) -> None:
        task = asyncio.current_task()
        assert task is not None, "an async with runs in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._is_stopped = False
        self._assignment = assignment
        self._block = assignment.enter(self._stop, task)

    def _stop(self) -> None:
        self._is_stopped = True
        self._task.cancel()

    async def exit(self, error: BaseException | None) -> bool:
        """Whether to suppress ``error``."""
        try:
            if not self._is_stopped:
                return isinstance(error, ShardLost) and self._assignment.is_over
            if not isinstance(error, asyncio.CancelledError):
                await _deliver_cancellation()
            is_cancelled_by_user = self._task.uncancel() > self._cancelling
            if is_cancelled_by_user and error is None:
                raise asyncio.CancelledError
            return not is_cancelled_by_user and isinstance(error, asyncio.CancelledError | ShardLost)
        finally:
            self._assignment.leave(self._block)


async def _deliver_cancellation() -> None:
    """Deliver a cancellation that is pending at the end of the body, so that it does not hit the code after it."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return


def unfinished_tasks(shards: Iterable[Shard]) -> set[asyncio.Future[Any]]:
    """The tasks on these shards that have not ended."""
    return {task for shard in shards for task in shard.tasks if not task.done()}


def _make_event(event: asyncio.Event | None, is_set: bool) -> asyncio.Event:
    """Create the event on first use: most shards never need one."""
    if event is None:
        event = asyncio.Event()
        if is_set:
            event.set()
    return event
