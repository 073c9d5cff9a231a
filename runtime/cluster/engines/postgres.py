"""A store in a table of PostgreSQL. Every operation is one statement, which commits by itself.

Answers are as durable as the server makes a commit: on a standby too if ``synchronous_standby_names`` says so. Three
properties of PostgreSQL shape this module:

* A wait for the synchronous standby that is cancelled answers like one that succeeded, with a warning. So this module
  never cancels a statement, it drops the connection; and an answer with a warning is an unknown outcome.
* A row may be visible before the standby has it. ``sync`` commits something later in the log and waits for that.
* An insert of a peer that is frozen after half a message holds its key for ever; no timeout of the server ends it
  before version 17. A ``create`` that waits for such a peer ends the peer's connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import urlsplit

from ....actors.text import format_count
from ...common.errors import StartError
from ...common.logs import get_logger
from ..continuity import Check
from ..keys import REGISTER, TOPICS
from ..store import StoreRefused, StoreUnavailable, check_key
from .operations import Operations
from .postgres_listener import Listener
from .postgres_session import CHANNEL, Rows, Session, Sessions, SessionSource

LIMIT_S = 5.0
PATIENCE_S = 1.0
"""How long a create waits for another one of the same key before it looks for a frozen peer."""

SESSIONS_FOR_CREATES = 3
"""Apart from those of other operations, so that no round waits for a large read. More than one, because one may wait
for a frozen peer."""
OTHER_SESSIONS = 3
KEYS_AT_ONCE = 64
"""Of a get, so that its answer does not outlast the time limit."""

CREATE = "insert into callboard.store values ($1, $2) on conflict do nothing returning 1"
CREATE_AND_ANNOUNCE = f"""with created as ({CREATE}) select pg_notify('{CHANNEL}', '') from created"""  # nosec B608 # constants
ANNOUNCED = (REGISTER, TOPICS)
"""Versions of these documents are announced by the statement that creates them: those who wait for it save two more."""
PUT = "insert into callboard.store values ($1, $2) on conflict (key) do update set value = excluded.value"
# The empty key stands for a server that is no primary any more, whose rows may be old.
GET = """select key, value from callboard.store where key = any($1::text[])
union all select '', null where pg_is_in_recovery()"""
LIST = """select key from callboard.store where key >= $1 and key < $1 || '~' and key > $2
union all select '' where pg_is_in_recovery()"""
DELETE = "delete from callboard.store where key = any($1::text[])"
SYNC = "select pg_logical_emit_message(true, 'callboard', '')"
ANNOUNCE = f"select pg_notify('{CHANNEL}', '')"
END_FROZEN_PEERS = """select pg_terminate_backend(peer.pid)
from pg_stat_activity waiting
cross join lateral unnest(pg_blocking_pids(waiting.pid)) blocking(pid)
join pg_stat_activity peer on peer.pid = blocking.pid
where waiting.wait_event_type = 'Lock' and waiting.query like '%insert into callboard.store%'
  and waiting.datname = current_database() and waiting.usename = current_user
  and peer.wait_event = 'ClientRead' and peer.state_change < clock_timestamp() - make_interval(secs => $1)"""

log = get_logger("callboard.cluster")


def open_store(url: str, client: str) -> PostgresStore:
    """The store in the database of a URL, as libpq reads it; it may name several hosts.

    ``client`` is shown in ``application_name``.
    The table ``callboard.store`` is created by the first write. Raises StartError.
    """
    try:
        for host in urlsplit(url).netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError as error:
        raise StartError(
            f"the URL of a PostgreSQL is not valid: {error}; expected one like postgresql://user@host:5432/database"
        ) from None
    return PostgresStore(url, client)


async def read(session: Session, query: str, *arguments: object) -> Rows:
    """The rows of ``GET`` or ``LIST``."""
    if not await session.has_table():
        return []
    rows = await session.fetch(query, *arguments)
    if any(row[0] == "" for row in rows):
        raise session.demoted()
    return rows


class SessionReader:
    """``continuity.Reader``: what one connection shows of the store."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        rows = await read(self._session, GET, list(keys))
        values = {row[0]: row[1] for row in rows}
        return [values.get(key) for key in keys]

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return sorted(row[0] for row in await read(self._session, LIST, prefix, after))


class Patience:
    """Does ``work`` after ``patience_s``, unless ``end`` was called, which also ends the work."""

    def __init__(self, patience_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(patience_s, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


class PostgresStore:
    """A ``Store``, and ``Reconnecting``. ``limit_s``: of each operation. ``patience_s``: see ``PATIENCE_S``."""

    def __init__(self, url: str, client: str, limit_s: float = LIMIT_S, patience_s: float = PATIENCE_S) -> None:
        self.on_connected: Check | None = None
        source = SessionSource(url, f"callboard:{client}", limit_s, self._check_session)
        self._operations = Operations("PostgreSQL", limit_s)
        self._creates = Sessions(source, SESSIONS_FOR_CREATES)
        self._others = Sessions(source, OTHER_SESSIONS)
        self._listener = Listener(source.open)
        self._has_announced = False
        self._connecting: asyncio.Future[list[BaseException | None]] | None = None
        self._limit_s = limit_s
        self._patience_s = patience_s

    def connect_ahead(self) -> None:
        if self._connecting is None or self._connecting.done():
            opening = [self._creates.open_all(), self._others.open_all()]
            running = (self._operations.run("opening of sessions", each) for each in opening)
            self._connecting = asyncio.gather(*running, return_exceptions=True)

    async def create(self, key: str, value: bytes) -> bool:
        check_key(key)
        announces = key.startswith(ANNOUNCED)
        query = CREATE_AND_ANNOUNCE if announces else CREATE
        is_created = bool(await self._operations.run(f"create of {key}", self._create(query, key, value)))
        self._has_announced = self._has_announced or (announces and is_created)
        return is_created

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        values: dict[str, bytes] = {}
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = list(keys[start : start + KEYS_AT_ONCE])
            rows = await self._operations.run(f"get of {format_count(len(some), 'key')}", self._read(GET, some))
            values.update({row[0]: row[1] for row in rows})
        return [values.get(key) for key in keys]

    async def put(self, key: str, value: bytes) -> None:
        check_key(key)
        await self._operations.run(f"put of {key}", self._write(self._others, PUT, key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        rows = await self._operations.run(f"list of {prefix}", self._read(LIST, prefix, after))
        return sorted(row[0] for row in rows)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._operations.run(f"delete of {format_count(len(keys), 'key')}", self._delete(keys))

    async def sync(self) -> None:
        await self._operations.run("sync", self._others.fetch(SYNC))

    async def announce_change(self) -> None:
        has_announced, self._has_announced = self._has_announced, False
        if not has_announced:
            await self._operations.run("announcement", self._others.fetch(ANNOUNCE))

    async def wait_for_change(self, timeout_s: float) -> None:
        await self._operations.run("wait", self._listener.wait(timeout_s), timeout_s + self._limit_s)

    async def close(self) -> None:
        await self._operations.close()
        await self._creates.close()
        await self._others.close()
        await self._listener.close()

    async def _create(self, query: str, key: str, value: bytes) -> Rows:
        patience = Patience(self._patience_s, self._end_frozen_peers)
        try:
            return await self._write(self._creates, query, key, value)
        finally:
            patience.end()

    async def _end_frozen_peers(self) -> None:
        try:
            await self._others.fetch(END_FROZEN_PEERS, self._patience_s)
        except (StoreUnavailable, StoreRefused) as error:
            log.warning("a peer that may be frozen could not be disconnected", reason=str(error))

    async def _read(self, query: str, *arguments: object) -> Rows:
        async with self._others.session() as session:
            return await read(session, query, *arguments)

    async def _write(self, sessions: Sessions, query: str, *arguments: object) -> Rows:
        async with sessions.session() as session:
            await session.make_table()
            return await session.fetch(query, *arguments)

    async def _delete(self, keys: Sequence[str]) -> None:
        async with self._others.session() as session:
            if await session.has_table():
                await session.fetch(DELETE, list(keys))

    async def _check_session(self, session: Session) -> None:
        if self.on_connected is not None:
            await self.on_connected(SessionReader(session))
