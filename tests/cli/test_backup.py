"""Tests of ``callboard backup`` and ``callboard restore``: the copy is whole and consistent, also under load."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from log_helpers import entry, offsets_in, scan_journal_file
from peers.server import ServerProcess

from callboard.actors.ports import Appended
from callboard.actors.records import OffsetRecord
from callboard.runtime.cli.backup import backup_command, held_journals, restore_command
from callboard.runtime.cli.backup.contents import FILE_NAME, read_contents
from callboard.runtime.cli.backup.held_journals import HeldJournals, JournalMissed
from callboard.runtime.cli.backup.restore_command import copy_backup
from callboard.runtime.cli.backup.snapshot import TRIES, make_backup
from callboard.runtime.cli.log import commands as log_commands
from callboard.runtime.client.cluster import Cluster
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.crc import crc32c
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.journal import FOLDER as JOURNAL
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.settings.address import Address
from callboard.runtime.topics.end_slots import HEADER, encode_slot

PARTITIONS = 5
GROUPS = [f"group-{number}" for number in range(20)]
ABOVE = ".."


def fixed_clock_ms() -> int:
    return 1_700_000_000_000


class HookedDisk(Disk):
    """The real disk, which calls ``hook`` before each file that is opened, but not while the hook runs."""

    def __init__(self, hook: Callable[[Path], None]) -> None:
        super().__init__()
        self._hook = hook
        self._is_in_hook = False

    def open(self, path: Path, flags: int) -> int:
        if not self._is_in_hook:
            self._is_in_hook = True
            try:
                self._hook(path)
            finally:
                self._is_in_hook = False
        return super().open(path, flags)


class Writer:
    """A log in a data folder. Each round has the same number for every partition.

    Everything runs on the caller's thread: checkpoints at once, or with a ``seed`` in the order that it chooses.
    """

    def __init__(self, data: Path, checkpoint_bytes: int, seed: int | None) -> None:
        with DataFolder(data, PARTITIONS, 1):
            pass
        self.rounds = 0
        self._is_stepped = seed is not None
        self._threads = InlineThreads(None if seed is None else Random(seed).randrange)
        self.log = OffsetsLog(
            data,
            PARTITIONS,
            transactions_partitions=1,
            checkpoint_bytes=checkpoint_bytes,
            segment_bytes=1000,
            clock=lambda: 0.0,
            threads=self._threads,
        )
        self.log.open()

    def write_round(self, _path: Path | None = None) -> None:
        outcomes: list[Appended] = []
        self.log.append([entry(partition, self.rounds) for partition in range(PARTITIONS)], 1, outcomes.extend)
        while self._is_stepped and not outcomes:
            self._threads.step()
        assert [outcome.error for outcome in outcomes] == [0] * PARTITIONS
        self.rounds += 1


@contextmanager
def writer(data: Path, checkpoint_bytes: int = 4000, seed: int | None = None) -> Iterator[Writer]:
    running = Writer(data, checkpoint_bytes, seed)
    try:
        yield running
    finally:
        running.log.close()


def rounds_in(data: Path) -> list[list[int]]:
    """The rounds that a start finds in each partition."""
    log = OffsetsLog(data, PARTITIONS, transactions_partitions=1)
    log.open()
    try:
        return [offsets_in(log, partition) for partition in range(PARTITIONS)]
    finally:
        log.close()


def run(main: Callable[[list[str]], int], *arguments: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    assert isinstance(exit.value.code, int)
    return exit.value.code


def restored(backup: Path, data: Path) -> Path:
    assert run(restore_command.main, backup, data) == 0
    return data


# The copy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_backup_while_rounds_are_written_has_all_partitions_at_one_instant(seed: int | None, tmp_path: Path) -> None:
    """A round is written before each file that is copied; segments roll and checkpoints remove journal files."""
    with writer(tmp_path / "data", seed=seed) as running:
        for _ in range(60):
            running.write_round()
        began = running.rounds
        journals = set((tmp_path / "data" / JOURNAL).iterdir())
        make_backup(HookedDisk(running.write_round), tmp_path / "data", Disk(), tmp_path / "backup", fixed_clock_ms)
        assert seed is not None or journals.isdisjoint((tmp_path / "data" / JOURNAL).iterdir()), (
            "a checkpoint removed them meanwhile"
        )
    first, *others = rounds_in(restored(tmp_path / "backup", tmp_path / "restored"))
    assert began <= len(first) <= running.rounds and first == list(range(len(first)))
    assert all(other == first for other in others)


def test_backup_of_stopped_folder_is_the_same_folder(tmp_path: Path) -> None:
    with writer(tmp_path / "data") as running:
        for _ in range(30):
            running.write_round()
    make_backup(Disk(), tmp_path / "data", Disk(), tmp_path / "backup", fixed_clock_ms)
    restored(tmp_path / "backup", tmp_path / "restored")
    kept = {path.relative_to(tmp_path / "restored") for path in (tmp_path / "restored").rglob("*") if path.is_file()}
    assert Path(".clean_shutdown") in kept and not any(path.parts[0] == JOURNAL for path in kept)
    for path in kept:
        assert (tmp_path / "restored" / path).read_bytes() == (tmp_path / "data" / path).read_bytes()
    assert rounds_in(tmp_path / "restored") == [list(range(30))] * PARTITIONS


def test_backup_while_partitions_are_compacted_has_each_newest_offset(tmp_path: Path) -> None:
    data = tmp_path / "data"
    compacted: list[Path] = []

    def compact_before_copy(path: Path) -> None:
        if path.suffix == ".log" and path.parent.parent == data and path.parent not in compacted:
            compacted.append(path.parent)
            compact(Disk(), path.parent, CompactionSettings(fixed_clock_ms(), "test", min_ratio=-1))

    with writer(data) as running:
        for _ in range(60):
            running.write_round()
        make_backup(HookedDisk(compact_before_copy), data, Disk(), tmp_path / "backup", fixed_clock_ms)
    assert len(compacted) == PARTITIONS
    log = OffsetsLog(restored(tmp_path / "backup", tmp_path / "restored"), PARTITIONS, transactions_partitions=1)
    log.open()
    newest = [list(log.read(partition))[-1] for partition in range(PARTITIONS)]
    log.close()
    assert [record.value.offset for _, _, record in newest if isinstance(record, OffsetRecord) and record.value] == [
        59
    ] * PARTITIONS
    assert list((tmp_path / "backup").rglob(".compaction/manifest/*.json")), "the copy has compacted segments"


def test_backup_with_missed_journal_begins_again(tmp_path: Path) -> None:
    """Several journal files come and go before the first partition is copied, once."""
    with writer(tmp_path / "data", checkpoint_bytes=500) as running:
        running.write_round()
        opened: list[Path] = []

        def write_many_rounds(path: Path) -> None:
            opened.append(path)
            if len(opened) == 4:
                for _ in range(100):
                    running.write_round()

        make_backup(HookedDisk(write_many_rounds), tmp_path / "data", Disk(), tmp_path / "backup", fixed_clock_ms)
    copied = rounds_in(restored(tmp_path / "backup", tmp_path / "restored"))
    assert copied == [list(range(101))] * PARTITIONS


def test_backup_that_never_is_consistent_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def miss(_journals: HeldJournals) -> None:
        looks.append(1)
        raise JournalMissed("found 3 after 1")

    with writer(tmp_path / "data"):
        monkeypatch.setattr(HeldJournals, "look", miss)
        with pytest.raises(StartError, match=r"no consistent copy in 5 tries \(found 3 after 1\)"):
            make_backup(Disk(), tmp_path / "data", Disk(), tmp_path / "backup", fixed_clock_ms)
    assert len(looks) == TRIES and [path.name for path in tmp_path.iterdir()] == ["data"]


def test_frame_that_is_being_written_is_read_again(tmp_path: Path) -> None:
    with writer(tmp_path / "data") as running:
        running.write_round()
        [journal] = (tmp_path / "data" / JOURNAL).iterdir()
        whole = journal.read_bytes()[: scan_journal_file(journal).valid_bytes]
        torn = whole + b"\0\0\0\x30torn"
        pauses: list[float] = []

        def finish_frame(seconds: float) -> None:
            pauses.append(seconds)
            journal.write_bytes(whole)

        journal.write_bytes(torn)
        journals = HeldJournals(Disk(), tmp_path / "data", finish_frame)
        journals.look()
        assert list(journals.contents()) == [(f"{JOURNAL}/{journal.name}", whole)]
        assert pauses == [held_journals.TORN_READ_PAUSE_S]
        journals.close()


def test_topics_that_change_while_they_are_copied_are_read_again(tmp_path: Path) -> None:
    """Another topic takes the slot of a deleted one between the reads of the table and of the end offsets."""
    data = tmp_path / "data"
    table, ends = data / "topics.json", data / "topics.ends"
    reads: list[str] = []

    def change_topics(path: Path) -> None:
        if path in (table, ends):
            reads.append(path.name)
            if reads == ["topics.json", "topics.ends"]:
                table.write_text("the second table")
                ends.write_bytes(HEADER + encode_slot(1, 7))

    with writer(data):
        table.write_text("the first table")
        ends.write_bytes(HEADER + encode_slot(1, 1000))
        make_backup(HookedDisk(change_topics), data, Disk(), tmp_path / "backup", fixed_clock_ms)
    assert (tmp_path / "backup" / "topics.json").read_text() == "the second table"
    assert (tmp_path / "backup" / "topics.ends").read_bytes() == HEADER + encode_slot(1, 7)


def test_end_offset_that_is_being_written_is_read_again(tmp_path: Path) -> None:
    """A free slot is never valid; one in use becomes valid."""
    data = tmp_path / "data"
    ends, free, reads = data / "topics.ends", bytes(16), list[Path]()

    def finish_slot(path: Path) -> None:
        if path == ends:
            reads.append(path)
            if len(reads) == 3:
                ends.write_bytes(HEADER + encode_slot(1, 7) + free)
            elif len(reads) == 2:
                ends.write_bytes(HEADER + encode_slot(1, 7)[:8] + bytes(8) + free)

    with writer(data):
        ends.write_bytes(HEADER + encode_slot(1, 6) + free)
        make_backup(HookedDisk(finish_slot), data, Disk(), tmp_path / "backup", fixed_clock_ms)
    assert (tmp_path / "backup" / "topics.ends").read_bytes() == HEADER + encode_slot(1, 7) + free


def test_backup_leaves_locks_and_the_mark_of_the_history_out(tmp_path: Path) -> None:
    with writer(tmp_path / "data") as running:
        running.write_round()
        (tmp_path / "data" / "history.json").write_text("{}")
        (tmp_path / "data" / "settings.json").write_text("{}")
        (tmp_path / "data" / "security.json").write_text("{}")
        make_backup(Disk(), tmp_path / "data", Disk(), tmp_path / "backup", fixed_clock_ms)
    names = {path.name for path in (tmp_path / "backup").iterdir()}
    assert {"callboard.json", "settings.json", "security.json", JOURNAL, FILE_NAME} <= names
    assert names.isdisjoint({".lock", "history.json", ".clean_shutdown"})


# The command, under load ---------------------------------------------------------------------------------------------


class Load:
    """Commits growing offsets for all groups in a thread, and remembers what was acknowledged."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.acknowledged = dict.fromkeys(GROUPS, -1)
        self.has_turned = threading.Event()
        self._address = Address(host, int(port))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        offset = 0
        with Cluster(self._address, 30) as cluster:
            while not self._is_over.is_set():
                for group in GROUPS:
                    assert cluster.commit(group, {("orders", 0): offset}) == {}
                    self.acknowledged[group] = offset
                offset += 1
                self.has_turned.set()


def test_backup_under_load_has_everything_acknowledged_before_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerProcess(tmp_path, options=("--topic", "orders:1")) as server, Load(server.bootstrap) as load:
        for number in range(3):
            load.has_turned.clear()
            assert load.has_turned.wait(60)
            before = dict(load.acknowledged)
            assert run(backup_command.main, server.data, tmp_path / f"backup-{number}") == 0
            after = {group: offset + 1 for group, offset in load.acknowledged.items()}
            check_restored(tmp_path / f"backup-{number}", tmp_path / f"restored-{number}", before, after)
    capsys.readouterr()
    assert run(log_commands.main, "verify", "--data", tmp_path / "backup-2") == 0


def check_restored(backup: Path, folder: Path, before: dict[str, int], after: dict[str, int]) -> None:
    """Start a server on the restored folder, and compare its offsets with those acknowledged before and after."""
    folder.mkdir()
    restored(backup, folder / "data")
    with ServerProcess(folder) as server:
        host, _, port = server.bootstrap.rpartition(":")
        with Cluster(Address(host, int(port)), 30) as cluster:
            for group in GROUPS:
                offset = cluster.committed(group)["orders", 0].offset
                assert before[group] <= offset <= after[group], group


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with writer(tmp_path / "data") as running:
        running.write_round()
    make_backup(Disk(), tmp_path / "data", Disk(), tmp_path / "backup", fixed_clock_ms)
    return tmp_path / "backup"


def test_restore_to_folder_that_is_not_empty_is_refused(backup: Path, tmp_path: Path) -> None:
    for command, source in ((restore_command, backup), (backup_command, tmp_path / "data")):
        (tmp_path / "full").mkdir(exist_ok=True)
        (tmp_path / "full" / "file").write_text("x")
        with pytest.raises(StartError, match="found a folder that is not empty, expected an empty folder, or none"):
            command.main([str(source), str(tmp_path / "full")])
        with pytest.raises(StartError, match="found a file, expected an empty folder"):
            command.main([str(source), str(tmp_path / "full" / "file")])
        with pytest.raises(StartError, match="found no folder"):
            command.main([str(source), str(tmp_path / "absent" / "data")])
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


def test_restore_to_empty_folder_makes_a_data_folder(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert rounds_in(restored(backup, tmp_path / "empty")) == [[0]] * PARTITIONS
    assert not (tmp_path / "empty" / FILE_NAME).exists()


def test_restore_of_folder_without_contents_is_refused(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"backup.json: found no such file, expected a folder made by"):
        restore_command.main([str(tmp_path / "data"), str(tmp_path / "new")])
    fields = json.loads((backup / FILE_NAME).read_text())
    for changed, message in (
        ({"version": 2}, "version 2, expected 1"),
        ({"cluster_id": "x"}, "no contents of a backup"),
    ):
        (backup / FILE_NAME).write_text(json.dumps({**fields, **changed}))
        with pytest.raises(StartError, match=message):
            restore_command.main([str(backup), str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"files": {f"{ABOVE}/outside": [1, crc32c(b"x")]}},
            rf"a file '{ABOVE}/outside', expected a path below the folder",
        ),
        ({"files": {f"journal/{ABOVE}/{ABOVE}/outside": [1, crc32c(b"x")]}}, "expected a path below the folder"),
        ({"files": {"/outside": [1, crc32c(b"x")]}}, "expected a path below the folder"),
        ({"files": {"": [1, crc32c(b"x")]}}, "expected a path below the folder"),
        ({"files": {"a\0b": [1, crc32c(b"x")]}}, "expected a path below the folder"),
        ({"files": {"callboard.json": ["a", None]}}, "'a', expected a whole number"),
        ({"began_ms": 10**30}, f"a time of {10**30} ms, expected at most"),
        ({"began_ms": "x"}, "'x', expected a whole number"),
    ],
    ids=["above", "above after all", "absolute", "no name", "NUL", "no size", "a late time", "no time"],
)
def test_restore_of_contents_that_no_backup_has_is_refused(
    changed: dict[str, Any], problem: str, backup: Path, tmp_path: Path
) -> None:
    """Who gives somebody a backup writes its contents, with a valid checksum. No file leaves the new folder."""
    (tmp_path / "outside").write_text("x")
    fields = json.loads((backup / FILE_NAME).read_text())
    (backup / FILE_NAME).write_text(json.dumps(with_checksum({**fields, **changed})))
    (tmp_path / "deeper").mkdir()
    with pytest.raises(StartError, match=problem):
        restore_command.main([str(backup), str(tmp_path / "deeper" / "new")])
    assert not any((tmp_path / "deeper").iterdir())


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.unlink(), "found no such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes, expected"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), "found checksum"),
    ],
    ids=["removed", "truncated", "changed"],
)
def test_restore_of_damaged_backup_names_the_file_and_leaves_nothing(
    damage: Callable[[Path], Any], problem: str, backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(backup / "callboard.json")
    assert run(restore_command.main, backup, tmp_path / "new") == 3
    assert f"{backup / 'callboard.json'}: " in (err := capsys.readouterr().err) and problem in err
    assert {path.name for path in tmp_path.iterdir()} == {"data", "backup"}


def test_backup_of_folder_that_no_server_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="found no such file, expected the data folder of a server"):
        backup_command.main([str(tmp_path / "absent"), str(tmp_path / "backup")])


def test_contents_name_each_file_of_the_backup(backup: Path) -> None:
    contents = read_contents(Disk(), backup)
    files = {str(path.relative_to(backup)) for path in backup.rglob("*") if path.is_file()} - {FILE_NAME}
    assert contents.files.keys() == files
    assert copy_backup(backup, contents, backup.parent / "again") == {}
