"""Tests of the export and import of whole logs, without a running Kafka.

``real_kafka/test_exchange.py`` does the same with a real one.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_helpers import Command, run_export, run_import
from kafka_folder_helpers import (
    GROUPS,
    PARTITIONS,
    TRANSACTION_PARTITIONS,
    content,
    copied,
    data,
    full,
    kafka,
)
from log_helpers import offset
from partition_helpers import plain, write

from callboard.actors.records import GroupRecord
from callboard.runtime.cli.exchange import export_run, import_run
from callboard.runtime.cli.exchange.kafka_export import CHECKPOINTS, FINISHED, METADATA, UNFINISHED
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.batch import Batch, read_batches, with_records
from callboard.runtime.log.partition import TOPIC, TRANSACTIONS_TOPIC, folder_name
from callboard.runtime.log.reading.segment import segment_name
from callboard.runtime.log.recovery.clean_stop import CleanEnd, CleanStopNote, write_note

fixtures = copied, data, full, kafka, run_export, run_import


# To Kafka ------------------------------------------------------------------------------------------------------------


def test_export_to_kafka_leaves_only_log_files_and_metadata(data: Path, kafka: Path, run_export: Command) -> None:
    """Indexes, epochs and checkpoint lines of these partitions are removed; other topics are unchanged."""
    orders = content(kafka / "orders-0")
    result = run_export("--data", data, "--kafka-dir", kafka)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("5 files with ")
    assert content(kafka / "orders-0") == orders
    for number in range(PARTITIONS):
        our_content = content(data / folder_name(number))
        metadata = {METADATA: f"version: 0\ntopic_id: {TOPIC}\n".encode()}
        assert content(kafka / folder_name(number)) == {**our_content, **metadata}
    for name in CHECKPOINTS[:-1]:
        assert (kafka / name).read_text() == "0\n1\norders 0 4\n"
    assert not [name for name in (UNFINISHED, FINISHED) if (kafka / name).exists()]
    assert [path.name for path in kafka.parent.iterdir() if "replaced" in path.name] == []


def test_export_with_replace_keeps_old_folders(data: Path, kafka: Path, run_export: Command) -> None:
    (kafka / folder_name(2) / segment_name(0)).write_bytes(plain(0, offset(GROUPS[2], 9)))
    content_before = content(kafka)
    refused = run_export("--data", data, "--kafka-dir", kafka)
    assert refused.code == 2
    assert f"{kafka / folder_name(2)}: found Kafka's records in it" in refused.err and "--replace" in refused.err
    assert content(kafka) == content_before
    result = run_export("--data", data, "--kafka-dir", kafka, "--replace")
    assert result.code == 0
    [replaced_folder] = kafka.parent.glob("kafka.replaced-*")
    assert f"the old content of {kafka} is kept in {replaced_folder}" in result.out
    assert content(replaced_folder) == {
        name: data for name, data in content_before.items() if name.startswith(("__con", "__tran"))
    }
    assert content(kafka / folder_name(2)).keys() == {METADATA}


def test_export_to_kafka_keeps_owners_and_modes(data: Path, kafka: Path, run_export: Command) -> None:
    """Kafka runs as another user than the export. Owners can be kept only as root."""
    (kafka / ".lock").unlink()
    for path in (kafka, *kafka.rglob("*")):
        path.chmod(0o2755 if path.is_dir() else 0o664)
        if os.geteuid() == 0:
            os.chown(path, 1234, 2345)
    expected = kafka.stat().st_uid, kafka.stat().st_gid
    assert run_export("--data", data, "--kafka-dir", kafka).code == 0
    assert (kafka / folder_name(1) / segment_name(2)).exists() and (kafka / ".lock").exists()
    for path in (kafka, *kafka.rglob("*")):
        status = path.stat()
        assert (status.st_uid, status.st_gid) == expected, path
        assert stat.S_IMODE(status.st_mode) == (0o2755 if path.is_dir() else 0o664), path


def test_import_into_an_empty_folder_keeps_its_mode(full: Path, run_import: Command, tmp_path: Path) -> None:
    new_folder = tmp_path / "made"
    new_folder.mkdir()
    new_folder.chmod(0o750)
    assert run_import("--kafka-dir", full, "--data", new_folder).code == 0
    modes = {stat.S_IMODE(path.stat().st_mode) for path in new_folder.rglob("*") if path.is_file()}
    assert (modes, stat.S_IMODE(new_folder.stat().st_mode)) == ({0o640}, 0o750)


def test_export_to_kafka_replaces_leader_epochs(data: Path, kafka: Path, run_export: Command) -> None:
    """A Kafka cluster does not have the leader epochs of another cluster."""
    [path] = write(data, 0, [plain(0, offset(GROUPS[0], 1)), plain(1, offset(GROUPS[0], 2))])
    batches = list(read_batches(path.read_bytes()))
    path.write_bytes(b"".join(bytes(batch.data[:12]) + b"\0\0\0\x25" + bytes(batch.data[16:]) for batch in batches))
    assert run_export("--data", data, "--kafka-dir", kafka).code == 0
    exported_bytes = (kafka / folder_name(0) / segment_name(0)).read_bytes()
    assert [bytes(batch.data) for batch in read_batches(exported_bytes)] == [bytes(batch.data) for batch in batches]


def test_export_to_several_log_dirs(data: Path, kafka: Path, run_export: Command, tmp_path: Path) -> None:
    """Kafka distributes partitions over its log.dirs; all of them must be given."""
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "meta.properties").touch()
    (kafka / folder_name(1)).rename(other_folder / folder_name(1))
    refused = run_export("--data", data, "--kafka-dir", kafka)
    assert refused.code == 2
    assert f"found no folder {TOPIC}-1, expected all 4; repeat --kafka-dir" in refused.err
    assert run_export("--data", data, "--kafka-dir", kafka, "--kafka-dir", other_folder).code == 0
    assert segment_name(2) in content(other_folder / folder_name(1))


def test_export_of_damaged_log_to_kafka_is_refused(data: Path, kafka: Path, run_export: Command) -> None:
    """Kafka would truncate the log at the damage. A torn tail is left out."""
    path = data / folder_name(1) / segment_name(2)
    original_bytes = path.read_bytes()
    path.write_bytes(original_bytes + original_bytes[:30])
    content_before = content(kafka)
    damaged = data / folder_name(3) / segment_name(0)
    damaged.write_bytes(b"\1" + damaged.read_bytes()[1:])
    result = run_export("--data", data, "--kafka-dir", kafka)
    assert result.code == 3
    assert "Kafka would drop everything after it; callboard log repair removes it" in result.err
    assert content(kafka) == content_before
    shutil.rmtree(data / folder_name(3))
    assert run_export("--data", data, "--kafka-dir", kafka).code == 0
    assert (kafka / folder_name(1) / segment_name(2)).read_bytes() == original_bytes


@pytest.mark.parametrize("end", [4, 99])
def test_export_with_missing_data_is_refused(data: Path, kafka: Path, run_export: Command, end: int) -> None:
    """A missing partition, or a missing end that only the note of a clean stop reveals."""
    write_note(Disk(), data, CleanStopNote({folder_name(3): CleanEnd(3, 1, end)}, None))
    assert run_export("--data", data, "--kafka-dir", kafka).code == (0 if end == 4 else 3)
    shutil.rmtree(data / folder_name(3))
    content_before = content(kafka)
    result = run_export("--data", data, "--kafka-dir", kafka, "--replace")
    assert result.code == 3 and f"went on to offset {end}" in result.err
    assert content(kafka) == content_before


def test_export_with_running_server_is_refused(data: Path, kafka: Path, run_export: Command) -> None:
    content_before = content(kafka)
    with DataFolder(data):
        result = run_export("--data", data, "--kafka-dir", kafka)
    assert result.code == 2 and "in use by process" in result.err
    (data / "journal").mkdir()
    (data / "journal" / "00000000000000000003.journal").touch()
    result = run_export("--data", data, "--kafka-dir", kafka)
    assert result.code == 2 and "found a journal" in result.err
    shutil.rmtree(data / "journal")
    with running(kafka):
        result = run_export("--data", data, "--kafka-dir", kafka)
        assert result.code == 2 and f"{kafka}: Kafka is running on it" in result.err
    assert content(kafka) == content_before


class running:
    """A process that holds Kafka's lock."""

    def __init__(self, kafka: Path) -> None:
        code = (
            "import fcntl, sys; fcntl.lockf(f := open(sys.argv[1], 'r+'), fcntl.LOCK_EX); print(1, flush=True); input()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(kafka / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"1\n"

    def __exit__(self, *error: object) -> None:
        self._process.communicate(b"\n")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("meta.properties", "found no meta.properties, expected one of Kafka's log.dirs"),
        (f"{TOPIC}-*", f"found no folder {TOPIC}-N, expected those that Kafka makes; start it with"),
        (f"{TRANSACTIONS_TOPIC}-*", "transaction.state.log.num.partitions=2, have it make them (kafka-transactions.sh"),
        (f"{TOPIC}-3", f"Kafka's {TOPIC} has 3 partitions, and ours 4; a group's partition depends on it: set"),
    ],
)
def test_export_to_kafka_with_other_partitions_is_refused(
    data: Path, kafka: Path, run_export: Command, change: str, expected: str
) -> None:
    for path in kafka.glob(change):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    result = run_export("--data", data, "--kafka-dir", kafka)
    assert (result.code, result.out) == (2, "")
    assert expected in result.err


def test_export_without_transactions_keeps_those_of_kafka(data: Path, kafka: Path, run_export: Command) -> None:
    shutil.rmtree(data / folder_name(1, TRANSACTIONS_TOPIC))
    content_before = content(kafka / folder_name(1, TRANSACTIONS_TOPIC))
    assert run_export("--data", data, "--kafka-dir", kafka).code == 0
    assert content(kafka / folder_name(1, TRANSACTIONS_TOPIC)) == content_before


def test_export_to_folder_without_metadata_is_refused(data: Path, kafka: Path, run_export: Command) -> None:
    content_before = content(kafka)
    (kafka / folder_name(2) / METADATA).unlink()
    result = run_export("--data", data, "--kafka-dir", kafka)
    assert result.code == 3 and f"{kafka / folder_name(2)}: found no {METADATA}" in result.err
    assert {**content(kafka), **content_before} == content_before


class Stops(Exception):
    """A simulated power loss."""


class StoppingDisk(Disk):
    """Stops at the n-th rename."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def rename(self, source: Path, target: Path) -> None:
        if self.left == 0:
            raise Stops
        self.left -= 1
        super().rename(source, target)


def without_checkpoints(folder: Path) -> dict[str, bytes]:
    """Kafka rebuilds missing checkpoint lines from its log, so they need not be restored."""
    return {name: data for name, data in content(folder).items() if name not in CHECKPOINTS}


def test_crash_during_export_is_undone_by_next_run(
    data: Path, kafka: Path, run_export: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Until then Kafka refuses to start because of the unfinished folder."""
    (kafka / folder_name(2) / segment_name(0)).write_bytes(plain(0, offset(GROUPS[2], 9)))
    original, saved_folder = content(kafka), tmp_path / "saved"
    shutil.copytree(kafka, saved_folder)
    for changes in range(1000):
        disk = StoppingDisk(changes)
        monkeypatch.setattr(export_run, "Disk", lambda disk=disk: disk)
        monkeypatch.setattr(export_run, "undo_export", lambda plan, disk: None)  # without power no cleanup runs
        try:
            assert run_export("--data", data, "--kafka-dir", kafka, "--replace").code == 0
            break
        except Stops:
            parts = {name: data for name, data in content(kafka).items() if not name.startswith("callboard_")}
            if parts != original:
                assert (kafka / UNFINISHED).exists()
        monkeypatch.setattr(export_run, "Disk", Disk)
        refused = run_export("--data", data, "--kafka-dir", kafka)
        assert refused.code == 2 and "found Kafka's records in it" in refused.err
        assert without_checkpoints(kafka) == {name: original[name] for name in without_checkpoints(saved_folder)}
        shutil.rmtree(kafka)
        shutil.copytree(saved_folder, kafka)
    assert 10 < changes < 999


# From Kafka ----------------------------------------------------------------------------------------------------------


def test_import_of_kafka_folders_copies_segments(
    data: Path, full: Path, run_import: Command, run_export: Command, tmp_path: Path
) -> None:
    """The segments are copied unchanged, and their content is reported."""
    new_folder = tmp_path / "deep" / "made"
    content_before = content(full)
    result = run_import("--kafka-dir", full, "--data", new_folder)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        f"{new_folder}: 8 records, read back",
        f"groups            2 in {PARTITIONS} partitions",
        "offsets           2, and 1 of open transactions",
        f"transactional ids 1 in {TRANSACTION_PARTITIONS} partitions, 1 with an open transaction",
        "kept, not read    1 record of type 30 (not known)",
    ]
    assert content(full) == content_before
    info = json.loads((new_folder / "callboard.json").read_text())
    assert (info["offsets_partitions"], info["transactions_partitions"]) == (PARTITIONS, TRANSACTION_PARTITIONS)
    for folder in data.glob("__*"):
        assert content(new_folder / folder.name) == content(folder)
    assert run_export("--data", new_folder).out == run_export("--data", data).out
    assert (new_folder / ".clean_shutdown").exists()


def test_import_with_compressed_batches_and_torn_tails(
    full: Path, run_import: Command, run_export: Command, tmp_path: Path
) -> None:
    path = full / folder_name(0) / segment_name(0)
    [batch] = read_batches(plain(0, offset(GROUPS[0], 6)))
    path.write_bytes(with_records(batch, 1, gzip.compress(bytes(batch.data[61:]))) + bytes(50))
    result = run_import("--kafka-dir", full, "--data", tmp_path / "made")
    assert result.code == 0
    assert f"torn end          {path}: 50 bytes from byte" in result.out
    assert f"{GROUPS[0]},t,0,6," in run_export("--data", tmp_path / "made").out


def test_import_of_damaged_log_reports_damage(full: Path, run_import: Command, tmp_path: Path) -> None:
    path = full / folder_name(3) / segment_name(0)
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    result = run_import("--kafka-dir", full, "--data", tmp_path / "made")
    assert result.code == 3
    assert str(path) in result.err and "damaged bytes at byte 0" in result.err
    assert (tmp_path / "made" / folder_name(3) / segment_name(0)).read_bytes() == damaged


def test_import_with_missing_partitions_needs_counts(full: Path, run_import: Command, tmp_path: Path) -> None:
    """Partitions on other brokers: the counts must be given, and groups must be in the right partition."""
    shutil.rmtree(full / folder_name(0))
    new_folder = tmp_path / "made"
    result = run_import("--kafka-dir", full, "--data", new_folder)
    assert result.code == 2
    assert f"found {TOPIC}-3 and no {TOPIC}-0" in result.err and "offsets.topic.num.partitions" in result.err
    result = run_import("--kafka-dir", full, "--data", new_folder, "--partitions", 50)
    assert result.code == 2
    assert f"found group '{GROUPS[1]}' in {TOPIC}-" in result.err and "of 50; give Kafka's" in result.err
    result = run_import("--kafka-dir", full, "--data", new_folder, "--partitions", 3)
    assert result.code == 2 and f"found {TOPIC}-3, expected less than --partitions 3" in result.err
    assert list(tmp_path.glob("made*")) == []
    assert run_import("--kafka-dir", full, "--data", new_folder, "--partitions", PARTITIONS).code == 0


def test_import_of_invalid_folder_is_refused(full: Path, data: Path, run_import: Command, tmp_path: Path) -> None:
    new_folder = tmp_path / "made"

    def refused(kafka: Path, target: Path = new_folder) -> str:
        result = run_import("--kafka-dir", kafka, "--data", target)
        assert (result.code, result.out) == (2, "")
        return result.err

    assert "found no folder" in refused(tmp_path / "nowhere")
    assert f"found no folder {TOPIC}-N" in refused(full / "orders-0")
    assert "this is a data folder of Callboard: use it with callboard serve --data" in refused(data)
    assert "expected a new folder, or an empty one" in refused(full, data)
    (tmp_path / "made.importing").mkdir()
    assert "left by an import that was interrupted; remove it" in refused(full)
    (tmp_path / "made.importing").rmdir()
    with running(full):
        assert "Kafka is running on it" in refused(full)
    (full / folder_name(2) / f"{segment_name(0)}.swap").touch()
    assert "start it and stop it once" in refused(full)


def test_import_whose_disk_fails_ends_with_code_1_and_makes_no_folder(
    full: Path, run_import: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the new data folder is opened, which a server would refuse to start with: code 2."""
    left = 0

    class FailingDisk(Disk):
        def sync(self, fd: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(fd)

    monkeypatch.setattr(import_run, "Disk", FailingDisk)
    for syncs in range(1000):
        left = syncs
        result = run_import("--kafka-dir", full, "--data", tmp_path / "made")
        if result.code == 0:
            break
        assert (result.code, result.out) == (1, "")
        assert "Input/output error; check the disk" in result.err
        assert list(tmp_path.glob("made*")) == []
    assert syncs > 1


def test_import_with_different_read_back_makes_no_folder(
    full: Path, run_import: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that returns wrong bytes."""

    written_batch, different_batch = plain(0, offset(GROUPS[0], 1)), plain(0, offset(GROUPS[0], 7))

    class WrongDisk(Disk):
        def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
            return super().write(fd, different_batch if data == written_batch else data, position)

    (full / folder_name(0) / segment_name(0)).write_bytes(written_batch)
    monkeypatch.setattr(import_run, "Disk", WrongDisk)
    result = run_import("--kafka-dir", full, "--data", tmp_path / "made")
    assert (result.code, result.out) == (3, "")
    assert (
        ": byte 17 is not that of " in result.err
        and "1 difference between Kafka's folders and their copy" in result.err
    )
    assert list(tmp_path.glob("made*")) == []


def test_import_does_not_decode_superseded_records(
    full: Path, run_import: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 commits of one offset: few of them are decoded one by one."""
    commits = (plain(base, *(offset(GROUPS[0], base + index) for index in range(100))) for base in range(0, 2000, 100))
    (full / folder_name(0) / segment_name(0)).write_bytes(b"".join(commits))
    decoded, original = [0], Batch._record

    def count(batch: Batch, start: int, stop: int) -> tuple[int, int, bytes | None, bytes | None]:
        decoded[0] += 1
        return original(batch, start, stop)

    monkeypatch.setattr(Batch, "_record", count)
    assert run_import("--kafka-dir", full, "--data", tmp_path / "made").code == 0
    assert decoded[0] < 500


# Serving a copy ------------------------------------------------------------------------------------------------------


def test_copied_partitions_set_partition_counts(copied: Path) -> None:
    with DataFolder(copied) as folder:
        assert (folder.offsets_partitions, folder.transactions_partitions) == (PARTITIONS, TRANSACTION_PARTITIONS)
    with DataFolder(copied, 7, 7) as folder:
        assert (folder.offsets_partitions, folder.transactions_partitions) == (PARTITIONS, TRANSACTION_PARTITIONS)


def test_unsafe_copies_are_refused(full: Path) -> None:
    """No file is changed: Kafka may be running on the folder."""
    content_before = content(full)
    with pytest.raises(StartError, match=f"callboard import --kafka-dir {full} --data DIR"):
        DataFolder(full)
    assert content(full) == content_before
    (full / "meta.properties").unlink()
    shutil.rmtree(full / folder_name(0))
    with pytest.raises(StartError, match=r"found __consumer_offsets-3 and no __consumer_offsets-0.*--partitions N"):
        DataFolder(full)
    (full / folder_name(0)).mkdir()
    shutil.rmtree(full / folder_name(3))
    shutil.rmtree(full / folder_name(1))
    (full / folder_name(1)).mkdir()
    (full / folder_name(1) / segment_name(0)).write_bytes(plain(0, GroupRecord(GROUPS[2], None)))
    with pytest.raises(StartError, match=r"in __consumer_offsets-1, expected it in __consumer_offsets-\d of 3"):
        DataFolder(full)


def test_import_of_kafka_log_ignores_variable_of_server(
    tmp_path: Path, run_import: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_BOOTSTRAP_SERVER", "127.0.0.1:1")
    arguments = ("--kafka-dir", tmp_path / "nowhere", "--data", tmp_path / "data")
    assert "nowhere" in run_import(*arguments).err
    assert "no server" in run_import(*arguments, "-b", "127.0.0.1:1").err
