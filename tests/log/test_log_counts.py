"""The numbers of partitions: wrong ones are refused before anything is written, and a command repairs the file."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Client, async_test, commit_values, offsets, running_node
from log_helpers import LazyDisk, offset
from program_helpers import PROGRAM, run

from callboard.actors.javahash import offsets_partition
from callboard.actors.ports import Entry
from callboard.runtime.cli.log import commands
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.loading import loader as loading
from callboard.runtime.log.folder import FORMAT, INFO_NAME, DataFolder, parse_info
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.recovery.clean_stop import EMPTY_NOTE, NOTE_NAME, CleanStopNote, read_note, write_note
from callboard.runtime.log.recovery.misplaced import MisplacedError, find_misplaced, fitting_count
from callboard.runtime.node import node as node_module

PARTITIONS, TRANSACTION_PARTITIONS = 7, 5
GROUPS = [f"group-{number}" for number in range(40)]
COMMAND = "callboard log repair {} --partitions 7 --transaction-partitions 5"


def opened(root: Path) -> OffsetsLog:
    """A log with some rounds in its partition files and some only in its journal."""
    log = OffsetsLog(
        root,
        PARTITIONS,
        transactions_partitions=TRANSACTION_PARTITIONS,
        disk=LazyDisk(),
        threads=InlineThreads(),
        checkpoint_bytes=2500,
    )
    log.open()
    return log


def written(root: Path, how: str) -> Path:
    """A folder with commits of 40 groups, after a clean stop or a kill."""
    with DataFolder(root, PARTITIONS, TRANSACTION_PARTITIONS, disk=LazyDisk()):
        log = opened(root)
        for number, group in enumerate(GROUPS):
            log.append([Entry(offsets_partition(group, PARTITIONS), (offset(group, number),))], 5, lambda _: None)
        if how == "stopped":
            log.close()
        else:
            log.halt()
    return root


@pytest.fixture(params=["stopped", "killed"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return written(tmp_path / "data", request.param)


def content(root: Path) -> dict[str, bytes]:
    """All files except the lock file, which has the last holder's process id."""
    paths = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def change(root: Path, **fields: object) -> None:
    """Write ``callboard.json`` with other values and an unchanged checksum."""
    old = json.loads((root / INFO_NAME).read_text())
    (root / INFO_NAME).write_text(json.dumps({**old, **fields}))


def as_format_2(root: Path, **fields: object) -> None:
    """Convert to format 2: no checksum, and no numbers of partitions in the note."""
    old = json.loads((root / INFO_NAME).read_text())
    del old["checksum"]
    (root / INFO_NAME).write_text(json.dumps({**old, "format": 2, **fields}))
    if (root / NOTE_NAME).exists():
        ends = {name: list(end) for name, end in read_note(Disk(), root).ends.items()}
        (root / NOTE_NAME).write_text(json.dumps({"version": 1, "partitions": ends}))


def flipped_bits(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def changed_digits(data: bytes) -> Iterator[bytes]:
    for match in re.finditer(rb"[0-9]", data):
        for digit in b"0123456789":
            if digit != data[match.start()]:
                yield data[: match.start()] + bytes([digit]) + data[match.start() + 1 :]


def log_command(*arguments: object) -> int:
    try:
        return commands.main([str(argument) for argument in arguments])
    except SystemExit as exit:
        code: Any = exit.code or 0
        return int(code)


# callboard.json and the note ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [flipped_bits, changed_digits])
def test_start_with_one_change_in_callboard_json_is_refused_or_reads_the_same(
    tmp_path: Path, damaged: Callable[[bytes], Iterator[bytes]]
) -> None:
    path = written(tmp_path / "data", "stopped") / INFO_NAME
    data = path.read_bytes()
    expected, refused = parse_info(path, data), 0
    for other in damaged(data):
        try:
            assert parse_info(path, other) == expected
        except StartError:
            refused += 1
    assert refused >= 27  # at least every other digit in the format and in both numbers


def test_start_with_changed_digit_in_callboard_json_is_refused_with_the_repair_command(data: Path) -> None:
    for name, number in (("offsets_partitions", 8), ("transactions_partitions", 3), ("format", 1), ("format", 2)):
        whole = (data / INFO_NAME).read_bytes()
        change(data, **{name: number})
        before = content(data)
        with pytest.raises(StartError, match=r"callboard.json: found .* expected checksum '[0-9a-f]{8}'") as refused:
            DataFolder(data)
        assert ("--partitions 7 --transaction-partitions" in str(refused.value)) and str(data) in str(refused.value)
        assert content(data) == before
        (data / INFO_NAME).write_bytes(whole)
    with DataFolder(data) as folder:
        assert folder.offsets_partitions == PARTITIONS


@pytest.mark.parametrize("damaged", [flipped_bits, changed_digits])
def test_note_with_one_change_is_ignored_or_reads_the_same(
    tmp_path: Path, damaged: Callable[[bytes], Iterator[bytes]]
) -> None:
    note = CleanStopNote(
        read_note(Disk(), written(tmp_path, "stopped")).ends, PartitionCounts(PARTITIONS, TRANSACTION_PARTITIONS)
    )
    data = (tmp_path / NOTE_NAME).read_bytes()
    assert read_note(Disk(), tmp_path) == note
    no_notes = 0
    for other in damaged(data):
        (tmp_path / NOTE_NAME).write_bytes(other)
        actual = read_note(Disk(), tmp_path, is_quiet=True)
        assert actual in (EMPTY_NOTE, note)
        no_notes += actual == EMPTY_NOTE
    assert no_notes > 100


def test_start_with_damaged_note_serves_everything(tmp_path: Path) -> None:
    root = written(tmp_path, "stopped")
    (root / NOTE_NAME).write_text(
        (root / NOTE_NAME).read_text().replace('"offsets_partitions": 7', '"offsets_partitions": 8')
    )
    with DataFolder(root) as folder:
        assert folder.offsets_partitions == PARTITIONS
        log = opened(root)
        assert sum(len(list(log.read(number))) for number in log.offsets_partitions_with_data()) == len(GROUPS)
        log.close()


def test_start_with_callboard_json_that_contradicts_the_note_is_refused(tmp_path: Path) -> None:
    """The file is valid, but from another folder."""
    root = written(tmp_path, "stopped")
    other = {**json.loads((root / INFO_NAME).read_text()), "offsets_partitions": 8}
    (root / INFO_NAME).write_text(json.dumps(with_checksum(other)))
    before = content(root)
    match = r"\.clean_shutdown: found 7 and 5 partitions, expected 8 and 5 partitions by .*" + COMMAND.format(root)
    with pytest.raises(StartError, match=match):
        DataFolder(root)
    with pytest.raises(StartError, match="found 7 and 5 partitions, expected 8 and 5 partitions"):
        OffsetsLog(root, 8, transactions_partitions=5, threads=InlineThreads()).open()
    with pytest.raises(StartError, match="found 7 and 5 partitions, expected 8 and 5 partitions"):
        log_command("verify", root)
    assert content(root) == before


# Folders without a second file that has the numbers ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [("offsets_partitions", 8), ("offsets_partitions", 70)])
def test_start_of_format_2_with_wrong_count_is_refused_before_any_write(data: Path, name: str, number: int) -> None:
    as_format_2(data, **{name: number})
    before = content(data)
    actual = r"found (group 'group-\d+' in|7 and 5 partitions).*"  # by a name, or by a second file that has the numbers
    with pytest.raises(StartError, match=actual + COMMAND.format(data)):
        DataFolder(data)
    assert content(data) == before


def test_start_checks_groups_that_are_only_in_the_journal(tmp_path: Path) -> None:
    """The server was killed before a checkpoint."""
    root = written(tmp_path, "killed")
    for number in range(PARTITIONS):
        shutil.rmtree(root / folder_name(number), ignore_errors=True)
    as_format_2(root, offsets_partitions=8)
    with pytest.raises(StartError, match=r"\.journal: found (group 'group-\d+' in __consumer_offsets-\d|7 and 5)"):
        DataFolder(root)
    as_format_2_again = {**json.loads((root / INFO_NAME).read_text()), "offsets_partitions": PARTITIONS}
    (root / INFO_NAME).write_text(json.dumps(as_format_2_again))
    DataFolder(root).close()


def test_start_of_format_2_with_right_counts_upgrades_once(data: Path) -> None:
    whole = (data / INFO_NAME).read_bytes()
    as_format_2(data)
    for _ in range(2):
        with DataFolder(data, disk=LazyDisk()) as folder:
            assert folder.offsets_partitions == PARTITIONS
        assert (data / INFO_NAME).read_bytes() == whole
    assert json.loads(whole)["format"] == FORMAT


@pytest.mark.parametrize("how", ["stop", "halt"])
@async_test
async def test_server_with_wrong_count_loses_no_acknowledged_commit(tmp_path: Path, how: str) -> None:
    """The number is wrong for one start, and correct for the next."""

    async def commit_all(client: Client, value: int) -> None:
        for group in GROUPS:
            answer: Any = await client.ask("offset_commit", 9, **commit_values(group, offset=value))
            assert answer["topics"][0]["partitions"][0]["error_code"] == "NONE"

    async with running_node(tmp_path) as harness:
        await commit_all(await harness.connect(), 1)
        if how == "stop":
            await harness.node.stop()
        else:
            harness.node.halt()
        whole = (tmp_path / INFO_NAME).read_bytes()
        for break_it in (change, as_format_2):
            break_it(tmp_path, offsets_partitions=5)
            with pytest.raises(StartError, match="callboard log repair"):
                await harness.start()
            (tmp_path / INFO_NAME).write_bytes(whole)
        await harness.start()
        client = await harness.connect()
        for group in GROUPS:
            assert await offsets(client, group) == {("t", 0): 1}


# Loading --------------------------------------------------------------------------------------------------------------


def moved(root: Path) -> str:
    """Move a partition's folder to the path of an empty one; the note agrees with callboard.json."""
    used = {offsets_partition(group, PARTITIONS) for group in GROUPS[:1]}
    [right] = used
    wrong = (right + 1) % PARTITIONS
    with DataFolder(root, PARTITIONS, TRANSACTION_PARTITIONS, disk=LazyDisk()):
        log = opened(root)
        for number in range(60):
            records = tuple(offset(GROUPS[0], number, "x" * 1000, partition=at) for at in range(100))
            log.append([Entry(right, records)], 5, lambda _: None)
        log.close()
    (root / "topics.json").write_text("{}")  # without topics
    (root / folder_name(right)).rename(root / folder_name(wrong))
    ends = {folder_name(wrong): read_note(Disk(), root).ends[folder_name(right)]}
    write_note(Disk(), root, CleanStopNote(ends, PartitionCounts(PARTITIONS, TRANSACTION_PARTITIONS)))
    return f"found group '{GROUPS[0]}' in {folder_name(wrong)}, expected it in {folder_name(right)} of {PARTITIONS}"


def test_serve_stops_when_it_loads_a_group_from_a_wrong_partition(tmp_path: Path) -> None:
    expected = moved(tmp_path / "data")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.log")) > loading.AT_ONCE_BYTES
    done = run("serve", "--listen", "127.0.0.1:0", folder=tmp_path, program=PROGRAM)
    assert done.returncode == 3
    assert "callboard: stopped, after its log had failed: " in done.stderr and expected in done.stderr


@async_test
async def test_start_that_loads_a_group_from_a_wrong_partition_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = moved(tmp_path)
    monkeypatch.setattr(node_module, "AT_ONCE_BYTES", 1 << 40)
    with pytest.raises(MisplacedError, match=re.escape(expected)):
        async with running_node(tmp_path):
            pass


# Tools ----------------------------------------------------------------------------------------------------------------


def test_log_verify_reports_a_group_in_a_wrong_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = written(tmp_path, "stopped")
    assert log_command("verify", root) == 0
    as_format_2(root, offsets_partitions=8)
    assert log_command("verify", root) == 3
    result = capsys.readouterr().out
    assert "expected it in __consumer_offsets-" in result and "of 8" in result
    assert result.splitlines()[-1].endswith("callboard log repair DATA --partitions N --transaction-partitions M")
    assert log_command("verify", root, "--json") == 3
    assert any(partition["misplaced"] for partition in json.loads(capsys.readouterr().out))


def test_repair_with_wrong_counts_is_refused_with_the_right_command(tmp_path: Path) -> None:
    root = written(tmp_path, "stopped")
    as_format_2(root, offsets_partitions=8)
    before = content(root)
    with pytest.raises(StartError, match=COMMAND.format(root)):
        log_command("repair", root, "--yes")
    assert content(root) == before


def test_repair_with_matching_counts_writes_callboard_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (data / INFO_NAME).read_bytes()
    arguments = ("repair", data, "--partitions", PARTITIONS, "--transaction-partitions", TRANSACTION_PARTITIONS)
    change(data, offsets_partitions=8)
    before = content(data)
    assert log_command(*arguments) == 3
    assert "--yes does it" in capsys.readouterr().out
    assert content(data) == before
    assert log_command(*arguments, "--yes") == 0
    assert "(as it was)" in capsys.readouterr().out
    assert (data / INFO_NAME).read_bytes() == whole
    with DataFolder(data) as folder:
        assert folder.offsets_partitions == PARTITIONS


def test_repair_with_other_counts_is_refused(data: Path) -> None:
    change(data, offsets_partitions=8)
    before = content(data)
    for numbers in ((8, 5), (14, 5), (1, 5)):
        options = ("--partitions", numbers[0], "--transaction-partitions", numbers[1])
        with pytest.raises(StartError, match=COMMAND.format(data)):
            log_command("repair", data, *options, "--yes")
    bad: list[tuple[object, ...]] = [
        ("--partitions", 7, "--transaction-partitions", 5, "--partition", 1),
        ("--partitions", 7),
    ]
    for bad_options in bad:
        with pytest.raises(StartError, match="expected --partitions and --transaction-partitions"):
            log_command("repair", data, *bad_options)
    with DataFolder(written(data / "other", "stopped")), pytest.raises(StartError, match="in use by process"):
        log_command("repair", data / "other", "--partitions", 7, "--transaction-partitions", 5)
    shutil.rmtree(data / "other")
    assert content(data) == before


def test_repair_without_the_old_file_creates_a_cluster_id(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = json.loads((data / INFO_NAME).read_text())
    (data / INFO_NAME).unlink()
    with pytest.raises(StartError, match=COMMAND.format(data).partition(" --tr")[0]):
        DataFolder(data)
    options = ("--partitions", PARTITIONS, "--transaction-partitions", TRANSACTION_PARTITIONS, "--yes")
    assert log_command("repair", data, *options) == 0
    assert "new: the old one could not be read" in capsys.readouterr().out
    with DataFolder(data) as folder:
        assert folder.cluster_id != old["cluster_id"]
        assert folder.offsets_partitions == PARTITIONS


@pytest.mark.parametrize("fast", [True, False])
def test_find_misplaced_finds_one_name_among_many(fast: bool) -> None:
    """Names of any characters and lengths; one has the smallest hash, whose absolute value is 0 in Kafka."""
    letters = ["", "a", "ü", "x" * 300, "\N{GRINNING FACE}" * 3, "polygenelubricants"]
    names = [*letters, *(f"{word}{at}" for word in letters for at in range(5000))]
    placed: dict[int, list[str]] = {}
    for name in names:
        placed.setdefault(offsets_partition(name, 7), []).append(name)
    for number, own in placed.items():
        assert find_misplaced(own, Path(), "__consumer_offsets", number, 7, fast=fast) is None
        other = placed[(number + 1) % 7][-1]
        misplaced = find_misplaced([*own, other], Path(), "__consumer_offsets", number, 7, fast=fast)
        assert misplaced is not None and (misplaced.name, misplaced.expected) == (other, (number + 1) % 7)


def test_fitting_count_is_none_unless_unique() -> None:
    assert fitting_count([]) is None
    assert fitting_count([("group-1", offsets_partition("group-1", 50))]) is None
    assert fitting_count([(group, offsets_partition(group, 50)) for group in GROUPS]) == 50
    assert fitting_count([(group, 3) for group in GROUPS]) is None
