"""The store in a shared folder: power losses, disk errors, processes that died, shares that are not mounted."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.engines.folder import Folder, FolderStore
from callboard.runtime.cluster.store import StoreRefused, StoreUnavailable, settle
from callboard.runtime.disk.disk import Disk
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk, PowerLoss

ROOT = Path("/shared/callboard")
KEY = "wal/a/0000000001"
OTHER_KEY = "wal/a/0000000002"
SEEDS = range(8)


def made_disk(seed: int = 0) -> FaultyDisk:
    disk = FaultyDisk(seed)
    disk.make_folder(ROOT)
    disk.sync_folder(ROOT.parent)
    disk.sync_folder(ROOT.parent.parent)
    return disk


def run(store: FolderStore, body: Callable[[FolderStore], Awaitable[None]]) -> None:
    async def closing() -> None:
        try:
            await body(store)
        finally:
            await store.close()

    asyncio.run(closing())


def changes_of_a_create() -> int:
    disk = made_disk()
    before = disk.faults.changes
    Folder(ROOT, disk, "n1").create(KEY, b"value")
    return disk.faults.changes - before


@pytest.mark.parametrize("seed", SEEDS)
def test_answered_create_survives_a_power_loss_and_an_unanswered_one_is_whole_or_absent(seed: int) -> None:
    value = bytes(range(256)) * 8
    for change in range(1, changes_of_a_create() + 2):
        disk = made_disk(seed)
        disk.faults.crash_at(change)
        try:
            answer = Folder(ROOT, disk, "n1").create(KEY, value)
        except PowerLoss:
            answer = False
        after = Folder(ROOT, disk.crash(), "n2")
        assert after.get([KEY])[0] in ((value,) if answer else (value, None))
        assert after.list("wal/", "") == ([KEY] if after.get([KEY]) == [value] else [])


@pytest.mark.parametrize("seed", SEEDS)
def test_read_value_survives_a_power_loss_after_sync(seed: int) -> None:
    """Another process has linked the file, and has died before it synced the folder."""
    disk = made_disk(seed)
    disk.faults.fail(Fault("sync_folder", errno.EIO, "*/wal/a"))
    creator = Folder(ROOT, disk, "n1")
    with pytest.raises(OSError, match="Input/output"):
        creator.create(KEY, b"value")
    reader = Folder(ROOT, disk, "n2")
    assert reader.get([KEY]) == [b"value"]
    reader.sync()
    assert Folder(ROOT, disk.crash(), "n3").get([KEY]) == [b"value"]


def test_failed_sync_is_repeated() -> None:
    disk = made_disk()
    folder = Folder(ROOT, disk, "n1")
    folder.create(KEY, b"value")
    folder.get([KEY])
    disk.faults.fail(Fault("sync_folder", errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        folder.sync()
    synced = []
    disk.faults.on_change = lambda operation, path: synced.append((operation, path))
    folder.sync()
    folder.sync()
    assert synced == [("sync_folder", str(ROOT / "wal/a"))]


def test_lost_answer_of_a_create_is_settled_as_ours() -> None:
    disk = made_disk()
    disk.faults.fail(Fault("sync_folder", errno.EIO, "*/wal/a"))

    async def body(store: FolderStore) -> None:
        with pytest.raises(StoreUnavailable, match="Input/output"):
            await store.create(KEY, b"mine")
        assert await settle(store, KEY, b"mine") == b"mine"

    run(FolderStore(Folder(ROOT, disk, "n1")), body)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.ESTALE])
def test_create_that_cannot_be_written_has_no_effect_and_may_be_repeated(code: int) -> None:
    disk = made_disk()
    disk.faults.fail(Fault("write", code))

    async def body(store: FolderStore) -> None:
        with pytest.raises(StoreUnavailable, match="failed"):
            await store.create(KEY, b"value")
        assert await store.get([KEY]) == [None]
        assert await store.create(KEY, b"value")

    run(FolderStore(Folder(ROOT, disk, "n1")), body)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_folder_that_may_not_be_written_is_refused_with_its_name(code: int) -> None:
    disk = made_disk()
    disk.faults.fail(Fault("link", code))

    async def body(store: FolderStore) -> None:
        with pytest.raises(StoreRefused, match=f"{ROOT} refused .*must be writable and support hard links and locks"):
            await store.create(KEY, b"value")

    run(FolderStore(Folder(ROOT, disk, "n1")), body)


def test_folder_that_does_not_exist_is_refused_and_not_made(tmp_path: Path) -> None:
    """Where a share is not mounted, its folder is missing. Making it there would begin a second cluster."""
    root = tmp_path / "share" / "callboard"

    async def body(store: FolderStore) -> None:
        for operation in (store.create(KEY, b"value"), store.put(KEY, b"value"), store.get([KEY]), store.list("wal/")):
            with pytest.raises(StoreRefused, match=f"no folder {root}; mount"):
                await operation
        root.mkdir(parents=True)
        assert await store.create(KEY, b"value")
        (root / "wal/a" / KEY.rpartition("/")[2]).unlink()
        (root / "wal/a").rmdir()
        with pytest.raises(StoreUnavailable):
            await store.create(KEY, b"value")
        assert await store.create(KEY, b"value")

    run(FolderStore(Folder(root, Disk(), "n1")), body)
    assert os.listdir(root / ".temporary") == []


def test_temporary_files_of_dead_processes_are_removed_and_those_of_living_ones_are_kept() -> None:
    disk = made_disk()
    Folder(ROOT, disk, "n0").get([])
    held = {}
    for name in ("dead", "living"):
        held[name] = disk.open(ROOT / ".temporary" / name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        disk.lock(held[name])
    disk.close(held["dead"])
    Folder(ROOT, disk, "n1").get([])
    assert disk.names(ROOT / ".temporary") == ["living"]


def test_temporary_file_that_another_process_removes_before_it_is_locked_is_made_again(tmp_path: Path) -> None:
    class Pausing(Disk):
        """One thread looks for files of dead processes when another has made a file and not locked it."""

        made, removed = threading.Event(), threading.Event()
        first = threading.Lock()

        def names(self, path: Path) -> list[str]:
            if self.first.acquire(blocking=False):
                self.made.wait(0.2)
            return super().names(path)

        def lock(self, fd: int, *, hold: bool = True) -> None:
            if not self.made.is_set():
                self.made.set()
                self.removed.wait(0.2)
            super().lock(fd, hold=hold)

        def remove(self, path: Path) -> None:
            super().remove(path)
            self.removed.set()

    async def body(store: FolderStore) -> None:
        creates = [store.create(f"wal/a/{number}", b"value") for number in range(2)]
        assert await asyncio.gather(*creates) == [True, True]

    run(FolderStore(Folder(tmp_path, Pausing(), "n1")), body)


def test_temporary_file_that_is_removed_too_early_leaves_no_value() -> None:
    class Removing(FaultyDisk):
        def link(self, source: Path, target: Path) -> None:
            self.remove(source)
            super().link(source, target)

    disk = Removing()
    disk.make_folder(ROOT)

    async def body(store: FolderStore) -> None:
        with pytest.raises(StoreUnavailable):
            await store.create(KEY, b"value")
        assert await store.get([KEY]) == [None]

    run(FolderStore(Folder(ROOT, disk, "n1")), body)


def test_operation_that_hangs_is_unavailable_after_the_limit_and_may_land_late() -> None:
    class Hanging(FaultyDisk):
        hung = threading.Event()
        released = threading.Event()
        linked = threading.Event()

        def link(self, source: Path, target: Path) -> None:
            self.hung.set()
            self.released.wait()
            super().link(source, target)
            self.linked.set()

    disk = Hanging()
    disk.make_folder(ROOT)

    async def body(store: FolderStore) -> None:
        with pytest.raises(StoreUnavailable, match=f"has not answered a create of {KEY} in 0.05 s"):
            await store.create(KEY, b"late")
        disk.hung.wait()
        disk.released.set()
        disk.linked.wait()
        assert await settle(store, KEY, b"second") == b"late"

    run(FolderStore(Folder(ROOT, disk, "n1"), limit_s=0.05), body)


def test_key_below_another_key_is_refused() -> None:
    async def body(store: FolderStore) -> None:
        assert await store.create(KEY, b"value")
        with pytest.raises(StoreRefused, match="refused an operation"):
            await store.create(f"{KEY}/1", b"value")
        assert await store.get([f"{KEY}/1", "wal/a"]) == [None, None]

    run(FolderStore(Folder(ROOT, made_disk(), "n1")), body)


@pytest.mark.parametrize("scheme", ["file", "local"])
def test_only_the_owner_may_read_the_store_whatever_the_umask(tmp_path: Path, scheme: str) -> None:
    """It has the users."""

    async def use() -> None:
        store = open_store(tmp_path.as_uri().replace("file:", f"{scheme}:"), "n1")
        assert await store.create(KEY, b"round")
        await store.put("topics/1", b"users")
        await store.announce_change()
        await store.close()

    umask = os.umask(0)
    try:
        asyncio.run(use())
    finally:
        os.umask(umask)
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in tmp_path.rglob("*")}
    assert modes == {(False, 0o600), (True, 0o700)}
