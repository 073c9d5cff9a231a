"""Connections to PostgreSQL for ``postgres``: how they are opened, used, and given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import asyncpg

from ..store import StoreRefused, StoreUnavailable
from .postgres_table import CREATE_TABLE, HAS_TABLE, MADE_BY_ANOTHER_NODE, Table

T = TypeVar("T")

Rows = list[Any]
"""Records of asyncpg, which are read by position."""

CHANNEL = "callboard"

CHECK = f"""select pg_backend_pid(), pg_is_in_recovery(), current_setting('synchronous_commit'), {HAS_TABLE}"""
LOOK_FOR_TABLE = f"select pg_is_in_recovery(), {HAS_TABLE}"
TIMELINE = "select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
ANSWERS_S = 0.02
"""What has been answered by then is known to those who have asked."""

# Of this session, in milliseconds, where the server's version has them. They end what this process leaves behind.
SESSION_SETTINGS = """select set_config(ours.name, ours.text, false) from (values
  ('lock_timeout', '4000'), ('client_connection_check_interval', '1000'), ('transaction_timeout', '10000'),
  ('idle_in_transaction_session_timeout', '10000')
) as ours(name, text) join pg_settings on pg_settings.name = ours.name"""

WARNING = "01000"
REFUSED_CLASSES = ("28", "3D", "42")
"""SQLSTATE classes: authorization, no such database, no permission or another table of our name."""


class Session:
    """One connection, for one statement at a time. After an error it must not be used any more.

    ``table``: what all sessions of a store know of it.
    """

    def __init__(self, connection: Any, address: str, table: Table) -> None:
        self._connection = connection
        self._address = address
        self._table = table
        self._is_direct = False
        self._statements: dict[str, Any] = {}
        self._warning = ""
        connection.add_log_listener(self._note)

    @property
    def is_closed(self) -> bool:
        return bool(self._connection.is_closed())

    async def fetch(self, query: str, *arguments: object) -> Rows:
        """The rows of a statement, when it is committed. Cancelling this drops the connection.

        asyncpg answers a cancellation by cancelling the statement on the server, which would end the wait for a
        synchronous standby as if it had succeeded.
        """
        self._warning = ""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Rows] = loop.create_future()
        asking = loop.create_task(self._answer(answer, query, arguments))
        try:
            rows = await answer
        except asyncio.CancelledError:
            if not asking.done():
                self.drop()
            raise
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise translated(error, self._address) from error
        if self._warning:
            raise StoreUnavailable(f"PostgreSQL at {self._address} answered with a warning: {self._warning}")
        return rows

    async def prepare(self) -> None:
        """Check the server, and set up the session."""
        [[pid, is_standby, durability, has_table]] = await self.fetch(CHECK)
        if is_standby:
            raise self.demoted()
        if durability == "off":
            raise StoreRefused(
                f"PostgreSQL at {self._address} has synchronous_commit = off, so it would lose what it has answered; "
                "set it: alter role ... set synchronous_commit = on"
            )
        # Poolers answer with a process id of their own. Behind one, a session is another one with each transaction.
        self._is_direct = pid == self._connection.get_server_pid()
        if self._is_direct:
            await self.fetch(SESSION_SETTINGS)
        self._table.is_known |= has_table

    async def has_table(self) -> bool:
        """Whether the table was ever there: if it was dropped, a statement is refused."""
        if not self._table.is_known:
            [[is_standby, has_table]] = await self.fetch(LOOK_FOR_TABLE)
            if is_standby:
                raise self.demoted()
            self._table.is_known |= has_table
        return self._table.is_known

    async def make_table(self) -> None:
        """Create the table, unless it was ever there."""
        if not await self.has_table():
            await self._create_table()
            self._table.is_known = True

    async def listen(self, changed: Callable[[], object]) -> None:
        """Call ``changed`` for each notification, and when the connection is lost. Does nothing behind a pooler."""
        if self._is_direct:
            self._connection.add_termination_listener(lambda *_: changed())
            await self._connection.add_listener(CHANNEL, lambda *_: changed())

    async def timeline(self) -> str:
        """That of the server's log, "" if it does not tell."""
        try:
            [[timeline]] = await self._connection.fetch(TIMELINE)
        except asyncpg.PostgresError:
            return ""
        except (OSError, asyncpg.InterfaceError) as error:
            raise translated(error, self._address) from error
        return str(timeline)

    def demoted(self) -> StoreUnavailable:
        return StoreUnavailable(f"PostgreSQL at {self._address} is a standby; waiting for a primary")

    def drop(self) -> None:
        """End the connection without waiting. A statement in progress may still have its effect."""
        self._connection.terminate()

    async def _answer(self, answer: asyncio.Future[Rows], query: str, arguments: tuple[object, ...]) -> None:
        """The answer is done already if nobody waits for it any more."""
        try:
            rows = await self._ask(query, arguments)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(rows)
        finally:
            answer.cancel()  # if this task was cancelled

    async def _ask(self, query: str, arguments: tuple[object, ...]) -> Any:
        if not self._is_direct:
            return await self._connection.fetch(query, *arguments)
        if (statement := self._statements.get(query)) is None:
            # asyncpg has a statement without a name parsed again each time.
            name = f"callboard_{len(self._statements)}"
            statement = self._statements[query] = await self._connection.prepare(query, name=name)
        return await statement.fetch(*arguments)

    async def _create_table(self) -> None:
        try:
            await self._connection.execute(CREATE_TABLE)
        except MADE_BY_ANOTHER_NODE:
            pass
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreRefused(
                f"PostgreSQL at {self._address} has no table callboard.store, and this role may not create it "
                f"({error}); run once as an administrator: {' '.join(CREATE_TABLE.split())}"
            ) from error
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise translated(error, self._address) from error

    def _note(self, connection: object, message: Any) -> None:
        if message.sqlstate == WARNING:
            self._warning = str(message.message)


CheckSession = Callable[[Session], Coroutine[Any, Any, None]]


class SessionSource:
    """Opens sessions of one database. ``address``: as errors show it; it has no password.

    ``check`` is awaited with each new session. After a failover all earlier sessions are dropped before that, so that
    nothing is acknowledged by two servers at the same time.
    """

    def __init__(self, url: str, application_name: str, limit_s: float, check: CheckSession) -> None:
        self._host_urls = host_urls(url)
        self._application_name = application_name
        self._limit_s = limit_s
        self._check = check
        self._table = Table()
        self._timeline = ""
        self._opened: WeakSet[Session] = WeakSet()
        self.address = address_of(url)

    async def open(self) -> Session:
        """A new session with a primary. Each host, and each step with it, has ``limit_s``: the network may be slow."""
        session = Session(await self._connect(), self.address, self._table)
        try:
            await self._in_time(session.prepare())
            await self._drop_those_of_another_timeline(await self._in_time(session.timeline()))
            await self._in_time(self._check(session))
        except BaseException:
            session.drop()
            raise
        self._opened.add(session)
        return session

    async def _connect(self) -> Any:
        """Try the hosts one after the other: one that does not answer must not take the time of the others.

        The host that was connected last is the first to be tried.
        """
        reasons = []
        for url in list(self._host_urls):
            try:
                connection = await self._connect_to(url)
            except StoreUnavailable as error:
                reasons.append(str(error))
            else:
                self._host_urls.remove(url)
                self._host_urls.insert(0, url)
                return connection
        raise StoreUnavailable("; ".join(reasons))

    async def _connect_to(self, url: str) -> Any:
        try:
            return await asyncpg.connect(
                url,
                timeout=self._limit_s,
                statement_cache_size=0,  # poolers do not know the names of prepared statements
                target_session_attrs="read-write",
                server_settings={"application_name": self._application_name},
            )
        except TimeoutError as error:
            raise self._late(address_of(url)) from error
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise translated(error, address_of(url)) from error

    async def _in_time(self, step: Coroutine[Any, Any, T]) -> T:
        limit = asyncio.timeout(self._limit_s)
        try:
            async with limit:
                return await step
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._late(self.address) from error

    def _late(self, address: str) -> StoreUnavailable:
        return StoreUnavailable(f"PostgreSQL at {address} has not answered in {self._limit_s:g} s")

    async def _drop_those_of_another_timeline(self, timeline: str) -> None:
        """A promoted standby begins another timeline. Its former primary may still answer."""
        if self._timeline not in ("", timeline):
            for session in self._opened:
                session.drop()
            await asyncio.sleep(ANSWERS_S)
        self._timeline = timeline


class BorrowedSession:
    """A session while it is used."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        self._session = await self._sessions.take()
        return self._session

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        assert self._session is not None
        self._sessions.take_back(self._session, is_usable=error_type is None)


class Sessions:
    """At most ``limit`` sessions, opened when they are needed and used again. The last one used is the next."""

    def __init__(self, source: SessionSource, limit: int) -> None:
        self._source = source
        self._limit = limit
        self._free = asyncio.Semaphore(limit)
        self._idle: list[Session] = []
        self._openings: list[asyncio.Task[Session]] = []  # for which nobody waits

    async def fetch(self, query: str, *arguments: object) -> Rows:
        """As ``Session.fetch``, with any session."""
        async with self.session() as session:
            return await session.fetch(query, *arguments)

    async def open_all(self) -> None:
        """Open as many as there may be, so that no user waits for that later. Those that cannot be opened are left."""
        async with AsyncExitStack() as stack:
            opening = (stack.enter_async_context(self.session()) for _ in range(self._limit))
            await asyncio.gather(*opening, return_exceptions=True)

    def session(self) -> BorrowedSession:
        """A session for one user. It is dropped after an error."""
        return BorrowedSession(self)

    async def take(self) -> Session:
        """A session that is free, when there is one. Let it be taken back after use."""
        await self._free.acquire()
        try:
            self._idle = [session for session in self._idle if not session.is_closed]
            return self._idle.pop() if self._idle else await self._opened()
        except BaseException:
            self._free.release()
            raise

    async def _opened(self) -> Session:
        """A new session. Its opening goes on when its user gives up, and the next user waits for it.

        Else a server that is slow, or behind a host that does not answer, would never be reached within the time of one
        operation.
        """
        loop = asyncio.get_running_loop()
        opening = self._openings.pop() if self._openings else loop.create_task(self._source.open())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._openings.append(opening)
            opening.add_done_callback(self._end_opening)
            raise

    def _end_opening(self, opening: asyncio.Task[Session]) -> None:
        if opening in self._openings:  # else somebody waits for it
            self._openings.remove(opening)
            if not opening.cancelled() and opening.exception() is None:
                self._idle.append(opening.result())

    def take_back(self, session: Session, *, is_usable: bool) -> None:
        if is_usable:
            self._idle.append(session)
        else:
            session.drop()
        self._free.release()

    async def close(self) -> None:
        """Drop the idle sessions. None must be in use."""
        openings = list(self._openings)
        for opening in openings:
            opening.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        while self._idle:
            self._idle.pop().drop()


def host_urls(url: str) -> list[str]:
    """A URL for each host of a URL that may name several."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [parts._replace(netloc=f"{user}{at}{host}").geturl() for host in hosts.split(",")]


def address_of(url: str) -> str:
    """The URL without user and password, as errors show it."""
    return url.rpartition("@")[2].partition("://")[2] or url.rpartition("@")[2]


def reason_of(error: Exception) -> str:
    """Some errors of the system and of time limits have no text."""
    return str(error) or type(error).__name__


def translated(error: Exception, address: str) -> StoreUnavailable | StoreRefused:
    """The error of a store for one of the server or the connection."""
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        return StoreUnavailable(f"PostgreSQL at {address} is a standby, or read-only; waiting for a primary")
    if isinstance(error, asyncpg.UndefinedTableError):
        return StoreRefused(
            f"PostgreSQL at {address} refused: {error}: somebody has dropped or renamed the table of the cluster; "
            "restore it from a backup"
        )
    state = getattr(error, "sqlstate", None) or ""
    if state[:2] in REFUSED_CLASSES or isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return StoreRefused(f"PostgreSQL at {address} refused: {error}; check user, password, database and permissions")
    return StoreUnavailable(f"PostgreSQL at {address} is not available: {reason_of(error)}")
