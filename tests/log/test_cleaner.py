"""The server's log cleaner: due partitions, retries, and logged failures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from compaction_helpers import BatchSpec, RecordSpec, by_manifest, write_files
from structlog.testing import capture_logs

from callboard.runtime.common import child_process
from callboard.runtime.common.errors import CompactionRuns
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.cleaner import RETRY_S
from callboard.runtime.log.compaction.defaults import GRACE_MS
from callboard.runtime.log.due_partition import DuePartition
from callboard.runtime.log.folder import FORMAT, INFO_NAME
from callboard.runtime.log.manifest import manifest_folder, manifest_name, newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.node.cleaner import Cleaner
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
        asyncio.run(cleaner.compact_due_partitions())
    assert newest_manifest(Disk(), data / OFFSETS_FOLDER).generation == 1
    assert by_manifest(Disk(), data / OFFSETS_FOLDER) == expected
    [event] = logs
    assert (event["event"], event["partition"]) == ("compacted", OFFSETS_FOLDER)
    assert (event["records_before"], event["records_after"]) == (2, 1)
    asyncio.run(cleaner.compact_due_partitions())
    assert cleaner.runs == 1


def test_partition_is_due_for_publishing_after_grace_period(data: Path, clock: ManualClock) -> None:
    asyncio.run(Cleaner(data, Settings()).compact_due_partitions())
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


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)", "print('garbage')"])
def test_child_process_that_ends_is_logged(data: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", program)
    settings = Settings(log_cleaner_backoff_ms=1)

    async def run_until_logged() -> None:
        cleaner = Cleaner(data, settings)
        cleaner.start()
        while not logs:
            await asyncio.sleep(0.01)
        await cleaner.stop()

    with capture_logs() as logs:
        asyncio.run(run_until_logged())
    assert logs[0]["event"] == "the log could not be compacted"
    assert newest_manifest(Disk(), data / OFFSETS_FOLDER).generation == 0


def test_damaged_partition_is_logged_and_others_are_compacted(data: Path) -> None:
    write_files(Disk(), [CLOSED_SEGMENT, OPEN_SEGMENT], data / TRANSACTIONS_FOLDER, base=1)
    first = min((data / OFFSETS_FOLDER).glob("*.log"))
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    with capture_logs() as logs:
        asyncio.run(Cleaner(data, Settings()).compact_due_partitions())
    assert [(event["event"], event["partition"]) for event in logs] == [
        ("a partition cannot be compacted", OFFSETS_FOLDER),
        ("compacted", TRANSACTIONS_FOLDER),
    ]


def test_halted_cleaner_ends_its_child_process(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", "import time; time.sleep(1000)")

    async def halt_during_run() -> None:
        cleaner = Cleaner(data, Settings(log_cleaner_backoff_ms=1))
        cleaner.start()
        while not cleaner.runs:
            await asyncio.sleep(0.01)
        await cleaner.stop()

    asyncio.run(halt_during_run())


def test_open_without_open_segment_continues_at_end_of_compacted_log(data: Path) -> None:
    """A power loss may lose the name of a segment that is still empty."""
    asyncio.run(Cleaner(data, Settings()).compact_due_partitions())
    (data / OFFSETS_FOLDER / f"{2:020d}.log").unlink()
    log = OffsetsLog(data, 5, transactions_partitions=5)
    log.open()
    assert log.end_offset(0) == 2
    log.close()


def test_compaction_job_has_the_settings_of_the_server(data: Path) -> None:
    settings = Settings(
        log_cleaner_min_cleanable_ratio=0.25,
        log_cleaner_delete_retention_ms=7,
        log_cleaner_dedupe_buffer_size=2_000_000,
        offsets_topic_segment_bytes=1000,
    )
    job = Cleaner(data, settings)._job(data / OFFSETS_FOLDER)
    assert job.settings.min_ratio == 0.25
    assert job.settings.delete_retention_ms == 7
    assert job.settings.segment_bytes == 1000
    assert job.settings.keys_bytes_max == 2_000_000


# On demand -----------------------------------------------------------------------------------------------------------


def test_compaction_on_demand_needs_no_ratio(data: Path, clock: ManualClock) -> None:
    cleaner = Cleaner(data, Settings(log_cleaner_min_cleanable_ratio=1.0), clock_ms=lambda: clock.wall_ms)
    assert cleaner.due() == []

    async def compact() -> None:
        [found] = await cleaner.compactable()
        assert (found.name, found.clean_bytes) == (OFFSETS_FOLDER, 0)
        assert found.dirty_bytes > 0
        cleaner.compact_now()
        assert cleaner.is_running
        with pytest.raises(CompactionRuns, match="wait until that is done"):
            cleaner.compact_now()
        while cleaner.is_running:
            await asyncio.sleep(0.01)
        assert await cleaner.compactable() == list[DuePartition]()
        await cleaner.stop()

    with capture_logs() as logs:
        asyncio.run(compact())
    assert [event["event"] for event in logs] == ["compacted"]
    assert newest_manifest(Disk(), data / OFFSETS_FOLDER).generation == 1


def test_compaction_on_demand_ends_with_the_server(data: Path) -> None:
    async def compact_and_stop() -> None:
        cleaner = Cleaner(data, Settings())
        cleaner.compact_now()
        await asyncio.sleep(0)
        await cleaner.stop()
        assert not cleaner.is_running

    asyncio.run(compact_and_stop())


def test_failure_of_a_compaction_on_demand_is_logged(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", "raise SystemExit(3)")

    async def compact() -> None:
        cleaner = Cleaner(data, Settings())
        cleaner.compact_now()
        while cleaner.is_running:
            await asyncio.sleep(0.01)

    with capture_logs() as logs:
        asyncio.run(compact())
    assert logs[0]["event"] == "the log could not be compacted"
