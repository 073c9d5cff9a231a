"""Partition counts: wrong ones are refused before any write, and a command repairs ``callboard.json``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Client, async_test, commit_values, offsets, running_node
from hypothesis import given
from hypothesis import strategies as st
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
from callboard.runtime.loading import local_store as loading_module
from callboard.runtime.log.folder import FORMAT, INFO_NAME, DataFolder, parse_info
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.log.recovery.clean_stop import EMPTY_NOTE, NOTE_NAME, CleanStopNote, read_note, write_note
from callboard.runtime.log.recovery.misplaced import MisplacedError, find_misplaced, fitting_count

PARTITIONS, TRANSACTION_PARTITIONS = 7, 5
GROUPS = [f"group-{number}" for number in range(40)]
NAMES = st.sampled_from(["polygenelubricants", "g\N{GRINNING FACE}"]) | st.text("abc") | st.text(max_size=5)
COMMAND = "callboard log repair --data {} --partitions 7 --transaction-partitions 5"


def open_log(root: Path) -> OffsetsLog:
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


def write_folder(root: Path, end: str) -> Path:
    """A folder with commits of 40 groups, after a clean stop or a kill."""
    with DataFolder(root, PARTITIONS, TRANSACTION_PARTITIONS, disk=LazyDisk()):
        log = open_log(root)
        for number, group in enumerate(GROUPS):
            log.append([Entry(offsets_partition(group, PARTITIONS), (offset(group, number),))], 5, lambda _: None)
        if end == "stopped":
            log.close()
        else:
            log.halt()
    return root


@pytest.fixture(params=["stopped", "killed"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return write_folder(tmp_path / "data", request.param)


def read_files(root: Path) -> dict[str, bytes]:
    """All files except the lock file, which has the last holder's process id."""
    paths = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def change_info(root: Path, **fields: object) -> None:
    """Write ``callboard.json`` with other values and an unchanged checksum."""
    info = json.loads((root / INFO_NAME).read_text())
    (root / INFO_NAME).write_text(json.dumps({**info, **fields}))


def as_format_2(root: Path, **fields: object) -> None:
    """Convert to format 2: no checksum, and no numbers of partitions in the note."""
    info = json.loads((root / INFO_NAME).read_text())
    del info["checksum"]
    (root / INFO_NAME).write_text(json.dumps({**info, "format": 2, **fields}))
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


# callboard.json and the note -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [flipped_bits, changed_digits])
def test_start_with_one_change_in_callboard_json_is_refused_or_reads_the_same(
    tmp_path: Path, damaged: Callable[[bytes], Iterator[bytes]]
) -> None:
    path = write_folder(tmp_path / "data", "stopped") / INFO_NAME
    data = path.read_bytes()
    expected, refused_count = parse_info(path, data), 0
    for changed in damaged(data):
        try:
            assert parse_info(path, changed) == expected
        except StartError:
            refused_count += 1
    assert refused_count >= 27  # at least every other digit in the format and in both numbers


def test_start_with_changed_digit_in_callboard_json_is_refused_with_the_repair_command(data: Path) -> None:
    for name, number in (("offsets_partitions", 8), ("transactions_partitions", 3), ("format", 1), ("format", 2)):
        original_info = (data / INFO_NAME).read_bytes()
        change_info(data, **{name: number})
        files_before = read_files(data)
        with pytest.raises(StartError, match=r"callboard.json: found .* expected checksum '[0-9a-f]{8}'") as error:
            DataFolder(data)
        assert ("--partitions 7 --transaction-partitions" in str(error.value)) and str(data) in str(error.value)
        assert read_files(data) == files_before
        (data / INFO_NAME).write_bytes(original_info)
    with DataFolder(data) as folder:
        assert folder.offsets_partitions == PARTITIONS


@pytest.mark.parametrize("damaged", [flipped_bits, changed_digits])
def test_note_with_one_change_is_ignored_or_reads_the_same(
    tmp_path: Path, damaged: Callable[[bytes], Iterator[bytes]]
) -> None:
    note = CleanStopNote(
        read_note(Disk(), write_folder(tmp_path, "stopped")).ends, PartitionCounts(PARTITIONS, TRANSACTION_PARTITIONS)
    )
    data = (tmp_path / NOTE_NAME).read_bytes()
    assert read_note(Disk(), tmp_path) == note
    no_notes = 0
    for changed in damaged(data):
        (tmp_path / NOTE_NAME).write_bytes(changed)
        actual = read_note(Disk(), tmp_path, is_quiet=True)
        assert actual in (EMPTY_NOTE, note)
        no_notes += actual == EMPTY_NOTE
    assert no_notes > 100


def test_start_with_damaged_note_serves_everything(tmp_path: Path) -> None:
    root = write_folder(tmp_path, "stopped")
    (root / NOTE_NAME).write_text(
        (root / NOTE_NAME).read_text().replace('"offsets_partitions": 7', '"offsets_partitions": 8')
    )
    with DataFolder(root) as folder:
        assert folder.offsets_partitions == PARTITIONS
        log = open_log(root)
        assert sum(len(list(log.read(number))) for number in log.offsets_partitions_with_data()) == len(GROUPS)
        log.close()


def test_start_with_callboard_json_that_contradicts_the_note_is_refused(tmp_path: Path) -> None:
    """The file is valid, but from another folder."""
    root = write_folder(tmp_path, "stopped")
    other_info = {**json.loads((root / INFO_NAME).read_text()), "offsets_partitions": 8}
    (root / INFO_NAME).write_text(json.dumps(with_checksum(other_info)))
    files_before = read_files(root)
    match = r"\.clean_shutdown: found 7 and 5 partitions, expected 8 and 5 partitions by .*" + COMMAND.format(root)
    with pytest.raises(StartError, match=match):
        DataFolder(root)
    with pytest.raises(StartError, match="found 7 and 5 partitions, expected 8 and 5 partitions"):
        OffsetsLog(root, 8, transactions_partitions=5, threads=InlineThreads()).open()
    with pytest.raises(StartError, match="found 7 and 5 partitions, expected 8 and 5 partitions"):
        log_command("verify", "--data", root)
    assert read_files(root) == files_before


# Folders whose counts are in one file only ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [("offsets_partitions", 8), ("offsets_partitions", 70)])
def test_start_of_format_2_with_wrong_count_is_refused_before_any_write(data: Path, name: str, number: int) -> None:
    as_format_2(data, **{name: number})
    files_before = read_files(data)
    actual = r"found (group 'group-\d+' in|7 and 5 partitions).*"  # by a name, or by a second file that has the numbers
    with pytest.raises(StartError, match=actual + COMMAND.format(data)):
        DataFolder(data)
    assert read_files(data) == files_before


def test_start_checks_groups_that_are_only_in_the_journal(tmp_path: Path) -> None:
    """The server was killed before a checkpoint."""
    root = write_folder(tmp_path, "killed")
    for number in range(PARTITIONS):
        shutil.rmtree(root / folder_name(number), ignore_errors=True)
    as_format_2(root, offsets_partitions=8)
    with pytest.raises(StartError, match=r"\.journal: found (group 'group-\d+' in __consumer_offsets-\d|7 and 5)"):
        DataFolder(root)
    as_format_2_again = {**json.loads((root / INFO_NAME).read_text()), "offsets_partitions": PARTITIONS}
    (root / INFO_NAME).write_text(json.dumps(as_format_2_again))
    DataFolder(root).close()


def test_start_of_format_2_with_right_counts_upgrades_once(data: Path) -> None:
    upgraded_info = (data / INFO_NAME).read_bytes()
    as_format_2(data)
    for _ in range(2):
        with DataFolder(data, disk=LazyDisk()) as folder:
            assert folder.offsets_partitions == PARTITIONS
        assert (data / INFO_NAME).read_bytes() == upgraded_info
    assert json.loads(upgraded_info)["format"] == FORMAT


@pytest.mark.parametrize("end", ["stop", "halt"])
@async_test
async def test_server_with_wrong_count_loses_no_acknowledged_commit(tmp_path: Path, end: str) -> None:
    """The number is wrong for one start, and correct for the next."""

    async def commit_all(client: Client, value: int) -> None:
        for group in GROUPS:
            response: Any = await client.ask("offset_commit", 9, **commit_values(group, offset=value))
            assert response["topics"][0]["partitions"][0]["error_code"] == "NONE"

    async with running_node(tmp_path) as harness:
        await commit_all(await harness.connect(), 1)
        if end == "stop":
            await harness.node.stop()
        else:
            harness.node.halt()
        original_info = (tmp_path / INFO_NAME).read_bytes()
        for break_it in (change_info, as_format_2):
            break_it(tmp_path, offsets_partitions=5)
            with pytest.raises(StartError, match="callboard log repair"):
                await harness.start()
            (tmp_path / INFO_NAME).write_bytes(original_info)
        await harness.start()
        client = await harness.connect()
        for group in GROUPS:
            assert await offsets(client, group) == {("t", 0): 1}


# Loading -------------------------------------------------------------------------------------------------------------


def move_partition_folder(root: Path) -> str:
    """Move a partition's folder to the path of an empty one; the note agrees with callboard.json."""
    partitions = {offsets_partition(group, PARTITIONS) for group in GROUPS[:1]}
    [partition] = partitions
    other_partition = (partition + 1) % PARTITIONS
    with DataFolder(root, PARTITIONS, TRANSACTION_PARTITIONS, disk=LazyDisk()):
        log = open_log(root)
        for number in range(60):
            records = tuple(offset(GROUPS[0], number, "x" * 1000, partition=at) for at in range(100))
            log.append([Entry(partition, records)], 5, lambda _: None)
        log.close()
    (root / "topics.json").write_text("{}")  # without topics
    (root / folder_name(partition)).rename(root / folder_name(other_partition))
    ends = {folder_name(other_partition): read_note(Disk(), root).ends[folder_name(partition)]}
    write_note(Disk(), root, CleanStopNote(ends, PartitionCounts(PARTITIONS, TRANSACTION_PARTITIONS)))
    actual_folder, expected_folder = folder_name(other_partition), folder_name(partition)
    return f"found group '{GROUPS[0]}' in {actual_folder}, expected it in {expected_folder} of {PARTITIONS}"


def test_serve_stops_when_it_loads_a_group_from_a_wrong_partition(tmp_path: Path) -> None:
    expected = move_partition_folder(tmp_path / "data")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.log")) > loading.AT_ONCE_BYTES
    process = run("serve", "--listen", "127.0.0.1:0", folder=tmp_path, program=PROGRAM)
    assert process.returncode == 3
    assert "callboard: stopped, after its log had failed: " in process.stderr and expected in process.stderr


@async_test
async def test_start_that_loads_a_group_from_a_wrong_partition_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = move_partition_folder(tmp_path)
    monkeypatch.setattr(loading_module, "AT_ONCE_BYTES", 1 << 40)
    with pytest.raises(MisplacedError, match=re.escape(expected)):
        async with running_node(tmp_path):
            pass


# Tools ---------------------------------------------------------------------------------------------------------------


def test_log_verify_reports_a_group_in_a_wrong_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folder(tmp_path, "stopped")
    assert log_command("verify", "--data", root) == 0
    as_format_2(root, offsets_partitions=8)
    assert log_command("verify", "--data", root) == 3
    result = capsys.readouterr().out
    assert "expected it in __consumer_offsets-" in result and "of 8" in result
    assert result.splitlines()[-1].endswith("callboard log repair --data DIR --partitions N --transaction-partitions M")
    assert log_command("verify", "--data", root, "--json") == 3
    assert any(partition["misplaced"] for partition in json.loads(capsys.readouterr().out))


def test_repair_with_wrong_counts_is_refused_with_the_right_command(tmp_path: Path) -> None:
    root = write_folder(tmp_path, "stopped")
    as_format_2(root, offsets_partitions=8)
    files_before = read_files(root)
    with pytest.raises(StartError, match=COMMAND.format(root)):
        log_command("repair", "--data", root, "--execute")
    assert read_files(root) == files_before


def test_repair_with_matching_counts_writes_callboard_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original_info = (data / INFO_NAME).read_bytes()
    arguments = (
        "repair",
        "--data",
        data,
        "--partitions",
        PARTITIONS,
        "--transaction-partitions",
        TRANSACTION_PARTITIONS,
    )
    change_info(data, offsets_partitions=8)
    files_before = read_files(data)
    assert log_command(*arguments) == 3
    assert "--execute does it" in capsys.readouterr().out
    assert read_files(data) == files_before
    assert log_command(*arguments, "--execute") == 0
    assert "(unchanged)" in capsys.readouterr().out
    assert (data / INFO_NAME).read_bytes() == original_info
    with DataFolder(data) as folder:
        assert folder.offsets_partitions == PARTITIONS


def test_repair_with_other_counts_is_refused(data: Path) -> None:
    change_info(data, offsets_partitions=8)
    files_before = read_files(data)
    for numbers in ((8, 5), (14, 5), (1, 5)):
        options = ("--partitions", numbers[0], "--transaction-partitions", numbers[1])
        with pytest.raises(StartError, match=COMMAND.format(data)):
            log_command("repair", "--data", data, *options, "--execute")
    wrong_option_lists: list[tuple[object, ...]] = [
        ("--partitions", 7, "--transaction-partitions", 5, "--partition", 1),
        ("--partitions", 7),
    ]
    for wrong_options in wrong_option_lists:
        with pytest.raises(StartError, match="expected --partitions and --transaction-partitions"):
            log_command("repair", "--data", data, *wrong_options)
    with DataFolder(write_folder(data / "other", "stopped")), pytest.raises(StartError, match="in use by process"):
        log_command("repair", "--data", data / "other", "--partitions", 7, "--transaction-partitions", 5)
    shutil.rmtree(data / "other")
    assert read_files(data) == files_before


def test_repair_without_the_old_file_creates_a_cluster_id(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original_info = json.loads((data / INFO_NAME).read_text())
    (data / INFO_NAME).unlink()
    with pytest.raises(StartError, match=COMMAND.format(data).partition(" --tr")[0]):
        DataFolder(data)
    options = ("--partitions", PARTITIONS, "--transaction-partitions", TRANSACTION_PARTITIONS, "--execute")
    assert log_command("repair", "--data", data, *options) == 0
    assert "new: the old one could not be read" in capsys.readouterr().out
    with DataFolder(data) as folder:
        assert folder.cluster_id != original_info["cluster_id"]
        assert folder.offsets_partitions == PARTITIONS


@pytest.mark.parametrize("fast", [True, False])
def test_find_misplaced_finds_one_name_among_many(fast: bool) -> None:
    """Names of any characters and lengths; one has the smallest hash, whose absolute value is 0 in Kafka."""
    prefixes = ["", "a", "ü", "x" * 300, "\N{GRINNING FACE}" * 3, "polygenelubricants"]
    names = [*prefixes, *(f"{word}{suffix}" for word in prefixes for suffix in range(5000))]
    placed: dict[int, list[str]] = {}
    for name in names:
        placed.setdefault(offsets_partition(name, 7), []).append(name)
    for number, own_names in placed.items():
        assert find_misplaced(own_names, Path(), "__consumer_offsets", number, 7, fast=fast) is None
        other_name = placed[(number + 1) % 7][-1]
        misplaced = find_misplaced([*own_names, other_name], Path(), "__consumer_offsets", number, 7, fast=fast)
        assert misplaced is not None and (misplaced.name, misplaced.expected) == (other_name, (number + 1) % 7)


@given(names=st.lists(NAMES), others=st.lists(NAMES, max_size=1), partitions=st.integers(1, 60), data=st.data())
def test_name_hashes_with_numpy_equal_those_without(
    names: list[str], others: list[str], partitions: int, data: st.DataObject
) -> None:
    pytest.importorskip("numpy")
    from callboard.runtime.log.recovery.name_hashes import all_belong_to

    number = offsets_partition(names[0], partitions) if names else 0
    own_names = [name for name in names if offsets_partition(name, partitions) == number]
    all_names = data.draw(st.permutations(own_names + others))
    expected = all(offsets_partition(name, partitions) == number for name in all_names)
    assert all_belong_to(all_names, number, partitions) == expected
    arguments = (all_names, Path(), "__consumer_offsets", number, partitions)
    assert find_misplaced(*arguments, fast=True) == find_misplaced(*arguments)


def test_fitting_count_is_none_unless_unique() -> None:
    assert fitting_count([]) is None
    assert fitting_count([("group-1", offsets_partition("group-1", 50))]) is None
    assert fitting_count([(group, offsets_partition(group, 50)) for group in GROUPS]) == 50
    assert fitting_count([(group, 3) for group in GROUPS]) is None
