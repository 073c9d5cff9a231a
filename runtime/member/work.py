"""Shard: one partition or name that a member owns. Assignment: all its shards at one time.

A shard leaves its member in one of two ways, and what runs on it is cancelled in both. A shard that is *revoked*
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
    """The result of a commit. ``durability``: "synced" survives a power loss, "written" the end of the coordinator's
    process. It is "" over TCP, where the protocol does not say and the server's ``--sync`` decides."""

    durability: str


class ShardState(IntEnum):
    OWNED = 0
    REVOKED = 1  # stop; commits are still accepted
    LOST = 2  # commits are refused


class Owner(Protocol):
    """The member that owns the shards."""

    def commit(self, shard: Shard, next_offset: int, note: str) -> Coroutine[Any, Any, CommitResult]: ...

    def report_failure(self, error: BaseException) -> None:
        """A task on a shard or an assignment has failed."""


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
        self, owner: Owner, resource: str, name: int | str, topic_partition: TopicPartition, token: int
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
        self.on_state_change: Callable[[ShardState], None] | None = None  # hears of every move
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
        return self._state is not ShardState.OWNED

    @property
    def is_lost(self) -> bool:
        """Whether the member does not own it any more: commits raise ShardLost, and another member may own it."""
        return self._state is ShardState.LOST

    @property
    def revoked(self) -> asyncio.Event:
        """Set when ``is_revoked`` becomes true."""
        self._revoked = _event(self._revoked, self.is_revoked)
        return self._revoked

    @property
    def lost(self) -> asyncio.Event:
        """Set when ``is_lost`` becomes true."""
        self._lost = _event(self._lost, self.is_lost)
        return self._lost

    def commit(self, next_offset: int, note: str = "") -> Coroutine[Any, Any, CommitResult]:
        """Commit the offset of the next item to process, as Kafka's consumers do: after item 42, ``commit(43)``.

        The next owner of the shard begins there. Retries through rebalances and restarts of the coordinator while the
        shard is owned. If several commits overlap, the one that was begun last wins. ``next_offset``: 0 to 2**63-1.
        ``note``: text, at most ``offset_metadata_max_bytes``. Raises ShardLost, CommitRefused, ValueError.
        """
        return self._owner.commit(self, next_offset, note)

    def set_state(self, state: ShardState) -> None:
        """For the member: go on to a later state. Cancels what runs on the shard."""
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


class Body:
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

    def __init__(self, owner: Owner, generation: int, shards: tuple[Shard, ...], kept: tuple[Shard, ...]) -> None:
        self.generation = generation
        self.shards = shards
        self.kept = kept
        before = set(kept)
        self.acquired = tuple(shard for shard in shards if shard not in before)
        self.is_over = False
        self.bodies: list[Body] = []
        self.tasks: Tasks = {}
        self._owner = owner
        self._over: asyncio.Event | None = None
        self._entered: _Entered | None = None

    def __repr__(self) -> str:
        return f"Assignment(generation={self.generation}, shards={self.shards!r})"

    def shard(self, resource: str, name: int | str) -> Shard:
        """One of the shards. Raises KeyError for what this assignment does not have."""
        for shard in self.shards:
            if shard.resource == resource and shard.name == name:
                return shard
        raise KeyError(f"{resource!r}, {name!r} is no shard of this assignment; it has {[s.name for s in self.shards]}")

    @property
    def over(self) -> asyncio.Event:
        """Set when the assignment is over."""
        self._over = _event(self._over, self.is_over)
        return self._over

    def commit(self, shard: Shard, next_offset: int, note: str = "") -> Coroutine[Any, Any, CommitResult]:
        """See ``Shard.commit``."""
        return self._owner.commit(shard, next_offset, note)

    def create_task(self, coro: Coroutine[Any, Any, T], shard: Shard | None = None) -> asyncio.Task[T]:
        """Run something for as long as ``shard`` is held, through changes of other shards; or of this assignment.

        Cancelled and awaited when that is over. If it fails, the assignment ends and ``assignments`` raises its error.
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

    def enter(self, stop: Callable[[], object], worker: object) -> Body:
        """A block begins to work on it. Calls ``stop`` when the assignment is over, at once if it is."""
        body = Body(stop, asyncio.get_running_loop().create_future(), worker)
        self.bodies.append(body)
        if self.is_over:
            stop()
        return body

    def leave(self, body: Body) -> None:
        self.bodies.remove(body)
        if not body.done.done():
            body.done.set_result(None)

    def end(self) -> None:
        """For the member: end the assignment. Bodies and tasks are cancelled."""
        if self.is_over:
            return
        self.is_over = True
        if self._over is not None:
            self._over.set()
        for body in self.bodies:
            body.stop()
        for task in tuple(self.tasks):
            task.cancel()

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on the assignment or one of its shards."""
        return (
            any(body.worker is worker for body in self.bodies)
            or worker in self.tasks
            or any(worker in shard.tasks for shard in self.shards)
        )

    def unfinished(self) -> set[asyncio.Future[Any]]:
        """Bodies and tasks of the assignment itself that have not ended."""
        return {*(body.done for body in self.bodies), *(task for task in self.tasks if not task.done())}

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise RuntimeError("this assignment has a body already; use create_task to run several tasks")
        self._entered = _Entered(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._entered is not None, "entered before"
        entered, self._entered = self._entered, None
        return await entered.exit(error)


class _Entered:
    """The body of an ``async with``, and the task that runs it. As in ``asyncio.timeout``, the count of cancellations
    tells whether the user cancelled the task too."""

    def __init__(self, assignment: Assignment) -> None:
        task = asyncio.current_task()
        assert task is not None, "an async with runs in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._is_stopped = False
        self._assignment = assignment
        self._body = assignment.enter(self._stop, task)

    def _stop(self) -> None:
        self._is_stopped = True
        self._task.cancel()

    async def exit(self, error: BaseException | None) -> bool:
        """Whether to suppress ``error``."""
        try:
            if not self._is_stopped:
                return isinstance(error, ShardLost) and self._assignment.is_over
            if not isinstance(error, asyncio.CancelledError):
                await _let_cancel()
            is_users = self._task.uncancel() > self._cancelling
            if is_users and error is None:
                raise asyncio.CancelledError
            return not is_users and isinstance(error, asyncio.CancelledError | ShardLost)
        finally:
            self._assignment.leave(self._body)


async def _let_cancel() -> None:
    """Deliver a cancellation that is pending at the end of the body, so that it does not hit the code after it."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return


def unfinished(shards: Iterable[Shard]) -> set[asyncio.Future[Any]]:
    """What still runs on these shards."""
    return {task for shard in shards for task in shard.tasks if not task.done()}


def _event(event: asyncio.Event | None, is_set: bool) -> asyncio.Event:
    """Create the event on first use: most shards never need one."""
    if event is None:
        event = asyncio.Event()
        if is_set:
            event.set()
    return event
