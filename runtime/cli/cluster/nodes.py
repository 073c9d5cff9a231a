"""The node that a command is about, and whether it lives."""

from __future__ import annotations

from typing import NamedTuple

from ...cluster.keys import alive_key
from ...cluster.liveness import Liveness
from ...cluster.register import Register
from ...cluster.session_environment import LOOKS_PER_TTL, SessionEnvironment
from ...cluster.store import Store
from .errors import CommandFailed


class SignOfLife(NamedTuple):
    """``counter``: the last sign of life. ``is_silent``: no other one was seen for a session timeout."""

    counter: bytes | None
    is_silent: bool


def session_of(register: Register, node: str) -> str:
    """The session of this name, or the newest session of the node of this name. Raises CommandFailed."""
    if node in register.nodes:
        return node
    sessions = [session for session, entry in register.nodes.items() if entry.name == node]
    if not sessions:
        names = ", ".join(sorted({entry.name for entry in register.nodes.values()})) or "none"
        raise CommandFailed(f"the cluster has no node {node!r}; its nodes: {names}")
    return sessions[-1]


def environment_of(register: Register) -> SessionEnvironment:
    """The session timeout is that of all nodes."""
    return SessionEnvironment(ttl_s=register.session_timeout_ms / 1000)


async def look_for_sign(store: Store, environment: SessionEnvironment, session: str) -> SignOfLife:
    """Look again and again, until there is another sign of life or a session timeout has passed."""
    liveness, key = Liveness(environment.ttl_s), alive_key(session)
    [first] = await store.get([key])
    while True:
        asked_s = environment.now()
        [counter] = await store.get([key])
        if counter != first:
            return SignOfLife(counter, is_silent=False)
        if liveness.look({session: counter}, asked_s, environment.now()):
            return SignOfLife(counter, is_silent=True)
        await environment.sleep(environment.ttl_s / LOOKS_PER_TTL)
