"""Numbers in the names of files and folders are ASCII digits: those with other digits are not Callboard's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from log_helpers import append, entry

from callboard.actors.errors import ErrorCode
from callboard.runtime.log import journal, manifest
from callboard.runtime.log.compaction import garbage
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.reading import segment
from callboard.runtime.log.recovery import unrecognized
from callboard.runtime.node import event_files, reset_records
from callboard.runtime.security import audit_reading

OTHER_DIGITS = str.maketrans("0123456789", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669")

NAMES = [
    (segment._NAME, "00000000000000000012.log"),
    (journal._NAME, "00000000000000000012.journal"),
    (manifest._NAME, "00000000000000000012.json"),
    (garbage._OUTPUT_NAME, "00000000000000000012-0000000001-0123456789abcdef.log"),
    (unrecognized._KNOWN, "00000000000000000012.index"),
    (event_files.NAME, "00000000000000000012.jsonl"),
    (reset_records.NAME, "00000000000000000012-01234567-01234567-89ab-cdef-0123-456789abcdef.json"),
    (audit_reading._NAME, "audit.jsonl.12"),
]


@pytest.mark.parametrize(("pattern", "name"), NAMES)
def test_name_with_digits_of_another_script_is_not_ours(pattern: re.Pattern[str], name: str) -> None:
    assert pattern.fullmatch(name)
    assert not pattern.fullmatch(name.translate(OTHER_DIGITS))


def test_folders_with_digits_of_another_script_are_no_partitions(tmp_path: Path) -> None:
    with DataFolder(tmp_path, 5, 5):
        (tmp_path / "__consumer_offsets-99".translate(OTHER_DIGITS)).mkdir()
        log = OffsetsLog(tmp_path, 5, transactions_partitions=5)
        log.open()
        [result] = append(log, [entry(0, 1)])
        log.close()
    assert result.error == ErrorCode.NONE
