"""RegisterFollower: reads the register for a process that is no node of the cluster, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable

from .keys import REGISTER
from .outage import Outage
from .register import Register
from .register_log import RegisterLog
from .session_environment import SessionEnvironment
from .store import Store, StoreUnavailable

LOOK_INTERVAL_S = 1.0
"""A store that announces changes is looked at as soon as one is announced."""


class RegisterFollower:
    """``register``: the newest version that was read; None before there is one.

    ``on_register_changed`` may be set. It is called after a newer version was read.
    """

    own_session = ""

    def __init__(self, store: Store, environment: SessionEnvironment) -> None:
        self.on_register_changed: Callable[[], None] = _ignore
        self._store = store
        self._environment = environment
        self._versions = RegisterLog(store, environment)

    @property
    def register(self) -> Register | None:
        return self._versions.current

    def has_lease(self) -> bool:
        return False

    async def run(self) -> None:
        """Follow the register until cancelled. Raises StoreRefused, and StartError if the store was emptied."""
        outage = Outage("the store is not available")
        while True:
            try:
                await self._look()
                await self._store.wait_for_change(LOOK_INTERVAL_S)
                outage.end()
            except StoreUnavailable as error:
                outage.note(error)
                await self._environment.sleep(LOOK_INTERVAL_S)

    async def _look(self) -> None:
        before = self.register
        if before is None and not await self._store.list(REGISTER):
            return
        register = await self._versions.read()
        if before is None or register.version > before.version:
            self.on_register_changed()


def _ignore() -> None:
    """The default of ``on_register_changed``."""
