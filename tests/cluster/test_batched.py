"""Those who ask at the same time share an operation, which begins after they have asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from callboard.runtime.cluster.batched import Batched


def test_those_who_ask_during_an_operation_share_the_next_one() -> None:
    async def run() -> None:
        asked: list[list[int]] = []
        gate = asyncio.Event()

        async def work(keys: Collection[int]) -> Mapping[int, int]:
            asked.append(sorted(keys))
            await gate.wait()
            return {key: 10 * key for key in keys}

        batched = Batched(work)
        first = [asyncio.create_task(batched.get(key)) for key in (1, 2)]
        await asyncio.sleep(0.01)
        later = [asyncio.create_task(batched.get(key)) for key in (3, 2, 4)]
        await asyncio.sleep(0.01)
        gate.set()
        assert await asyncio.gather(*first, *later) == [10, 20, 30, 20, 40]
        assert asked == [[1, 2], [2, 3, 4]]
        assert await batched.get(5) == 50

    asyncio.run(run())


def test_error_is_raised_for_all_who_waited_and_for_nobody_after() -> None:
    async def run() -> None:
        errors = [ValueError("bad"), None]

        async def work(keys: Collection[int]) -> Mapping[int, int]:
            await asyncio.sleep(0)
            if (error := errors.pop(0)) is not None:
                raise error
            return dict.fromkeys(keys, 1)

        batched = Batched(work)
        answers = await asyncio.gather(batched.get(1), batched.get(2), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["bad", "bad"]
        assert await batched.get(1) == 1

    asyncio.run(run())


def test_one_who_gives_up_disturbs_nobody() -> None:
    async def run() -> None:
        async def work(keys: Collection[int]) -> Mapping[int, int]:
            await asyncio.sleep(0.01)
            return dict.fromkeys(keys, 1)

        batched = Batched(work)
        impatient = asyncio.create_task(batched.get(1))
        patient = asyncio.create_task(batched.get(2))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == 1
        with pytest.raises(asyncio.CancelledError):
            await impatient

    asyncio.run(run())
