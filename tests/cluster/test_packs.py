"""Copies of many rounds in one value: a takeover reads few values, and misses nothing if a copy is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from callboard.runtime.cluster.keys import PACKS, pack_key, pack_prefix, round_key
from callboard.runtime.cluster.packs import LARGE_BYTES, WAITING_MAX, list_packs
from callboard.runtime.cluster.read_ahead import AFTER_PACKS
from callboard.runtime.cluster.wal import WalWriter, read_tail, seal

from .memory_store import Memory, MemoryStore

PACK = 32
ROUNDS = 300
FLOOR = 10


class CountingStore(MemoryStore):
    """``gets``: how many reads there were, of ``read`` values."""

    gets = read = 0

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        self.gets += 1
        self.read += len(keys)
        return await super().get(keys)


def token(number: int) -> bytes:
    return number.to_bytes(8, "big")


def content(number: int) -> bytes:
    return b"round %d" % number


async def sealed(memory: Memory, contents: Sequence[bytes]) -> WalWriter:
    """A WAL with its packs and its seal."""
    store = MemoryStore(memory)
    wal = WalWriter(store, "a", PACK)
    packing = asyncio.create_task(wal.packs.keep_packed())
    for number, each in enumerate(contents):
        await wal.append(each, token(number))
    for _ in range(4 * WAITING_MAX):
        await asyncio.sleep(0)
    packing.cancel()
    await seal(store, "a", token(999))
    return wal


async def tail_of(store: MemoryStore, start: int = FLOOR) -> list[bytes]:
    return [each async for each in read_tail(store, "a", start, packs=await list_packs(store, "a"))]


def test_tail_is_read_by_one_operation_with_its_packs_and_the_rounds_after_them() -> None:
    async def run() -> None:
        memory = Memory()
        await sealed(memory, [content(number) for number in range(ROUNDS)])
        store = CountingStore(memory)
        assert await tail_of(store) == [content(number) for number in range(FLOOR, ROUNDS)]
        assert (store.gets, store.read) == (1, ROUNDS // PACK + AFTER_PACKS)

    asyncio.run(run())


def test_pack_that_is_missing_or_of_another_format_is_not_needed() -> None:
    async def run() -> None:
        memory = Memory()
        await sealed(memory, [content(number) for number in range(ROUNDS)])
        del memory.values[pack_key("a", PACK, 2 * PACK)]
        memory.values[pack_key("a", 3 * PACK, 4 * PACK)] = b"Q" + bytes(20)
        store = CountingStore(memory)
        assert await tail_of(store) == [content(number) for number in range(FLOOR, ROUNDS)]
        assert store.read < ROUNDS // PACK + AFTER_PACKS + 3 * PACK

    asyncio.run(run())


def test_pack_that_was_deleted_since_it_was_listed_is_not_needed() -> None:
    async def run() -> None:
        memory = Memory()
        await sealed(memory, [content(number) for number in range(ROUNDS)])
        packs = [pack_key("a", number, number + PACK) for number in range(0, ROUNDS + PACK, PACK)]
        del memory.values[packs[3]]
        tail = [each async for each in read_tail(MemoryStore(memory), "a", 0, packs=packs)]
        assert tail == [content(number) for number in range(ROUNDS)]

    asyncio.run(run())


def test_tail_is_complete_without_any_pack() -> None:
    async def run() -> None:
        memory = Memory()
        await sealed(memory, [content(number) for number in range(ROUNDS)])
        tail = [each async for each in read_tail(MemoryStore(memory), "a", FLOOR)]
        assert tail == [content(number) for number in range(FLOOR, ROUNDS)]

    asyncio.run(run())


def test_packs_have_no_large_rounds() -> None:
    async def run() -> None:
        memory, large = Memory(), bytes(LARGE_BYTES)
        contents = [large if number == PACK + 5 else content(number) for number in range(3 * PACK)]
        await sealed(memory, contents)
        packs = [key for key in memory.values if key.startswith(PACKS)]
        assert packs == [pack_key("a", 0, PACK), pack_key("a", PACK + 6, 2 * PACK + 6)]
        assert await tail_of(MemoryStore(memory), 0) == contents

    asyncio.run(run())


def test_pack_ends_when_its_rounds_are_large_together() -> None:
    async def run() -> None:
        memory, third = Memory(), bytes(LARGE_BYTES // 3)
        await sealed(memory, [third] * 6)
        packs = [key for key in memory.values if key.startswith(PACKS)]
        assert packs == [pack_key("a", 0, 3), pack_key("a", 3, 6)]
        assert await tail_of(MemoryStore(memory), 0) == [third] * 6

    asyncio.run(run())


def test_packs_go_when_all_their_rounds_are_below_the_floor() -> None:
    async def run() -> None:
        wal = await sealed(Memory(), [content(number) for number in range(ROUNDS)])
        assert wal.packs.forget_below(PACK - 1) == []
        assert wal.packs.forget_below(2 * PACK) == [pack_key("a", 0, PACK), pack_key("a", PACK, 2 * PACK)]
        assert wal.packs.forget_below(2 * PACK) == []

    asyncio.run(run())


def test_store_that_is_slow_gets_the_newest_packs_only() -> None:
    async def run() -> None:
        memory = Memory()
        wal = WalWriter(MemoryStore(memory), "a", 2)
        for number in range(20):
            await wal.append(content(number), token(number))
        packing = asyncio.create_task(wal.packs.keep_packed())
        for _ in range(4 * WAITING_MAX):
            await asyncio.sleep(0)
        packing.cancel()
        packs = [key for key in memory.values if key.startswith(pack_prefix("a"))]
        assert packs == [pack_key("a", first, first + 2) for first in range(20 - 2 * WAITING_MAX, 20, 2)]
        assert round_key("a", 0) in memory.values

    asyncio.run(run())
