"""Shard: one partition or name that a member owns. Assignment: all its shards at one time.

Everything that runs on them is cancelled when they go. There are two ways to go: a shard that is *handed back* is over
at once, but commits on it count until everything on it has ended; one that is *lost* takes no commits any more.
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
"""A set in the order in which they were made, so that a simulation cancels them in the same order each time."""


class Progress(NamedTuple):
    """What became of a commit. ``durability``: "synced", it survives a loss of power; "written", it survives the end of
    the coordinator's process; "" over TCP, where answers do not say: there the server's ``--sync`` holds."""

    durability: str


class Stage(IntEnum):
    HELD = 0
    WANTED_BACK = 1  # stop, and commit what is done
    GONE = 2


class Owner(Protocol):
    """The member, as its work sees it."""

    def commit(self, shard: Shard, next_offset: int, note: str) -> Coroutine[Any, Any, Progress]: ...

    def has_failed(self, error: BaseException) -> None:
        """Something that ran on the work has failed."""


class Shard:
    """One partition of a numbered resource, or one name, that this member holds.

    ``token`` is the generation in which it was acquired: it grows with each change of owner as long as the group lives,
    so a store that remembers the highest one can refuse writes of former owners.

    ``next_offset`` is the offset that the group committed last for this shard: the first item that is not done yet, as
    in Kafka. None if the group has no committed offset; the caller then decides where to begin (``shard.next_offset or
    0``). ``note`` is the text that was committed with it, "" if none.
    """

    __slots__ = (
        *("_gone", "_over", "_owner", "_stage", "watch"),
        *("kept", "name", "newest", "next_offset", "note", "resource", "tasks", "token", "topic_partition"),
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
        self._stage = Stage.HELD
        self._over: asyncio.Event | None = None
        self._gone: asyncio.Event | None = None
        self.watch: Callable[[Stage], None] | None = None  # hears of every move
        self.newest = 0, 0, ""  # the commit that was begun last: its number, offset and note
        self.kept = 0, Progress("")  # the number of the newest that was acknowledged, and what became of it

    def __repr__(self) -> str:
        return f"Shard({self.resource!r}, {self.name!r}, token={self.token}, {self._stage.name.lower()})"

    @property
    def number(self) -> int:
        """The name of a numbered shard. Raises TypeError for one with a name."""
        if isinstance(self.name, int):
            return self.name
        raise TypeError(f"{self!r} has a name and no number; use shard.name")

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def is_over(self) -> bool:
        """Whether to stop: it is being handed back, or is lost."""
        return self._stage is not Stage.HELD

    @property
    def is_lost(self) -> bool:
        """Whether it is gone: nothing can be committed any more, and somebody else may work on it."""
        return self._stage is Stage.GONE

    @property
    def over(self) -> asyncio.Event:
        """Set when ``is_over``."""
        self._over = _event(self._over, self.is_over)
        return self._over

    @property
    def lost(self) -> asyncio.Event:
        """Set when ``is_lost``."""
        self._gone = _event(self._gone, self.is_lost)
        return self._gone

    def commit(self, next_offset: int, note: str = "") -> Coroutine[Any, Any, Progress]:
        """Commit the offset of the next item to process, as Kafka's consumers do: after item 42, ``commit(43)``.

        The next owner of the shard begins there. Retries through rebalances and restarts of the coordinator while the
        shard is owned. If several commits overlap, the one that was begun last wins. ``next_offset``: 0 to 2**63-1.
        ``note``: text, at most ``offset_metadata_max_bytes``. Raises ShardLost, CommitRefused, ValueError.
        """
        return self._owner.commit(self, next_offset, note)

    def move_to(self, stage: Stage) -> None:
        """For the member. What runs on the shard is cancelled as soon as it is over."""
        if stage <= self._stage:
            return
        self._stage = stage
        for task in tuple(self.tasks):
            task.cancel()
        if self._over is not None:
            self._over.set()
        if self._gone is not None and stage is Stage.GONE:
            self._gone.set()
        if self.watch is not None:
            self.watch(stage)


class Body:
    """Somebody who works on a Assignment, and says when done: the body of an ``async with``, or a thread.

    ``worker``: the task or the thread.
    """

    __slots__ = ("done", "stop", "worker")

    def __init__(self, stop: Callable[[], object], done: asyncio.Future[None], worker: object) -> None:
        self.stop = stop
        self.done = done
        self.worker = worker


class Assignment:
    """All that a member holds, from one change to the next. Made by ``Member.assignments``.

    ``async with assignment:`` runs a body that is cancelled, quietly, when the assignment is over: what is held
    has changed, is to be handed back, or is lost. Hand-backs wait for the body, which may commit while it ends.
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
        self._lost: asyncio.Event | None = None
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
    def lost(self) -> asyncio.Event:
        """Set when the work is over."""
        self._lost = _event(self._lost, self.is_over)
        return self._lost

    def commit(self, shard: Shard, next_offset: int, note: str = "") -> Coroutine[Any, Any, Progress]:
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
        if self.is_over if shard is None else shard.is_over:
            task.cancel()
        return task

    def _task_done(self, tasks: Tasks, task: asyncio.Task[Any]) -> None:
        del tasks[task]
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, ShardLost):
            return
        self._owner.has_failed(error)

    def enter(self, stop: Callable[[], object], worker: object) -> Body:
        """Somebody begins to work on it. ``stop`` is called when it is over, at once if it is; ``done`` is awaited."""
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
        """For the member: it is over. Bodies and tasks are cancelled."""
        if self.is_over:
            return
        self.is_over = True
        if self._lost is not None:
            self._lost.set()
        for body in self.bodies:
            body.stop()
        for task in tuple(self.tasks):
            task.cancel()

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on it, or on one of its shards."""
        return (
            any(body.worker is worker for body in self.bodies)
            or worker in self.tasks
            or any(worker in shard.tasks for shard in self.shards)
        )

    def unfinished(self) -> set[asyncio.Future[Any]]:
        """What has not ended yet of this work itself."""
        return {*(body.done for body in self.bodies), *(task for task in self.tasks if not task.done())}

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise RuntimeError("this work has a body already; use create_task to do several things at once")
        self._entered = _Entered(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._entered is not None, "entered before"
        entered, self._entered = self._entered, None
        return await entered.exit(error)


class _Entered:
    """The body of an ``async with``, in the task that runs it; as in ``asyncio.timeout``, a cancellation is told from
    the user's own by how many there were."""

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
        """Whether ``error`` ends here."""
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
    """A body that ended in the moment in which it was cancelled: the cancellation must not hit what comes behind it."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return


def unfinished(shards: Iterable[Shard]) -> set[asyncio.Future[Any]]:
    """What still runs on these shards."""
    return {task for shard in shards for task in shard.tasks if not task.done()}


def _event(event: asyncio.Event | None, is_set: bool) -> asyncio.Event:
    """Made when somebody asks for it: most shards of most members live and go without."""
    if event is None:
        event = asyncio.Event()
        if is_set:
            event.set()
    return event
