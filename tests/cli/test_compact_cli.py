"""``callboard compact``: its output, refused arguments, and damaged partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compaction_helpers import BatchSpec, RecordSpec, by_manifest, write_files

from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.cli import compact, compact_run
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.checksum import with_checksum
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.job import CompactionJob, CompactionReport
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.log.folder import FORMAT, INFO_NAME
from callboard.runtime.log.manifest import manifest_folder, manifest_name, newest_manifest
from callboard.runtime.log.reading.segment import scan, segment_name

FIELDS = {"format": FORMAT, "cluster_id": "a" * 22, "offsets_partitions": 5, "transactions_partitions": 5}
INFO = with_checksum(FIELDS)
FILES = [
    [BatchSpec((RecordSpec(b"a", b"1"), RecordSpec(b"b", b"1"), RecordSpec(b"a", b"2")))],
    [BatchSpec((RecordSpec(b"b", b"2"), RecordSpec(b"c", b"1")))],
    [BatchSpec((RecordSpec(b"c", b"2"),))],
]
NAMES = ("__consumer_offsets-0", "__consumer_offsets-3", "__transaction_state-1")


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


class Program:
    """Runs the command in this process, on a data folder with three partitions."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data = data
        self._capsys = capsys

    def __call__(self, *arguments: str, data: Path | None = None) -> CommandResult:
        try:
            code: Any = compact.main(["--data", str(data or self.data), "--processes", "1", *arguments])
        except StartError as error:
            return CommandResult(2, self._capsys.readouterr().out, str(error))
        except SystemExit as end:
            code = end.code
        return CommandResult(code or 0, *self._capsys.readouterr())

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert result.code == 0, result.err
        return json.loads(result.out)


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    (tmp_path / INFO_NAME).write_text(json.dumps(INFO))
    for name in NAMES:
        write_files(Disk(), FILES, tmp_path / name)
    return Program(tmp_path, capsys)


def generation(program: Program, name: str) -> int:
    return newest_manifest(Disk(), program.data / name).generation


def test_compact_prints_summary(program: Program) -> None:
    manifests_before = {name: by_manifest(Disk(), program.data / name) for name in NAMES}
    result = program()
    assert result.code == 0
    first, second = result.out.splitlines()
    assert first.startswith("3 partitions compacted, 0 had nothing to do, in ")
    assert second.startswith("records 15 -> 9, bytes ")
    assert {name: by_manifest(Disk(), program.data / name) for name in NAMES} == manifests_before
    assert program().out.startswith("0 partitions compacted, 3 had nothing to do")


def test_compact_removes_old_files_after_grace_period(program: Program) -> None:
    assert "old file" not in program().out
    assert program("--grace-minutes", "0").out.splitlines()[1] == "3 old files removed"
    assert program("--grace-minutes", "0").out.splitlines()[1:] == []


def test_compact_dry_run_changes_nothing(program: Program) -> None:
    rows = program.json("--dry-run")
    assert [row["partition"] for row in rows] == list(NAMES)
    assert {(row["generation"], row["clean_bytes"], row["dirty_ratio"], row["is_due"]) for row in rows} == {
        (0, 0, "1.000", "yes")
    }
    assert program("--dry-run").out.splitlines()[0].split()[:2] == ["partition", "generation"]
    assert all(row["open_bytes"] > 0 for row in rows), "the open segment is not empty"
    assert generation(program, NAMES[0]) == 0


def test_compact_of_selected_partitions_skips_others(program: Program) -> None:
    reports = program.json("--partition", "3,__transaction_state-1")["partitions"]
    assert [(report["partition"], report["status"]) for report in reports] == [
        ("__consumer_offsets-3", "compacted"),
        ("__transaction_state-1", "compacted"),
    ]
    assert [generation(program, name) for name in NAMES] == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "bad --partition 'x': expected numbers, A-B or __transaction_state-N"),
        ("3-1", "bad --partition '3-1': expected A-B with A up to B"),
        ("", "bad --partition ''"),
        ("0,4", "found no __consumer_offsets-4, which --partition asks for"),
    ],
)
def test_compact_with_invalid_partition_list_is_refused(program: Program, text: str, expected: str) -> None:
    result = program("--partition", text)
    assert result.code == 2
    assert expected in result.err


@pytest.mark.parametrize("text", ["", "1023K", "0", "-1M", "1.5G", "512MB", "9" * 30])
def test_compact_with_invalid_memory_size_is_refused(program: Program, text: str) -> None:
    result = program("--memory", text)
    assert result.code == 2
    assert f"bad --memory '{text}': expected bytes, or a number and K, M or G, as in 512M; at least 1M" in result.err


def test_compact_memory_is_divided_among_processes(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [compact_run.parse_memory(text) for text in ("1048576", "1024K", "512m", "3G")] == [
        1 << 20,
        1 << 20,
        512 << 20,
        3 << 30,
    ]
    shares: list[int] = []

    def note(jobs: Sequence[CompactionJob], *_: object) -> Iterator[CompactionReport]:
        shares.extend(job.settings.keys_bytes_max for job in jobs)
        return iter(())

    monkeypatch.setattr(compact_run, "_run_in_processes", note)
    jobs = [
        CompactionJob(program.data / name, CompactionSettings(0, "test", keys_bytes_max=9_000_000)) for name in NAMES
    ]
    compact_run._run_locally(8, jobs, dict.fromkeys((job.folder for job in jobs), 1), lambda size: None)
    assert shares == [3_000_000] * 3


def test_partition_ranges_are_parsed() -> None:
    numbers = [f"__consumer_offsets-{number}" for number in (7, 1, 2, 3)]
    assert compact_run.parse_partitions("7, 1-3,2,__transaction_state-2") == [*numbers, "__transaction_state-2"]


def test_compact_of_damaged_partition_compacts_others(program: Program) -> None:
    path = program.data / NAMES[0] / segment_name(3)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = program("--json")
    assert result.code == 3
    assert f"{path}: damaged batch at byte 0: checksum" in result.err
    statuses = [report["status"] for report in json.loads(result.out)["partitions"]]
    assert statuses == ["damaged", "compacted", "compacted"]
    assert [generation(program, name) for name in NAMES] == [0, 1, 1]


def test_compact_with_newer_manifest_compacts_other_partitions(program: Program) -> None:
    manifests = manifest_folder(program.data / NAMES[1])
    manifests.mkdir(parents=True)
    (manifests / manifest_name(1)).write_text('{"version": 9}')
    result = program()
    assert result.code == 3
    assert "found manifest version 9" in result.err
    assert [generation(program, name) for name in (NAMES[0], NAMES[2])] == [1, 1]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, f"found no {INFO_NAME}"),
        (json.dumps({**INFO, "format": FORMAT + 1}), "a newer version wrote this folder"),
        (json.dumps({**FIELDS, "format": 1}), "start a server of this version on it once"),
        ("no json", "found no JSON"),
    ],
)
def test_compact_of_folder_with_other_version_is_refused(
    program: Program, tmp_path: Path, content: str | None, expected: str
) -> None:
    info = program.data / INFO_NAME
    if content is None:
        info.unlink()
    else:
        info.write_text(content)
    result = program()
    assert result.code == 2
    assert expected in result.err
    assert generation(program, NAMES[0]) == 0
    assert "found no folder" in program(data=tmp_path / "nowhere").err


def test_compact_below_ratio_does_nothing_unless_forced(program: Program) -> None:
    program()
    folder = program.data / NAMES[0]
    write_files(Disk(), [[BatchSpec((RecordSpec(b"z", b"1"),))]], folder, base=6)
    write_files(Disk(), [[BatchSpec((RecordSpec(b"z", b"2"),))]], folder, base=7)
    assert program.json("--min-cleanable-ratio", "0.99")["partitions"][0]["status"] == "nothing"
    assert program.json("--min-cleanable-ratio", "0.99", "--force")["partitions"][0]["status"] == "compacted"


def test_compact_reports_open_transaction(program: Program) -> None:
    folder = program.data / "__consumer_offsets-1"
    write_files(Disk(), [[BatchSpec((RecordSpec(b"a", b"1"),), "transaction")], *FILES], folder)
    result = program("--partition", "1")
    assert result.code == 0
    assert result.out.startswith("0 partitions compacted, 0 had nothing to do, 1 waiting, in")
    assert f"{folder}: a transaction is open since offset 0; later records wait for its end" in result.err


def test_compact_with_several_processes_has_same_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        shape = LogShape(20_000, 4, groups=60, segment_bytes=100_000, transaction_rate=0.05)
        written = write_log(folder, shape, seed=5)
        assert written.records >= 20_000 and written.files > 8
        (folder / INFO_NAME).write_text(json.dumps(INFO))
    states = [by_manifest(Disk(), path) for path in sorted(folders[0].glob("__*"))]
    for processes, folder in zip(("1", "3"), folders, strict=True):
        with pytest.raises(SystemExit) as end:
            compact.main(["--data", str(folder), "--processes", processes])
        assert end.value.code == 0
        assert "4 partitions compacted" in capsys.readouterr().out
    for folder in folders:
        paths = sorted(folder.glob("__*"))
        assert [by_manifest(Disk(), path) for path in paths] == states
        assert all(
            sum(batch.record_count for batch in scan(Disk(), file)) for path in paths for file in path.glob("*.log")
        )


def test_summary_counts_reports_by_status() -> None:
    reports = [
        CompactionReport("p-0", "compacted", 1_000_000, 20_000, 5_000_000, 100_000, 1.0, 3),
        CompactionReport("p-1", "nothing"),
        CompactionReport("p-2", "damaged", reason="x"),
    ]
    assert compact_run.describe_reports(reports, 1.25).splitlines() == [
        "1 partition compacted, 1 had nothing to do, in 1.2 s",
        "records 1,000,000 -> 20,000, bytes 5,000,000 -> 100,000 (2.0 %)",
        "3 old files removed",
    ]
