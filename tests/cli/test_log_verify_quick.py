"""Tests of ``callboard log verify --quick``, and of the reading that it shares with ``import --kafka-dir``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from log_helpers import offset
from partition_helpers import MEMBER, TIME_MS, plain, transactional, write

from callboard.actors.javahash import offsets_partition
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MarkerRecord,
    PendingOffsetRecord,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)
from callboard.runtime.cli.log import commands, verify
from callboard.runtime.cli.log.newest import NewestContent, load_newest
from callboard.runtime.cli.log.scan import LogPartition
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.transaction_records import encode_transaction
from callboard.runtime.log.partition import TRANSACTIONS_TOPIC
from callboard.runtime.log.reading.key_types import count_key_types
from callboard.runtime.log.recovery.clean_stop import EMPTY_NOTE, write_note

PARTITIONS = 4
GROUP = "g"
NUMBER = offsets_partition(GROUP, PARTITIONS)
QUICK = "--quick"

Verify = Callable[..., tuple[int, str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Superseded and live offsets, an open transaction, a record of an unknown type and a transactional id."""
    folder = tmp_path / "data"
    DataFolder(folder, PARTITIONS, PARTITIONS).close()
    write_note(Disk(), folder, EMPTY_NOTE)
    group = GroupValue("consumer", 3, "range", "m-1", TIME_MS, (MEMBER,))
    write(
        folder,
        NUMBER,
        [plain(0, GroupRecord(GROUP, group), offset(GROUP, 41)), plain(2, offset(GROUP, 42))],
        [
            transactional(3, PendingOffsetRecord(GROUP, "t", 1, offset(GROUP, 7).value, 9, 1)),
            transactional(4, MarkerRecord(8, 1, True)),
            plain(5, UnknownRecord(30, b"\0\x1ekey", b"v"), UnknownRecord(30, b"\0\x1ekey", b"w")),
        ],
    )
    value = TransactionValue(9, 1, 60_000, 4, frozenset(), TIME_MS, TIME_MS)
    record = frame_record(0, 0, *encode_transaction(TransactionRecord("tx", value)))
    number = offsets_partition("tx", PARTITIONS)
    write(folder, number, [encode_batch(0, TIME_MS, TIME_MS, [record])], topic=TRANSACTIONS_TOPIC)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Verify:
    def run_verify(*arguments: object) -> tuple[int, str]:
        try:
            code = commands.main(["verify", "--data", *map(str, arguments)])
        except SystemExit as exit:
            code = int(exit.code or 0)
        return code, capsys.readouterr().out

    return run_verify


def newest_segment(data: Path) -> Path:
    return max((data / f"__consumer_offsets-{NUMBER}").glob("*.log"))


def test_quick_verify_of_valid_log_prints_the_same_totals(data: Path, run: Verify) -> None:
    code, out = run(data, QUICK)
    assert (code, out) == run(data)
    assert code == 0 and out.startswith("8 records, ") and out.endswith("all is well\n")


def test_quick_verify_reads_each_partition_once(data: Path, run: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("a second reading")

    for name in ("compact", "scan_batches", "ForwardReading"):
        monkeypatch.setattr(verify, name, refuse)
    assert run(data, QUICK)[0] == 0


@pytest.mark.parametrize("position", [70, 17])
def test_quick_verify_of_changed_byte_reports_its_batch(data: Path, run: Verify, position: int) -> None:
    path = min(newest_segment(data).parent.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    code, out = run(data, QUICK)
    assert code == 3
    assert f"{path}: " in out and " damaged bytes at byte 0 " in out and "1 fault" in out


def test_quick_verify_of_torn_end_succeeds(data: Path, run: Verify) -> None:
    path = newest_segment(data)
    path.write_bytes(path.read_bytes() + plain(7, offset(GROUP, 1))[:30])
    code, out = run(data, QUICK)
    assert code == 0 and f"{path}: 30 damaged bytes" in out and "the next start cuts it" in out


def test_quick_verify_of_group_in_wrong_partition_names_it(data: Path, run: Verify) -> None:
    other = next(number for number in range(PARTITIONS) if number != NUMBER)
    write(data, other, [plain(0, offset(GROUP, 1))])
    code, out = run(data, QUICK)
    assert code == 3
    assert f"found group '{GROUP}' in __consumer_offsets-{other}, expected it in __consumer_offsets-{NUMBER}" in out


def test_quick_verify_of_missing_segment_reports_it(data: Path, run: Verify) -> None:
    newest_segment(data).with_name("00000000000000000000.log").unlink()
    assert run(data, QUICK)[0] == run(data)[0] == 3


def test_verify_finds_fault_in_reading_of_transactional_ids(
    data: Path, run: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transactions log is read newest first, too."""

    def lose_transactional_ids(partition: LogPartition, disk: Disk) -> NewestContent:
        content = load_newest(partition, disk)
        return content._replace(state={name: value for name, value in content.state.items() if name != "tx"})

    monkeypatch.setattr(verify, "load_newest", lose_transactional_ids)
    code, out = run(data, "--log", "transactions")
    assert code == 3 and "'tx' is TransactionValue" in out and "and None newest first" in out


@pytest.mark.parametrize("fast", [False, True])
def test_key_types_count_all_but_control_records(data: Path, fast: bool) -> None:
    assert count_key_types(newest_segment(data).parent, Disk(), fast=fast) == {1: 3, 2: 1, 30: 2}
