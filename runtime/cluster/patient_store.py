"""PatientStore: repeats what may be repeated until the store is available."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from ..common.logs import get_logger
from .store import FIRST_PAUSE_S, LONGEST_PAUSE_S, Store, StoreUnavailable

T = TypeVar("T")

log = get_logger("callboard.cluster")


class LongWaits:
    """The log has a line when the first of several operations waits for long, and one when none does any more."""

    def __init__(self) -> None:
        self._count = 0

    def wait(self) -> LongWait:
        return LongWait(self)

    def begin(self, error: StoreUnavailable) -> None:
        if self._count == 0:
            log.warning("waiting for the store", reason=str(error))
        self._count += 1

    def end(self, *, is_answered: bool) -> None:
        self._count -= 1
        if self._count == 0 and is_answered:
            log.info("the store is available again")


class LongWait:
    """One operation, from ``with`` to its end."""

    def __init__(self, waits: LongWaits) -> None:
        self._waits = waits
        self._is_noted = False

    def note(self, error: StoreUnavailable) -> None:
        """It has waited for long already."""
        if not self._is_noted:
            self._is_noted = True
            self._waits.begin(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_noted:
            self._waits.end(is_answered=kind is None)


def _ignore(_times: int) -> None:
    """The default of ``failed``."""


class PatientStore:
    """``Store``. Only ``create`` raises StoreUnavailable, because the caller has to find out what happened.

    ``impatient``: the same store, which repeats nothing.
    """

    def __init__(self, store: Store) -> None:
        self.impatient = store
        self.create = store.create
        self.wait_for_change = store.wait_for_change
        self.close = store.close
        self._long_waits = LongWaits()

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        values: list[bytes | None] = []

        async def read(some: Sequence[str]) -> None:
            values.extend(await self.impatient.get(some))

        await self._in_parts(keys, read)
        return values

    async def put(self, key: str, value: bytes) -> None:
        """For keys to which only one value is ever put."""
        await self._repeated(lambda: self.impatient.put(key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return await self._repeated(lambda: self.impatient.list(prefix, after))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._in_parts(keys, self.impatient.delete)

    async def announce_change(self) -> None:
        with suppress(StoreUnavailable):  # the others look from time to time anyway
            await self.impatient.announce_change()

    async def sync(self) -> None:
        await self._repeated(self.impatient.sync)

    async def _in_parts(self, keys: Sequence[str], work: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """After the second failure by smaller parts: a store that is too slow for all of them has to get less to do.

        Else each attempt would add as much as the one before it, and none might ever be answered in time.
        """
        done, size = 0, max(1, len(keys))

        def failed(times: int) -> None:
            nonlocal size
            size = max(1, size // 2) if times > 1 else size

        async def work_on_some() -> None:
            nonlocal done
            some = keys[done : done + size]
            await work(some)
            done += len(some)

        await self._repeated(work_on_some, failed)
        while done < len(keys):
            size *= 2
            await self._repeated(work_on_some, failed)

    async def _repeated(self, operation: Callable[[], Awaitable[T]], failed: Callable[[int], None] = _ignore) -> T:
        """``failed`` gets the number of failures after each."""
        pause_s = FIRST_PAUSE_S
        failures = 0
        with self._long_waits.wait() as wait:
            while True:
                try:
                    return await operation()
                except StoreUnavailable as error:
                    if pause_s == LONGEST_PAUSE_S:
                        wait.note(error)
                    failures += 1
                    failed(failures)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
