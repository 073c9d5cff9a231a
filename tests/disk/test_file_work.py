"""``FileThread``: blocking jobs in a thread, and long work on the loop in slices."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from harness import async_test

from callboard.actors.steps import Steps
from callboard.runtime.disk.file_work import FileThread


@async_test
async def test_finished_and_failed_jobs_report_in_the_order_of_submission() -> None:
    files, outcomes = FileThread(asyncio.get_running_loop()), list[OSError | None]()
    refused = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse() -> None:
        raise refused

    files.submit(lambda: None, outcomes.append)
    files.submit(refuse, outcomes.append)
    await files.wait_until_idle()
    assert outcomes == [None, refused]
    files.close()


@async_test
async def test_work_in_slices_is_waited_for_until_its_end() -> None:
    files, pieces = FileThread(asyncio.get_running_loop()), list[int]()

    def work() -> Steps[None]:
        for piece in range(1000):
            pieces.append(piece)
            yield

    files.run_in_slices(work())
    await files.wait_until_idle()
    assert len(pieces) == 1000
    files.close()


@async_test
async def test_work_in_slices_that_raises_is_over() -> None:
    files = FileThread(asyncio.get_running_loop())

    def work() -> Steps[None]:
        yield
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        files.run_in_slices(work())
    await files.wait_until_idle()
    files.close()


@async_test
async def test_job_after_close_fails_at_once() -> None:
    files, outcomes = FileThread(asyncio.get_running_loop()), list[OSError | None]()
    files.close()
    files.submit(lambda: None, outcomes.append)
    assert [outcome.errno for outcome in outcomes if outcome] == [errno.ESHUTDOWN]
