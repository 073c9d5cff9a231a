"""Compaction with Spark: results equal to local compaction, concurrent writes, and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from compaction_helpers import by_manifest
from history_helpers import generation
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import WAIT_TIMEOUT_S, LazyDisk, append, entry, offset
from migrated_groups import downgraded, upgraded
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from callboard.actors.ports import Entry
from callboard.bench.loggen import LogShape, write_log
from callboard.runtime.cli import compact as command
from callboard.runtime.cli import compact_run
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.compaction.job import CompactionJob, CompactionReport, run
from callboard.runtime.log.compaction.plan import make_plan
from callboard.runtime.log.compaction.swap import CompactionSettings
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.manifest import newest_manifest
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.spark import submit_compact
from callboard.spark.compaction import TASK_BYTES, TASKS_MIN, assign_jobs_to_tasks, compact

START_MS = 1_700_000_000_000
PARTITIONS = 4
SETTINGS = CompactionSettings(START_MS + 86_400_000, "test", -1.0)


def generated(root: Path) -> Path:
    shape = LogShape(12_000, PARTITIONS, groups=50, segment_bytes=60_000, transaction_rate=0.05)
    write_log(root, shape, seed=3)
    DataFolder(root, PARTITIONS).close()
    log = OffsetsLog(root, PARTITIONS, disk=LazyDisk(), segment_bytes=2000)
    log.open()
    for number in range(8):
        back = downgraded(generation("g", number), ["m"])
        for records in (upgraded("g", number, ["m"]), (offset("g", number),), back):
            append(log, [Entry(partition, records) for partition in range(PARTITIONS)], START_MS)
    log.close()
    return root


def folders(root: Path) -> list[Path]:
    return sorted(root.glob("__consumer_offsets-*"))


def jobs_in(root: Path) -> list[CompactionJob]:
    return [CompactionJob(folder, SETTINGS, grace_ms=0) for folder in folders(root)]


def sizes_of(jobs: Sequence[CompactionJob]) -> dict[Path, int]:
    return {job.folder: make_plan(Disk(), job.folder).dirty_bytes for job in jobs}


def damage(folder: Path) -> Path:
    path = min(folder.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return path


def test_compact_on_spark_gives_same_files_as_local_compaction(spark: SparkSession, tmp_path: Path) -> None:
    """Byte for byte, with the same report; live records are unchanged."""
    first_log, second_log = generated(tmp_path / "one"), generated(tmp_path / "other")
    states = [by_manifest(Disk(), folder) for folder in folders(first_log)]
    advanced: list[int] = []
    jobs = jobs_in(first_log)
    sizes = sizes_of(jobs)
    spark_reports = list(compact(None, jobs, sizes, advanced.append))
    local_reports = [run(job) for job in jobs_in(second_log)]
    assert [report._replace(seconds=0.0) for report in spark_reports] == [
        report._replace(seconds=0.0) for report in local_reports
    ]
    assert {report.status for report in spark_reports} == {"compacted"}
    assert sum(advanced) == sum(sizes.values()) > 0
    assert [by_manifest(Disk(), folder) for folder in folders(first_log)] == states
    for spark_folder, local_folder in zip(folders(first_log), folders(second_log), strict=True):
        checksums = [
            [segment.crc32c for segment in newest_manifest(Disk(), folder).segments]
            for folder in (spark_folder, local_folder)
        ]
        assert checksums[0] == checksums[1] != []


def test_compact_runs_one_task_per_partition_without_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    jobs = jobs_in(generated(tmp_path))
    tracker = spark.sparkContext.statusTracker()
    jobs_before = set(tracker.getJobIdsForGroup(None))
    list(compact(None, jobs, sizes_of(jobs)))
    (job,) = set(tracker.getJobIdsForGroup(None)) - jobs_before
    info = tracker.getJobInfo(job)
    assert info is not None
    stages = [tracker.getStageInfo(stage) for stage in info.stageIds]
    assert [stage.numTasks for stage in stages if stage is not None] == [PARTITIONS]


@given(st.lists(st.integers(1, 3 * TASK_BYTES), min_size=1, max_size=200))
def test_assign_jobs_to_tasks_combines_small_partitions(sizes: list[int]) -> None:
    """Each job is assigned once, to tasks of similar size."""
    tasks = assign_jobs_to_tasks(sizes)
    assert sorted(index for task in tasks for index in task) == list(range(len(sizes)))
    assert len(tasks) == len(sizes) or all(len(tasks) >= least for least in (TASKS_MIN, sum(sizes) / TASK_BYTES))
    loads = [sum(sizes[index] for index in task) for task in tasks]
    assert max(loads) <= max(min(loads) + max(sizes), max(sizes))


def test_compact_with_damage_fails_only_that_partition(spark: SparkSession, tmp_path: Path) -> None:
    jobs = jobs_in(generated(tmp_path))
    path = damage(jobs[1].folder)
    reports = list(compact(None, jobs, sizes_of(jobs)))
    assert [report.status for report in reports] == ["compacted", "damaged", "compacted", "compacted"]
    assert f"{path}: damaged batch at byte 0" in reports[1].reason


def test_compact_of_clean_partition_runs_no_task(spark: SparkSession, tmp_path: Path) -> None:
    """Files that were replaced earlier are removed nevertheless."""
    jobs = jobs_in(generated(tmp_path))
    list(compact(None, jobs, sizes_of(jobs)))
    reports = list(compact(None, jobs, dict.fromkeys((job.folder for job in jobs), 0)))
    assert {report.status for report in reports} <= {"nothing", "compacted"}


def test_compact_by_spark_and_locally_during_writes_keeps_all_keys(spark: SparkSession, tmp_path: Path) -> None:
    """By Spark and by a local compactor, in rounds: no acknowledged commit is lost."""
    DataFolder(tmp_path, PARTITIONS).close()
    log = OffsetsLog(tmp_path, PARTITIONS, disk=LazyDisk(), segment_bytes=2000)
    log.open()
    written, enough = [0], threading.Event()

    def write() -> None:
        while not enough.is_set():
            written[0] += 1
            append(log, [entry(partition, written[0]) for partition in range(PARTITIONS)])

    def compact_here() -> None:
        while not enough.is_set():
            assert all(run(job).status in ("compacted", "nothing") for job in jobs_in(tmp_path))

    threads = [threading.Thread(target=work) for work in (write, compact_here)]
    for thread in threads:
        thread.start()
    statuses: list[str] = []
    try:
        while statuses.count("compacted") < 2 or len(statuses) < 3 * PARTITIONS:
            jobs = jobs_in(tmp_path)
            statuses += [report.status for report in compact(None, jobs, sizes_of(jobs))]
    finally:
        enough.set()
        for thread in threads:
            thread.join(WAIT_TIMEOUT_S)
    log.close()
    assert set(statuses) <= {"compacted", "nothing"}
    again = OffsetsLog(tmp_path, PARTITIONS, disk=LazyDisk())
    again.open()
    for partition in range(PARTITIONS):
        newest = [record for _, _, record in again.read(partition)][-1]
        assert newest.value.offset == written[0]  # type: ignore[union-attr]
    again.close()


def test_compact_with_lost_spark_job_reports_failure(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_in(generated(tmp_path))

    def lose(*_arguments: Any) -> NoReturn:
        raise PySparkException("Job aborted due to stage failure\n  at somewhere\nExecutor lost")

    monkeypatch.setattr("callboard.spark.compaction._run_on_spark", lose)
    reports = list(compact(None, jobs, sizes_of(jobs)))
    assert {report.status for report in reports} == {"failed"}
    assert reports[0].reason.endswith("Spark ended the job: Job aborted due to stage failure Executor lost")


# The command -------------------------------------------------------------------------------------------------------


def test_compact_command_prints_summary(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = generated(tmp_path)
    with pytest.raises(SystemExit) as end:
        command.main(["--data", str(root), "--spark", "--json"])
    assert end.value.code == 0
    report = json.loads(capsys.readouterr().out)
    assert [partition["status"] for partition in report["partitions"]] == ["compacted"] * PARTITIONS
    with pytest.raises(SystemExit) as end:
        command.main(["--data", str(root), "--spark"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"0 partitions compacted, {PARTITIONS} had nothing to do")


def test_spark_submit_runs_submit_compact(java: None, tmp_path: Path) -> None:
    """Run by its path; the exit code is the command's: 3 for the damaged partition."""
    root = generated(tmp_path)
    path = damage(folders(root)[0])
    submit = Path(sys.executable).parent / "spark-submit"
    assert submit.exists(), "spark-submit is part of pyspark"
    arguments = ["--master", "local[2]", submit_compact.__file__, "--data", str(root)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # by which spark-submit finds Spark
    completed = subprocess.run(
        [str(submit), *arguments], capture_output=True, text=True, check=False, timeout=600, env=environment
    )
    assert completed.returncode == 3, completed.stderr
    assert f"{PARTITIONS - 1} partitions compacted, 0 had nothing to do" in completed.stdout
    assert f"callboard: {path}: damaged batch at byte 0" in completed.stdout, (
        "spark-submit prints standard error to standard output"
    )
    assert "Traceback" not in completed.stdout + completed.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--master", "local[2]"], "bad --master 'local[2]': it needs --spark"),
        (
            ["--spark", "--processes", "2"],
            "bad --processes 2: with --spark the number is set by --master, as in local[2]",
        ),
        (["--every", "10"], "bad --every '10': expected a number and s, m, h or d, as in 10m"),
        (
            ["--every", "10m", "--once"],
            "bad --every '10m': expected a number and s, m, h or d, as in 10m without --once",
        ),
        (["--data", "nowhere", "--spark"], "nowhere: found no folder"),
    ],
)
def test_compact_command_with_invalid_options_is_refused(tmp_path: Path, arguments: list[str], expected: str) -> None:
    DataFolder(tmp_path, PARTITIONS).close()
    with pytest.raises(StartError) as error:
        command.main(["--data", str(tmp_path), *arguments])
    assert expected in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["compact", "--spark", "--data"],
        ["history", "keep", "--table", "table", "--data"],
        ["analyse", "zombie-groups", "--data"],
        ["report", "--data"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_command_without_pyspark_names_extra_to_install(tmp_path: Path, arguments: list[str]) -> None:
    DataFolder(tmp_path, PARTITIONS).close()
    script = (
        "import sys; sys.modules['pyspark'] = None; from callboard.runtime.cli.main import main;"
        " sys.argv = ['callboard', *sys.argv[1:]]; main()"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script, *arguments, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.stderr == (
        "callboard: callboard.spark needs pyspark, which is not installed;"
        " install it with: pip install 'callboard[spark]'\n"
    )
    assert completed.returncode == 2


def test_compact_every_interval_counts_from_start_to_start() -> None:
    """If a run takes longer than the interval, the next run starts at once."""
    now, slept, runs = [0.0], [], iter([(4.0, 0), (15.0, 3), (1.0, 0)])

    class StopTest(Exception):
        pass

    def work() -> int:
        duration_s, code = next(runs, (0.0, -1))
        if code == -1:
            raise StopTest
        now[0] += duration_s
        return code

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with pytest.raises(StopTest):
        compact_run.repeat(work, 10, sleep, lambda: now[0])
    assert slept == [6.0, 0.0, 9.0]
    assert compact_run.repeat(lambda: 3, None) == 3
    assert [compact_run.parse_every(text, False) for text in ("90s", "10m", "2h", "1d", None)] == [
        *(90, 600, 7200, 86_400),
        None,
    ]


def test_report_round_trips_as_row() -> None:
    assert CompactionReport(**CompactionReport("p", "nothing")._asdict()) == CompactionReport("p", "nothing")
