"""Where ``callboard users`` changes users: on a server, in the folder of a stopped one, or in a cluster's store."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import Protocol

from ..client.cluster import Cluster
from ..client.users import NewPassword, UserListing, list_users, remove_user, set_password
from ..cluster.session_environment import SessionEnvironment
from ..cluster.store import Store
from ..cluster.topics_document import TopicsDocument
from ..cluster.topics_log import TopicsLog
from ..common.errors import StartError
from ..disk.disk import Disk
from ..disk.group_commit import immediate_outcome
from ..disk.modes import disk_like
from ..log.folder import lock_folder
from ..security.credentials import SALT_BYTES, SCRAM_BY_NAME, credential_of, with_credential
from ..security.document import SECRET_BYTES, USERS, Section, SecurityDocument
from ..security.store import SecurityStore
from .cluster.stores import require_register, with_store
from .server_options import connect
from .workers_folder import has_workers, store_url

UsersChange = Callable[[Section], Section]
"""Makes the new users. It may be called again."""


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


class SectionUsers(ABC):
    """The users in a stored section."""

    @abstractmethod
    def _read(self) -> Section: ...

    @abstractmethod
    def _change(self, change: UsersChange) -> None: ...

    def users(self) -> Sequence[UserListing]:
        return [
            UserListing(name, {mechanism: fields["iterations"] for mechanism, fields in own.items()})
            for name, own in sorted(self._read().items())
        ]

    def set_password(self, user: str, passwords: Iterable[NewPassword]) -> None:
        credentials = [
            (mechanism, credential_of(mechanism, salted_password, salt, iterations))
            for mechanism, salt, salted_password, iterations in passwords
        ]

        def change(users: Section) -> Section:
            for mechanism, credential in credentials:
                users = with_credential(users, user, mechanism, credential)
            return users

        self._change(change)

    def remove(self, user: UserListing) -> None:
        self._change(lambda users: {name: own for name, own in users.items() if name != user.name})


class FolderUsers(SectionUsers):
    """The users in a data folder. Changes raise OSError."""

    def __init__(self, store: SecurityStore) -> None:
        self._store = store

    def _read(self) -> Section:
        return self._store.get(USERS)

    def _change(self, change: UsersChange) -> None:
        failure = immediate_outcome(partial(self._store.change, USERS, change))
        if failure is not None:
            raise failure


class NewFolderUsers:
    """The users in a data folder that is missing. The first user creates it. Raises OSError and StartError."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def users(self) -> Sequence[UserListing]:
        return []

    def set_password(self, user: str, passwords: Iterable[NewPassword]) -> None:
        disk_like(self._data).make_folder(self._data)
        with open_folder(self._data) as store:
            store.set_password(user, passwords)

    def remove(self, user: UserListing) -> None:
        raise AssertionError(f"there is no user {user.name}")


class ClusterUsers(SectionUsers):
    """The users in the store of a cluster. All methods raise StartError if it cannot be used."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s

    def _read(self) -> Section:
        async def read(store: Store) -> Section:
            await require_register(store, self._url)
            document = await TopicsLog(store, SessionEnvironment()).read()
            return (document.security or SecurityDocument()).section(USERS)

        return with_store(self._url, self._timeout_s, read)

    def _change(self, change: UsersChange) -> None:
        def changed(document: TopicsDocument) -> TopicsDocument:
            before = document.security or SecurityDocument(_new_secret())
            return document._replace(security=before.with_section(USERS, change(before.section(USERS))))

        async def make(store: Store) -> None:
            await require_register(store, self._url)
            await TopicsLog(store, SessionEnvironment()).make(changed)

        with_store(self._url, self._timeout_s, make)


@contextmanager
def open_server(bootstrap_server: str, timeout_s: float) -> Iterator[UserStore]:
    with connect(bootstrap_server, timeout_s) as cluster:
        yield ServerUsers(cluster)


@contextmanager
def open_folder(data: Path, *, creates: bool = False) -> Iterator[UserStore]:
    """For changes. Raises StartError if a server runs on it, for one of workers, and for no folder.

    ``creates``: a missing folder is created with the first change, so not if the user gives up before.
    """
    if not _is_folder(data, may_be_missing=creates):
        yield NewFolderUsers(data)
        return
    disk = disk_like(data)
    lock = lock_folder(disk, data)
    try:
        yield FolderUsers(_load(data, disk))
    finally:
        lock.close()


@contextmanager
def read_folder(data: Path) -> Iterator[UserStore]:
    """Only to read: writes nothing, so the folder may be read-only, and a server may run on it. Raises StartError."""
    _is_folder(data)
    yield FolderUsers(_load(data, disk_like(data)))


def _is_folder(data: Path, *, may_be_missing: bool = False) -> bool:
    """False for a missing folder that may be missing. Raises StartError for anything else that is no data folder."""
    if has_workers(data):
        raise StartError(
            f"the data folder '{data}' is one of a server with --workers, whose users are in their store: expected "
            f"--cluster {store_url(data)}"
        )
    try:
        is_folder = S_ISDIR(data.stat().st_mode)
    except FileNotFoundError:
        if may_be_missing:
            return False
        is_folder = False
    if not is_folder:
        raise StartError(f"{data}: found no folder, expected the data folder of a server; check the path")
    return True


def _load(data: Path, disk: Disk) -> SecurityStore:
    store = SecurityStore(data, disk, _new_secret)
    store.load()
    return store


@contextmanager
def open_cluster(url: str, timeout_s: float) -> Iterator[UserStore]:
    yield ClusterUsers(url, timeout_s)


def _new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


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
