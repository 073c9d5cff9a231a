"""The security of an embedded coordinator's listener, and its users: the arguments ``security`` and ``users``."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ..common.errors import StartError
from ..disk.group_commit import outcome_of
from ..settings.listener_settings import split_settings
from ..settings.listeners import PLAINTEXT, PROTOCOLS, Listener, with_settings

if TYPE_CHECKING:
    from ...actors.steps import Steps
    from ..security.document import Section
    from ..security.store import SecurityStore

PROTOCOL = "security.protocol"

ListenerSecurity = Mapping[str, str | int | bool]
"""The protocol of the listener, and its settings, by Kafka's names."""


def secured(listener: Listener, security: ListenerSecurity) -> Listener:
    """The listener with a protocol and its settings. Raises StartError."""
    if not isinstance(security, Mapping):
        shown = repr(security) if isinstance(security, str) else f"of type {type(security).__name__}"
        raise StartError(f"bad security {shown}: expected settings by name, as in {{'security.protocol': 'SSL'}}")
    for name in security:
        if not isinstance(name, str):
            raise StartError(f"bad name {name!r} of a setting in security: expected a text, as in '{PROTOCOL}'")
    protocol = str(security.get(PROTOCOL, PLAINTEXT)).upper()
    if protocol not in PROTOCOLS:
        raise StartError(f"bad {PROTOCOL} '{protocol}': expected one of {', '.join(PROTOCOLS)}")
    given = split_settings({name: value for name, value in security.items() if name != PROTOCOL}, ())
    if given.table:
        raise StartError(f"security has '{next(iter(given.table))}', which is no setting of a listener")
    [found] = with_settings([listener._replace(name=protocol, protocol=protocol)], given.listeners, {})
    return found


def check_users(users: Mapping[str, str]) -> None:
    """Raise StartError unless they are passwords by name."""
    if not isinstance(users, Mapping):
        raise StartError("bad users: expected passwords by name, as in {'alice': password}")
    for name, password in users.items():
        if not isinstance(name, str) or not name or not isinstance(password, str) or not password:
            raise StartError(f"bad user {name!r}: expected a name and a password, which are texts and not empty")
        if not name.isascii() or not name.isprintable():
            raise StartError(f"bad user {name!r}: expected printable ASCII characters, since SCRAM has no other names")


async def set_users(store: SecurityStore, users: Mapping[str, str]) -> None:
    """Store the users whose password is not stored yet. Raises CoordinatorError, and OSError of the write."""
    from ..security.document import USERS

    failure = await outcome_of(partial(store.change, USERS, partial(with_users, users)))
    if failure is not None:
        raise failure


def with_users(users: Mapping[str, str], stored: Section) -> Steps[Section]:
    """The users with these passwords. Each step takes some milliseconds: the program has other work on its loop."""
    from ..security.credentials import (
        ITERATIONS_MIN,
        SALT_BYTES,
        SCRAM_MECHANISMS,
        credential_of,
        find_credential,
        has_password,
        with_credential,
    )

    for name, password in users.items():
        for mechanism in SCRAM_MECHANISMS:
            known = find_credential(stored, name, mechanism)
            if known is None or not has_password(mechanism, known, password.encode()):
                salt = secrets.token_bytes(SALT_BYTES)
                salted = mechanism.salted_password(password.encode(), salt, ITERATIONS_MIN)
                credential = credential_of(mechanism, salted, salt, ITERATIONS_MIN)
                stored = with_credential(stored, name, mechanism, credential)
            yield
    return stored
