"""The WAL of a session and its seal, on a store in memory."""

from __future__ import annotations

import asyncio

import pytest

from callboard.runtime.cluster.keys import floor_key, round_key
from callboard.runtime.cluster.wal import Fenced, WalDamaged, WalWriter, read_tail, seal

from .memory_store import Memory, MemoryStore


def token(number: int) -> bytes:
    return number.to_bytes(8, "big")


async def written(store: MemoryStore, count: int) -> WalWriter:
    wal = WalWriter(store, "a")
    for number in range(count):
        await wal.append(b"round %d" % number, token(number))
    return wal


async def tail_of(store: MemoryStore, start: int = 0) -> list[bytes]:
    return [content async for content in read_tail(store, "a", start)]


def test_tail_has_the_rounds_before_the_seal() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        await written(store, 130)
        assert await seal(store, "a", token(999)) == 130
        assert await seal(store, "a", token(998)) == 130
        assert await tail_of(store, 128) == [b"round 128", b"round 129"]

    asyncio.run(run())


def test_sealed_wal_accepts_no_round() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        wal = await written(store, 2)
        await seal(store, "a", token(999))
        with pytest.raises(Fenced, match="sealed"):
            await wal.append(b"late", token(3))
        assert wal.next_number == 2

    asyncio.run(run())


def test_seal_is_above_the_floor_although_no_round_is_left() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        await written(store, 5)
        await store.put(floor_key("a", 5), b"")
        await store.delete([round_key("a", number) for number in range(5)])
        assert await seal(store, "a", token(999)) == 5

    asyncio.run(run())


def test_session_seals_its_own_wal_after_its_last_round() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        await written(store, 5)
        await store.delete([round_key("a", number) for number in range(2, 5)])  # the floor is not written yet
        assert await seal(store, "a", token(999), start=5) == 5

    asyncio.run(run())


def test_missing_round_is_refused() -> None:
    async def run() -> None:
        store = MemoryStore(Memory())
        await written(store, 5)
        await seal(store, "a", token(999))
        await store.delete([round_key("a", 3)])
        with pytest.raises(WalDamaged, match="round 3 of session a is missing"):
            await tail_of(store)

    asyncio.run(run())


def test_round_of_another_history_is_refused() -> None:
    """As after a failover that has lost rounds, which the session then wrote again."""

    async def run() -> None:
        store = MemoryStore(Memory())
        await written(store, 3)
        other = MemoryStore(Memory())
        wal = WalWriter(other, "a")
        for number in range(3):
            await wal.append(b"other %d" % number, token(50 + number))
        [data] = await other.get([round_key("a", 2)])
        assert data is not None
        await store.put(round_key("a", 2), data)
        await seal(store, "a", token(999))
        with pytest.raises(WalDamaged, match="round 2 of session a does not follow round 1"):
            await tail_of(store)

    asyncio.run(run())
