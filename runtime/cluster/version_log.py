"""VersionLog: a document as a chain of numbered versions. Whoever creates the next version has changed the document."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, Self, TypeVar

from ...actors.steps import Steps
from ..common.errors import StartError
from .documents import reading
from .keys import number_of, version_key
from .loop_work import finished
from .session_environment import SessionEnvironment
from .store import Store, settle

CLEANUP_INTERVAL = 50  # versions
LIST_AGAIN_TTLS = 4
"""After so long without a look, the next version may have been deleted with others: the newest one is listed."""
KEPT_TTLS = 40
"""A version is deleted only so long after a newer one was created. More than LIST_AGAIN_TTLS, for slow readers."""
RETRY_PAUSE_S = 0.01


class Document(Protocol):
    """One version. It is immutable, and its ``token`` is random."""

    @property
    def version(self) -> int: ...

    def numbered(self, version: int, token: str) -> Self:
        """The same content as another version."""

    def encode(self) -> bytes | Steps[bytes]: ...


D = TypeVar("D", bound=Document)

Decode = Callable[[bytes], D | Steps[D]]
Change = Callable[[D], D | Steps[D | None] | None]
"""Returns the document as it should be, or None. It is called again if others were faster."""

Confirm = Callable[[], Awaitable[None]]
"""Raises if this node may not believe what it has created: a name that was deleted can be created again."""


async def newest_version(store: Store, prefix: str, decode: Decode[D]) -> D | None:
    """None if there is none. Raises Unreadable."""
    while True:
        keys = await store.list(prefix)
        if not keys:
            return None
        [data] = await store.get([keys[-1]])
        if data is not None:  # else it was deleted meanwhile, because there are newer ones
            with reading(keys[-1]):
                return await finished(decode(data))


class VersionLog(Generic[D]):
    """``current``: the newest version that was read. ``kept``: so many versions are never deleted.

    Its methods may be called concurrently. Version 0 exists.
    """

    def __init__(
        self, store: Store, environment: SessionEnvironment, prefix: str, decode: Decode[D], kept: int
    ) -> None:
        self.current: D | None = None
        self.prefix = prefix
        self.kept = kept
        self._store = store
        self._environment = environment
        self._decode = decode
        self._kept_s = KEPT_TTLS * environment.ttl_s
        self._read_s = 0.0
        self._lock = asyncio.Lock()
        self._seen: deque[tuple[int, float]] = deque(maxlen=8)  # versions that existed at these times

    async def read(self) -> D:
        """The newest version."""
        async with self._lock:
            return await self._read()

    def note_newest(self, version: int, asked_s: float) -> None:
        """Somebody else has looked: after ``asked_s`` there was no version after this one."""
        if self.current is not None and self.current.version == version and not self._is_old(asked_s):
            self._read_s = max(self._read_s, asked_s)

    def _is_old(self, now_s: float) -> bool:
        """Whether the version after the one that was read may have been deleted since."""
        return now_s - self._read_s > LIST_AGAIN_TTLS * self._environment.ttl_s

    async def change(self, change: Change[D], confirm: Confirm) -> D | None:
        """Create the next version. None if nothing has to change, by the newest version."""
        async with self._lock:
            while True:
                document = await self._read()
                changed = await finished(change(document))
                if changed is None:
                    return None
                changed = changed.numbered(document.version + 1, self._environment.token().hex())
                data = await finished(changed.encode())
                if await settle(self._store, version_key(self.prefix, changed.version), data) == data:
                    await confirm()
                    self.current = changed
                    break
                await self._environment.sleep(RETRY_PAUSE_S)
        await self._store.announce_change()
        if changed.version % CLEANUP_INTERVAL == 0:
            await self._delete_old(changed.version)
        return changed

    async def _read(self) -> D:
        started_s = self._environment.now()
        document = self.current
        if document is None or self._is_old(started_s):
            document = await self.list_newest()
        while True:
            key = version_key(self.prefix, document.version + 1)
            [data] = await self._store.get([key])
            if data is None:
                break
            with reading(key):
                document = await finished(self._decode(data))
        self.current, self._read_s = document, started_s
        if not self._seen or started_s - self._seen[-1][1] > self._kept_s / 4:
            self._seen.append((document.version, started_s))
        return document

    async def list_newest(self) -> D:
        """The newest version by the list of all, for those who may have slept since the last look."""
        newest = await newest_version(self._store, self.prefix, self._decode)
        return await self._first() if newest is None else newest

    async def _first(self) -> D:
        """The store has no version."""
        raise StartError(
            f"the store has no {self.prefix} any more: somebody has emptied it; restore the cluster from a backup"
        )

    async def _delete_old(self, newest: int) -> None:
        """Delete versions that are neither among the newest nor young."""
        long_ago_s = self._environment.now() - self._kept_s
        old = [version for version, seen_s in self._seen if seen_s < long_ago_s]
        below = min(max(old, default=0), newest - self.kept)
        if below > 0:
            keys = await self._store.list(self.prefix)
            await self._store.delete([key for key in keys if number_of(key) < below])
