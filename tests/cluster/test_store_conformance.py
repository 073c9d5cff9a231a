"""What a cluster relies on, with every engine: one suite for all of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from callboard.runtime.cluster.store import Store, StoreUnavailable, settle

from .engine_cases import EngineCase, Opener

RACES = 100
RACERS = 32
SHORT_S = 0.05
LONG_S = 20.0
"""A wait that a test never sits out: something ends it."""

KB, MB = 1024, 1024 * 1024
BAD_KEYS = ("", "cluster", "wal/..", "wal/a b", "Wal/1", "wal/" + "x" * 200)
OPERATIONS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "create": lambda store: store.create("wal/a/1", b"x"),
    "get": lambda store: store.get(["wal/a/1"]),
    "put": lambda store: store.put("wal/a/1", b"x"),
    "list": lambda store: store.list("wal/"),
    "delete": lambda store: store.delete(["wal/a/1"]),
    "sync": lambda store: store.sync(),
    "announce_change": lambda store: store.announce_change(),
    "wait_for_change": lambda store: store.wait_for_change(0),
}


def test_every_race_to_create_a_key_has_exactly_one_winner(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        stores = [opened(f"n{number}") for number in range(4)]
        for race in range(RACES):
            key = engine.key(f"{race:04}")
            values = [f"{race}-{racer}".encode() for racer in range(RACERS)]
            wins = await asyncio.gather(*(stores[i % 4].create(key, value) for i, value in enumerate(values)))
            assert wins.count(True) == 1, f"race {race}"
            assert await stores[race % 4].get([key]) == [values[wins.index(True)]]

    engine.run(body)


def test_created_value_is_read_by_every_node_and_never_replaced(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        one, other = opened("n1"), opened("n2")
        for number in range(10):
            key = engine.key(number)
            assert await one.get([key]) == [None]
            assert await one.create(key, b"first")
            assert await other.get([key]) == [b"first"]
            assert not await other.create(key, b"second")
            assert await one.get([key]) == [b"first"]

    engine.run(body)


def test_settle_agrees_on_all_nodes(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        stores = [opened(f"n{number}") for number in range(3)]
        values = [f"value of {number}".encode() for number in range(3)]
        for number in range(5):
            key = engine.key(number)
            settled = await asyncio.gather(*(settle(store, key, v) for store, v in zip(stores, values, strict=True)))
            assert len(set(settled)) == 1
            assert settled[0] in values

    engine.run(body)


def test_put_replaces_a_value(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        one, other = opened("n1"), opened("n2")
        key = engine.key("beat")
        for value in (b"1", b"", b"22"):
            await one.put(key, value)
            assert await other.get([key]) == [value]
        assert not await other.create(key, b"3")
        assert await one.get([key]) == [b"22"]

    engine.run(body)


def test_get_answers_in_the_order_of_its_keys(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        store = opened("n1")
        keys = [engine.key(number) for number in range(100)]
        await asyncio.gather(*(store.put(key, key.encode()) for key in keys[::2]))
        wanted = [*reversed(keys), keys[0], keys[0]]
        expected = [key.encode() if int(key.rpartition("/")[2]) % 2 == 0 else None for key in wanted]
        assert await store.get(wanted) == expected
        assert await store.get([]) == []
        assert await store.get([f"wal/{engine.session}", f"{keys[0]}/1"]) == [None, None]

    engine.run(body)


def test_list_is_complete_in_order_and_begins_behind_a_key(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        one, other = opened("n1"), opened("n2")
        names = ["0", "10", "2", "A", "Z-1", "_x", "a.log", "b/1", "b/2-c", "b-d", "zz"]
        keys = sorted(f"wal/{engine.session}/x-{name}" for name in names)
        await asyncio.gather(*(one.create(key, b"value") for key in keys))
        await one.create(f"wal/{engine.session}x/1", b"of another session")
        assert await other.list(f"wal/{engine.session}/") == keys
        for key in keys:
            assert await other.list(f"wal/{engine.session}/", key) == keys[keys.index(key) + 1 :]
        assert await other.list(f"wal/{engine.session}/", f"wal/{engine.session}/x-5") == [
            key for key in keys if key > f"wal/{engine.session}/x-5"
        ]
        assert await other.list(f"wal/{engine.session}/x-a") == [key for key in keys if "/x-a" in key]
        assert await other.list(f"low/{engine.session}/") == []

    engine.run(body)


def test_deleted_keys_are_gone_and_can_be_created_again(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        one, other = opened("n1"), opened("n2")
        keys = [engine.key(f"{number:03}") for number in range(40)]
        await asyncio.gather(*(one.put(key, b"value") for key in keys))
        await one.delete([*keys[:30], engine.key("absent")])
        await one.delete([])
        assert await other.list(f"wal/{engine.session}/") == keys[30:]
        assert await other.get(keys[:2]) == [None, None]
        assert await other.create(keys[0], b"again")
        assert await one.get([keys[0]]) == [b"again"]

    engine.run(body)


@pytest.mark.parametrize("size", [50 * KB, MB])
def test_large_values_are_stored_as_they_are(engine: EngineCase, size: int) -> None:
    value = random.Random(size).randbytes(size)

    async def body(opened: Opener) -> None:
        one, other = opened("n1"), opened("n2")
        assert await one.create(engine.key("created"), value)
        await one.put(engine.key("put"), value[::-1])
        assert await other.get([engine.key("created"), engine.key("put")]) == [value, value[::-1]]

    engine.run(body)


def test_keys_that_some_engine_could_not_store_are_refused(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        store = opened("n1")
        for key in BAD_KEYS:
            with pytest.raises(ValueError, match="this is not one"):
                await store.create(key, b"value")
            with pytest.raises(ValueError, match="this is not one"):
                await store.put(key, b"value")

    engine.run(body)


def test_sync_returns(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        one, other = opened("n1"), opened("n2")
        await one.create(engine.key(1), b"value")
        await other.get([engine.key(1)])
        await other.sync()
        await other.sync()

    engine.run(body)


def test_wait_for_change_ends_in_time_or_with_an_announcement(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        one, other = opened("n1"), opened("n2")
        await other.wait_for_change(SHORT_S)
        if engine.announces:
            waiting = asyncio.create_task(other.wait_for_change(LONG_S * 3))
            await asyncio.sleep(SHORT_S)
            await one.announce_change()
            await asyncio.wait_for(waiting, LONG_S)
            await one.announce_change()
            await asyncio.wait_for(other.wait_for_change(LONG_S * 3), LONG_S)
        else:
            await one.announce_change()
            await other.wait_for_change(SHORT_S)

    engine.run(body)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_of_a_closed_store_are_unavailable(engine: EngineCase, name: str) -> None:
    async def body(opened: Opener) -> None:
        store = opened("n1")
        await store.get([engine.key(1)])
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await OPERATIONS[name](store)

    engine.run(body)


def test_close_ends_operations_in_progress(engine: EngineCase) -> None:
    async def body(opened: Opener) -> None:
        store = opened("n1")
        await store.get([engine.key(1)])
        creates = [asyncio.create_task(store.create(engine.key(n), b"value")) for n in range(50)]
        await asyncio.sleep(0)
        await store.close()
        outcomes = await asyncio.gather(*creates, return_exceptions=True)
        created = await opened("n2").list(f"wal/{engine.session}/")
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, StoreUnavailable) or (outcome is True and engine.key(number) in created)

    engine.run(body)
