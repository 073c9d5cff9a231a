"""The log without threads: all work runs on the caller's thread, in an order that a seed chooses."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from log_helpers import LazyDisk, TraceDisk, entry, fixed_salt, offsets_in

from callboard.actors.errors import ErrorCode
from callboard.actors.ports import Appended
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.offsets_log import OffsetsLog

FIRST_SEGMENT = "00000000000000000000.log"


def opened(root: Path, threads: InlineThreads, disk: Disk | None = None, **options: Any) -> OffsetsLog:
    log = OffsetsLog(root, 3, threads=threads, disk=disk or LazyDisk(), **{"new_salt": fixed_salt, **options})
    log.open()
    return log


def traced(root: Path, seed: int) -> list[tuple[str, str]]:
    """The disk operations of some rounds, in the order of a seed."""
    disk, threads, answers = TraceDisk(), InlineThreads(random.Random(seed).randrange), list[Sequence[Appended]]()
    log = opened(root, threads, disk, checkpoint_bytes=300, clock=lambda: 0.0)
    for number in range(20):
        log.append([entry(number % 3, number)], 1, answers.append)
        threads.step()
    log.close()
    assert [outcome.error for (outcome,) in answers] == [0] * 20
    return disk.trace


def test_append_without_choice_completes_all_work(tmp_path: Path) -> None:
    before = threading.active_count()
    log = opened(tmp_path, InlineThreads(), checkpoint_bytes=1)
    answers: list[Sequence[Appended]] = []
    for number in range(10):
        log.append([entry(0, number)], 1, answers.append)
        assert len(answers) == number + 1
    assert (offsets_in(log, 0), threading.active_count()) == (list(range(10)), before)
    assert len(list((tmp_path / "journal").iterdir())) == 1
    log.close()


def test_append_from_done_callback_succeeds(tmp_path: Path) -> None:
    log = opened(tmp_path, InlineThreads())
    answers: list[Sequence[Appended]] = []

    def once_more(outcomes: Sequence[Appended]) -> None:
        log.append([entry(0, 1)], 1, answers.append)
        answers.append(outcomes)

    log.append([entry(0, 0)], 1, once_more)
    assert [outcome.base_offset for (outcome,) in answers] == [0, 1]
    log.close()


def test_append_with_choice_waits_for_step(tmp_path: Path) -> None:
    threads = InlineThreads(lambda n: 0)
    log = opened(tmp_path, threads)
    answers: list[Sequence[Appended]] = []
    log.append([entry(0, 7)], 1, answers.append)
    assert answers == []
    assert threads.step() and len(answers) == 1
    assert not threads.step()
    log.close()


def test_step_runs_work_that_is_due(tmp_path: Path) -> None:
    now, disk, threads = [0.0], TraceDisk(), InlineThreads()
    log = opened(tmp_path, threads, disk, clock=lambda: now[0])
    log.append([entry(0, 7)], 1, lambda outcomes: None)
    assert not threads.step()
    now[0] = 1.0
    assert threads.step()
    assert ("write", FIRST_SEGMENT) in disk.trace
    log.close()


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_gives_the_same_order(tmp_path: Path, seed: int) -> None:
    assert traced(tmp_path / "one" / "data", seed) == traced(tmp_path / "two" / "data", seed)


def test_different_seeds_give_different_orders(tmp_path: Path) -> None:
    assert len({tuple(traced(tmp_path / f"log-{seed}" / "data", seed)) for seed in range(20)}) > 3


def test_wait_without_remaining_work_raises(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nothing is left to run"):
        InlineThreads().wait(threading.Event())


def test_round_after_the_last_job_is_refused(tmp_path: Path) -> None:
    """One thread closes the log while another appends: a late round is refused."""
    threads, answers = InlineThreads(lambda _count: 0), list[Sequence[Appended]]()
    log = opened(tmp_path, threads)
    log.append([entry(0, 0)], 1, answers.append)
    threads.put(log._work._close)  # what ``close`` does, while an ``append`` has just seen that the log is open
    log.append([entry(0, 1)], 1, answers.append)
    while threads.step():
        pass
    assert [outcome.error for (outcome,) in answers] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    again = opened(tmp_path, InlineThreads())
    assert offsets_in(again, 0) == [0]
    again.close()
