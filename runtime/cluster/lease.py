"""The lease of a session: its signs of life, and how long it may answer reads.

Nobody else answers reads of this session's partitions before the lease ends: whoever declares the session dead has seen
the same counter for a whole TTL, or waits for a whole TTL after the tombstone.
"""

from __future__ import annotations

from .keys import alive_key
from .outage import Outage
from .session_environment import BEATS_PER_TTL, LOOKS_PER_TTL, SessionEnvironment
from .store import Store, StoreUnavailable
from .wal import confirm_alive


class Lease:
    """``until_s``: by the environment's clock. ``is_valid`` is asked with each request, so it does little."""

    def __init__(self, store: Store, session: str, environment: SessionEnvironment) -> None:
        self.until_s = 0.0
        self._store = store
        self._session = session
        self._environment = environment
        self._now = environment.now
        self._counter = 0
        self._has_ended = False

    @property
    def is_valid(self) -> bool:
        return self._now() < self.until_s

    def end(self) -> None:
        """The session has ended: the lease is no longer valid, whatever the store answers."""
        self._has_ended = True
        self.until_s = 0.0

    async def begin(self) -> None:
        """Write the first sign of life. On a slow machine the lease may have ended by then. Raises Fenced."""
        outage = Outage("waiting for the store", session=self._session)
        while True:
            try:
                await self.renew()
            except StoreUnavailable as error:
                outage.note(error)
                await self._environment.sleep(self._environment.ttl_s / LOOKS_PER_TTL)
            else:
                outage.end()
                return

    async def renew(self) -> None:
        """Write one sign of life, then look for the tombstone. Raises Fenced if there is one."""
        started_s = self._environment.now()
        self._counter += 1
        await self._store.put(alive_key(self._session), str(self._counter).encode())
        await confirm_alive(self._store, self._session)
        if not self._has_ended:
            self.until_s = max(self.until_s, started_s + self._environment.lease_s)

    async def keep(self) -> None:
        """Renew the lease until it is fenced. Raises Fenced."""
        interval_s = self._environment.ttl_s / BEATS_PER_TTL
        outage = Outage("sign of life not written", session=self._session)
        while True:
            started_s = self._environment.now()
            try:
                await self.renew()
            except StoreUnavailable as error:
                outage.note(error)
            else:
                outage.end()
            await self._environment.sleep(max(0.0, started_s + interval_s - self._environment.now()))
