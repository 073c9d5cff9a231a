"""The server's log cleaner: due partitions, retries, and logged failures."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import BatchSpec, RecordSpec, by_manifest, write_files
from structlog.testing import capture_logs

from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.publish import GRACE_MS
from callboard.runtime.log.folder import FORMAT, INFO_NAME
from callboard.runtime.log.manifest import manifest_folder, manifest_name, newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.node.cleaner import RETRY_S, Cleaner
from callboard.runtime.settings.table import Settings

CLOSED_SEGMENT = [BatchSpec((RecordSpec(b"a", b"1"), RecordSpec(b"a", b"2")))]
OPEN_SEGMENT = [BatchSpec((RecordSpec(b"b", b"1"),))]
OFFSETS_FOLDER, TRANSACTIONS_FOLDER = "__consumer_offsets-0", "__transaction_state-3"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    info = {"format": FORMAT, "cluster_id": "a" * 22, "offsets_partitions": 5, "transactions_partitions": 5}
    (tmp_path / INFO_NAME).write_text(json.dumps(with_checksum(info)))
    (tmp_path / "journal").mkdir()
    write_files(Disk(), [CLOSED_SEGMENT, OPEN_SEGMENT], tmp_path / OFFSETS_FOLDER)
    write_files(Disk(), [OPEN_SEGMENT], tmp_path / TRANSACTIONS_FOLDER)
    return tmp_path


class ManualClock:
    """Wall clock and monotonic clock, set by the test."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.s = 0.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def new_cleaner(data: Path, clock: ManualClock) -> Cleaner:
    return Cleaner(data, Settings(), clock_s=lambda: clock.s, clock_ms=lambda: clock.wall_ms)


def test_partition_with_closed_segment_is_due(data: Path) -> None:
    assert Cleaner(data, Settings()).due() == [OFFSETS_FOLDER]
    write_files(Disk(), [OPEN_SEGMENT], data / TRANSACTIONS_FOLDER, base=1)
    assert Cleaner(data, Settings()).due() == [OFFSETS_FOLDER, TRANSACTIONS_FOLDER]


def test_partition_is_not_due_soon_after_run_without_result(data: Path, clock: ManualClock) -> None:
    """It becomes due again with new content, or after ten minutes."""
    cleaner = new_cleaner(data, clock)
    assert cleaner.due() == [OFFSETS_FOLDER]
    assert cleaner.due() == []
    clock.s += RETRY_S
    assert cleaner.due() == [OFFSETS_FOLDER]
    assert cleaner.due() == []
    write_files(Disk(), [OPEN_SEGMENT], data / OFFSETS_FOLDER, base=3)
    assert cleaner.due() == [OFFSETS_FOLDER]


def test_cleaner_run_compacts_in_process_and_is_logged(data: Path) -> None:
    expected = by_manifest(Disk(), data / OFFSETS_FOLDER)
    cleaner = Cleaner(data, Settings())
    with capture_logs() as logs:
        cleaner._look()
    assert newest_manifest(Disk(), data / OFFSETS_FOLDER).generation == 1
    assert by_manifest(Disk(), data / OFFSETS_FOLDER) == expected
    [event] = logs
    assert (event["event"], event["partition"]) == ("compacted", OFFSETS_FOLDER)
    assert (event["records_before"], event["records_after"]) == (2, 1)
    cleaner._look()
    assert cleaner.runs == 1


def test_partition_is_due_for_publishing_after_grace_period(data: Path, clock: ManualClock) -> None:
    Cleaner(data, Settings())._look()
    cleaner = new_cleaner(data, clock)
    clock.wall_ms = newest_manifest(Disk(), data / OFFSETS_FOLDER).created_ms + GRACE_MS - 1
    assert cleaner.due() == []
    clock.wall_ms += 1
    assert cleaner.due() == [OFFSETS_FOLDER]


def test_unusable_manifest_is_logged_once_and_starts_no_run(data: Path) -> None:
    manifest_folder(data / OFFSETS_FOLDER).mkdir(parents=True)
    (manifest_folder(data / OFFSETS_FOLDER) / manifest_name(1)).write_text("{")
    cleaner = Cleaner(data, Settings())
    with capture_logs() as logs:
        assert cleaner.due() == []
        assert cleaner.due() == []
    [event] = logs
    assert event["partition"] == OFFSETS_FOLDER
    assert "found no manifest" in event["reason"]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys; sys.stderr.write('callboard: damaged'); sys.exit(3)", "callboard: damaged"),
        ("import os; os.kill(os.getpid(), 9)", ""),
        ("print('no json'); raise SystemExit(1)", ""),
    ],
)
def test_failed_run_is_logged(data: Path, monkeypatch: pytest.MonkeyPatch, program: str, expected: str) -> None:
    monkeypatch.setattr(Cleaner, "_command", lambda self, names: [sys.executable, "-c", program])
    with capture_logs() as logs:
        Cleaner(data, Settings())._look()
    [event] = logs
    assert event["event"] == "the log could not be compacted"
    assert event["reason"] == expected


def test_pipe_of_child_process_stays_open_during_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed pipe tells the child that the server has ended."""
    program = "import select, sys; sys.exit(4 if select.select([sys.stdin], [], [], 0.3)[0] else 5)"
    monkeypatch.setattr(Cleaner, "_command", lambda self, names: [sys.executable, "-c", program])
    with capture_logs() as logs:
        Cleaner(data, Settings())._look()
    assert [event["exit_code"] for event in logs] == [5]


def test_open_without_open_segment_continues_at_end_of_compacted_log(data: Path) -> None:
    """A power loss may remove the directory entry of a segment that is still empty."""
    Cleaner(data, Settings())._look()
    (data / OFFSETS_FOLDER / f"{2:020d}.log").unlink()
    log = OffsetsLog(data, 5, transactions_partitions=5)
    log.open()
    assert log.end_offset(0) == 2
    log.close()


def options(cleaner: Cleaner) -> dict[str, Any]:
    command = cleaner._command([OFFSETS_FOLDER, TRANSACTIONS_FOLDER])
    return dict(pairwise(command))


def test_child_process_receives_settings(data: Path) -> None:
    settings = Settings(
        log_cleaner_min_cleanable_ratio=0.25,
        log_cleaner_delete_retention_ms=7,
        log_cleaner_dedupe_buffer_size=2_000_000,
        offsets_topic_segment_bytes=1000,
    )
    arguments = options(Cleaner(data, settings))
    assert arguments["--min-cleanable-ratio"] == "0.25"
    assert arguments["--delete-retention-ms"] == "7"
    assert arguments["--segment-bytes"] == "1000"
    assert arguments["--memory"] == "2000000"
    assert arguments["--partitions"] == f"{OFFSETS_FOLDER},{TRANSACTIONS_FOLDER}"


def test_child_process_is_started_to_end_with_server(data: Path) -> None:
    """If the server is killed, the child's standard input ends."""
    assert "--end-with-stdin" in Cleaner(data, Settings())._command([])
