"""Where ``callboard users`` changes users: on a server, or in the data folder of a server that does not run."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from ..client.cluster import Cluster
from ..client.users import NewPassword, UserListing, list_users, remove_user, set_password
from ..common.errors import StartError
from ..disk.group_commit import immediate_outcome
from ..disk.modes import disk_like
from ..log.folder import lock_folder
from ..security.credentials import SALT_BYTES, SCRAM_BY_NAME, credential_of, with_credential
from ..security.document import SECRET_BYTES, USERS, Section
from ..security.store import Change, SecurityStore
from .server_options import connect


class UserStore(Protocol):
    def users(self) -> Sequence[UserListing]:
        """All users, sorted by name."""

    def set_password(self, user: str, passwords: Iterable[NewPassword]) -> None:
        """Set the password of a user, which need not exist."""

    def remove(self, user: UserListing) -> None: ...


class ServerUsers:
    """The users of a server. All methods raise ClientError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def users(self) -> Sequence[UserListing]:
        return list_users(self._cluster)

    def set_password(self, user: str, passwords: Iterable[NewPassword]) -> None:
        set_password(self._cluster, user, passwords)

    def remove(self, user: UserListing) -> None:
        remove_user(self._cluster, user)


class FolderUsers:
    """The users in a data folder. Changes raise OSError."""

    def __init__(self, store: SecurityStore) -> None:
        self._store = store

    def users(self) -> Sequence[UserListing]:
        return [
            UserListing(name, {mechanism: fields["iterations"] for mechanism, fields in own.items()})
            for name, own in sorted(self._store.get(USERS).items())
        ]

    def set_password(self, user: str, passwords: Iterable[NewPassword]) -> None:
        def change(users: Section) -> Section:
            for mechanism, salt, salted_password, iterations in passwords:
                credential = credential_of(mechanism, salted_password, salt, iterations)
                users = with_credential(users, user, mechanism, credential)
            return users

        self._change(change)

    def remove(self, user: UserListing) -> None:
        self._change(lambda users: {name: own for name, own in users.items() if name != user.name})

    def _change(self, change: Change) -> None:
        failure = immediate_outcome(partial(self._store.change, USERS, change))
        if failure is not None:
            raise failure


@contextmanager
def open_server(bootstrap_server: str, timeout_s: float) -> Iterator[UserStore]:
    with connect(bootstrap_server, timeout_s) as cluster:
        yield ServerUsers(cluster)


@contextmanager
def open_folder(data: Path) -> Iterator[UserStore]:
    """Raises StartError if a server runs on it. The folder is created if it is missing."""
    disk = disk_like(data)
    disk.make_folder(data)
    lock = lock_folder(disk, data)
    try:
        store = SecurityStore(data, disk, lambda: secrets.token_bytes(SECRET_BYTES))
        store.load()
        yield FolderUsers(store)
    finally:
        lock.close()


def find_user(store: UserStore, name: str) -> UserListing:
    """Raises StartError if there is no such user."""
    found = next((user for user in store.users() if user.name == name), None)
    if found is None:
        raise StartError(f"there is no user '{name}': `callboard users list` shows all")
    return found


def new_passwords(mechanisms: str, password: str, iterations: int) -> list[NewPassword]:
    """``mechanisms``: names with commas. Raises StartError for an unknown one."""
    names = [name.strip().upper() for name in mechanisms.split(",")]
    for name in names:
        if name not in SCRAM_BY_NAME:
            raise StartError(f"bad --mechanism '{name}': expected one or more of {', '.join(SCRAM_BY_NAME)}")
    return [_new_password(name, password, iterations) for name in dict.fromkeys(names)]


def _new_password(name: str, password: str, iterations: int) -> NewPassword:
    mechanism, salt = SCRAM_BY_NAME[name], secrets.token_bytes(SALT_BYTES)
    return NewPassword(mechanism, salt, mechanism.salted_password(password.encode(), salt, iterations), iterations)
