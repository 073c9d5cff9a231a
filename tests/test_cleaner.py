"""When a server starts the compaction of its log: what is due, what was tried in vain, and that a failure is told."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import Bat, Rec, by_manifest, write_files
from structlog.testing import capture_logs

from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.publish import GRACE_MS
from callboard.runtime.log.folder import FORMAT, INFO_NAME
from callboard.runtime.log.manifest import manifest_folder, manifest_name, newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.node import cleaner
from callboard.runtime.node.cleaner import Cleaner
from callboard.runtime.settings.table import Settings

CLOSED = [Bat((Rec(b"a", b"1"), Rec(b"a", b"2")))]
OPEN = [Bat((Rec(b"b", b"1"),))]
ONE, OTHER = "__consumer_offsets-0", "__transaction_state-3"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    info = {"format": FORMAT, "cluster_id": "a" * 22, "offsets_partitions": 5, "transactions_partitions": 5}
    (tmp_path / INFO_NAME).write_text(json.dumps(with_checksum(info)))
    (tmp_path / "journal").mkdir()
    write_files(Disk(), [CLOSED, OPEN], tmp_path / ONE)
    write_files(Disk(), [OPEN], tmp_path / OTHER)
    return tmp_path


class Times:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.s = 0.0


@pytest.fixture
def now() -> Times:
    return Times()


def made(data: Path, now: Times) -> Cleaner:
    return Cleaner(data, Settings(), clock_s=lambda: now.s, clock_ms=lambda: now.wall_ms)


def test_a_partition_with_a_closed_segment_is_due(data: Path) -> None:
    assert Cleaner(data, Settings()).due() == [ONE]
    write_files(Disk(), [OPEN], data / OTHER, base=1)
    assert Cleaner(data, Settings()).due() == [ONE, OTHER]


def test_what_was_tried_in_vain_waits(data: Path, now: Times) -> None:
    """Until something is new in it, or ten minutes are over."""
    found = made(data, now)
    assert found.due() == [ONE]
    assert found.due() == []
    now.s += cleaner.RETRY_S
    assert found.due() == [ONE]
    assert found.due() == []
    write_files(Disk(), [OPEN], data / ONE, base=3)
    assert found.due() == [ONE]


def test_a_run_is_a_process_that_compacts_and_is_told_of(data: Path) -> None:
    expected = by_manifest(Disk(), data / ONE)
    found = Cleaner(data, Settings())
    with capture_logs() as logs:
        found._look()
    assert newest_manifest(Disk(), data / ONE).generation == 1
    assert by_manifest(Disk(), data / ONE) == expected
    [told] = logs
    assert (told["event"], told["partition"]) == ("compacted", ONE)
    assert (told["records_before"], told["records_after"]) == (2, 1)
    found._look()
    assert found.runs == 1


def test_what_has_had_its_grace_is_due_for_publishing(data: Path, now: Times) -> None:
    Cleaner(data, Settings())._look()
    found = made(data, now)
    now.wall_ms = newest_manifest(Disk(), data / ONE).created_ms + GRACE_MS - 1
    assert found.due() == []
    now.wall_ms += 1
    assert found.due() == [ONE]


def test_a_manifest_that_cannot_be_used_is_told_once_and_costs_no_run(data: Path) -> None:
    manifest_folder(data / ONE).mkdir(parents=True)
    (manifest_folder(data / ONE) / manifest_name(1)).write_text("{")
    found = Cleaner(data, Settings())
    with capture_logs() as logs:
        assert found.due() == []
        assert found.due() == []
    [told] = logs
    assert told["partition"] == ONE
    assert "found no manifest" in told["reason"]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys; sys.stderr.write('callboard: damaged'); sys.exit(3)", "callboard: damaged"),
        ("import os; os.kill(os.getpid(), 9)", ""),
        ("print('no json'); raise SystemExit(1)", ""),
    ],
)
def test_a_run_that_fails_is_told(data: Path, monkeypatch: pytest.MonkeyPatch, program: str, expected: str) -> None:
    monkeypatch.setattr(Cleaner, "_command", lambda self, names: [sys.executable, "-c", program])
    with capture_logs() as logs:
        Cleaner(data, Settings())._look()
    [told] = logs
    assert told["event"] == "the log could not be compacted"
    assert told["reason"] == expected


def test_the_childs_pipe_stays_open_while_it_works(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the end of the pipe for the end of the server."""
    program = "import select, sys; sys.exit(4 if select.select([sys.stdin], [], [], 0.3)[0] else 5)"
    monkeypatch.setattr(Cleaner, "_command", lambda self, names: [sys.executable, "-c", program])
    with capture_logs() as logs:
        Cleaner(data, Settings())._look()
    assert [told["exit_code"] for told in logs] == [5]


def test_a_log_whose_open_segment_is_gone_goes_on_where_compaction_left_it(data: Path) -> None:
    """As after a loss of power that took the name of a segment nobody has written to yet."""
    Cleaner(data, Settings())._look()
    (data / ONE / f"{2:020d}.log").unlink()
    log = OffsetsLog(data, 5, transactions_partitions=5)
    log.open()
    assert log.end_offset(0) == 2
    log.close()


def options(found: Cleaner) -> dict[str, Any]:
    command = found._command([ONE, OTHER])
    return dict(pairwise(command))


def test_the_child_gets_the_settings(data: Path) -> None:
    settings = Settings(
        log_cleaner_min_cleanable_ratio=0.25,
        log_cleaner_delete_retention_ms=7,
        log_cleaner_dedupe_buffer_size=2_000_000,
        offsets_topic_segment_bytes=1000,
    )
    given = options(Cleaner(data, settings))
    assert given["--min-cleanable-ratio"] == "0.25"
    assert given["--delete-retention-ms"] == "7"
    assert given["--segment-bytes"] == "1000"
    assert given["--memory"] == "2000000"
    assert given["--partitions"] == f"{ONE},{OTHER}"


def test_the_child_is_told_to_end_with_its_server(data: Path) -> None:
    """A server that is killed tells nobody; the child's standard input ends with it."""
    assert "--end-with-stdin" in Cleaner(data, Settings())._command([])
