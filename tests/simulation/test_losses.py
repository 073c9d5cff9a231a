"""Tests of the loss checker: only the newest changes of a group may be lost."""

from __future__ import annotations

import pytest

from callboard.actors.errors import ErrorCode
from callboard.actors.group.offsets import GroupData
from callboard.actors.messages import Commit, Committed, OffsetCommit, Synced, SyncGroup
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord, OffsetValue
from callboard.runtime.testing.simulation.history import Exchange
from callboard.runtime.testing.simulation.loop import Process, VirtualLoop
from callboard.runtime.testing.simulation.losses import LossChecker


class CheckedRun:
    """Answers of one group, one per second, and the state after a loss."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.checker = LossChecker(self.errors.append)
        self._process = Process(VirtualLoop(), "p")
        self._second = 0

    def commit(self, offset: int, partition: int = 0, generation: int = -1) -> None:
        commits = (Commit("t", partition, offset, -1, f"m{offset}"),)
        self._answered(OffsetCommit("g", "", None, generation, commits), Committed((ErrorCode.NONE,)))

    def sync(self, generation: int) -> None:
        message = SyncGroup("g", "m", None, generation, "consumer", "range", ())
        self._answered(message, Synced(ErrorCode.NONE, "consumer", "range", b""))

    def _answered(self, message: object, answer: object) -> None:
        self._second += 1
        exchange = Exchange(self._second, "c", self._process, 1, message, self._second)
        exchange.answer, exchange.answered_s = answer, self._second
        self.checker.answered(exchange)

    def check_survivors(
        self, surviving_offsets: dict[int, int], safe_s: float = 0, generation: int | None = None
    ) -> list[str]:
        """``surviving_offsets``: partitions and their offsets."""
        data = GroupData()
        for partition, offset in surviving_offsets.items():
            data.replay(OffsetRecord("g", "t", partition, OffsetValue(offset, -1, f"m{offset}", 0, -1)))
        if generation is not None:
            data.replay(GroupRecord("g", GroupValue("consumer", generation, "range", "m", 0, ())))
        self.errors.clear()
        self.checker.check_survivors({"g": data}, safe_s)
        return self.errors


@pytest.fixture
def run() -> CheckedRun:
    return CheckedRun()


def test_loss_of_newest_changes_is_accepted(run: CheckedRun) -> None:
    for offset in (1, 2, 3):
        run.commit(offset)
    assert run.check_survivors({0: 1}) == []


def test_loss_of_old_change_is_reported(run: CheckedRun) -> None:
    for offset in (1, 2, 3):
        run.commit(offset)
    [errors] = run.check_survivors({0: 1}, safe_s=2.5)
    assert "'m2'" in errors and "long enough ago" in errors


def test_loss_before_surviving_change_is_reported(run: CheckedRun) -> None:
    run.commit(1, partition=0)
    run.commit(2, partition=1)
    run.commit(3, partition=0)
    assert run.check_survivors({0: 3, 1: 2}) == []
    run.commit(4, partition=1)
    run.commit(5, partition=0)
    [errors] = run.check_survivors({0: 5, 1: 2})
    assert "'m4'" in errors and "which is there" in errors


def test_loss_of_generation_is_reported(run: CheckedRun) -> None:
    run.sync(7)
    run.commit(1, generation=7)
    assert run.check_survivors({}, generation=6) == []
    run.sync(8)
    run.commit(2, generation=8)
    assert any("generation 8" in errors for errors in run.check_survivors({0: 2}, generation=7))


def test_unanswered_change_may_survive(run: CheckedRun) -> None:
    run.commit(1)
    assert run.check_survivors({0: 99}, safe_s=10) == []
