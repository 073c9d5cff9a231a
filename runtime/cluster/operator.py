"""Operator: what somebody changes in a cluster through its store, without being one of its nodes."""

from __future__ import annotations

from collections.abc import Callable

from .burial import declare_dead, wait_for_lease
from .register import Register
from .register_log import RegisterLog
from .session_environment import SessionEnvironment
from .store import Store


class Operator:
    """``store`` is patient."""

    def __init__(self, store: Store, environment: SessionEnvironment) -> None:
        self._store = store
        self._environment = environment
        self._register = RegisterLog(store, environment)

    async def read(self) -> Register:
        """The newest register."""
        return await self._register.read()

    async def set_draining(
        self, session: str, is_draining: bool, check: Callable[[Register], None] | None = None
    ) -> None:
        """Let a session give its partitions away and take none, or take them again.

        Does nothing if the session is not in the register any more. ``check`` may raise, by the newest register.
        """

        def with_draining(register: Register) -> Register | None:
            node = register.nodes.get(session)
            if node is None or node.is_draining == is_draining:
                return None
            if check is not None:
                check(register)
            return register.with_draining(session, is_draining)

        await self._change(with_draining)

    async def seal(self, session: str, counter: bytes | None) -> int:
        """End a session by force: its WAL is sealed, then the others own its partitions. Returns its rounds.

        ``counter``: see ``wait_for_lease``. A process whose session was ended begins another one.
        """
        end = await declare_dead(self._store, self._environment, session)
        await wait_for_lease(self._store, self._environment, session, counter)

        def without_session(register: Register) -> Register | None:
            return register.without_nodes([session]) if session in register.nodes else None

        await self._change(without_session)
        return end

    async def _change(self, change: Callable[[Register], Register | None]) -> None:
        """Until the newest version, listed again, needs no change: a version that was deleted can be created again."""
        while await self._register.change(change, _believe) is not None:
            self._register.current = None


async def _believe() -> None:
    """What was created is looked at afterwards."""
