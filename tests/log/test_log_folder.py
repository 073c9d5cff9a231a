"""The data folder: its cluster id, its format and its lock."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from log_helpers import TraceDisk
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import FORMAT, DataFolder, random_cluster_id

ID = "AQIDBAUGBwgJCgsMDQ4PEA"
INFO = {"format": FORMAT, "cluster_id": ID, "offsets_partitions": 50}


def folder_with_info(root: Path, text: str) -> Path:
    root.mkdir(exist_ok=True)
    (root / "callboard.json").write_text(text)
    return root


def read_files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_new_folder_has_callboard_json_and_lock(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "data"
    with DataFolder(root, 12, new_cluster_id=lambda: ID) as folder:
        assert (folder.cluster_id, folder.offsets_partitions, folder.path) == (ID, 12, root)
        counts = {"offsets_partitions": 12, "transactions_partitions": 50}
        assert json.loads((root / "callboard.json").read_text()) == with_checksum({**INFO, **counts})


def test_new_folder_syncs_all_parent_folders(tmp_path: Path) -> None:
    """Parent folders that were created are synced too, so that a power loss does not remove them."""
    disk = TraceDisk()
    with DataFolder(tmp_path / "very" / "deep" / "data", disk=disk):
        synced = [name for operation, name in disk.trace if operation == "sync_folder"]
        assert synced[:3] == [tmp_path.name, "very", "deep"]


def test_broken_link_is_refused(tmp_path: Path) -> None:
    """The link's disk is probably not mounted, so the error must mention that instead of permissions."""
    link = tmp_path / "data"
    link.symlink_to(tmp_path / "disk" / "data")
    with pytest.raises(StartError, match=r"found a link to .*disk/data, which does not exist"):
        DataFolder(link)
    (tmp_path / "disk" / "data").mkdir(parents=True)
    with DataFolder(link):
        assert (tmp_path / "disk" / "data" / "callboard.json").exists()


def test_reopened_folder_has_the_same_cluster_id(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as first_folder:
        cluster_id = first_folder.cluster_id
    with capture_logs() as lines, DataFolder(tmp_path) as second_folder:
        assert (second_folder.cluster_id, second_folder.offsets_partitions) == (cluster_id, 50)
    assert lines == []


def test_reopened_folder_uses_the_stored_partition_counts(tmp_path: Path) -> None:
    """A group's partition depends on these counts, so a changed setting must not apply."""
    with capture_logs() as lines, DataFolder(folder_with_info(tmp_path, json.dumps(with_checksum(INFO))), 10) as folder:
        assert folder.offsets_partitions == 50
    assert [(line["log_level"], line["stored"], line["setting"]) for line in lines] == [("warning", 50, 10)]


def test_folder_without_transactions_count_gets_one(tmp_path: Path) -> None:
    with DataFolder(folder_with_info(tmp_path, json.dumps(with_checksum(INFO))), 50, 7) as folder:
        assert (folder.cluster_id, folder.transactions_partitions) == (ID, 7)
    with capture_logs() as lines, DataFolder(tmp_path, 50, 8) as folder:
        assert folder.transactions_partitions == 7
    assert [(line["number"], line["stored"]) for line in lines] == [("transactions_partitions", 7)]


def test_folder_of_format_1_is_upgraded(tmp_path: Path) -> None:
    """Only the format and the checksum change. The new format makes older versions refuse the folder."""
    old_info = {**INFO, "format": 1, "transactions_partitions": 7}
    with capture_logs() as lines, DataFolder(folder_with_info(tmp_path, json.dumps(old_info)), 50, 7) as folder:
        assert folder.cluster_id == ID
    assert [(line["event"], line["from_format"]) for line in lines] == [("data folder upgraded", 1)]
    assert json.loads((tmp_path / "callboard.json").read_text()) == with_checksum({**old_info, "format": FORMAT})
    with capture_logs() as lines, DataFolder(tmp_path, 50, 7):
        pass
    assert lines == []


def test_cluster_id_has_kafkas_form() -> None:
    cluster_ids = {random_cluster_id() for _ in range(300)}
    assert len(cluster_ids) == 300
    assert all(len(text) == 22 and text[0] != "-" for text in cluster_ids)


@pytest.mark.parametrize("path_kind", ["relative", "absolute"])
def test_crash_leaves_callboard_json_complete_or_missing(
    tmp_path: Path, path_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written under another name, synced and renamed. The folder's own directory entry is durable first."""
    monkeypatch.chdir(tmp_path)
    disk = TraceDisk()
    DataFolder(Path("data") if path_kind == "relative" else tmp_path / "data", disk=disk).close()
    assert [step for step in disk.trace if step[1] != ".lock"] == [
        ("sync_folder", tmp_path.name),
        ("create", "callboard.json.new"),
        ("write", "callboard.json.new"),
        ("sync", "callboard.json.new"),
        ("sync_folder", "data"),
    ]


def test_start_after_crashed_first_start_succeeds(tmp_path: Path) -> None:
    (tmp_path / "callboard.json.new").write_text('{"form')
    with DataFolder(tmp_path, new_cluster_id=lambda: ID) as folder:
        assert folder.cluster_id == ID


@pytest.mark.parametrize("number", [FORMAT + 1, FORMAT + 2, 10**9])
def test_newer_format_is_refused_without_changes(tmp_path: Path, number: int) -> None:
    root = folder_with_info(tmp_path / "data", json.dumps({"format": number, "something": "new"}))
    files_before = read_files(root), root.stat().st_mtime_ns
    with pytest.raises(StartError, match=f"found format {number}, expected at most {FORMAT}; .* start that version"):
        DataFolder(root)
    assert (read_files(root), root.stat().st_mtime_ns) == files_before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\xff",
        "[]",
        "null",
        "7",
        "{}",
        json.dumps({**INFO, "format": "1"}),
        json.dumps({**INFO, "format": True}),
        json.dumps({**INFO, "format": 0}),
        json.dumps({**INFO, "cluster_id": "short"}),
        json.dumps({**INFO, "cluster_id": 22 * "/"}),
        json.dumps({**INFO, "cluster_id": 5}),
        json.dumps({**INFO, "offsets_partitions": 0}),
        json.dumps({**INFO, "offsets_partitions": "50"}),
        json.dumps({**INFO, "offsets_partitions": True}),
        json.dumps({"format": FORMAT, "cluster_id": ID}),
    ],
)
def test_invalid_callboard_json_is_refused_without_changes(tmp_path: Path, text: str) -> None:
    root = folder_with_info(tmp_path / "data", text)
    files_before = read_files(root)
    with pytest.raises(StartError, match=r"callboard\.json: found .*, expected .*; put back the file") as error:
        DataFolder(root)
    assert read_files(root) == files_before
    assert "\n" not in str(error.value)


def test_callboard_json_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "callboard.json").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(StartError, match="found no JSON"):
        DataFolder(tmp_path)


def test_file_at_the_folders_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(StartError, match="found a file, expected a folder"):
        DataFolder(tmp_path / "data")
    with pytest.raises(StartError, match="expected a folder to read and write"):
        DataFolder(tmp_path / "data" / "below")


class ReadOnlyDisk(Disk):
    """Simulates a read-only file system. Permissions would not help, because tests may run as root."""

    def open(self, path: Path, flags: int) -> int:
        if flags:
            raise OSError(30, "Read-only file system")
        return super().open(path, flags)


def test_unwritable_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"Read-only file system, expected a folder to read and write; .* mount this"):
        DataFolder(tmp_path, disk=ReadOnlyDisk())


class FailingLocks(Disk):
    """A real disk on which locks fail with this error."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def lock(self, fd: int, *, hold: bool = True) -> None:
        raise OSError(self.number, os.strerror(self.number), f"/proc/self/fd/{fd}")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, r"raise the limit of open files \(ulimit -n\)"),
        (errno.EFBIG, r"raise the limit of a file's size \(ulimit -f\)"),
        (errno.EIO, "check the disk"),
        (errno.ENOLCK, "use a file system that can lock files"),
        (errno.ENOSPC, "free some space"),
    ],
)
def test_refused_folder_says_what_to_do_about_the_error(tmp_path: Path, number: int, advice: str) -> None:
    with pytest.raises(StartError, match=f"expected a folder to read and write; {advice}"):
        DataFolder(tmp_path, disk=FailingLocks(number))


HOLDER = """
import sys
from pathlib import Path
from callboard.runtime.log.folder import DataFolder
folder = DataFolder(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_folder_in_use_is_refused_with_the_process_id(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(StartError, match=f"in use by process {holder.pid}, expected no other process"):
            DataFolder(tmp_path)
        holder.kill()
    DataFolder(tmp_path).close()  # a killed process holds no lock


def test_refused_start_holds_no_lock(tmp_path: Path) -> None:
    disk = TraceDisk()
    disk.fails = lambda operation, name: (operation, name) == ("sync", "callboard.json.new")
    with pytest.raises(StartError, match="made to fail"):
        DataFolder(tmp_path, disk=disk)
    DataFolder(tmp_path).close()


def test_second_close_does_nothing(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.close()
    folder.close()
    DataFolder(tmp_path).close()


def test_folder_with_unrecognized_files_is_refused_without_changes(tmp_path: Path) -> None:
    """For example `--data docs`, which is probably a mistake."""
    for name in ("admin.md", "log.md"):
        (tmp_path / name).write_text("hers")
    with pytest.raises(StartError, match=r"found admin\.md and 1 more, expected an empty folder"):
        DataFolder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["admin.md", "log.md"]


@pytest.mark.parametrize("name", ["lost+found", ".snapshot", "recovery-point-offset-checkpoint", "orders-3"])
def test_files_of_file_systems_and_kafka_are_accepted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    DataFolder(tmp_path).close()
    assert (tmp_path / "callboard.json").exists()


def test_start_with_folder_at_the_path_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(StartError, match=r"Is a directory \(.*/\.lock\)"):
        DataFolder(tmp_path)


def test_folder_of_a_node_gets_the_partition_counts_of_its_cluster(tmp_path: Path) -> None:
    with DataFolder(tmp_path, 7, 3, has_log=False) as first:
        cluster_id = first.cluster_id
    with DataFolder(tmp_path, 50, 20, has_log=False) as folder:
        assert (folder.offsets_partitions, folder.transactions_partitions, folder.cluster_id) == (50, 20, cluster_id)
    with DataFolder(tmp_path) as folder:
        assert (folder.offsets_partitions, folder.transactions_partitions) == (50, 20)


@pytest.mark.parametrize("own", ["journal", "__consumer_offsets-0"])
def test_node_refuses_the_folder_of_a_single_server_with_other_counts(tmp_path: Path, own: str) -> None:
    DataFolder(tmp_path, 7, 3).close()
    (tmp_path / own).mkdir()
    stored = read_files(tmp_path)
    with pytest.raises(StartError, match=r"log of a single server with 7 and 3 partitions, expected .* 50 and 20 part"):
        DataFolder(tmp_path, 50, 20, has_log=False)
    assert read_files(tmp_path) == stored
    DataFolder(tmp_path, 7, 3, has_log=False).close()
