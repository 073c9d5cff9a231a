"""What is repeated while a store is not available or too slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.store import StoreUnavailable
from callboard.runtime.testing.simulation.loop import run as run_in_virtual_time

from .memory_store import Memory, MemoryStore

KEYS = [f"wal/a/{number:010d}" for number in range(40)]


class SlowStore(MemoryStore):
    """``failures``: so many requests are not answered in time, and all of more than ``limit`` keys.

    ``asked``: the number of keys of each.
    """

    def __init__(self, limit: int, failures: int = 0) -> None:
        memory = Memory()
        memory.values = {key: key.encode() for key in KEYS[1:]}
        super().__init__(memory)
        self.limit = limit
        self.failures = failures
        self.asked: list[int] = []

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        self._note(keys)
        return await super().get(keys)

    async def delete(self, keys: Sequence[str]) -> None:
        self._note(keys)
        await super().delete(keys)

    def _note(self, keys: Sequence[str]) -> None:
        self.asked.append(len(keys))
        self.failures -= 1
        if self.failures >= 0 or len(keys) > self.limit:
            raise StoreUnavailable("no answer in time")


async def read(store: SlowStore) -> Sequence[int]:
    assert await PatientStore(store).get(KEYS) == [None, *(key.encode() for key in KEYS[1:])]
    return store.asked


def test_values_that_a_slow_store_cannot_answer_together_are_read_in_parts() -> None:
    async def run() -> None:
        asked = await read(SlowStore(limit=5))
        assert asked[:6] == [40, 40, 20, 10, 5, 10]
        assert sum(asked) < 8 * len(KEYS)

    run_in_virtual_time(run())


def test_keys_that_a_slow_store_cannot_delete_together_are_deleted_in_parts() -> None:
    async def run() -> None:
        store = SlowStore(limit=5)
        await PatientStore(store).delete(KEYS)
        assert await MemoryStore.list(store, "") == []
        assert store.asked[:6] == [40, 40, 20, 10, 5, 10]
        assert sum(store.asked) < 8 * len(KEYS)

    run_in_virtual_time(run())


def test_answer_that_was_lost_once_is_asked_for_as_before() -> None:
    async def run() -> None:
        assert await read(SlowStore(limit=40, failures=1)) == [40, 40]

    run_in_virtual_time(run())


def test_store_that_is_available_again_is_soon_asked_for_many_values() -> None:
    async def run() -> None:
        asked = await read(SlowStore(limit=40, failures=12))
        assert asked[12:] == [1, 2, 4, 8, 16, 9]

    run_in_virtual_time(run())


def test_no_keys_are_asked_for_once() -> None:
    async def run() -> None:
        store = SlowStore(limit=40)
        assert await PatientStore(store).get([]) == []
        assert store.asked == [0]

    run_in_virtual_time(run())


def test_many_operations_that_wait_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A node that loaded its partitions had a line for each of them."""

    async def run() -> None:
        slow = SlowStore(limit=1, failures=600)
        store = PatientStore(slow)
        await asyncio.gather(*(store.get([key]) for key in KEYS))

    with caplog.at_level("INFO"):
        run_in_virtual_time(run())
    events = ("waiting for the store", "the store is available again")
    assert [sum(event in record.getMessage() for record in caplog.records) for event in events] == [1, 1]
