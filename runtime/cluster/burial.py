"""Taking over from a session that shows no sign of life. Any number of nodes may do it at once."""

from __future__ import annotations

from ..common.logs import get_logger
from .keys import alive_key, tombstone_key
from .register import Register
from .register_log import RegisterLog
from .session_environment import SessionEnvironment
from .store import Store, settle
from .version_log import Confirm
from .wal import seal

log = get_logger("callboard.cluster")


async def end_session(
    store: Store,
    register: RegisterLog,
    environment: SessionEnvironment,
    session: str,
    counter: bytes | None,
    confirm: Confirm,
) -> None:
    """Declare a session dead, seal its WAL, and give its partitions to the others. ``counter``: see below."""
    started_s = environment.now()
    end = await declare_dead(store, environment, session)
    await wait_for_lease(store, environment, session, counter)

    def without_session(current: Register) -> Register | None:
        return current.without_nodes([session]) if session in current.nodes else None

    if await register.change(without_session, confirm) is not None:
        seconds = round(environment.now() - started_s, 3)
        log.info("session ended", session=session, rounds=end, seconds=seconds)


async def wait_for_lease(store: Store, environment: SessionEnvironment, session: str, counter: bytes | None) -> None:
    """Return when a session that was declared dead answers no reads any more.

    ``counter``: the sign of life that has not changed for a TTL; None: wait for a TTL in any case. The session may have
    renewed its lease after that was read and before the tombstone, so the counter is read once more.
    """
    [last_counter] = await store.get([alive_key(session)])
    if counter is None or last_counter != counter:
        await environment.sleep(environment.ttl_s)


async def declare_dead(store: Store, environment: SessionEnvironment, session: str) -> int:
    """Write the tombstone, and seal the WAL. Returns the number of the seal."""
    await settle(store, tombstone_key(session), environment.token())
    return await seal(store, session, environment.token())
