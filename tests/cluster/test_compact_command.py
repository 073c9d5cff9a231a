"""``callboard compact --cluster``: its lines, its exit codes, and refused arguments."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from callboard.runtime.cli import compact
from callboard.runtime.cluster.engines import open_store
from callboard.runtime.cluster.manifest import Manifest, newest_manifest
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register_log import RegisterLog
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.common.errors import StartError
from callboard.runtime.log.partition_counts import PartitionCounts

from .compaction_cases import GARBAGE, stored

PARTITIONS = ("__consumer_offsets-0", "__consumer_offsets-3", "__transaction_state-1")
NUMBERS = (0, 3, 7)


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


class Program:
    """Runs the command in this process, on a cluster of one node whose three partitions have closed segments."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *arguments: str) -> CommandResult:
        self._capsys.readouterr()
        try:
            code: Any = compact.main(arguments)
        except StartError as error:
            return CommandResult(2, self._capsys.readouterr().out, str(error))
        except SystemExit as end:
            code = end.code
        return CommandResult(code or 0, *self._capsys.readouterr())

    def on_cluster(self, *arguments: str) -> CommandResult:
        return self("--cluster", self.url, "--processes", "1", *arguments)

    def manifest(self, partition: int) -> Manifest:
        async def read() -> Manifest:
            return await newest_manifest(open_store(self.url, "test"), partition)

        return asyncio.run(read())

    def delete_segment(self, partition: int) -> str:
        """The first one; returns its key."""
        key = self.manifest(partition).segments[0].key
        asyncio.run(open_store(self.url, "test").delete([key]))
        return key


async def write_cluster(url: str) -> None:
    """Three partitions have closed segments, and one that is open. No node runs."""
    store = open_store(url, "test")
    await RegisterLog(PatientStore(store), SessionEnvironment()).create(PartitionCounts(6, 2))
    for number in NUMBERS:
        await stored(store, GARBAGE, number)
    await store.close()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    for name in ("CALLBOARD_DATA", "CALLBOARD_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    asyncio.run(write_cluster(tmp_path.as_uri()))
    return Program(tmp_path.as_uri(), capsys)


def test_each_compacted_partition_has_a_line_and_all_have_a_summary(program: Program) -> None:
    before = program.manifest(0)
    result = program.on_cluster()
    assert result.code == 0, result.err
    *lines, summary, totals = result.out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(PARTITIONS)
    assert lines[0].startswith(f"{PARTITIONS[0]}: kept 2 of 3 records, ")
    assert summary.startswith("3 partitions compacted, 5 had nothing to do, in ")
    assert totals.startswith("records ")
    after = program.manifest(0)
    assert (after.version, after.epoch, after.end) == (before.version + 1, before.epoch, before.end)
    assert [segment.is_compacted for segment in after.segments] == [True, False]
    assert program.on_cluster().out.startswith("0 partitions compacted, 8 had nothing to do")


def test_only_chosen_partitions_are_compacted(program: Program) -> None:
    report = json.loads(program.on_cluster("--partition", "3,__transaction_state-1", "--json").out)
    assert {each["partition"]: each["status"] for each in report["partitions"]} == dict.fromkeys(
        PARTITIONS[1:], "compacted"
    )
    assert not program.manifest(0).segments[0].is_compacted


def test_plan_changes_nothing(program: Program) -> None:
    before = program.manifest(0)
    [row, *_] = json.loads(program.on_cluster("--dry-run", "--json").out)
    assert (row["partition"], row["is_due"]) == (PARTITIONS[0], "yes")
    assert row["dirty_bytes"] == sum(segment.size for segment in before.segments[:-1])
    assert program.manifest(0) == before


def test_several_processes_do_the_same(program: Program) -> None:
    result = program("--cluster", program.url, "--processes", "2")
    assert result.code == 0, result.err
    assert "3 partitions compacted" in result.out
    assert [segment.is_compacted for segment in program.manifest(7).segments] == [True, False]


def test_damaged_partition_is_left_and_the_others_are_compacted(program: Program) -> None:
    key = program.delete_segment(3)
    result = program.on_cluster()
    assert result.code == 3
    assert f"{PARTITIONS[1]}: {key} is missing in the store" in result.err
    assert "2 partitions compacted" in result.out
    assert program.manifest(0).segments[0].is_compacted
    assert not program.manifest(3).segments[0].is_compacted


def test_store_comes_from_the_environment_unless_a_folder_is_given(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_CLUSTER", program.url)
    assert "3 partitions compacted" in program("--processes", "1").out
    assert "found no callboard.json" in program("--data", str(tmp_path)).err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "give the folder of the log, --data DIR, or the store of a cluster, --cluster URL"),
        (["--data", "x", "--cluster", "file:///x"], "found both --data x and --cluster"),
        (["--cluster", "rain://x"], "no store has a URL like 'rain://x'"),
        (["--cluster", "file:///", "--grace-minutes", "5"], "bad --grace-minutes"),
        (["--cluster", "file:///", "--master", "local[2]"], "it needs --spark"),
    ],
)
def test_bad_arguments_are_refused(program: Program, arguments: list[str], reason: str, tmp_path: Path) -> None:
    replaced = [program.url if argument == "file:///" else argument for argument in arguments]
    result = program(*replaced)
    assert result.code == 2
    assert reason in result.err


def test_partition_that_does_not_exist_is_refused(program: Program) -> None:
    result = program.on_cluster("--partition", "6")
    assert (result.code, result.err) == (
        2,
        "the cluster has no __consumer_offsets-6, which --partition asks for; it has 6 and 2 partitions",
    )


def test_store_without_a_cluster_is_refused(program: Program, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    result = program("--cluster", empty.as_uri())
    assert result.code == 2
    assert "has no cluster: no node has started with it yet" in result.err
