"""The store in PostgreSQL: cancelled waits, frozen peers, failover, permissions, poolers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.engines.postgres import (
    CREATE,
    LIMIT_S,
    OTHER_SESSIONS,
    PATIENCE_S,
    SESSIONS_FOR_CREATES,
    PostgresStore,
)
from callboard.runtime.cluster.engines.postgres_session import Session, SessionSource
from callboard.runtime.cluster.keys import TOPICS, register_key, version_key
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.store import StoreRefused, StoreUnavailable, settle
from callboard.runtime.common.errors import StartError

from .engine_cases import skip_or_fail
from .pgbouncer import PgBouncer, missing_pgbouncer
from .postgres_server import GUARDED_PASSWORD, GUARDED_USER, HOST, PostgresServer, free_port
from .slow_network import SlowNetwork

KEYS = count(1)
SHORT_S = 0.3
DEADLINE_S = 60.0
STANDBY = "s1"
WAITING = "select count(*) from pg_stat_activity where wait_event = '{}' and query like 'insert into callboard.store%'"
Body = Callable[[PostgresStore], Awaitable[None]]


def new_key() -> str:
    return f"pg/{next(KEYS):04}"


def run(url: str, body: Body, limit_s: float = LIMIT_S, patience_s: float = PATIENCE_S) -> None:
    async def closing_store() -> None:
        store = PostgresStore(url, "n1", limit_s, patience_s)
        try:
            await asyncio.wait_for(body(store), DEADLINE_S)
        finally:
            await store.close()

    asyncio.run(closing_store())


async def until(server: PostgresServer, query: str, expected: str) -> None:
    while await asyncio.to_thread(server.sql, query) != expected:
        await asyncio.sleep(0.02)


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """A database of its own."""
    name = f"d{next(KEYS)}"
    postgres.sql(f"create database {name}")
    yield name
    postgres.sql(f"drop database {name} with (force)")


def half_sent_insert(server: PostgresServer, key: str) -> socket.socket:
    """The connection of a peer that was frozen in the middle of an insert: Sync, which commits, was not sent."""
    connection = socket.create_connection((HOST, server.port))
    startup = struct.pack(">i", 196608) + b"user\0postgres\0database\0postgres\0\0"
    connection.sendall(struct.pack(">i", len(startup) + 4) + startup)
    insert = b"insert into callboard.store values ('" + key.encode() + b"', 'frozen')"
    messages = ((b"P", b"\0" + insert + b"\0\0\0"), (b"B", b"\0\0\0\0\0\0\0\0"), (b"E", b"\0\0\0\0\0"), (b"H", b""))
    connection.sendall(b"".join(kind + struct.pack(">i", len(body) + 4) + body for kind, body in messages))
    received = b""
    while b"INSERT 0 1" not in received:
        piece = connection.recv(4096)
        assert piece, received
        received += piece
    return connection


@pytest.mark.parametrize("key", [new_key(), version_key(TOPICS, next(KEYS))], ids=["value", "document"])
def test_key_held_by_a_frozen_peer_is_created_after_its_connection_is_ended(postgres: PostgresServer, key: str) -> None:
    async def body(store: PostgresStore) -> None:
        await store.create(new_key(), b"creates the table")
        with closing(await asyncio.to_thread(half_sent_insert, postgres, key)):
            assert await store.create(key, b"mine")
        assert await store.get([key]) == [b"mine"]

    run(postgres.url(), body, patience_s=SHORT_S)


def test_create_begins_one_task(postgres: PostgresServer) -> None:
    """Each round of commits waits for one create, and each task adds two turns of the loop to it."""
    begun = list[str]()

    def note_task(loop: asyncio.AbstractEventLoop, work: Any, **names: Any) -> asyncio.Task[Any]:
        begun.append(work.__qualname__)
        return asyncio.Task(work, loop=loop, **names)

    async def body(store: PostgresStore) -> None:
        assert await store.create(new_key(), b"opens the session")
        asyncio.get_running_loop().set_task_factory(note_task)
        assert await store.create(new_key(), b"round")
        asyncio.get_running_loop().set_task_factory(None)

    run(postgres.url(), body)
    assert begun == ["Session._answer"]


async def rejected(store: PostgresStore, key: str) -> None:
    with pytest.raises(StoreUnavailable, match=f"has not answered a create of {key} in {SHORT_S} s"):
        await store.create(key, b"late")


def test_create_that_has_no_answer_in_time_drops_its_connection_and_cancels_nothing(postgres: PostgresServer) -> None:
    key, log_before = new_key(), postgres.log()

    async def body(store: PostgresStore) -> None:
        await store.create(new_key(), b"creates the table")
        with closing(await asyncio.to_thread(half_sent_insert, postgres, key)):
            await rejected(store, key)
        assert await settle(store, key, b"second") in (b"late", b"second")

    run(postgres.url(), body, limit_s=SHORT_S)
    assert "canceling statement" not in postgres.log().removeprefix(log_before)


@pytest.fixture
def synchronous(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The standby, not started, of a server whose commits wait for it."""
    postgres.sql("create database replicated")
    standby = postgres.standby(STANDBY)
    postgres.sql(f"alter system set synchronous_standby_names = '{STANDBY}'; select pg_reload_conf()")
    try:
        yield standby
    finally:
        postgres.start_if_stopped()
        postgres.sql("alter system reset synchronous_standby_names; select pg_reload_conf()")
        standby.remove()
        postgres.sql("drop database replicated with (force)")


def test_cancelled_wait_for_the_standby_is_unknown_until_the_standby_has_the_row(
    postgres: PostgresServer, synchronous: PostgresServer
) -> None:
    """The server answers ``INSERT 0 1`` with a warning, and shows the row, while the standby does not have it."""
    key = new_key()
    cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"

    async def body(store: PostgresStore) -> None:
        first = asyncio.create_task(store.create(new_key(), b"creates the table"))
        await until(postgres, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'", "1")
        await asyncio.to_thread(postgres.sql, cancel)
        await until(postgres, WAITING.format("SyncRep"), "1")
        await asyncio.to_thread(postgres.sql, cancel)
        with pytest.raises(StoreUnavailable, match="canceling wait for synchronous replication"):
            await first
        creating = asyncio.create_task(store.create(key, b"mine"))
        await until(postgres, WAITING.format("SyncRep"), "1")
        other = asyncio.create_task(store.create(key, b"another"))
        await asyncio.sleep(3 * SHORT_S)
        assert await asyncio.to_thread(postgres.sql, WAITING.format("SyncRep")) == "1"  # a living peer is not ended
        await asyncio.to_thread(postgres.sql, cancel)
        outcomes = await asyncio.gather(creating, other, return_exceptions=True)
        assert True not in outcomes
        assert any("canceling wait for synchronous replication" in str(outcome) for outcome in outcomes)
        [visible] = await store.get([key])
        assert visible in (b"mine", b"another")

        settling = asyncio.create_task(settle(store, key, b"mine"))
        await until(postgres, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'", "1")
        await asyncio.to_thread(synchronous.start)
        assert await settling == visible
        with pytest.raises(StoreUnavailable, match=r"standby|attribute|primary"):
            await opened_standby.get([key])
        await asyncio.to_thread(postgres.stop, "immediate")
        await asyncio.to_thread(synchronous.promote)
        await asyncio.to_thread(
            synchronous.sql, "alter system reset synchronous_standby_names; select pg_reload_conf()"
        )
        assert await opened_standby.get([key]) == [visible]
        assert await opened_standby.create(f"{key}/next", b"value")
        await opened_standby.close()

    opened_standby = PostgresStore(synchronous.url(database="replicated"), "n2")
    run(postgres.url(database="replicated"), body, patience_s=SHORT_S)


def test_crash_of_the_server_is_an_outage_and_the_same_store_goes_on(postgres: PostgresServer) -> None:
    keys = [new_key(), new_key()]

    async def body(store: PostgresStore) -> None:
        assert await store.create(keys[0], b"before")
        await store.wait_for_change(10 * DEADLINE_S)  # what was announced before this session listens may be missed
        waiting = asyncio.create_task(store.wait_for_change(10 * DEADLINE_S))
        await asyncio.to_thread(postgres.stop, "immediate")
        await waiting  # a change may have been announced meanwhile
        for operation in (store.create(keys[1], b"x"), store.get(keys), store.put(keys[1], b"x"), store.sync()):
            with pytest.raises(StoreUnavailable, match=f"PostgreSQL at {HOST}:{postgres.port}/postgres is not avail"):
                await operation
        await asyncio.to_thread(postgres.start)
        assert await store.get([keys[0]]) == [b"before"]
        assert await settle(store, keys[1], b"after") == b"after"
        await store.announce_change()
        await store.wait_for_change(0)

    run(postgres.url(), body)


def test_slow_server_is_not_asked_for_a_session_with_each_wait(postgres: PostgresServer) -> None:
    """Opening one takes several requests, and so longer than a wait. Each attempt would be given up, for ever."""

    async def body() -> None:
        async with SlowNetwork(postgres.port).running() as network:
            network.delay_s = SHORT_S
            store = PostgresStore(postgres.url(port=network.port), "n1")
            try:
                for _ in range(20):
                    await store.wait_for_change(SHORT_S / 4)
                assert network.accepted == 1
                await store.wait_for_change(DEADLINE_S)  # until it listens
                waiting = asyncio.create_task(store.wait_for_change(DEADLINE_S))
                await store.announce_change()
                await asyncio.wait_for(waiting, DEADLINE_S / 2)
            finally:
                await store.close()

    asyncio.run(body())


def test_refusal_names_the_server_and_its_answer(postgres: PostgresServer, database: str) -> None:
    postgres.sql(f"create role {GUARDED_USER} login password '{GUARDED_PASSWORD}'")
    address = f"PostgreSQL at {HOST}:{postgres.port}"
    refusals = {
        postgres.url(GUARDED_USER, "wrong secret".replace(" ", "%20")): f"{address}/postgres refused: password",
        postgres.url(database="no_such_one"): f'{address}/no_such_one refused: database "no_such_one" does not exist',
        postgres.url(GUARDED_USER, GUARDED_PASSWORD, database): "may not create it .* administrator: create schema",
        f"{postgres.url()}?sslmode=perhaps": "sslmode",
        f"{postgres.url()}?no_such_setting=1": "unrecognized configuration parameter",
    }

    for url, answer in refusals.items():

        async def body(store: PostgresStore, answer: str = answer) -> None:
            with pytest.raises(StoreRefused, match=answer) as caught:
                await store.create(new_key(), b"value")
            assert GUARDED_PASSWORD not in str(caught.value)

        run(url, body)
    postgres.sql(f"drop role {GUARDED_USER}")


def test_durability_that_is_switched_off_is_refused(postgres: PostgresServer, database: str) -> None:
    postgres.sql(f"alter database {database} set synchronous_commit = off")

    async def body(store: PostgresStore) -> None:
        with pytest.raises(StoreRefused, match="would lose what it has answered; set it: alter role"):
            await store.create(new_key(), b"value")

    run(postgres.url(database=database), body)


def test_table_that_is_gone_is_refused_and_not_made_again(postgres: PostgresServer, database: str) -> None:
    """A cluster that found an empty store would begin from nothing."""
    key = new_key()

    async def body(store: PostgresStore) -> None:
        assert await store.create(key, b"value")
        postgres.sql("drop table callboard.store", database)
        for _ in range(3):
            with pytest.raises(StoreRefused, match=r'relation "callboard\.store" does not exist: .* restore it'):
                await store.get([key])

    run(postgres.url(database=database), body)


def test_reads_and_deletes_change_nothing_in_a_database_without_the_table(
    postgres: PostgresServer, database: str
) -> None:
    """It may have been given by mistake. What another store creates there is seen."""

    async def body(store: PostgresStore) -> None:
        assert await store.get(["pg/1", "pg/2"]) == [None, None]
        assert await store.list("pg/") == []
        await store.delete(["pg/1"])
        await store.sync()
        await store.announce_change()
        assert postgres.sql("select count(*) from pg_namespace where nspname = 'callboard'", database) == "0"
        other = PostgresStore(postgres.url(database=database), "n2")
        assert await other.create("pg/1", b"value")
        await other.close()
        assert await store.get(["pg/1", "pg/2"]) == [b"value", None]

    run(postgres.url(database=database), body)


def test_nodes_that_start_together_make_one_table(postgres: PostgresServer, database: str) -> None:
    async def body(store: PostgresStore) -> None:
        others = [PostgresStore(postgres.url(database=database), f"n{number}") for number in range(6)]
        created = await asyncio.gather(*(other.create("pg/1", b"value") for other in others))
        assert sorted(created) == [False] * 5 + [True]
        for other in others:
            await other.close()

    run(postgres.url(database=database), body)
    stored = "select attstorage from pg_attribute where attrelid = 'callboard.store'::regclass and attname = 'value'"
    assert postgres.sql(stored, database) == "e"


def test_server_that_is_not_there_is_unavailable() -> None:
    port = free_port()

    async def body(store: PostgresStore) -> None:
        with pytest.raises(StoreUnavailable, match=f"{HOST}:{port}/postgres is not available: .*failed"):
            await store.get(["pg/1"])

    run(f"postgresql://postgres:secret@{HOST}:{port}/postgres", body)


def test_host_that_does_not_answer_leaves_time_for_the_others(postgres: PostgresServer) -> None:
    """A machine that was cut off refuses nothing: the connection to it only ends after the time of an operation."""

    async def body(store: PostgresStore) -> None:
        with pytest.raises(StoreUnavailable):
            await store.get(["pg/1"])
        assert await PatientStore(store).get(["pg/1"]) == [None]
        while await asyncio.to_thread(postgres.sql, sessions) != "1":
            await asyncio.sleep(0.02)
        async with store._others.session():
            assert await store.get(["pg/1"]) == [None]  # another session, and the silent host is not the first any more

    sessions = "select count(*) from pg_stat_activity where application_name = 'callboard:n1'"
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        run(f"postgresql://postgres@{HOST}:{port},{HOST}:{postgres.port}/postgres", body, SHORT_S)


def test_session_of_a_slow_server_is_opened_although_no_operation_waits_so_long(postgres: PostgresServer) -> None:
    """Opening one takes ten round trips or more."""

    async def slow() -> None:
        async with SlowNetwork(postgres.port).running() as network:
            network.delay_s = SHORT_S / 5
            store = PostgresStore(postgres.url(port=network.port), "n1", SHORT_S)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    assert await PatientStore(store).get(["pg/1"]) == [None]
                assert network.accepted <= OTHER_SESSIONS
            finally:
                await store.close()

    asyncio.run(slow())


def test_node_is_known_by_its_application_name(postgres: PostgresServer) -> None:
    async def body(store: PostgresStore) -> None:
        await store.get(["pg/1"])
        names = await asyncio.to_thread(postgres.sql, "select distinct application_name from pg_stat_activity")
        assert "callboard:n1" in names.split("\n")

    run(postgres.url(), body)


def test_all_sessions_are_opened_before_they_are_needed(postgres: PostgresServer) -> None:
    """A second call while they are opened would wait for those of the first one, and these for its own."""

    async def body(store: PostgresStore) -> None:
        store.connect_ahead()
        store.connect_ahead()
        count = "select count(*) from pg_stat_activity where application_name = 'callboard:n1'"
        await until(postgres, count, str(SESSIONS_FOR_CREATES + OTHER_SESSIONS))
        assert await store.create(key := new_key(), b"value")
        assert await store.get([key]) == [b"value"]

    run(postgres.url(), body)


def test_sessions_that_cannot_be_opened_ahead_are_opened_when_they_are_needed() -> None:
    async def body(store: PostgresStore) -> None:
        store.connect_ahead()
        with pytest.raises(StoreUnavailable, match="is not available"):
            await store.get(["pg/1"])

    run(f"postgresql://postgres@{HOST}:{free_port()}/postgres", body)


def test_new_version_of_a_document_is_announced_when_it_is_created(postgres: PostgresServer, database: str) -> None:
    """Its creator looks at the store once more before it would announce it."""
    url = postgres.url(database=database)

    async def body(store: PostgresStore) -> None:
        other = PostgresStore(url, "n2")
        try:
            await other.wait_for_change(10 * DEADLINE_S)  # until it listens
            for key in (register_key(1), version_key(TOPICS, 1)):
                waiting = asyncio.create_task(other.wait_for_change(10 * DEADLINE_S))
                assert await store.create(key, b"value")
                await waiting
                assert not await store.create(key, b"another")
            await store.announce_change()
            with pytest.raises(TimeoutError):  # it was announced before
                await asyncio.wait_for(other.wait_for_change(10 * DEADLINE_S), SHORT_S)
            await store.announce_change()
            await other.wait_for_change(10 * DEADLINE_S)
        finally:
            await other.close()

    run(url, body)


def test_server_parses_a_statement_once_for_each_connection(postgres: PostgresServer) -> None:
    uses = "select generic_plans + custom_plans from pg_prepared_statements where statement = $1"

    async def no_check(_session: Session) -> None: ...

    async def create_thrice() -> None:
        session = await SessionSource(postgres.url(), "n1", LIMIT_S, no_check).open()
        for _ in range(3):
            assert await session.fetch(CREATE, new_key(), b"value")
        [[times]] = await session.fetch(uses, CREATE)
        assert times == 3
        session.drop()

    asyncio.run(create_thrice())


def test_pooler_is_used_without_prepared_statements_and_notifications(postgres: PostgresServer) -> None:
    if (reason := missing_pgbouncer()) is not None:
        skip_or_fail(reason)
    keys = [new_key() for _ in range(40)]

    async def body(store: PostgresStore) -> None:
        assert all(await asyncio.gather(*(store.create(key, key.encode()) for key in keys)))
        assert await store.get(keys) == [key.encode() for key in keys]
        assert await asyncio.gather(*(store.create(key, b"again") for key in keys)) == [False] * len(keys)
        await store.put(keys[0], b"put")
        assert (await store.list("pg/", keys[0]))[-1:] == keys[-1:]
        await store.delete(keys[1:])
        await store.sync()
        await store.announce_change()
        await store.wait_for_change(0.01)
        with closing(await asyncio.to_thread(half_sent_insert, postgres, keys[1])):
            assert await store.create(keys[1], b"mine")
        assert await store.get(keys[:2]) == [b"put", b"mine"]

    with PgBouncer(postgres) as pooler:
        run(pooler.url(), body, patience_s=SHORT_S)


@pytest.mark.parametrize("url", ["postgresql://host:port/db", "postgres://host:99999/db"])
def test_bad_url_is_refused(url: str) -> None:
    with pytest.raises(StartError, match="expected one like postgresql://user@host:5432/database"):
        open_store(url, "n1")
