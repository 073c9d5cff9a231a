"""Removed files of a data folder with records: they are detected, and the error has advice."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest
from log_helpers import LazyDisk, append, entry
from structlog.testing import capture_logs

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import INFO_NAME, DataFolder
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.recovery.quarantine import free_name, quarantine_bytes
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.catalogue import TopicCatalogue


class _Random:
    def __init__(self) -> None:
        self._source = random.Random(1)

    def uuid(self) -> str:
        return str(UUID(int=self._source.getrandbits(128)))


def make_used_folder(root: Path) -> Path:
    with DataFolder(root, 5, 5):
        log = OffsetsLog(root, 5, transactions_partitions=5, disk=LazyDisk())
        log.open()
        append(log, [entry(0, 1)])
        log.close()
    return root


def test_used_folder_without_callboard_json_is_refused(tmp_path: Path) -> None:
    """With another number of partitions, a server would look for every group in a wrong one."""
    root = make_used_folder(tmp_path / "data")
    (root / "events").mkdir()  # of the flight recorder
    (root / "audit.jsonl").touch()
    text = (root / INFO_NAME).read_text()
    (root / INFO_NAME).unlink()
    command = f"callboard log repair --data {root} --partitions 5 --transaction-partitions 5 --execute"
    with pytest.raises(StartError, match=f"found journal but no callboard.json.*put it back, or .* with {command}"):
        DataFolder(root, 5, 5)
    assert not (root / INFO_NAME).exists()
    (root / INFO_NAME).write_text(text)
    with DataFolder(root, 5, 5) as folder:
        assert folder.offsets_partitions == 5


def test_copy_of_kafkas_folders_needs_no_callboard_json(tmp_path: Path) -> None:
    (tmp_path / "__consumer_offsets-0").mkdir()
    with DataFolder(tmp_path, 5, 5):
        assert (tmp_path / INFO_NAME).exists()


def open_catalogue(root: Path) -> TopicCatalogue:
    return TopicCatalogue(root, Settings(), _Random())


def test_start_without_topics_json_keeps_topics_ends(tmp_path: Path) -> None:
    topics = open_catalogue(tmp_path)
    topics.create("t", 1)
    topics.raise_end("t", 0, 7)
    topics.files.close()
    (tmp_path / "topics.json").unlink()
    ends_before = (tmp_path / "topics.ends").read_bytes()
    with pytest.raises(StartError, match=r"topics.ends.* and no .*topics.json.*put it back, or put {}"):
        open_catalogue(tmp_path)
    assert (tmp_path / "topics.ends").read_bytes() == ends_before
    (tmp_path / "topics.ends").unlink()
    open_catalogue(tmp_path).files.close()


def test_start_with_empty_topics_ends_and_no_topics_succeeds(tmp_path: Path) -> None:
    """Older versions created this file first, and a crash may have prevented the write of ``topics.json``."""
    open_catalogue(tmp_path).files.close()
    (tmp_path / "topics.json").unlink()
    open_catalogue(tmp_path).files.close()


def test_quarantined_bytes_get_an_unused_name(tmp_path: Path) -> None:
    path = tmp_path / "f.log"
    path.write_bytes(b"abcdef" + bytes(10))
    assert quarantine_bytes(Disk(), path, 6, 16, 3) is None
    first_file = quarantine_bytes(Disk(), path, 2, 6, 3)
    assert first_file == tmp_path / "f.log.torn-3"
    assert quarantine_bytes(Disk(), path, 2, 6, 3) == first_file
    second_file = quarantine_bytes(Disk(), path, 1, 6, 3)
    assert second_file == tmp_path / "f.log.torn-3.2"
    assert (first_file.read_bytes(), second_file.read_bytes()) == (b"cdef", b"bcdef")
    assert free_name(Disk(), path, ".torn-3") == tmp_path / "f.log.torn-31"


def test_many_quarantined_bytes_are_logged_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.log.recovery.unrecognized.QUARANTINE_REPORTED_BYTES", 100)
    root = make_used_folder(tmp_path / "data")
    (root / "journal" / "00000000000000000000.journal.damaged").write_bytes(b"x" * 60)
    quarantined = root / "__consumer_offsets-0" / "00000000000000000000.log.torn-1"
    log_lines = []
    for size in (39, 40):
        quarantined.write_bytes(b"x" * size)
        with capture_logs() as lines:
            log = OffsetsLog(root, 5, transactions_partitions=5, disk=LazyDisk())
            log.open()
            log.close()
        log_lines.append([(line["files"], line["bytes"]) for line in lines])
    assert log_lines == [[], [(2, 100)]]
