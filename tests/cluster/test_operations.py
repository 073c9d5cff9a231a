"""Operations of a store: each ends in time, and runs in the task of its caller."""

from __future__ import annotations

import asyncio

import pytest
from harness import async_test

from callboard.runtime.cluster.engines.operations import Operations
from callboard.runtime.cluster.store import StoreUnavailable

LONG_S = 60.0


@async_test
async def test_operation_runs_in_the_task_of_its_caller() -> None:
    async def operation() -> asyncio.Task[object] | None:
        await asyncio.sleep(0)
        return asyncio.current_task()

    assert await Operations("store", LONG_S).run("get", operation()) is asyncio.current_task()


@async_test
async def test_operation_without_an_answer_in_time_is_cancelled() -> None:
    ended = []

    async def operation() -> None:
        try:
            await asyncio.sleep(LONG_S)
        finally:
            ended.append("operation")

    with pytest.raises(StoreUnavailable, match=r"the store has not answered a get in 0\.01 s"):
        await Operations("the store", LONG_S).run("get", operation(), 0.01)
    assert ended == ["operation"]
    await asyncio.sleep(0)  # its caller is not cancelled


@async_test
async def test_time_limit_of_the_operation_itself_is_not_that_of_the_store() -> None:
    async def operation() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await Operations("store", LONG_S).run("get", operation())


@async_test
async def test_close_ends_all_operations_and_waits_for_them() -> None:
    operations, ended = Operations("store", LONG_S), list[str]()

    async def operation() -> None:
        try:
            await asyncio.sleep(LONG_S)
        finally:
            await asyncio.sleep(0.01)  # for example to end a connection
            ended.append("operation")

    running = [asyncio.create_task(operations.run("get", operation())) for _ in range(2)]
    await asyncio.sleep(0)
    await operations.close()
    assert ended == ["operation"] * 2
    for task in running:
        with pytest.raises(StoreUnavailable, match="the store is closed; the outcome of a get is unknown"):
            await task
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await operations.run("get", operation())
    await operations.close()


@async_test
async def test_caller_that_is_cancelled_ends_its_operation() -> None:
    operations = Operations("store", LONG_S)
    running = asyncio.create_task(operations.run("get", asyncio.sleep(LONG_S)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await operations.close()  # waits for nothing
