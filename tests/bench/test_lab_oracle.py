"""The oracle detects engines that are wrong on purpose."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from callboard.actors.engine_ports import ReplyTo
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Commit, Committed, Heartbeat, OffsetCommit, OffsetFetch
from callboard.bench.concurrency import measured_process
from callboard.bench.concurrency.cell import Append, Cell, CommitContext, Request, deliver
from callboard.bench.concurrency.clients import JoinResult
from callboard.bench.concurrency.engines import Engine, Seed
from callboard.bench.concurrency.lock_engines import GlobalLockEngine, GroupLockEngine, Lock, LockWaitTimer
from callboard.bench.concurrency.oracle import FINDINGS_MAX, ReferenceCell, check_generations, snapshot
from callboard.bench.concurrency.services import LabClock
from callboard.bench.concurrency.workloads import WORKLOADS, Plan, loaded

SECONDS = 0.2
ANSWER_LIMIT_S = 0.3


class YieldingClock(LabClock):
    """Lets other threads run during a turn, when the time is read."""

    def monotonic_ms(self) -> int:
        time.sleep(0.0001)
        return super().monotonic_ms()


class NoLock:
    """A lock that never blocks."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return True

    def release(self) -> None: ...


class Unlocked(GroupLockEngine):
    def lock_for(self, cell: Cell) -> Lock:
        return NoLock()


class ResponseLosingSlot:
    """A receiver that loses the response."""

    def set(self, value: Any = None) -> None: ...

    def set_exception(self, exc_info: Any = None) -> None: ...


class LosesResponses(GroupLockEngine):
    """Loses the response to every twentieth request."""

    def prepare(self) -> None:
        super().prepare()
        self._numbers = itertools.count(1)

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        super().submit(request, ResponseLosingSlot() if next(self._numbers) % 20 == 0 else reply_to)


class AppliesTwice(GroupLockEngine):
    """Applies every round twice, and sends the responses twice."""

    def written(self, appends: Sequence[Append]) -> None:
        super().written(appends)
        super().written(appends)


class AppliesTwiceAnswersOnce(GroupLockEngine):
    """Applies every round twice, and sends the responses once."""

    def written(self, appends: Sequence[Append]) -> None:
        super().written(appends)
        for append in appends:
            self.turn(append.cell, self._writers_waits, _apply_in_silence, append)


def _apply_in_silence(append: Append) -> tuple[()]:
    append.cell.written(append)
    return ()


class AnswersBeforeApplying(GroupLockEngine):
    """Responds to a commit when it is written, and applies it a round later."""

    def prepare(self) -> None:
        super().prepare()
        self._late: list[Append] = []

    def written(self, appends: Sequence[Append]) -> None:
        commits = [append for append in appends if isinstance(append.context, CommitContext)]
        super().written([append for append in appends if append not in commits])
        deliver([(append.context.reply_to, _answer(append)) for append in commits])
        late, self._late = self._late, commits
        for append in late:
            self.turn(append.cell, self._writers_waits, _apply_in_silence, append)


class OutOfOrder(GroupLockEngine):
    """Responds to commits when they are written, and applies all of them at the end, the last one first."""

    def prepare(self) -> None:
        super().prepare()
        self._late: list[Append] = []

    def written(self, appends: Sequence[Append]) -> None:
        deliver([(append.context.reply_to, _answer(append)) for append in appends])
        self._late += appends

    def quiesce(self) -> bool:
        at_rest = super().quiesce()
        for append in reversed(self._late):
            append.cell.written(append)
        return at_rest


def _answer(append: Append) -> Any:
    assert isinstance(append.context, CommitContext)
    return Committed(append.context.errors)


class NeverAsksAboutHeartbeats(GroupLockEngine):
    """Accepts each heartbeat without asking the group, and counts it as handled."""

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        if not isinstance(request, Heartbeat):
            super().submit(request, reply_to)
            return
        cell, lock = self._cells_and_locks[request.group_id]
        with as_context(lock):
            cell.handled += 1
        reply_to.set(self.answer(request, cell))

    def answer(self, request: Heartbeat, cell: Cell) -> ErrorCode:
        return ErrorCode.NONE


class NeverRenewsSessions(NeverAsksAboutHeartbeats):
    """Compares member and generation, but does not renew the session."""

    def answer(self, request: Heartbeat, cell: Cell) -> ErrorCode:
        if request.member_id not in cell.group.members.by_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.generation_id != cell.group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE if cell.group.state.is_stable else ErrorCode.REBALANCE_IN_PROGRESS


@contextmanager
def as_context(lock: Lock) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


class AnswersBeforeWriting(GroupLockEngine):
    """Applies and acknowledges records when they are handed to the writer."""

    def prepare(self) -> None:
        super().prepare()
        append = self.writer.append

        def append_and_answer(appended: Append) -> None:
            append(appended._replace(context=None))
            threading.Thread(
                target=self.turn, args=(appended.cell, LockWaitTimer(), appended.cell.written, appended)
            ).start()

        self.writer.append = append_and_answer

    def written(self, appends: Sequence[Append]) -> None: ...


class ReadsStaleOffsets(GroupLockEngine):
    """Answers an OffsetFetch with the first answer to the same request."""

    def prepare(self) -> None:
        super().prepare()
        self._answers: dict[OffsetFetch, Any] = {}

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        if not isinstance(request, OffsetFetch):
            super().submit(request, reply_to)
            return
        cell, lock = self._cells_and_locks[request.group_id]
        with as_context(lock):
            answers = cell.handle(request, reply_to)
        deliver([(slot, self._answers.setdefault(request, answer)) for slot, answer in answers])


class NeverExpires(GroupLockEngine):
    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None: ...


class ExpiresAll(GroupLockEngine):
    """If one session expires, all sessions of the group expire."""

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        if any(name[0] == "session" for name in names if isinstance(name, tuple)):
            for member in cell.group.members:
                member.session.due_ms = 0
            names = [("session", member_id) for member_id in cell.group.members.by_id]
        super().expired(cell, names)


class TwoCellsPerGroup(GlobalLockEngine):
    """Has two cells for a group and uses them alternately, like two processes that both own the group."""

    def prepare(self) -> None:
        super().prepare()
        self._twins: dict[str, Cell] = {}
        self._numbers = itertools.count()

    def build(self, seeds: Iterable[Seed]) -> None:
        both_seeds = list(seeds)
        super().build(both_seeds)
        for group_id, value in both_seeds:
            self._twins[group_id] = twin = Cell(group_id, self._environment)
            if value is not None:
                twin.load(value)

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        if next(self._numbers) % 2:
            super().submit(request, reply_to)
        else:
            twin = self._twins[request.group_id]
            with self._lock:
                answers = twin.handle(request, reply_to)
            deliver(answers)


def violations_of(engine: Engine, workload: str, groups: int = 4, members: int = 4) -> list[str]:
    spec = WORKLOADS[workload]
    plan = spec.plan(groups, SECONDS, seed=3, members=members, clients=16)
    result = measured_process.measure(engine, spec, plan, ANSWER_LIMIT_S)
    assert result["right"] == (not result["wrong"])
    violations: list[str] = result["wrong"]
    return violations


@pytest.mark.parametrize(
    ("engine", "workload", "finding"),
    [
        (LosesResponses, "heartbeats", "requests without a response: "),
        (LosesResponses, "commits", "requests without a response: "),
        (LosesResponses, "join-one", "requests without a response: "),
        (AppliesTwice, "commits", "was answered again: "),
        (AppliesTwiceAnswersOnce, "commits", "offsets were applied, "),
        (AnswersBeforeApplying, "commits", "was acknowledged, was answered "),
        (OutOfOrder, "commits", "the last acknowledged one is "),
        (NeverAsksAboutHeartbeats, "heartbeats", " was answered "),
        (NeverAsksAboutHeartbeats, "hot", " was answered "),
        (NeverAsksAboutHeartbeats, "mixed", " was answered "),
        (NeverRenewsSessions, "heartbeats", "its last heartbeat was sent at "),
        (AnswersBeforeWriting, "commits", "before its record was written"),
        (AnswersBeforeWriting, "mixed", "before its record was written"),
        (AnswersBeforeWriting, "join-many", "before its record was written"),
        (AnswersBeforeApplying, "mixed", " was acknowledged, was answered "),
        (ReadsStaleOffsets, "commits", " was acknowledged, was answered "),
        (ReadsStaleOffsets, "mixed", " was acknowledged, was answered "),
        (NeverExpires, "mixed", "members with expired sessions: "),
        (ExpiresAll, "mixed", "missing members: "),
        (TwoCellsPerGroup, "commits", "the last acknowledged one is "),
        (TwoCellsPerGroup, "heartbeats", "requests were handled, "),
        (TwoCellsPerGroup, "join-one", "(error=<ErrorCode.UNKNOWN_MEMBER_ID"),
    ],
)
def test_oracle_finds_wrong_engine(engine: type[Engine], workload: str, finding: str) -> None:
    violations = violations_of(engine(), workload)
    assert any(finding in violation for violation in violations), violations
    assert len(violations) <= 5 * (FINDINGS_MAX + 1)


@pytest.mark.parametrize("workload", ["heartbeats", "hot", "commits", "join-one"])
def test_oracle_finds_overlapping_turns(workload: str) -> None:
    violations = violations_of(Unlocked(YieldingClock()), workload, groups=1, members=16)
    assert any("turns overlapped with another" in violation for violation in violations), violations


@pytest.mark.parametrize("workload", ["heartbeats", "hot", "commits", "join-one"])
def test_engine_with_locks_passes_oracle(workload: str) -> None:
    assert violations_of(GroupLockEngine(YieldingClock()), workload, groups=1, members=16) == []


def test_oracle_finds_bug_in_group_rules() -> None:
    class Buggy(GroupLockEngine):
        def build(self, seeds: Iterable[Seed]) -> None:
            super().build(seeds)
            for cell in self.cells:
                cell.group.clock = None  # type: ignore[assignment]

    violations = violations_of(Buggy(), "heartbeats")
    assert any("group group-0: Heartbeat ended in AttributeError" in violation for violation in violations), violations


# Generations ----------------------------------------------------------------------------------------------------------


def test_check_generations_accepts_consistent_responses() -> None:
    assert list(check_generations([JoinResult("g", 1, "a", "a", ("a", "b")), JoinResult("g", 1, "b", "a", ())])) == []


@pytest.mark.parametrize(
    ("join_results", "finding"),
    [
        ([JoinResult("g", 1, "a", "a", ("a",)), JoinResult("g", 1, "b", "b", ("b",))], "2 leaders: a, b"),
        ([JoinResult("g", 1, "a", "a", ("a",)), JoinResult("g", 1, "a", "a", ("a",))], "a member got two responses"),
        (
            [JoinResult("g", 1, "a", "a", ("a",)), JoinResult("g", 1, "b", "a", ())],
            "the leader got a list of 1 members, 2 members joined",
        ),
        ([JoinResult("g", 1, "b", "a", ())], "1 members, the leader a is not one of them"),
    ],
)
def test_check_generations_finds_contradictions(join_results: list[JoinResult], finding: str) -> None:
    assert [violation for violation in check_generations(join_results) if finding in violation]


# Replay ---------------------------------------------------------------------------------------------------------------


def test_reference_cell_state_depends_only_on_requests() -> None:
    seed = next(loaded(Plan(groups=1, members=2, clients=1, seconds=1, seed=1)))
    one_cell, equal_cell, different_cell = ReferenceCell(seed), ReferenceCell(seed), ReferenceCell(seed)
    for offset in (1, 2):
        request = OffsetCommit("group-0", "group-0-1", None, 1, (Commit("orders", 1, offset, -1, ""),))
        assert one_cell.ask(request) == equal_cell.ask(request) == Committed((ErrorCode.NONE,))
    assert different_cell.ask(request) == Committed((ErrorCode.NONE,))
    assert snapshot(one_cell.cell) == snapshot(equal_cell.cell)
    assert snapshot(one_cell.cell) != snapshot(different_cell.cell)
    assert snapshot(one_cell.cell)["offsets"] == {1: 2}
