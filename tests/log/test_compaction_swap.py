"""Compacted files become the log atomically, with kills at any point and with concurrent runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from compaction_helpers import (
    FOLDER,
    START_MS,
    BatchSpec,
    RecordSpec,
    State,
    by_manifest,
    by_plain_names,
    offsets,
    write_files,
)

from callboard.runtime.disk.disk import Disk, file_size, read_file, replace_file
from callboard.runtime.log.compaction import plan as plans
from callboard.runtime.log.compaction.garbage import ORPHAN_MS, publish_and_collect
from callboard.runtime.log.compaction.plan import make_plan
from callboard.runtime.log.compaction.publish import published_generation, try_lock
from callboard.runtime.log.compaction.swap import CompactionSettings, commit_draft, compact, write_draft
from callboard.runtime.log.manifest import (
    EMPTY_MANIFEST,
    CompactedSegment,
    Manifest,
    ManifestError,
    generations,
    log_files,
    manifest_folder,
    manifest_name,
    newest_manifest,
    put_if_absent,
    read_manifest,
    segments_folder,
    write_file,
)
from callboard.runtime.log.manifest import FOLDER as COMPACTION
from callboard.runtime.testing.disk.faulty import Fault, FaultyDisk, PowerLoss

NOW_MS = START_MS + 1_000_000
GRACE_MS = 3_600_000
SETTINGS = CompactionSettings(NOW_MS, "test", -1.0, delete_retention_ms=0, segment_bytes=400)


_numbers = count(1000)


def ids() -> Callable[[], str]:
    """Unique ids in a fixed order."""
    return lambda: f"{next(_numbers):08x}"


def compact_log(disk: Disk, now_ms: int = NOW_MS, new_id: Callable[[], str] | None = None) -> Any:
    return compact(disk, FOLDER, SETTINGS._replace(now_ms=now_ms), lambda: now_ms, new_id or ids())


def log_with_transactions(files: int = 6) -> list[list[BatchSpec]]:
    """Keys repeated across files, tombstones, and a transaction; the last file is open."""

    def batches_of_file(number: int) -> list[BatchSpec]:
        repeated_key, deleted_key = f"k{number % 2}".encode(), f"k{number}".encode()
        return [
            BatchSpec(
                (
                    RecordSpec(repeated_key, b"%d" % number),
                    RecordSpec(b"own%d" % number, b"x" * 60),
                    RecordSpec(b"k%d" % (number + 1), b"y"),
                )
            ),
            BatchSpec((RecordSpec(b"t", b"%d" % number),), "transaction", number),
            BatchSpec((), "commit" if number % 3 else "abort", number),
            BatchSpec((RecordSpec(deleted_key, None),)),
        ]

    return [batches_of_file(number) for number in range(files)]


def compact_and_publish_twice(disk: Disk) -> None:
    """Compact and publish twice: the second run drops the tombstones of the first."""
    for now_ms in (NOW_MS, NOW_MS + 10):
        new_id = ids()
        compact_log(disk, now_ms, new_id)
        publish_and_collect(disk, FOLDER, now_ms + 1, 0, new_id)


def compact_twice_then_publish(disk: Disk) -> None:
    """Compact twice and publish once: a deleted record and its tombstone are removed together."""
    new_id = ids()
    for now_ms in (NOW_MS, NOW_MS + 10):
        compact_log(disk, now_ms, new_id)
    publish_and_collect(disk, FOLDER, NOW_MS + 11, 0, new_id)


with_each_sequence = pytest.mark.parametrize("run_sequence", [compact_and_publish_twice, compact_twice_then_publish])


@pytest.fixture
def disk() -> FaultyDisk:
    faulty_disk = FaultyDisk()
    write_files(faulty_disk, log_with_transactions())
    return faulty_disk


def disks_after_every_kill(make: Callable[[], FaultyDisk], action: Callable[[Disk], None]) -> Iterator[FaultyDisk]:
    """The disk after a kill at each of the changes of the run."""
    for change in count(1):
        disk = make()
        disk.faults.crash_at(change)
        try:
            action(disk)
        except PowerLoss:
            yield disk
        else:
            assert change > 40, "a whole run has more changes"
            return


def disk_with_log(seed: int = 0) -> FaultyDisk:
    disk = FaultyDisk(seed)
    write_files(disk, log_with_transactions())
    return disk


@with_each_sequence
def test_kill_at_any_change_keeps_state_of_log(run_sequence: Callable[[Disk], None]) -> None:
    """Holds for readers of the manifest and of plain names; the next run completes the work."""
    state_before = by_manifest(disk_with_log())
    for faulty_disk in disks_after_every_kill(disk_with_log, run_sequence):
        disk = faulty_disk.kill()
        assert by_manifest(disk) == state_before
        assert by_plain_names(disk) == state_before
        compact_and_publish_twice(disk)
        assert by_manifest(disk) == by_plain_names(disk) == state_before
        publish_and_collect(disk, FOLDER, NOW_MS + 2 * ORPHAN_MS, 0)
        assert_no_leftover_files(disk)


@with_each_sequence
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_power_loss_at_any_change_keeps_state_of_log(seed: int, run_sequence: Callable[[Disk], None]) -> None:
    state_before = by_manifest(disk_with_log())
    for faulty_disk in disks_after_every_kill(lambda: disk_with_log(seed), run_sequence):
        disk = faulty_disk.crash()
        assert by_manifest(disk) == state_before
        assert by_plain_names(disk) == state_before
        compact_and_publish_twice(disk)
        assert by_manifest(disk.crash()) == by_plain_names(disk.crash()) == state_before


def assert_no_leftover_files(disk: Disk) -> None:
    """All files are named by a manifest, and the plain names are the compacted files and the open segment."""
    manifest, files = log_files(disk, FOLDER)
    assert disk.names(segments_folder(FOLDER)) == sorted(segment.file for segment in manifest.segments)
    assert disk.names(manifest_folder(FOLDER)) == [manifest_name(manifest.generation)]
    assert sorted(disk.names(FOLDER / COMPACTION)) == ["lock", "manifest", "published", "segments"]
    plain = [f"{file.base:020d}.log" for file in files]
    assert disk.names(FOLDER) == [COMPACTION, *plain]


@pytest.mark.parametrize("operation", ["open", "read", "write", "sync", "sync_folder", "link", "rename", "remove"])
@pytest.mark.parametrize("skip", [0, 1, 2, 5])
def test_single_disk_error_leaves_log_unchanged(disk: FaultyDisk, operation: str, skip: int) -> None:
    state_before = by_manifest(disk)
    disk.faults.fail(Fault(operation, 5, "*.compaction*" if operation == "read" else "*", skip=skip))
    with suppress(OSError):
        compact_and_publish_twice(disk)
    disk.faults.clear()
    assert by_manifest(disk) == by_plain_names(disk) == state_before
    compact_and_publish_twice(disk)
    assert by_manifest(disk) == by_plain_names(disk) == state_before


def test_commit_of_second_draft_of_same_generation_fails_and_removes_files(disk: FaultyDisk) -> None:
    state_before = by_manifest(disk)
    drafts = [write_draft(disk, FOLDER, make_plan(disk, FOLDER), SETTINGS, ids()) for _ in range(2)]
    first_draft, second_draft = drafts
    assert first_draft is not None and second_draft is not None
    assert commit_draft(disk, FOLDER, second_draft, NOW_MS, "0000000a")
    assert not commit_draft(disk, FOLDER, first_draft, NOW_MS, "0000000b")
    assert newest_manifest(disk, FOLDER).segments == second_draft.manifest.segments
    assert disk.names(segments_folder(FOLDER)) == sorted(segment.file for segment in second_draft.manifest.segments)
    assert by_manifest(disk) == state_before


class Interrupted(Disk):
    """A disk on which another run finishes once, just before this run takes the lock for its manifest."""

    def __init__(self, disk: Disk, other_run: Callable[[], None]) -> None:
        self._disk = disk
        self._meanwhile: Callable[[], None] | None = other_run

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        if name == "lock" and self._meanwhile is not None:
            other_run, self._meanwhile = self._meanwhile, None
            other_run()
        return getattr(self._disk, name)


def test_compact_that_loses_plans_again(disk: FaultyDisk) -> None:
    def other_run() -> None:
        compact_log(disk, new_id=lambda: "00000100")
        write_files(
            disk, [[BatchSpec((RecordSpec(b"k0", b"newer"),))], [BatchSpec((RecordSpec(b"open", b"1"),))]], base=36
        )

    assert by_manifest(disk).end == 36
    result = compact_log(Interrupted(disk, other_run))
    assert result.manifest.generation == 2
    assert result.manifest.clean_end == 37
    assert by_manifest(disk).live[b"k0"][2] == b"newer"


def test_plan_is_made_anew_if_another_run_removes_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the shortest grace period they are removed at once."""
    disk = FaultyDisk()
    write_files(disk, [[BatchSpec((RecordSpec(b"key", b"value"),))] for _ in range(4)])
    look, missing = file_size, list[Path]()

    def size_after_another_run(disk: Disk, path: Path) -> int:
        monkeypatch.setattr(plans, "file_size", size_or_missing)
        compact_and_publish_twice(disk)
        return size_or_missing(disk, path)

    def size_or_missing(disk: Disk, path: Path) -> int:
        try:
            return look(disk, path)
        except FileNotFoundError:
            missing.append(path)
            raise

    monkeypatch.setattr(plans, "file_size", size_after_another_run)
    new_plan = make_plan(disk, FOLDER)
    assert len(missing) == 1
    assert new_plan.manifest == newest_manifest(disk, FOLDER) != EMPTY_MANIFEST


def test_plan_with_a_file_that_is_lost_fails(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_run(_disk: Disk, path: Path) -> int:
        raise FileNotFoundError(path)

    monkeypatch.setattr(plans, "file_size", other_run)
    with pytest.raises(FileNotFoundError):
        make_plan(disk, FOLDER)


def test_commit_of_draft_of_collected_generation_fails(disk: FaultyDisk) -> None:
    """The generation's number is free again, but it is not the next number."""
    late_draft = write_draft(disk, FOLDER, make_plan(disk, FOLDER), SETTINGS, lambda: "0000000f")
    assert late_draft is not None
    compact_and_publish_twice(disk)
    publish_and_collect(disk, FOLDER, NOW_MS + 100, 0)
    assert generations(disk, FOLDER) == [2]
    assert not commit_draft(disk, FOLDER, late_draft, NOW_MS + 200, "0000000a")


def test_commit_of_draft_with_collected_files_fails(disk: FaultyDisk) -> None:
    """The run was suspended for more than a day, so other runs removed its files."""
    late_draft = write_draft(disk, FOLDER, make_plan(disk, FOLDER), SETTINGS, lambda: "0000000f")
    assert late_draft is not None
    state_before = by_manifest(disk)
    publish_and_collect(disk, FOLDER, NOW_MS + 2 * ORPHAN_MS, 0)
    assert not commit_draft(disk, FOLDER, late_draft, NOW_MS + 2 * ORPHAN_MS, "0000000a")
    assert generations(disk, FOLDER) == []
    assert by_manifest(disk) == state_before


def test_publish_and_collect_wait_for_grace_period(disk: FaultyDisk) -> None:
    """A reader that listed the files may still open one."""
    names = disk.names(FOLDER)
    compact_log(disk)
    publish_and_collect(disk, FOLDER, NOW_MS + GRACE_MS - 1, GRACE_MS)
    assert disk.names(FOLDER) == [COMPACTION, *names]
    compact_log(disk, NOW_MS + GRACE_MS - 1)
    publish_and_collect(disk, FOLDER, NOW_MS + GRACE_MS, GRACE_MS)
    assert published_generation(disk, FOLDER) == 1, "the newest generation older than an hour is published"
    assert generations(disk, FOLDER) == [1, 2]
    publish_and_collect(disk, FOLDER, NOW_MS + 2 * GRACE_MS, GRACE_MS)
    assert (published_generation(disk, FOLDER), generations(disk, FOLDER)) == (2, [2])
    assert_no_leftover_files(disk)


def test_publish_and_collect_while_locked_does_nothing(disk: FaultyDisk) -> None:
    compact_log(disk)
    names = disk.names(FOLDER)
    with try_lock(disk, FOLDER) as has_lock:
        assert has_lock
        assert publish_and_collect(disk, FOLDER, NOW_MS + GRACE_MS, 0) == (0, 0)
    assert disk.names(FOLDER) == names


def test_collect_removes_files_of_killed_runs(disk: FaultyDisk) -> None:
    disk.make_folder(segments_folder(FOLDER))
    seconds = NOW_MS // 1000
    recent_file = f"{0:020d}-{2:010d}-{seconds:08x}0000000a.log"
    orphan = f"{0:020d}-{1:010d}-{seconds:08x}0000000b.log"
    foreign_file = "somebody.txt"
    for name in (recent_file, orphan, foreign_file):
        write_file(disk, segments_folder(FOLDER) / name, b"x")
    compact_log(disk)
    publish_and_collect(disk, FOLDER, NOW_MS, 0)
    file_names = disk.names(segments_folder(FOLDER))
    assert recent_file in file_names and foreign_file in file_names and orphan not in file_names
    publish_and_collect(disk, FOLDER, NOW_MS + ORPHAN_MS + 1000, 0)
    file_names = disk.names(segments_folder(FOLDER))
    assert recent_file not in file_names and foreign_file in file_names


def test_manifest_of_newer_version_is_refused(disk: FaultyDisk) -> None:
    disk.make_folder(manifest_folder(FOLDER))
    write_file(disk, manifest_folder(FOLDER) / manifest_name(3), b'{"version": 3}')
    with pytest.raises(ManifestError, match=r"0003\.json: found manifest version 3, expected 2; a newer version"):
        compact_log(disk)
    with pytest.raises(ManifestError, match="use that version"):
        by_manifest(disk)


def written_manifest(disk: FaultyDisk) -> tuple[Path, Manifest]:
    disk.make_folder(manifest_folder(FOLDER))
    segments = (CompactedSegment("a.log", 0, 4, 10, 7, 2, None), CompactedSegment("b.log", 4, 9, 20, 8, 3, 1234567))
    manifest = Manifest(1, 0, "test", 1700000000000, 9, segments, ("c.log",))
    assert put_if_absent(disk, FOLDER, manifest, "00000000")
    return manifest_folder(FOLDER) / manifest_name(1), manifest


def test_manifest_with_any_flipped_bit_is_refused(disk: FaultyDisk) -> None:
    """A flip in white space that leaves the same values is accepted."""
    path, manifest = written_manifest(disk)
    data = read_file(disk, path)
    refused_count = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        replace_file(disk, path, bytes(flipped))
        try:
            assert read_manifest(disk, FOLDER, 1) == manifest, f"bit {bit}"
        except ManifestError as error:
            refused_count += 1
            assert str(path) in str(error), f"bit {bit}"
    assert refused_count > 7 * len(data)


def test_manifest_of_version_1_without_checksum_is_read(disk: FaultyDisk) -> None:
    path, manifest = written_manifest(disk)
    fields = json.loads(read_file(disk, path))
    del fields["checksum"]
    replace_file(disk, path, json.dumps(fields | {"version": 1}).encode())
    assert read_manifest(disk, FOLDER, 1) == manifest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"version": 1}',
        b'{"version": 1, "generation": 1, "parent": 0, "owner": "", "created_ms": 0, "clean_end": 5, "replaced": [],'
        b' "segments": [{"file": "f", "base": 0, "end": 4, "size": 0, "crc32c": 0, "records": 0,'
        b' "delete_horizon_ms": null}]}',
    ],
)
def test_invalid_manifest_is_refused(disk: FaultyDisk, content: bytes) -> None:
    disk.make_folder(manifest_folder(FOLDER))
    write_file(disk, manifest_folder(FOLDER) / manifest_name(1), content)
    with pytest.raises(ManifestError, match=r"0001\.json: found no manifest .* put back a copy"):
        log_files(disk, FOLDER)


def test_compact_below_min_ratio_does_nothing(disk: FaultyDisk) -> None:
    compact_log(disk)
    write_files(disk, [[BatchSpec((RecordSpec(b"own1", b"2"),))], [BatchSpec((RecordSpec(b"open", b"1"),))]], base=36)
    plan = make_plan(disk, FOLDER)
    assert 0 < plan.dirty_ratio < 0.5
    assert not plan._replace(manifest=plan.manifest._replace(segments=())).is_due(NOW_MS, 0.5)
    assert plan.is_due(NOW_MS, 0.01)


def test_compact_and_publish_on_real_disk(tmp_path: Path) -> None:
    """Uses real links, renames and locks, over several generations."""
    folder, disk = tmp_path / "__consumer_offsets-0", Disk()
    end = write_files(disk, log_with_transactions(), folder)
    for generation in range(1, 4):
        expected: State = by_manifest(disk, folder)
        now_ms = NOW_MS + generation
        compact(disk, folder, SETTINGS._replace(now_ms=now_ms), partial(int, now_ms))
        assert by_manifest(disk, folder) == expected
        publish_and_collect(disk, folder, now_ms + 1, 0)
        assert by_manifest(disk, folder) == by_plain_names(disk, folder) == expected
        assert newest_manifest(disk, folder).generation == generation
        end = write_files(disk, log_with_transactions(3), folder, end)
    assert len(offsets(disk, folder)) < end
