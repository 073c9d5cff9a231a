"""Functions of the user as assignors: they run in a thread of their own, and their errors are logged.

A function may take long, so the event loop does not wait for it. An assignment that is not ready in a few milliseconds
is asked for again with the next heartbeat; Kafka's members get theirs with a heartbeat too. Kafka's assignors run in
such a thread for large groups, and so does the work to show them the members.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from ...actors.assignors.base import AssignFunction
from ...actors.assignors.server.base import (
    AssignmentFailed,
    AssignmentPending,
    GroupToAssign,
    ServerAssignor,
    TargetAssignment,
)
from ...actors.assignors.server.function import ServerFunction
from ..common.logs import get_logger

WAIT_S = 0.005
"""How long the event loop waits for a function, which is long enough for most of them."""

LOOP_MAX_US = 5_000
"""Kafka's assignors run in a thread for groups whose assignment is estimated to take longer."""

MEMBER_US, SUBSCRIPTION_US, PARTITION_US, NAME_US = 12.0, 1.0, 0.5, 2.0
"""What they take for each member, each of its topics, and each partition, with all that their result needs, and for
each name that is hashed."""

JOBS_MAX = 100
"""Assignments that nobody has asked for again; the oldest are dropped."""

log = get_logger("callboard.runtime")


class Job:
    """One assignment. ``is_wanted``: whether somebody may still ask for it."""

    def __init__(self, group: GroupToAssign) -> None:
        self.group = group
        self.is_wanted = True
        self.done = threading.Event()
        self._target: TargetAssignment | None = None
        self._error: AssignmentFailed | None = None

    def run(self, assignor: ServerAssignor) -> None:
        """Called in the thread."""
        try:
            self._target = assignor.assign(self.group)
        except AssignmentFailed as error:
            self._error = error
        except BaseException as error:  # SystemExit too: it would end the thread
            self._error = AssignmentFailed(f"assignor {assignor.name} failed: {type(error).__name__}: {error}")
        finally:
            self.done.set()

    def result(self) -> TargetAssignment:
        """Call it once, when it is done."""
        if self._error is not None:
            raise self._error
        assert self._target is not None
        return self._target


class BackgroundAssignor:
    """``ServerAssignor`` that runs another one in a daemon thread, for one group after the other."""

    def __init__(self, assignor: ServerAssignor, wait_s: float = WAIT_S) -> None:
        self.name = assignor.name
        self._assignor = assignor
        self._wait_s = wait_s
        self._jobs: dict[str, Job] = {}  # by group id, oldest first
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._last: Job | None = None

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        job = self._jobs.get(group.group_id)
        if job is None or job.group != group:
            job = self._begin(group)
        if not job.done.is_set():
            raise AssignmentPending
        del self._jobs[group.group_id]
        return job.result()

    def _begin(self, group: GroupToAssign) -> Job:
        """Start an assignment in place of the group's last one. Wait for it if the thread has nothing else to do."""
        self._drop(group.group_id)
        while len(self._jobs) >= JOBS_MAX:
            self._drop(next(iter(self._jobs)))
        if self._last is None:
            self._start_thread()
        is_idle = self._last is None or self._last.done.is_set()
        job = self._jobs[group.group_id] = self._last = Job(group)
        self._queue.put(job)
        if is_idle:
            job.done.wait(self._wait_s)
        return job

    def _drop(self, group_id: str) -> None:
        job = self._jobs.pop(group_id, None)
        if job is not None:
            job.is_wanted = False

    def _start_thread(self) -> None:
        weakref.finalize(self, self._queue.put, None)  # the thread ends with the node
        name = f"callboard-assignor-{self.name}"
        threading.Thread(target=_work, args=(self._queue, self._assignor), name=name, daemon=True).start()


def _work(queue: SimpleQueue[Job | None], assignor: ServerAssignor) -> None:
    while (job := queue.get()) is not None:
        if job.is_wanted:
            job.run(assignor)
        job.done.set()


def estimated_us(group: GroupToAssign) -> float:
    """How long one of Kafka's assignors takes, in microseconds."""
    partitions = sum(topic.partition_count for topic in group.topics.values())
    of_members = len(group.members) * (MEMBER_US + SUBSCRIPTION_US * len(group.topics))
    return of_members + partitions * PARTITION_US + group.names_max * NAME_US


class LargeInBackground:
    """``ServerAssignor`` that runs another one at once, or for large groups in a thread, without waiting for it."""

    def __init__(self, assignor: ServerAssignor) -> None:
        self.name = assignor.name
        self._assignor = assignor
        self._background = BackgroundAssignor(assignor, wait_s=0)

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        return (self._background if estimated_us(group) > LOOP_MAX_US else self._assignor).assign(group)


class LoggedFunction:
    """``ServerAssignor`` whose errors are logged with the name of the function.

    Each member's heartbeat repeats an assignment that has failed, so an error is logged again only when it has changed.
    """

    def __init__(self, assignor: ServerAssignor, function: Callable[..., object]) -> None:
        self.name = assignor.name
        self._assignor = assignor
        self._function = function
        self._logged: dict[str, str] = {}  # the last error of a group, by its id

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        try:
            target = self._assignor.assign(group)
        except AssignmentFailed as error:
            self._log(group.group_id, error)
            raise
        self._logged.pop(group.group_id, None)
        return target

    def _log(self, group_id: str, error: AssignmentFailed) -> None:
        if self._logged.get(group_id) != str(error):
            while len(self._logged) >= JOBS_MAX:
                del self._logged[next(iter(self._logged))]
            self._logged[group_id] = str(error)
            log.exception(
                "an assignor has failed; the group keeps its assignment",
                group=group_id,
                function=_full_name(self._function),
                reason=str(error),
            )


def _full_name(function: Callable[..., object]) -> str:
    """Its module and its name in it; of an object that can be called, those of its class."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def as_server_assignor(name: str, function: AssignFunction, *, in_background: bool) -> ServerAssignor:
    assignor: ServerAssignor = ServerFunction(name, function)
    return LoggedFunction(BackgroundAssignor(assignor) if in_background else assignor, function)
