"""VersionLog: races of changes, readers that slept, and which versions go."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from callboard.runtime.cluster.keys import number_of, version_key
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.version_log import CLEANUP_INTERVAL, KEPT_TTLS, LIST_AGAIN_TTLS, VersionLog

from .memory_store import Memory, MemoryStore

PREFIX = "numbers/"
KEPT = 20


class Number(NamedTuple):
    version: int
    token: str
    value: int

    def numbered(self, version: int, token: str) -> Number:
        return self._replace(version=version, token=token)

    def encode(self) -> bytes:
        return f"{self.version} {self.token} {self.value}".encode()


def decode(data: bytes) -> Number:
    version, token, value = data.decode().split()
    return Number(int(version), token, int(value))


def incremented(number: Number) -> Number | None:
    return number._replace(value=number.value + 1)


async def confirm() -> None:
    pass


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0


def log_of(memory: Memory, clock: Clock) -> VersionLog[Number]:
    memory.values.setdefault(version_key(PREFIX, 0), Number(0, "first", 0).encode())
    environment = SessionEnvironment(now=lambda: clock.now_s)
    return VersionLog(MemoryStore(memory), environment, PREFIX, decode, KEPT)


def versions(memory: Memory) -> list[int]:
    return sorted(map(number_of, memory.values))


def test_each_of_many_concurrent_changes_is_made_once() -> None:
    async def run() -> None:
        memory, clock = Memory(), Clock()
        logs = [log_of(memory, clock) for _ in range(4)]
        await asyncio.gather(*(log.change(incremented, confirm) for log in logs * 10))
        assert {(await log.read()).value for log in logs} == {40}
        assert versions(memory) == list(range(41))

    asyncio.run(run())


def test_change_that_is_not_needed_creates_no_version() -> None:
    async def run() -> None:
        memory = Memory()
        assert await log_of(memory, Clock()).change(lambda number: None, confirm) is None
        assert versions(memory) == [0]

    asyncio.run(run())


def test_old_versions_go_but_no_young_ones() -> None:
    async def run() -> None:
        memory, clock = Memory(), Clock()
        log = log_of(memory, clock)
        for _ in range(2 * CLEANUP_INTERVAL):
            await log.change(incremented, confirm)
        assert versions(memory)[0] == 0
        clock.now_s = 1000.0
        await log.change(incremented, confirm)
        clock.now_s += KEPT_TTLS * SessionEnvironment().ttl_s + 1
        for _ in range(CLEANUP_INTERVAL):
            await log.change(incremented, confirm)
        assert versions(memory)[0] == 2 * CLEANUP_INTERVAL

    asyncio.run(run())


@pytest.mark.parametrize("has_looked", [False, True])
def test_reader_that_slept_finds_the_newest_version(*, has_looked: bool) -> None:
    """A look at the next version after a long sleep does not count as a read: old versions may be gone."""

    async def run() -> None:
        memory, clock = Memory(), Clock()
        sleeper, log = log_of(memory, clock), log_of(memory, clock)
        await sleeper.read()
        for _ in range(3):
            await log.change(incremented, confirm)
        del memory.values[version_key(PREFIX, 1)]
        clock.now_s += 3600
        if has_looked:
            sleeper.note_newest(0, clock.now_s)
        assert (await sleeper.read()).value == 3

    asyncio.run(run())


def test_look_at_the_next_version_counts_as_a_read() -> None:
    """Nothing is listed then: an empty list would raise StartError."""

    async def run() -> None:
        memory, clock = Memory(), Clock()
        reader = log_of(memory, clock)
        await reader.read()
        memory.values.clear()
        for _ in range(LIST_AGAIN_TTLS):
            clock.now_s += 2 * SessionEnvironment().ttl_s
            reader.note_newest(0, clock.now_s)
        assert (await reader.read()).version == 0

    asyncio.run(run())
