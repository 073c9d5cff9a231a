"""A store that lacks what it has acknowledged is noticed, and what was deleted or replaced rightly is not missed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from callboard.runtime.cluster.continuity import Known, StoreOlder, check_known
from callboard.runtime.cluster.keys import floor_key, manifest_key, register_key, round_key
from callboard.runtime.cluster.known_file import NAME, KnownFile, Note
from callboard.runtime.cluster.manifest import Manifest
from callboard.runtime.cluster.register import empty_register
from callboard.runtime.cluster.register_log import RegisterLog, newest_register
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.wal import WalWriter, seal
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.partition_counts import PartitionCounts

from .memory_store import Memory, MemoryStore

SESSION, CLUSTER = "a-1", "cluster-1"
ROUNDS = 3
COUNTS = PartitionCounts(1, 1)


async def filled(store: MemoryStore) -> Known:
    """A WAL of three rounds, a manifest and a version of the register; returns what was acknowledged."""
    wal = WalWriter(store, SESSION)
    for number in range(ROUNDS):
        await wal.append(b"round", bytes([number]) * 8)
    manifest = Manifest(0, 4, "m", 1)
    register = empty_register(COUNTS, "r", CLUSTER, 1500).numbered(7, "r")
    await store.put(manifest_key(0, 4), manifest.encode())
    await store.put(register_key(7), register.encode())
    versions = {manifest_key(0, 4): "m", register_key(7): "r"}
    return Known(SESSION, wal.next_number, wal.last_token, versions, {manifest_key(0, 4): 1})


def run(body: Callable[[MemoryStore, Known], Awaitable[None]]) -> None:
    async def run_body() -> None:
        store = MemoryStore(Memory())
        await body(store, await filled(store))

    asyncio.run(run_body())


async def check(store: MemoryStore, known: Known) -> None:
    await check_known(lambda: known, store)


@pytest.mark.parametrize("key", [round_key(SESSION, ROUNDS - 1), manifest_key(0, 4), register_key(7)])
def test_each_missing_key_is_named(key: str) -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        await check(store, known)
        await store.delete([key])
        with pytest.raises(StoreOlder, match=key):
            await check(store, known)

    run(body)


def test_other_content_of_a_version_is_a_loss() -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        await store.put(manifest_key(0, 4), Manifest(0, 4, "other", 1).encode())
        with pytest.raises(StoreOlder, match=manifest_key(0, 4)):
            await check(store, known)

    run(body)


def test_seal_in_place_of_the_last_round_is_a_loss() -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        await store.delete([round_key(SESSION, ROUNDS - 1)])
        assert await seal(store, SESSION, b"12345678") == ROUNDS - 1
        with pytest.raises(StoreOlder, match=round_key(SESSION, ROUNDS - 1)):
            await check(store, known)

    run(body)


def test_rounds_that_were_deleted_behind_a_seal_or_below_a_floor_are_not_missed() -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        rounds = [round_key(SESSION, number) for number in range(ROUNDS)]
        await store.put(floor_key(SESSION, ROUNDS), b"")
        await store.delete(rounds)
        await check(store, known)
        await store.delete([floor_key(SESSION, ROUNDS)])
        await seal(store, SESSION, b"12345678", ROUNDS)
        await check(store, known)

    run(body)


def test_versions_with_newer_ones_are_not_missed() -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        await store.put(manifest_key(0, 5), Manifest(0, 5, "n", 2).encode())
        await store.put(register_key(9), b"{}")
        await store.delete([manifest_key(0, 4), register_key(7)])
        await check(store, known)

    run(body)


def test_late_create_of_a_manifest_that_the_next_owner_has_deleted_is_no_loss() -> None:
    """It is of somebody who was slower than this session. A change by nobody else's epoch is a loss."""

    async def body(store: MemoryStore, known: Known) -> None:
        await store.delete([manifest_key(0, 4)])
        await store.put(manifest_key(0, 4), Manifest(0, 4, "late", 2).encode())
        await store.put(manifest_key(0, 9), Manifest(0, 9, "n", 2).encode())
        await check(store, known)
        await store.put(manifest_key(0, 9), Manifest(0, 9, "n", 1).encode())
        with pytest.raises(StoreOlder, match=manifest_key(0, 4)):
            await check(store, known)

    run(body)


def test_what_the_session_replaces_during_the_check_is_not_missed() -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        states = iter([known, known._replace(rounds=0), known._replace(rounds=0)])
        await store.delete([round_key(SESSION, ROUNDS - 1)])
        await check_known(lambda: next(states), store)

    run(body)


def test_damaged_register_is_refused_until_the_loss_is_accepted() -> None:
    async def run_body() -> None:
        store, environment = MemoryStore(Memory()), SessionEnvironment()
        await RegisterLog(store, environment).create(COUNTS)

        async def believe() -> None:
            """Nothing to look at."""

        log = RegisterLog(store, environment, reads_damaged=True)
        assert await log.change(lambda register: register.damaged("n1: commits are missing"), believe)
        assert await log.change(lambda register: register.damaged("n2: the same"), believe) is None
        with pytest.raises(StoreOlder, match="n1: commits are missing"):
            await RegisterLog(store, environment).create(COUNTS)
        accepted = await log.change(lambda register: register.accepted(), believe)
        assert accepted is not None
        assert (accepted.damage, accepted.accepted_losses) == ("", 1)
        await RegisterLog(store, environment).create(COUNTS)

    asyncio.run(run_body())


def test_note_in_the_data_folder_is_compared_at_the_next_start(tmp_path: Path) -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        file = KnownFile(Disk(), tmp_path)
        await file.compare(store)
        file.save(Note(CLUSTER, 0, known))
        assert file.load() == Note(CLUSTER, 0, known)
        await file.compare(store)
        await store.delete([round_key(SESSION, ROUNDS - 1)])
        with pytest.raises(StoreOlder, match=round_key(SESSION, ROUNDS - 1)):
            await file.compare(store)
        register = await newest_register(store)
        assert register is not None
        await store.put(register_key(8), register._replace(accepted_losses=1).numbered(8, "x").encode())
        await file.compare(store)

    run(body)


def test_data_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async def body(store: MemoryStore, known: Known) -> None:
        file = KnownFile(Disk(), tmp_path)
        file.save(Note("cluster-2", 0, known))
        with pytest.raises(StartError, match="the cluster cluster-1, but this data folder"):
            await file.compare(store)
        with pytest.raises(StartError, match="the store has no cluster, but this data folder"):
            await file.compare(MemoryStore(Memory()))
        (tmp_path / NAME).write_text("{")
        with pytest.raises(StartError, match="cannot be read"):
            await file.compare(store)

    run(body)


@pytest.mark.parametrize("name", ["__consumer_offsets-3", "journal/00000000000000000001.journal"])
def test_folder_of_a_single_server_is_refused_unless_the_cluster_was_imported_from_it(
    tmp_path: Path, name: str
) -> None:
    """The node served, without any of its groups."""

    async def body(store: MemoryStore, _: Known) -> None:
        for other in (store, MemoryStore(Memory())):
            with pytest.raises(StartError, match=r"has the log of a single server, .*callboard cluster import"):
                await file.compare(other)
        register = await newest_register(store)
        assert register is not None
        await store.put(register_key(8), register._replace(cluster_id=cluster_id).numbered(8, "x").encode())
        await file.compare(store)

    with DataFolder(tmp_path) as folder:
        cluster_id = folder.cluster_id
    file = KnownFile(Disk(), tmp_path)
    asyncio.run(file.compare(MemoryStore(Memory())))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).mkdir() if name.startswith("__") else (tmp_path / name).touch()
    run(body)


@pytest.mark.parametrize(
    "content",
    ['"x"', "[]", "null", "[" * 100_000, '{"known": 1}', '{"known": {"versions": []}}'],
    ids=["a text", "a list", "null", "too deep", "a number", "a list of versions"],
)
def test_note_of_another_form_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(
        StartError, match=r"cluster-known.json: cannot be read: .*; remove it to start without comparing"
    ):
        KnownFile(Disk(), tmp_path).load()


@pytest.mark.parametrize(
    ("name", "value"), [("cluster_id", 1), ("accepted_losses", "x"), ("accepted_losses", True), ("known", {})]
)
def test_note_with_value_of_another_type_is_refused(name: str, value: object, tmp_path: Path) -> None:
    file = KnownFile(Disk(), tmp_path)
    file.save(Note(CLUSTER, 0, Known(SESSION, 1, b"t", {"a": "b"}, {"a": 2})))
    (tmp_path / NAME).write_text(json.dumps(json.loads((tmp_path / NAME).read_text()) | {name: value}))
    with pytest.raises(StartError, match="cannot be read"):
        file.load()


def test_note_is_read_as_it_was_saved_and_those_of_earlier_releases_have_no_epochs(tmp_path: Path) -> None:
    file, note = KnownFile(Disk(), tmp_path), Note(CLUSTER, 0, Known(SESSION, 1, b"t", {"a": "b"}, {"a": 2}))
    file.save(note)
    assert file.load() == note
    fields = json.loads((tmp_path / NAME).read_text())
    del fields["known"]["epochs"]
    (tmp_path / NAME).write_text(json.dumps(fields))
    assert file.load() == note._replace(known=note.known._replace(epochs={}))


def test_fifo_at_the_path_of_the_note_is_refused(tmp_path: Path) -> None:
    """Reading it would wait for ever."""
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(StartError, match="found a FIFO, expected a file"):
        KnownFile(Disk(), tmp_path).load()
