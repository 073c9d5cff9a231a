"""Copies a data folder, also while a server writes to it, a compactor compacts it, or both.

The copy is the folder as a start would find it after the process was killed at one instant, that of the last read of
the journal:

1. All journal files are opened. They have what the partition files may lack now, and later ones have what follows.
2. The partition files are copied. Meanwhile new journal files are opened as they appear.
3. The journal files are copied. Each round is in the journal before it is in a partition file, so the journal has
   everything that the copied partition files have, and the rounds up to that instant for all partitions.

A start from the copy replays the journal. Batches that are in a partition file already are skipped, and the incomplete
end of a file is cut. If the server stops or starts meanwhile, or journal files come and go between two looks, the copy
begins again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ...common.errors import StartError
from ...disk.disk import Disk, read_file
from ...log.folder import INFO_NAME, TOPICS_NAME, FolderInfo, parse_info
from ...log.manifest import log_files, manifest_folder, manifest_name, refuse_replaced
from ...log.recovery.clean_stop import NOTE_NAME
from ...log.recovery.misplaced import list_partition_folders
from ...security.store import FILE_NAME as SECURITY_NAME
from ...settings.dynamic import FILE_NAME as SETTINGS_NAME
from ...topics.end_slots import decode_file
from ...topics.opening import ENDS_NAME
from ..new_folder import make_new_folder
from .contents import BackupContents, CopiedFile, write_contents
from .copies import copy_file, sync_folders, write_file
from .held_journals import HeldJournals, JournalMissed

TRIES = 5
PARTITION_TRIES = 100
TABLE_TRIES = 1000


class Snapshot:
    """One copy of ``data`` to ``target``, an empty folder. ``files``: what was copied, by relative path."""

    def __init__(self, source: Disk, data: Path, disk: Disk, target: Path) -> None:
        """``disk`` writes the copy, with the modes of its files."""
        self.files: dict[str, CopiedFile] = {}
        self._source = source
        self._data = data
        self._disk = disk
        self._target = target

    def make(self, report_partition: Callable[[str], None] = lambda name: None) -> None:
        """Copy everything. Raises OSError, StartError for a damaged folder, and JournalMissed: begin again."""
        with closing(HeldJournals(self._source, self._data)) as journals:
            journals.look()
            note = self._read(NOTE_NAME)
            for _, _, folder in list_partition_folders(self._source, self._data):
                report_partition(folder.name)
                self._copy_partition(folder, journals)
            self._copy_topics()
            self._write(INFO_NAME, self._read(INFO_NAME))
            self._write(SETTINGS_NAME, self._read(SETTINGS_NAME))
            self._write(SECURITY_NAME, self._read(SECURITY_NAME))
            journals.look()
            for name, content in journals.contents():
                self._write(name, content)
            if journals.is_empty:
                if self._read(NOTE_NAME) != note:
                    raise JournalMissed(f"{self._data}: a server was started and stopped meanwhile")
                self._write(NOTE_NAME, note)

    def _copy_partition(self, folder: Path, journals: HeldJournals) -> None:
        for _ in range(PARTITION_TRIES):
            try:
                files = self._copy_log_files(folder, journals)
            except FileNotFoundError:  # compacted meanwhile
                journals.look()
                continue
            self.files.update(files)
            return
        raise StartError(
            f"{folder}: files were removed {PARTITION_TRIES} times while it was copied; see callboard log verify"
        )

    def _copy_log_files(self, folder: Path, journals: HeldJournals) -> dict[str, CopiedFile]:
        """Copy the files that make up the log now. Raises FileNotFoundError if others do afterwards."""
        shutil.rmtree(self._target / folder.name, ignore_errors=True)
        self._disk.make_folder(self._target / folder.name)
        manifest, log = log_files(self._source, folder)
        paths = [file.path for file in log]
        if manifest.generation:
            paths.append(manifest_folder(folder) / manifest_name(manifest.generation))
        copied = {}
        for path in paths:
            name = str(path.relative_to(self._data))
            copied[name] = copy_file(self._source, path, self._disk, self._target / name, journals.look)
            journals.look()
        refuse_replaced(self._source, folder, manifest)
        return copied

    def _copy_topics(self) -> None:
        """Copy the table of topics and its end offsets, which agree: a deleted topic leaves its slots to others."""
        for _ in range(TABLE_TRIES):
            table, ends = self._read(TOPICS_NAME), self._read_ends()
            if self._read(TOPICS_NAME) == table:
                self._write(TOPICS_NAME, table)
                self._write(ENDS_NAME, ends)
                return
        raise StartError(f"{self._data / TOPICS_NAME}: changed {TABLE_TRIES} times while it was read; try again")

    def _read_ends(self) -> bytes | None:
        """The file of end offsets. A slot that was being written is valid when it is read again."""
        ends = self._read(ENDS_NAME)
        for _ in range(TABLE_TRIES):
            again = self._read(ENDS_NAME)
            if _damaged_slots(again) <= _damaged_slots(ends):
                return again
            ends = again
        return ends

    def _read(self, name: str) -> bytes | None:
        try:
            return read_file(self._source, self._data / name)
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: bytes | None) -> None:
        if content is not None:
            self.files[name] = write_file(self._disk, self._target / name, content)


def _damaged_slots(content: bytes | None) -> set[int]:
    """The slots without a valid checksum: those in use never, and those that are free."""
    slots = decode_file(content or b"") or []
    return {slot for slot, offset in enumerate(slots) if offset is None}


def _read_info(disk: Disk, data: Path) -> FolderInfo:
    path = data / INFO_NAME
    try:
        return parse_info(path, read_file(disk, path))
    except (FileNotFoundError, NotADirectoryError):
        raise StartError(f"{path}: found no such file, expected the data folder of a server; check the path") from None


def make_backup(
    source: Disk,
    data: Path,
    disk: Disk,
    target: Path,
    now_ms: Callable[[], int],
    report_partition: Callable[[str], None] = lambda name: None,
) -> BackupContents:
    """Copy a data folder into ``target``, which must not exist, and make the copy durable.

    ``target`` appears under its name when it is complete. Raises OSError; StartError if ``data`` is no data folder, is
    damaged, or changes too fast.
    """
    info = _read_info(source, data)
    began_ms = now_ms()
    for _ in range(TRIES):
        try:
            with make_new_folder(disk, target) as folder:
                snapshot = Snapshot(source, data, disk, folder)
                snapshot.make(report_partition)
                contents = BackupContents(info.cluster_id, began_ms, now_ms(), dict(sorted(snapshot.files.items())))
                write_contents(disk, folder, contents)
                sync_folders(disk, folder)
            return contents
        except JournalMissed as error:
            reason = error
    raise StartError(f"{data}: no consistent copy in {TRIES} tries ({reason}); try again when it is less busy")
