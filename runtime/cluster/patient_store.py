"""PatientStore: repeats what may be repeated until the store is available."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ..common.logs import get_logger
from .store import FIRST_PAUSE_S, LONGEST_PAUSE_S, Store, StoreUnavailable

T = TypeVar("T")

log = get_logger("callboard.cluster")


class PatientStore:
    """``Store``. Only ``create`` raises StoreUnavailable, because the caller has to find out what happened.

    ``impatient``: the same store, which repeats nothing.
    """

    def __init__(self, store: Store) -> None:
        self.impatient = store
        self.create = store.create
        self.wait_for_change = store.wait_for_change
        self.close = store.close

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        values: list[bytes | None] = []

        async def read(some: Sequence[str]) -> None:
            values.extend(await self.impatient.get(some))

        await _in_parts(keys, read)
        return values

    async def put(self, key: str, value: bytes) -> None:
        """For keys to which only one value is ever put."""
        await _repeated(lambda: self.impatient.put(key, value))

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return await _repeated(lambda: self.impatient.list(prefix, after))

    async def delete(self, keys: Sequence[str]) -> None:
        await _in_parts(keys, self.impatient.delete)

    async def announce_change(self) -> None:
        with suppress(StoreUnavailable):  # the others look from time to time anyway
            await self.impatient.announce_change()

    async def sync(self) -> None:
        await _repeated(self.impatient.sync)


async def _in_parts(keys: Sequence[str], work: Callable[[Sequence[str]], Awaitable[None]]) -> None:
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

    await _repeated(work_on_some, failed)
    while done < len(keys):
        size *= 2
        await _repeated(work_on_some, failed)


def _ignore(_times: int) -> None:
    """The default of ``failed``."""


async def _repeated(operation: Callable[[], Awaitable[T]], failed: Callable[[int], None] = _ignore) -> T:
    """An operation that waits for long is logged once, and when it has ended.

    ``failed`` gets the number of failures after each.
    """
    pause_s = FIRST_PAUSE_S
    is_logged = False
    failures = 0
    while True:
        try:
            result = await operation()
        except StoreUnavailable as error:
            if pause_s == LONGEST_PAUSE_S and not is_logged:
                is_logged = True
                log.warning("waiting for the store", reason=str(error))
            failures += 1
            failed(failures)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        else:
            if is_logged:
                log.info("the store is available again")
            return result
