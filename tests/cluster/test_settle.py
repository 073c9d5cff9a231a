"""``settle`` finds out whose value a key has, whatever ``create`` answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from callboard.runtime.cluster.store import StoreRefused, StoreUnavailable, check_key, settle

KEY_NAME = "wal/a/0000000001"


class ScriptedStore:
    """A store of one key whose ``create`` answers as scripted: an answer, an error, or a value that is stored first."""

    def __init__(self, *script: bool | Exception | bytes) -> None:
        self.value: bytes | None = None
        self.script = list(script)
        self.syncs = 0

    async def create(self, key: str, value: bytes) -> bool:
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, bytes):
            self.value = step
            raise StoreUnavailable("the answer was lost")
        if step:
            self.value = value
        return step

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.value]

    async def sync(self) -> None:
        self.syncs += 1

    async def put(self, key: str, value: bytes) -> None:
        raise NotImplementedError

    async def list(self, prefix: str, after: str = "") -> list[str]:
        raise NotImplementedError

    async def delete(self, keys: Sequence[str]) -> None:
        raise NotImplementedError

    async def announce_change(self) -> None:
        raise NotImplementedError

    async def wait_for_change(self, timeout_s: float) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def settled(*script: bool | Exception | bytes) -> tuple[bytes, ScriptedStore]:
    store = ScriptedStore(*script)
    return asyncio.run(settle(store, KEY_NAME, b"mine")), store


def test_created_value_is_ours_without_a_read() -> None:
    value, store = settled(True)
    assert (value, store.syncs) == (b"mine", 0)


def test_lost_answer_of_a_create_that_landed_is_ours() -> None:
    value, store = settled(b"mine", False)
    assert (value, store.syncs) == (b"mine", 1)


def test_other_value_wins_after_it_is_durable() -> None:
    store = ScriptedStore(False)
    store.value = b"theirs"
    assert asyncio.run(settle(store, KEY_NAME, b"mine")) == b"theirs"
    assert store.syncs == 1


@pytest.mark.parametrize("step", [False, StoreUnavailable("409 ConditionalRequestConflict")])
def test_conflict_in_which_nothing_was_stored_is_repeated(step: bool | Exception) -> None:
    value, store = settled(step, True)
    assert (value, store.script) == (b"mine", [])


def test_refusal_is_not_repeated() -> None:
    with pytest.raises(StoreRefused, match="403"):
        settled(StoreRefused("403 Forbidden"), True)


@pytest.mark.parametrize(
    "key", ["", "cluster", "cluster/", "a b/c", "Cluster/1", "seg/../x/..", "seg/a/b/c/d/e/f", "x/" + "y" * 200]
)
def test_bad_keys_are_named(key: str) -> None:
    with pytest.raises(ValueError, match="this is not one"):
        check_key(key)


@pytest.mark.parametrize("key", ["cluster/0000000001", "seg/17/0-99-a1b2.log", "alive/n1-00ff"])
def test_good_keys_pass(key: str) -> None:
    check_key(key)
