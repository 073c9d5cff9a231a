"""Long work of the connections in slices: the event loop serves the other connections in between.

Each turn of the loop runs one slice. A new job gets one slice soon, in which most jobs end. Of the others only a few
take turns at any time, because such a job holds memory; the rest wait in the order in which they came.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ...actors.steps import SLICE_NS, Steps, run_slice, run_steps
from .batch_gate import BatchGate
from .connections.time_budget import TimeBudget
from .release import ReleaseJob, frames_of_error, frames_of_steps, release_frames
from .shared_steps import SharedSteps

FIRST_NS = 500_000
"""Work of a new job that is done at once. So short jobs do not wait for long ones."""

SHORT_NS = 200_000
"""Work that takes less than this leaves time for other work in the same turn."""

FINISH_NS = 1_000_000_000

log = logging.getLogger("callboard.kafka")


class Job(Protocol):
    """Work in steps for one request. Exactly one of ``finish``, ``fail`` and ``drop`` is called, once.

    ``is_answer``: what the request changes is decided and durable, and only its answer is missing.
    """

    steps: Steps[Any]

    @property
    def is_answer(self) -> bool: ...

    @property
    def is_wanted(self) -> bool:
        """Whether to go on: False if the client is gone and the work only serves its response."""

    def finish(self, result: Any) -> None:
        """The work is done."""

    def fail(self, error: Exception) -> None:
        """The work has raised ``error``, which is being handled."""

    def drop(self) -> None:
        """The work was given up."""


class SliceMeter(Protocol):
    """Measures the work for requests."""

    def add_slice(self, connection: Any, spent_ns: int) -> None:
        """A slice of work for a request has taken so long. ``connection``: None for other work."""


class Slices:
    """Runs jobs.

    ``call_soon`` calls back in the next turn of the event loop. ``clock_ns`` measures how long the work has taken.
    ``jobs_max``: how many jobs take turns after their first slice. ``budget``: the time of a turn of the loop for
    requests. ``shared``: work whose result several jobs share. ``batches`` bounds the messages that jobs have sent.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock_ns: Callable[[], int],
        jobs_max: int,
        budget: TimeBudget,
    ) -> None:
        self._budget = budget
        self._call_soon = call_soon
        self._clock_ns = clock_ns
        self._jobs_max = jobs_max
        self._new: deque[Job] = deque()
        self._active: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self.meter: SliceMeter | None = None
        self.shared = SharedSteps()
        self.batches = BatchGate(jobs_max)
        self._is_turn_of_new = True
        self._is_busy = False  # in this turn of the loop, or scheduled for the next one

    def __len__(self) -> int:
        return len(self._new) + len(self._active) + len(self._waiting)

    def run(self, job: Job) -> None:
        """Run a job: its first half millisecond now, then its first slice unless others have used this turn.

        All of it later if the time of this turn is spent.
        """
        budget = self._budget
        if budget.is_spent:
            self.run_later(job)
            return
        begin_ns = budget.begin()
        if not self._advance(job, self._clock_ns() + FIRST_NS):
            self._new.append(job)
            if not self._is_busy:
                self._run_slice()
        budget.end(begin_ns)

    def run_in_turn(self, job: Job) -> None:
        """Run a job inside of an actor's turn: its first half millisecond now, the rest from the next turn on.

        All of it later if the time of this turn is spent: an actor may answer many requests in one turn.
        """
        budget = self._budget
        if budget.is_spent:
            self.run_later(job)
            return
        begin_ns = budget.begin()
        if not self._advance(job, self._clock_ns() + FIRST_NS):
            self.run_later(job)
        budget.end(begin_ns)

    def run_later(self, job: Job) -> None:
        """Run a job from the next turn on."""
        self._new.append(job)
        if not self._is_busy:
            self._is_busy = True
            self._call_soon(self._run_slice)

    def finish_active(self) -> None:
        """At a stop: run the jobs that take turns to their end, and those that answer. Give up the others.

        Answers that have not begun after ``FINISH_NS`` are given up, too: thousands of large ones would hold the stop.
        """
        deadline_ns = self._clock_ns() + FINISH_NS
        while self._active:
            self._finish_now(self._active.popleft())
        while jobs := self._new or self._waiting:
            job = jobs.popleft()
            if job.is_answer and job.is_wanted and self._clock_ns() < deadline_ns:
                self._finish_now(job)
            else:
                _give_up(job)

    def drop_all(self) -> None:
        """Give up all jobs: at a simulated crash."""
        for jobs in (self._new, self._active, self._waiting):
            self._drop(jobs)

    def _run_slice(self) -> None:
        self._is_busy = True
        began_ns = now_ns = self._clock_ns()
        while now_ns - began_ns < SLICE_NS and (job := self._next()) is not None:
            if not self._advance(job, began_ns + SLICE_NS):
                has_turns = len(self._active) < self._jobs_max or isinstance(job, ReleaseJob)  # which frees memory
                (self._active if has_turns else self._waiting).append(job)
            now_ns = self._clock_ns()
        self._is_busy = bool(self) or now_ns - began_ns > SHORT_NS
        if self._is_busy:
            self._call_soon(self._run_slice)

    def _next(self) -> Job | None:
        """The next job, in turns a new one and one that has begun."""
        while self._waiting and len(self._active) < self._jobs_max:
            self._active.append(self._waiting.popleft())
        self._is_turn_of_new = not self._is_turn_of_new
        if self._new and (self._is_turn_of_new or not self._active):
            return self._new.popleft()
        return self._active.popleft() if self._active else None

    def _advance(self, job: Job, deadline_ns: int) -> bool:
        """Run a slice of a job. Returns whether the job has ended."""
        if not job.is_wanted:
            held = ReleaseJob(release_frames(frames_of_steps(job.steps)))
            _give_up(job)
            self.run_later(held)
            return True
        if self.meter is None:
            return self._run(job, deadline_ns)
        begin_ns = self._clock_ns()
        has_ended = self._run(job, deadline_ns)
        self.meter.add_slice(getattr(job, "connection", None), self._clock_ns() - begin_ns)
        return has_ended

    def _run(self, job: Job, deadline_ns: int) -> bool:
        try:
            run_slice(job.steps, self._clock_ns, deadline_ns)
        except StopIteration as end:
            _end(job.finish, end.value)
            return True
        except Exception as error:
            self.run_later(ReleaseJob(release_frames(frames_of_error(error))))
            _end(job.fail, error)
            return True
        return False

    def _finish_now(self, job: Job) -> None:
        try:
            result = run_steps(job.steps)
        except Exception as error:
            _end(job.fail, error)
        else:
            _end(job.finish, result)

    def _drop(self, jobs: deque[Job]) -> None:
        while jobs:
            _give_up(jobs.popleft())


def _give_up(job: Job) -> None:
    job.steps.close()
    job.drop()


def _end(end: Callable[[Any], None], outcome: Any) -> None:
    """Report the end of a job. A bug in it must not stop the other jobs."""
    try:
        end(outcome)
    except Exception:
        log.exception("the end of a job was not handled")
