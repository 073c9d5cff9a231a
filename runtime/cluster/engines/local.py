"""A store in a folder of this machine, for nodes that are processes of it, such as those of ``serve --workers``.

It is the shared folder (``folder.py``), except that each WAL is one file that grows (``value_log.py``). So a round
costs one write and one sync of an allocated file. The locks of these files must work between all nodes, so the folder
must not be on a network file system.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread

from ....actors.text import format_count
from ...disk.disk import Disk
from ..store import StoreUnavailable, check_key
from .folder import LIMIT_S, Folder, FolderStore, folder_of
from .kernel_creates import KernelCreates
from .value_log import BegunCreate, ValueLog

LOGGED = "wal/"
"""Keys below it, like wal/SESSION/NUMBER, are in the value log of their session."""
OPEN_LOGS = 16


def open_store(url: str, client: str) -> MachineStore:
    """The store in the folder of a URL like ``local:///var/lib/callboard/cluster``. Raises StartError."""
    folder = Folder(folder_of(url), Disk(), f"{client}-{secrets.token_hex(8)}")
    return MachineStore(folder, ValueLogs(folder, Disk()))


class ValueLogs:
    """The value logs of a folder, by session. Methods block, and raise OSError."""

    def __init__(self, folder: Folder, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._guard = Lock()
        self._open: OrderedDict[str, ValueLog] = OrderedDict()

    def create(self, key: str, value: bytes) -> bool:
        return self._written_log(key).create(_name(key), value)

    def begin_create(self, key: str, value: bytes) -> BegunCreate | None:
        """See ``ValueLog.begin_create``. None also if the log is not open."""
        if not self._guard.acquire(blocking=False):
            return None
        try:
            log = self._open.get(_session(key))
            if log is not None:
                self._open.move_to_end(_session(key))
        finally:
            self._guard.release()
        return None if log is None else log.begin_create(_name(key), value)

    def put(self, key: str, value: bytes) -> None:
        self._written_log(key).put(_name(key), value)

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        values: dict[str, bytes | None] = {}
        for session in dict.fromkeys(map(_session, keys)):
            names = [_name(key) for key in keys if _session(key) == session]
            found = self._log(session).get(names)
            values |= {f"{LOGGED}{session}/{name}": value for name, value in zip(names, found, strict=True)}
        return [values[key] for key in keys]

    def list(self, prefix: str, after: str) -> list[str]:
        session, slash, _ = prefix.removeprefix(LOGGED).partition("/")
        sessions = [session] if slash else self._disk.names(self._folder.root / LOGGED)
        keys = [f"{LOGGED}{session}/{name}" for session in sessions for name in self._log(session).names()]
        return sorted(key for key in keys if key.startswith(prefix) and key > after)

    def delete(self, keys: Sequence[str]) -> None:
        for session in dict.fromkeys(map(_session, keys)):
            self._log(session).delete([_name(key) for key in keys if _session(key) == session])

    def sync(self) -> None:
        with self._guard:
            logs = list(self._open.values())
        for log in logs:
            log.sync()

    def close(self) -> None:
        with self._guard:
            for log in self._open.values():
                log.close()

    def _written_log(self, key: str) -> ValueLog:
        self._folder.new_path(key)
        return self._log(_session(key))

    def _log(self, session: str) -> ValueLog:
        """Those used last are kept open. One that is closed is opened again by its next use."""
        with self._guard:
            log = self._open.get(session)
            if log is None:
                log = self._open[session] = ValueLog(self._folder.root / LOGGED / session, self._disk)
                if len(self._open) > OPEN_LOGS:
                    self._open.popitem(last=False)[1].close()
            self._open.move_to_end(session)
            return log


class CreateThread:
    """Creates logged values in a thread of its own, so that they do not wait for other operations. It may block.

    There is no time limit: a local disk that hangs stops the whole machine. A task for the limit of each round would
    cost a tenth of a commit's CPU time.
    """

    def __init__(self, logs: ValueLogs) -> None:
        self._logs = logs
        self._waiting: SimpleQueue[tuple[asyncio.Future[bool], str, bytes] | None] = SimpleQueue()
        self._unanswered: set[asyncio.Future[bool]] = set()
        self._thread: Thread | None = None
        self._is_closed = False

    async def create(self, key: str, value: bytes) -> bool:
        """Raises OSError, and StoreUnavailable when it is closed."""
        if self._is_closed:
            raise StoreUnavailable(f"the store is closed; {key} was not created")
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = Thread(target=self._run, args=(loop,), name="callboard-rounds", daemon=True)
            self._thread.start()
        answer: asyncio.Future[bool] = loop.create_future()
        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)
        self._waiting.put((answer, key, value))
        return await answer

    def close(self) -> None:
        """The outcome of creates in progress is unknown."""
        if not self._is_closed:
            self._is_closed = True
            self._waiting.put(None)
            if self._thread is None:
                self._logs.close()
            for answer in tuple(self._unanswered):
                _set_outcome(answer, StoreUnavailable("the store was closed"))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while (waiting := self._waiting.get()) is not None:
            answer, key, value = waiting
            outcome: bool | Exception
            try:
                outcome = self._logs.create(key, value)
            except Exception as error:
                outcome = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_set_outcome, answer, outcome)
        self._logs.close()


def _set_outcome(answer: asyncio.Future[bool], outcome: bool | Exception) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class MachineStore(FolderStore):
    """A ``Store``, see the module."""

    def __init__(self, folder: Folder, logs: ValueLogs, limit_s: float = LIMIT_S) -> None:
        super().__init__(folder, limit_s)
        self._logs = logs
        self._creates = CreateThread(logs)
        self._kernel_creates = KernelCreates(logs.begin_create)

    async def create(self, key: str, value: bytes) -> bool:
        if not _is_logged(key):
            return await super().create(key, value)
        check_key(key)
        try:
            begun = self._kernel_creates.create(key, value)
            return await (self._creates.create(key, value) if begun is None else begun)
        except OSError as error:
            raise self._translated(error) from error

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        logged = [key for key in keys if _is_logged(key)]
        if not logged:
            return await super().get(keys)
        others = [key for key in keys if not _is_logged(key)]
        found = await self._operations.run(
            f"get of {format_count(len(keys), 'key')}", self._call(self._logs.get, logged)
        )
        values = dict(zip(logged, found, strict=True))
        if others:
            values |= zip(others, await super().get(others), strict=True)
        return [values[key] for key in keys]

    async def put(self, key: str, value: bytes) -> None:
        if not _is_logged(key):
            await super().put(key, value)
            return
        check_key(key)
        await self._operations.run(f"put of {key}", self._call(self._logs.put, key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        if prefix.startswith(LOGGED):
            return await self._operations.run(f"list of {prefix}", self._call(self._logs.list, prefix, after))
        return [key for key in await super().list(prefix, after) if not key.startswith(LOGGED)]

    async def delete(self, keys: Sequence[str]) -> None:
        logged = [key for key in keys if _is_logged(key)]
        if logged:
            await self._operations.run(
                f"delete of {format_count(len(logged), 'key')}", self._call(self._logs.delete, logged)
            )
        if len(logged) < len(keys):
            await super().delete([key for key in keys if not _is_logged(key)])

    async def sync(self) -> None:
        await super().sync()
        await self._operations.run("sync", self._call(self._logs.sync))

    async def close(self) -> None:
        self._kernel_creates.close()
        self._creates.close()
        await super().close()


def _is_logged(key: str) -> bool:
    return key.startswith(LOGGED) and key.count("/") > 1


def _session(key: str) -> str:
    return key.split("/", 2)[1]


def _name(key: str) -> str:
    return key.split("/", 2)[2]
