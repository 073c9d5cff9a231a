"""Continuity: compares what a session knows with what the store has."""

from __future__ import annotations

from collections.abc import Callable

from .continuity import Known, Reader, check_known
from .keys import register_key
from .register import Register
from .register_log import RegisterLog
from .session_environment import SessionEnvironment
from .session_log import SessionLog


class Continuity:
    """``confirmed`` is called with what the store has."""

    def __init__(
        self,
        register: RegisterLog,
        log: SessionLog,
        environment: SessionEnvironment,
        confirmed: Callable[[Register, Known], None],
    ) -> None:
        self._register = register
        self._log = log
        self._environment = environment
        self._confirmed = confirmed

    async def check(self, reader: Reader) -> None:
        """Raises StoreOlder."""
        await check_known(self._known, reader)

    async def keep_checking(self, reader: Reader) -> None:
        """For ever. Raises StoreOlder.

        An older copy may take the place of the store without a lost connection: behind a pooler, or in a bucket.
        """
        while True:
            await self.check(reader)
            if self._register.current is not None:
                self._confirmed(self._register.current, self._known())
            await self._environment.sleep(self._environment.continuity_interval_s)

    def _known(self) -> Known:
        known, register = self._log.known(), self._register.current
        if register is None:
            return known
        return known._replace(versions={**known.versions, register_key(register.version): register.token})
