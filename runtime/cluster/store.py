"""What a cluster needs of the engine that keeps its data, and ``settle``, which ends with a certain outcome.

Only ``create`` is conditional. Consensus, replication and durability are the engine's: PostgreSQL, an object store, a
folder that all nodes share, or one of a single machine. ``engines/`` has one module per engine; all of them pass the
same tests.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Protocol

from ...actors.callboard_error import CallboardError

KEY = re.compile(r"[a-z]+(/[A-Za-z0-9_-][A-Za-z0-9._-]*){1,4}")
"""All keys match this. So they are file names, URLs and text of a database without any quoting."""
MAX_KEY_LENGTH = 200

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


class StoreUnavailable(CallboardError):
    """The outcome of an operation is unknown: a time limit, a lost connection, an error of the server.

    The operation may have had its effect, or may have it later. Repeating it may succeed.
    """


class StoreRefused(CallboardError):
    """The engine will not do this operation however often it is repeated: no permission, no such bucket or database.

    The text names the engine, what it answered, and what the user can do.
    """


class Store(Protocol):
    """Values by key. All methods are called on one event loop and may be called concurrently.

    Each raises ``StoreUnavailable`` or ``StoreRefused``. Values are at most 16 MiB.
    """

    async def create(self, key: str, value: bytes) -> bool:
        """Store the value if the key has none, durably and atomically. False: the key may have a value already.

        After False, ``get`` tells whose value it is. A value that was lost in a race is stored by no later effect.
        """

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of many keys, None for those without one. Each is as new as every answered create or put."""

    async def put(self, key: str, value: bytes) -> None:
        """Store the value, and replace the one before it."""

    async def list(self, prefix: str, after: str = "") -> list[str]:
        """The keys that begin with ``prefix`` and are greater than ``after``, in order, all of them."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove values. Keys without a value are left out."""

    async def sync(self) -> None:
        """Return when everything that a ``get`` has returned before is as durable as an answered ``create``."""

    async def announce_change(self) -> None:
        """Wake the ``wait_for_change`` of all nodes, if the engine can do that. A hint that may be lost."""

    async def wait_for_change(self, timeout_s: float) -> None:
        """Return after an announcement that came since the last call, or after the time."""

    async def close(self) -> None:
        """End all connections. Operations in progress raise ``StoreUnavailable``. A second call does nothing."""


def check_key(key: str) -> None:
    """Raise ValueError for a key that some engine could not store."""
    if not KEY.fullmatch(key) or len(key) > MAX_KEY_LENGTH:
        raise ValueError(
            f"a store key has at most {MAX_KEY_LENGTH} characters, like cluster/00000001; this is not one: {key!r}"
        )


async def settle(store: Store, key: str, value: bytes) -> bytes:
    """Create the key until it is known which value it has, and return that value.

    The value must be one that nobody else creates (it contains a random token). So ``result == value`` says who won.
    An answer of ``create`` may be lost, and some engines report a conflict of two attempts as an existing key; the
    stored value is the only proof. Raises StoreRefused; waits as long as the store is unavailable.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            if await store.create(key, value):
                return value
            [found] = await store.get([key])
            if found is not None:
                # The value may be visible here before it is durable, if the engine replicates.
                await store.sync()
                return found
        except StoreUnavailable:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
