"""A disk without a free byte, filled by the journal: the log frees space itself.

The batches of a journal file are soon in the partition files, too; then a checkpoint may remove it. But a checkpoint
needs a few bytes for the next file.
"""

from __future__ import annotations

import pytest
from log_failure_helpers import (
    NO_ROOM,
    ROOM_AGAIN,
    ROOT,
    STORED,
    fill_journal,
    harness_on_full_disk,
    offsets_after_crash,
    problem_events,
)
from log_helpers import journal_file_name
from structlog.testing import capture_logs

from callboard.runtime.disk.disk import file_size
from callboard.runtime.log import journal


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


def test_full_journal_is_trimmed_for_the_next_file() -> None:
    disk, harness = harness_on_full_disk()
    with capture_logs():
        fill_journal(harness)
    size = file_size(disk, ROOT / "journal" / journal_file_name(0))
    assert size - harness.log.stats().journal_bytes >= len(journal.ZEROS) // 16


def test_probe_of_full_disk_starts_an_early_checkpoint() -> None:
    disk, harness = harness_on_full_disk()
    with capture_logs():
        fill_journal(harness)
        disk.capacity_bytes += 1000  # room for the waiting batches only; later also for a step of zeros
        for _ in range(5):
            harness.advance(2.0)
        harness.commit(1)
    assert harness.errors[-1] is STORED


def test_checkpoint_makes_room_when_flush_used_the_last_byte() -> None:
    """Then the partition files have all of the journal's batches, and the journal alone fills the disk."""
    disk, harness = harness_on_full_disk()
    disk.capacity_bytes += 2 * len(journal.ZEROS)
    with capture_logs() as lines:
        harness.advance(0.5)
        while harness.errors[-1] is STORED:
            harness.commit(1, 2)
        disk.capacity_bytes = disk.used_bytes()
        harness.advance()
        waiting_bytes = harness.log.stats().waiting_bytes
        for _ in range(2):  # one partition after the other; both together would be a step of the journal
            disk.capacity_bytes += waiting_bytes // 2
            harness.advance()
        for _ in range(3):
            harness.advance()
        harness.commit(0)
    assert harness.errors[-1] is STORED
    assert problem_events(lines) == [NO_ROOM, ROOM_AGAIN]
    assert offsets_after_crash(disk) == harness.stored
