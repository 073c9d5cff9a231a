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


def open_log(root: Path, threads: InlineThreads, disk: Disk | None = None, **options: Any) -> OffsetsLog:
    log = OffsetsLog(root, 3, threads=threads, disk=disk or LazyDisk(), **{"new_salt": fixed_salt, **options})
    log.open()
    return log


def trace_of_seed(root: Path, seed: int) -> list[tuple[str, str]]:
    """The disk operations of some rounds, in the order of a seed."""
    disk, threads, outcomes = TraceDisk(), InlineThreads(random.Random(seed).randrange), list[Sequence[Appended]]()
    log = open_log(root, threads, disk, checkpoint_bytes=300, clock=lambda: 0.0)
    for number in range(20):
        log.append([entry(number % 3, number)], 1, outcomes.append)
        threads.step()
    log.close()
    assert [outcome.error for (outcome,) in outcomes] == [0] * 20
    return disk.trace


def test_append_without_choice_completes_all_work(tmp_path: Path) -> None:
    threads_before = threading.active_count()
    log = open_log(tmp_path, InlineThreads(), checkpoint_bytes=1)
    rounds: list[Sequence[Appended]] = []
    for number in range(10):
        log.append([entry(0, number)], 1, rounds.append)
        assert len(rounds) == number + 1
    assert (offsets_in(log, 0), threading.active_count()) == (list(range(10)), threads_before)
    assert len(list((tmp_path / "journal").iterdir())) == 1
    log.close()


def test_append_from_done_callback_succeeds(tmp_path: Path) -> None:
    log = open_log(tmp_path, InlineThreads())
    rounds: list[Sequence[Appended]] = []

    def append_again(outcomes: Sequence[Appended]) -> None:
        log.append([entry(0, 1)], 1, rounds.append)
        rounds.append(outcomes)

    log.append([entry(0, 0)], 1, append_again)
    assert [outcome.base_offset for (outcome,) in rounds] == [0, 1]
    log.close()


def test_append_with_choice_waits_for_step(tmp_path: Path) -> None:
    threads = InlineThreads(lambda count: 0)
    log = open_log(tmp_path, threads)
    rounds: list[Sequence[Appended]] = []
    log.append([entry(0, 7)], 1, rounds.append)
    assert rounds == []
    assert threads.step() and rounds == []  # it is written
    assert threads.step() and len(rounds) == 1  # and synced
    assert not threads.step()
    log.close()


def test_step_runs_work_that_is_due(tmp_path: Path) -> None:
    now_s, disk, threads = [0.0], TraceDisk(), InlineThreads()
    log = open_log(tmp_path, threads, disk, clock=lambda: now_s[0])
    log.append([entry(0, 7)], 1, lambda outcomes: None)
    assert not threads.step()
    now_s[0] = 1.0
    assert threads.step()
    assert ("write", FIRST_SEGMENT) in disk.trace
    log.close()


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_gives_the_same_order(tmp_path: Path, seed: int) -> None:
    assert trace_of_seed(tmp_path / "one" / "data", seed) == trace_of_seed(tmp_path / "two" / "data", seed)


def test_different_seeds_give_different_orders(tmp_path: Path) -> None:
    assert len({tuple(trace_of_seed(tmp_path / f"log-{seed}" / "data", seed)) for seed in range(20)}) > 3


def test_wait_without_remaining_work_raises(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nothing is left to run"):
        InlineThreads().wait(threading.Event())


def test_round_after_the_last_job_is_refused(tmp_path: Path) -> None:
    """One thread closes the log while another appends: a late round is refused."""
    threads, rounds = InlineThreads(lambda _count: 0), list[Sequence[Appended]]()
    log = open_log(tmp_path, threads)
    log.append([entry(0, 0)], 1, rounds.append)
    threads.put(log._work._close)  # as ``close`` does after an ``append`` has checked that the log is open
    log.append([entry(0, 1)], 1, rounds.append)
    while threads.step():
        pass
    assert [outcome.error for (outcome,) in rounds] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    reopened = open_log(tmp_path, InlineThreads())
    assert offsets_in(reopened, 0) == [0]
    reopened.close()
