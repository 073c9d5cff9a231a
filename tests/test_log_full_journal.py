"""A disk that is full to the last byte, and the journal is what fills it: the log makes room by itself.

All that a journal file holds is soon in the partition files, too; then a checkpoint may drop it. But that takes a next
file, and with it a few bytes.
"""

from __future__ import annotations

import pytest
from log_helpers import name_of
from structlog.testing import capture_logs
from test_log_failures import (
    ROOM_AGAIN,
    ROOM_ENDED,
    ROOT,
    STORED,
    after_crash,
    events,
    fill_journal,
    full_desk,
)

from callboard.runtime.disk.disk import file_size
from callboard.runtime.log import journal


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ZEROS", bytes(1024))


def test_a_full_journal_has_something_to_give_back() -> None:
    disk, desk = full_desk()
    with capture_logs():
        fill_journal(desk)
    size = file_size(disk, ROOT / "journal" / name_of(0))
    assert size - desk.log.stats().journal_bytes >= len(journal.ZEROS) // 16


def test_a_look_at_a_full_disk_makes_a_checkpoint_long_before_it_is_due() -> None:
    disk, desk = full_desk()
    with capture_logs():
        fill_journal(desk)
        disk.capacity_bytes += 1000  # no step of zeros, but what waits; and then a step where the old journal was
        for _ in range(5):
            desk.later(2.0)
        desk.commit(1)
    assert desk.errors[-1] is STORED


def test_what_waits_may_take_the_last_byte_and_a_checkpoint_still_makes_room() -> None:
    """The journal holds nothing then that the partition files have not. It was all that filled the disk."""
    disk, desk = full_desk()
    disk.capacity_bytes += 2 * len(journal.ZEROS)
    with capture_logs() as lines:
        desk.later(0.5)
        while desk.errors[-1] is STORED:
            desk.commit(1, 2)
        disk.capacity_bytes = disk.used_bytes()
        desk.later()
        waiting_bytes = desk.log.stats().waiting_bytes
        for _ in range(2):  # one partition after the other; both together would be a step of the journal
            disk.capacity_bytes += waiting_bytes // 2
            desk.later()
        for _ in range(3):
            desk.later()
        desk.commit(0)
    assert desk.errors[-1] is STORED
    assert events(lines) == [ROOM_ENDED, ROOM_AGAIN]
    assert after_crash(disk) == desk.stored
