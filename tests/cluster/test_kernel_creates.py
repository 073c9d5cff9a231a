"""Creates of a local store that the event loop writes and the kernel syncs."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import async_test

from callboard.runtime.cluster.engines.kernel_creates import KernelCreates
from callboard.runtime.cluster.engines.value_log import BegunCreate, ValueLog
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.kernel_sync import KernelSync


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ValueLog]:
    """A log with one value, whose file is open."""
    try:
        KernelSync.take().release()
    except OSError as error:
        pytest.skip(f"this system has no asynchronous I/O: {error}")
    log = ValueLog(tmp_path, Disk())
    log.create("first", b"value")
    yield log
    log.close()


@async_test
async def test_values_are_created_one_after_the_other(log: ValueLog, tmp_path: Path) -> None:
    creates = KernelCreates(log.begin_create)
    for number in range(20):
        answer = creates.create(str(number), b"value")
        assert answer is not None
        assert creates.create("meanwhile", b"value") is None
        assert await answer is True
    creates.close()
    assert creates.create("afterwards", b"value") is None
    assert ValueLog(tmp_path, Disk()).names() == ["first", *map(str, range(20))]


@async_test
async def test_close_waits_for_the_create_in_progress(log: ValueLog) -> None:
    creates = KernelCreates(log.begin_create)
    answer = creates.create("a", b"value")
    creates.close()
    assert answer is not None
    assert answer.done()
    assert await answer is True
    assert log.get(["a"]) == [b"value"]


@async_test
async def test_create_whose_task_was_cancelled_ends_and_others_follow(log: ValueLog) -> None:
    creates = KernelCreates(log.begin_create)
    answer = creates.create("a", b"value")
    assert answer is not None
    answer.cancel()
    while (other := creates.create("b", b"value")) is None:
        await asyncio.sleep(0)
    await other
    creates.close()
    assert log.get(["a", "b"]) == [b"value", b"value"]


@async_test
async def test_failed_sync_is_the_error_of_the_create(log: ValueLog, monkeypatch: pytest.MonkeyPatch) -> None:
    creates = KernelCreates(log.begin_create)
    take_error_number = KernelSync.take_error_number
    monkeypatch.setattr(
        KernelSync, "take_error_number", lambda sync: None if take_error_number(sync) is None else errno.EIO
    )
    answer = creates.create("a", b"value")
    assert answer is not None
    with pytest.raises(OSError, match="Input/output error"):
        await answer
    creates.close()
    assert log.get(["a"]) == [None]


@async_test
async def test_nothing_is_written_where_the_kernel_cannot_sync(log: ValueLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_sync: KernelSync, _fd: int) -> None:
        raise OSError(errno.EINVAL, "io_submit: Invalid argument")

    monkeypatch.setattr(KernelSync, "start", refuse)
    begun: list[BegunCreate | None] = []

    def begin(key: str, value: bytes) -> BegunCreate | None:
        begun.append(log.begin_create(key, value))
        return begun[-1]

    creates = KernelCreates(begin)
    for _ in range(2):
        assert creates.create("a", b"value") is None
    assert len(begun) == 1, "it is not tried again"
    creates.close()
    assert log.get(["a"]) == [None]
    assert log.create("a", b"value")
