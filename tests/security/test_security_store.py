"""SecurityStore: changes are durable when they are answered, and only the owner may read the file."""

from __future__ import annotations

import errno
import json
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.steps import ITEMS_PER_STEP, Steps
from callboard.runtime.cli.backup.copies import copy_file
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.file_work import Done, FileJob, InlineFileWork
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.disk.memory import MemoryDisk
from callboard.runtime.security import store as store_module
from callboard.runtime.security.acl_store import ROWS, AclStore
from callboard.runtime.security.document import ACLS, USERS, Section, SecurityDocument
from callboard.runtime.security.store import FILE_NAME, SecurityStore

SECRET = b"0123456789abcdef" * 2


def store_in(folder: Path, disk: Disk | None = None) -> SecurityStore:
    return SecurityStore(folder, disk or Disk(), lambda: SECRET)


def put(store: SecurityStore, section: str, value: Section) -> Exception | None:
    outcome: Exception | None = immediate_outcome(partial(store.change, section, lambda before: value))
    return outcome


def test_change_is_in_the_file_when_it_is_answered(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert store.get(USERS) == {}
    assert put(store, USERS, {"alice": {"x": 1}}) is None
    assert put(store, ACLS, {"rows": [1]}) is None
    again = SecurityStore(tmp_path, Disk(), bytes)
    assert again.load()
    assert again.get(USERS) == {"alice": {"x": 1}}
    assert again.get(ACLS) == {"rows": [1]}
    assert again.secret == SECRET
    assert again.version == store.version == 2


def test_store_that_was_never_changed_writes_no_file(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert not store.load()
    assert put(store, USERS, {}) is None
    assert store.secret == SECRET
    assert os.listdir(tmp_path) == []


class ModeDisk(Disk):
    """``modes``: of new files when they are opened, by name."""

    def __init__(self, file_mode: int) -> None:
        super().__init__(file_mode)
        self.modes: dict[str, int] = {}

    def set_mode(self, fd: int, mode: int | None = None) -> None:
        """Called for each new file. It has its mode already."""
        self.modes[Path(f"/dev/fd/{fd}").readlink().name] = stat.S_IMODE(os.fstat(fd).st_mode)


@pytest.mark.parametrize("file_mode", [0o600, 0o640, 0o644])
def test_only_the_owner_may_ever_read_the_file(tmp_path: Path, file_mode: int) -> None:
    disk = ModeDisk(file_mode)
    assert put(store_in(tmp_path, disk), USERS, {"alice": {}}) is None
    copy_file(disk, tmp_path / FILE_NAME, disk, tmp_path / "backup" / FILE_NAME)
    assert disk.modes == {f"{FILE_NAME}.new": 0o600, FILE_NAME: 0o600}
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_listeners_of_a_section_get_its_new_value_before_the_change_is_answered(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    seen: list[object] = []
    store.on_change(USERS, seen.append)
    store.on_change(ACLS, lambda acls: pytest.fail("the ACLs have not changed"))
    store.change(USERS, lambda users: {**users, "alice": {}}, seen.append)
    store.change(USERS, lambda users: users, seen.append)
    assert seen == [{"alice": {}}, None, None]
    assert store.version == 1


def test_refused_change_has_no_effect(tmp_path: Path) -> None:
    def refuse(users: Section) -> Section:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "no such user")

    store = store_in(tmp_path)
    outcome = immediate_outcome(partial(store.change, USERS, refuse))
    assert isinstance(outcome, CoordinatorError)
    assert store.version == 0
    assert os.listdir(tmp_path) == []


def test_change_that_cannot_be_written_has_no_effect() -> None:
    class FullDisk(MemoryDisk):
        def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
            raise OSError(errno.ENOSPC, "full")

    disk = FullDisk()
    disk.make_folder(Path("/data"))
    store = store_in(Path("/data"), disk)
    assert isinstance(put(store, USERS, {"alice": {}}), OSError)
    assert store.get(USERS) == {}


def test_no_call_encodes_many_acls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold the interpreter's lock, which the event loop needs."""
    lengths: list[int] = []

    class MeasuredEncoder(json.JSONEncoder):
        def encode(self, o: Any) -> str:
            text = super().encode(o)
            lengths.append(len(text))
            return text

    canonical = MeasuredEncoder(sort_keys=True, separators=(",", ":"))
    monkeypatch.setattr(store_module, "CANONICAL", canonical)
    monkeypatch.setattr(store_module, "PLAIN", MeasuredEncoder())
    rows = [[f"row {number}"] for number in range(2_000)]
    users = {f"user {number}": {"x": number} for number in reversed(range(2_000))}
    assert put(store_in(tmp_path), ACLS, {"acls": rows}) is None
    again = store_in(tmp_path)
    again.load()
    assert put(again, USERS, users) is None
    assert 0 < max(lengths) < 64 * 30
    again = store_in(tmp_path)
    assert again.load()
    assert (again.get(ACLS), again.get(USERS)) == ({"acls": rows}, users)


class HeldFileWork(InlineFileWork):
    """Jobs wait until the test runs them."""

    def __init__(self) -> None:
        self.held: list[tuple[FileJob, Done]] = []

    def submit(self, work: FileJob, done: Done) -> None:
        self.held.append((work, done))

    def run_all(self) -> None:
        while self.held:
            super().submit(*self.held.pop(0))


def test_version_of_the_cluster_that_comes_while_another_one_is_copied_stays(tmp_path: Path) -> None:
    store, files, seen = store_in(tmp_path), HeldFileWork(), list[Section]()
    store.run_on(files)
    store.share(lambda change, done: pytest.fail("nothing is changed here"))
    store.on_change(USERS, seen.append)
    versions: list[Section] = [{"alice": {}, "bob": {}}, {"alice": {}}]
    for number, users in enumerate(versions):
        document = SecurityDocument(SECRET, number + 1, {USERS: users})
        assert immediate_outcome(partial(store.adopt, document)) is None
    files.run_all()
    assert seen == versions
    assert store.get(USERS) == versions[-1]
    again = SecurityStore(tmp_path, Disk(), bytes)
    assert again.load()
    assert again.document == store.document


class SteppedFileWork(InlineFileWork):
    """Long work waits until the test does its steps."""

    def __init__(self) -> None:
        self.steps: list[Steps[None]] = []

    def run_in_slices(self, steps: Steps[None]) -> None:
        self.steps.append(steps)


def test_version_of_the_cluster_is_known_when_its_acls_are_in_effect(tmp_path: Path) -> None:
    """Before, there might be one that denies what is allowed without ACLs."""
    store, files, outcomes = store_in(tmp_path), SteppedFileWork(), list[Exception | None]()
    acls = AclStore(store)
    store.run_on(files)
    store.share(lambda change, done: pytest.fail("nothing is changed here"))
    rows = [["ALLOW", "READ", "GROUP", "LITERAL", f"g{number}", "User:a", "*"] for number in range(1_000)]
    store.adopt(SecurityDocument(SECRET, 1, {ACLS: {ROWS: rows}}), outcomes.append)
    seen = [(len(acls.table.acls), store.is_known) for _ in files.steps[0]]
    assert set(seen) == {(0, False)} and len(seen) > 1_000 / ITEMS_PER_STEP
    assert (len(acls.table.acls), store.is_known, outcomes) == (1_000, True, [None])


def test_version_of_the_cluster_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    def refuse(section: Section) -> None:
        raise ValueError(f"{len(section)} users")

    store = store_in(tmp_path)
    store.share(lambda change, done: pytest.fail("nothing is changed here"))
    store.on_change(USERS, refuse)
    outcome = immediate_outcome(partial(store.adopt, SecurityDocument(SECRET, 1, {USERS: {"alice": {}}})))
    assert str(outcome) == "1 users"


def test_sections_of_a_later_version_are_kept(tmp_path: Path) -> None:
    assert put(store_in(tmp_path), "later", {"x": 1}) is None
    again = store_in(tmp_path)
    again.load()
    assert put(again, USERS, {"alice": {}}) is None
    assert json.loads((tmp_path / FILE_NAME).read_text())["sections"] == {"later": {"x": 1}, "users": {"alice": {}}}


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"version": 1}', '{"version": 2}', "[" * 100_000])
def test_damaged_file_is_refused_without_showing_it(tmp_path: Path, damage: str) -> None:
    (tmp_path / FILE_NAME).write_text(damage)
    with pytest.raises(StartError, match=r"the users and ACLs '.*' are invalid: .*; restore the file from a backup"):
        store_in(tmp_path).load()


def test_changed_byte_is_noticed(tmp_path: Path) -> None:
    assert put(store_in(tmp_path), USERS, {"alice": {"password": "hidden1"}}) is None
    path = tmp_path / FILE_NAME
    path.write_text(path.read_text().replace("hidden1", "hidden2"))
    with pytest.raises(StartError, match="found checksum") as caught:
        store_in(tmp_path).load()
    assert "hidden" not in str(caught.value)


def test_no_secret_is_printed(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    assert put(store, USERS, {"alice": {"stored_key": "hidden"}}) is None
    for text in (repr(store.document), repr(store.draft()), repr(store), str(store.document)):
        assert "hidden" not in text
        assert SECRET.hex() not in text
        assert "0123456789abcdef" not in text
