"""Missing files of a compacted log: reported at each start and by each tool, and not hidden by compaction."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import async_test, commit_values, offsets, running_node
from log_helpers import LazyDisk, offset
from structlog.testing import capture_logs

from callboard.actors.ports import Entry
from callboard.actors.records import OffsetRecord
from callboard.runtime.cli.exchange.row_sources import find_partition_sources, read_folder_rows
from callboard.runtime.cli.log import commands
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.compaction.job import CompactionJob, run
from callboard.runtime.log.compaction.swap import CompactionSettings, compact
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.errors import Damage, DamagedBatch
from callboard.runtime.log.manifest import log_files, newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.reading import partition_reader as reading
from callboard.runtime.log.reading.segment import scan, segment_base, segment_name
from callboard.runtime.log.recovery.missing import MissingFiles, missing_files

PARTITION = 3  # the partition of group "g" of 50
COMPACTED_COUNT, COMMIT_COUNT = 12, 30
ALWAYS = CompactionSettings(5, "test", -1.0)


def open_log(root: Path) -> OffsetsLog:
    log = OffsetsLog(
        root,
        50,
        transactions_partitions=50,
        disk=LazyDisk(),
        threads=InlineThreads(),
        segment_bytes=300,
        checkpoint_bytes=600,
    )
    log.open()
    return log


def commit(log: OffsetsLog, start: int, end: int) -> None:
    for number in range(start, end):
        log.append([Entry(PARTITION, (offset("g", number, partition=number),))], 5, lambda _: None)


@pytest.fixture(params=["stopped", "killed"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Partition 3 has a compacted file, several closed uncompacted segments, and an open one."""
    path = tmp_path / "data"
    with DataFolder(path, disk=LazyDisk()):
        log = open_log(path)
        commit(log, 0, COMPACTED_COUNT)
        assert compact(LazyDisk(), path / folder_name(PARTITION), ALWAYS) is not None
        commit(log, COMPACTED_COUNT, COMMIT_COUNT)
        if request.param == "stopped":
            log.close()
        else:
            log.halt()
    return path


def folder_of(root: Path) -> Path:
    return root / folder_name(PARTITION)


def uncompacted_bases(root: Path) -> list[int]:
    """The base offsets of the uncompacted segments."""
    return [file.base for file in log_files(Disk(), folder_of(root)).files if not file.is_compacted]


def compacted_file(root: Path) -> Path:
    return next(file.path for file in log_files(Disk(), folder_of(root)).files if file.is_compacted)


def remove_first_uncompacted(root: Path) -> tuple[int, int]:
    """Remove the first uncompacted segment. Returns the missing offsets."""
    first_base, second_base, *later_bases = uncompacted_bases(root)
    assert first_base == newest_manifest(Disk(), folder_of(root)).clean_end and later_bases
    (folder_of(root) / segment_name(first_base)).unlink()
    return first_base, second_base


def truncate_compacted(root: Path) -> tuple[int, int]:
    """Truncate the compacted file before its last batch. Returns the missing offsets."""
    path = compacted_file(root)
    *_, last_batch = scan(Disk(), path)
    os.truncate(path, last_batch.position)
    segment = newest_manifest(Disk(), folder_of(root)).segments[0]
    return segment.base, segment.end


def remove_compacted(root: Path) -> tuple[int, int]:
    segment = newest_manifest(Disk(), folder_of(root)).segments[0]
    compacted_file(root).unlink()
    return segment.base, segment.end


LOSSES: dict[str, Callable[[Path], tuple[int, int]]] = {
    "the first plain segment is missing": remove_first_uncompacted,
    "a compacted segment is cut": truncate_compacted,
    "a compacted segment is missing": remove_compacted,
}


def committed_offsets(log: OffsetsLog) -> set[int]:
    records = (record for _, _, record in log.read(PARTITION))
    return {record.partition for record in records if isinstance(record, OffsetRecord)}


def log_command(*arguments: object) -> int:
    try:
        return commands.main([str(argument) for argument in arguments])
    except SystemExit as exit:
        code: Any = exit.code or 0
        return int(code)


def test_complete_log_has_no_missing_files(root: Path) -> None:
    assert missing_files(Disk(), folder_of(root))[1] == []
    assert log_command("verify", "--data", root) == 0
    log = open_log(root)
    assert log.damages() == []
    assert committed_offsets(log) == set(range(COMMIT_COUNT))


@pytest.mark.parametrize("loss", LOSSES)
def test_each_start_reports_missing_files(root: Path, loss: str) -> None:
    offset_before, offset_after = LOSSES[loss](root)
    for _ in range(3):
        with capture_logs() as lines:
            log = open_log(root)
        damage_lines = [line for line in lines if line["event"] == "damage in the log"]
        assert [line["lost_offsets"] for line in damage_lines] == [f"{offset_before} to {offset_after - 1}"]
        assert [(damage.offset_before, damage.offset_after) for damage in log.damages()] == [
            (offset_before, offset_after)
        ]
        log.close()


def test_records_after_a_missing_segment_are_served(root: Path) -> None:
    offset_before, offset_after = remove_first_uncompacted(root)
    log = open_log(root)
    assert committed_offsets(log) == set(range(COMMIT_COUNT)) - set(range(offset_before, offset_after))
    log.close()


@pytest.mark.parametrize("loss", LOSSES)
def test_tools_report_missing_files(root: Path, loss: str, capsys: pytest.CaptureFixture[str]) -> None:
    offset_before, offset_after = LOSSES[loss](root)
    lost_offsets = f"offsets {offset_before} to {offset_after - 1}"
    was_stopped = (root / ".clean_shutdown").exists()
    for command in ("verify", "repair") if was_stopped else ("verify",):
        assert log_command(command, "--data", root) == 3
        result = capsys.readouterr().out
        assert lost_offsets in result and "all is well" not in result and "nothing to repair" not in result
    assert log_command("dump", "--data", root) == 3
    assert lost_offsets in capsys.readouterr().err
    assert log_command("stats", "--data", root, "--json") == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["damaged"] >= 1
    problems: list[object] = []
    list(read_folder_rows(find_partition_sources(root, Disk(), problems.append), (), Disk(), problems.append))
    assert lost_offsets in str(problems[0])
    damages: list[Damage] = []
    if loss == "a compacted segment is missing":
        with pytest.raises(FileNotFoundError):
            list(reading.read_partition(folder_of(root), on_damage=damages.append))
    else:
        list(reading.read_partition(folder_of(root), on_damage=damages.append))
    assert any((damage.offset_before, damage.offset_after) == (offset_before, offset_after) for damage in damages)


@pytest.mark.parametrize("loss", LOSSES)
def test_compaction_of_a_log_with_missing_files_is_refused(root: Path, loss: str) -> None:
    LOSSES[loss](root)
    with pytest.raises(MissingFiles, match=r"put back the file .* or accept the loss with callboard log repair"):
        compact(LazyDisk(), folder_of(root), ALWAYS)
    report = run(CompactionJob(folder_of(root), ALWAYS), LazyDisk())
    assert report.status == "damaged"
    assert newest_manifest(Disk(), folder_of(root)).generation == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_repair_replaces_a_missing_file_by_one_without_records(root: Path, loss: str) -> None:
    open_log(root).close()
    LOSSES[loss](root)
    assert log_command("repair", "--data", root, "--execute") == 0
    assert missing_files(Disk(), folder_of(root))[1] == []
    assert log_command("verify", "--data", root) == 0
    log = open_log(root)
    assert log.damages() == []
    assert committed_offsets(log) >= set(range(uncompacted_bases(root)[1], COMMIT_COUNT))
    log.close()
    assert compact(LazyDisk(), folder_of(root), ALWAYS) is not None
    assert log_command("verify", "--data", root) == 0


@pytest.mark.parametrize("index", [1, -2])
def test_compaction_of_a_log_with_a_gap_between_segments_is_refused(root: Path, index: int) -> None:
    """Removes the second uncompacted segment, or the last closed one, whose end only the open segment shows."""
    open_log(root).close()
    base = uncompacted_bases(root)[index]
    (folder_of(root) / segment_name(base)).unlink()
    with pytest.raises(DamagedBatch, match=f"it ends at offset {base}, the next segment begins at"):
        compact(LazyDisk(), folder_of(root), ALWAYS)
    assert log_command("verify", "--data", root) == 3
    assert log_command("repair", "--data", root, "--execute") == 0
    assert compact(LazyDisk(), folder_of(root), ALWAYS) is not None


@pytest.mark.parametrize("root", ["stopped"], indirect=True)
def test_repair_without_uncompacted_segments_keeps_the_compacted_ones(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for base in uncompacted_bases(root):
        (folder_of(root) / segment_name(base)).unlink()
    compacted = compacted_file(root)
    bytes_before = compacted.read_bytes()
    assert log_command("repair", "--data", root, "--execute") == 3
    assert compacted_file(root) == compacted and compacted.read_bytes() == bytes_before
    output = capsys.readouterr().out
    assert str(compacted) not in output and f"went on to offset {COMMIT_COUNT}" in output


def test_restored_file_ends_the_damage(root: Path) -> None:
    saved_folder = shutil.copytree(folder_of(root), root.with_name("kept"))
    open_log(root).close()
    first_base, _ = remove_first_uncompacted(root)
    log = open_log(root)
    assert len(log.damages()) == 1
    log.close()
    shutil.copy(saved_folder / segment_name(first_base), folder_of(root))
    log = open_log(root)
    assert log.damages() == []
    assert committed_offsets(log) == set(range(COMMIT_COUNT))
    log.close()


def test_empty_file_of_an_administrator_leaves_a_reported_gap(root: Path) -> None:
    """The advice of a refused start, when all uncompacted segments are missing."""
    open_log(root).close()
    clean_end = newest_manifest(Disk(), folder_of(root)).clean_end
    for base in uncompacted_bases(root):
        (folder_of(root) / segment_name(base)).unlink()
    with pytest.raises(
        Exception, match=f"expected {COMMIT_COUNT} or more .* create the empty file .*{segment_name(COMMIT_COUNT)}"
    ):
        open_log(root)
    (folder_of(root) / segment_name(COMMIT_COUNT)).touch()
    for _ in range(2):
        log = open_log(root)
        assert [(damage.offset_before, damage.offset_after) for damage in log.damages()] == [(clean_end, COMMIT_COUNT)]
        log.close()


@async_test
async def test_server_with_missing_segment_serves_the_rest_and_counts_the_damage(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"offsets_topic_segment_bytes": 400, "log_cleaner_enable": False}
    async with running_node(tmp_path, None, **settings) as harness:
        client = await harness.connect()
        for number in range(24):
            assert await client.ask("offset_commit", 9, **commit_values("g0", offset=number))
        await harness.node.stop()
        [folder] = tmp_path.glob("__consumer_offsets-*")
        closed_bases = sorted(base for path in folder.glob("*.log") if (base := segment_base(path.name)) is not None)
        assert compact(LazyDisk(), folder, ALWAYS) is not None
        clean_end = newest_manifest(Disk(), folder).clean_end
        await harness.start()
        client = await harness.connect()
        for number in range(24, 40):
            assert await client.ask("offset_commit", 9, **commit_values("g0", offset=number))
        await harness.node.stop()
        assert clean_end in closed_bases
        (folder / segment_name(clean_end)).unlink()
        await harness.start()
        assert harness.node.offsets_log is not None
        assert [damage.offset_before for damage in harness.node.offsets_log.damages()] == [clean_end]
        assert await offsets(await harness.connect(), "g0") == {("t", 0): 39}
