"""``history.json``, which limits how far compaction may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.history import FILE_NAME, HistoryMark, read_history_mark, write_history_mark
from callboard.runtime.log.manifest import ManifestError

MARK = HistoryMark("/tables/history", "id-1", {0: 4200, 3: 17})


def test_mark_with_any_flipped_bit_is_refused_or_the_same(tmp_path: Path) -> None:
    """With a changed digit, compaction could remove records that are not in the history."""
    write_history_mark(Disk(), tmp_path, MARK)
    path = tmp_path / FILE_NAME
    data, refused_count = path.read_bytes(), 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert read_history_mark(Disk(), tmp_path) == MARK, f"bit {bit}"
        except ManifestError as error:
            refused_count += 1
            assert str(path) in str(error)
    assert refused_count > 6 * len(data)


def test_mark_of_version_1_without_checksum_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"version": 1, "table": "t", "table_id": "i", "taken_to": {"2": 9}}')
    assert read_history_mark(Disk(), tmp_path) == HistoryMark("t", "i", {2: 9})


def test_mark_of_version_2_without_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"version": 2, "table": "t", "table_id": "i", "taken_to": {"2": 9}}')
    with pytest.raises(ManifestError, match="found checksum None, expected"):
        read_history_mark(Disk(), tmp_path)
