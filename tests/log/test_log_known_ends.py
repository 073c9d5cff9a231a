"""Missing parts of a log that the clean-stop note and the journal show, and folders that a server refuses.

The partition's own files look complete then, so each tool that reads a folder must check the note and the journal.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from log_helpers import offset

from callboard.actors.ports import Entry
from callboard.runtime.cli.exchange.row_sources import find_partition_sources, read_folder_rows
from callboard.runtime.cli.log import commands
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.threads import InlineThreads
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.offsets_log import OffsetsLog
from callboard.runtime.log.partition import folder_name

TIME_MS = 1_700_000_000_000


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> CommandResult:
        try:
            code: Any = commands.main([str(argument) for argument in arguments])
        except SystemExit as exit:
            code = exit.code or 0
        return CommandResult(code, *capsys.readouterr())

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped server's folder: partition 3 ends at offset 4, in two segments, partition 4 at 1."""
    with DataFolder(tmp_path / "left") as folder:
        log = OffsetsLog(folder.path, folder.offsets_partitions, threads=InlineThreads(), segment_bytes=200)
        log.open()
        for number in range(4):
            log.append([Entry(3, (offset("g", number, "x" * 60),))], TIME_MS, lambda outcomes: None)
        log.append([Entry(4, (offset("h", 1),))], TIME_MS, lambda outcomes: None)
        log.close()
    return folder.path


def truncate_newest(folder: Path, by: int) -> None:
    path = max(folder.glob("*.log"))
    os.truncate(path, max(0, path.stat().st_size - by))


def remove_newest(folder: Path) -> None:
    for path in sorted(folder.glob("*.log"))[1:]:
        path.unlink()


def replace_folder_by_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


LOSSES: dict[str, Callable[[Path], None]] = {
    "the folder": shutil.rmtree,
    "a file in its place": replace_folder_by_file,
    "the newest files": remove_newest,
    "the last batch": lambda folder: truncate_newest(folder, 100_000),
    "half of the last batch": lambda folder: truncate_newest(folder, 10),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_missing_end_is_reported_by_each_tool(data: Path, log: Any, loss: str) -> None:
    """The remaining files look complete. The clean-stop note, and so the next start, show the loss."""
    assert log("verify", "--data", data).out.endswith("all is well\n")
    LOSSES[loss](data / folder_name(3))
    for command in ("verify", "repair"):
        result = log(command, "--data", data)
        assert (result.code, result.err) == (3, "")
        assert f"{data / '.clean_shutdown'}: " in result.out and "went on to offset 4" in result.out
        assert "callboard log repair removes them" not in result.out
    dump_result = log("dump", "--data", data)
    assert dump_result.code == 3 and "went on to offset 4" in dump_result.err
    assert (
        sum(partition["damaged"] for partition in json.loads(log("stats", "--data", data, "--json").out)["partitions"])
        >= 1
    )
    problems: list[object] = []
    rows = list(read_folder_rows(find_partition_sources(data, Disk(), problems.append), (), Disk(), problems.append))
    assert [row.group for row in rows][-1] == "h" and "went on to offset 4" in str(problems[0])


def test_missing_beginning_is_reported(data: Path, log: Any) -> None:
    min((data / folder_name(3)).glob("*.log")).unlink()
    for command in ("verify", "repair"):
        result = log(command, "--data", data)
        assert result.code == 3 and "everything before it was removed" in result.out
    assert "everything before it was removed" in log("dump", "--data", data).err


def test_missing_end_is_reported_by_the_journal(data: Path, log: Any) -> None:
    shutil.copytree(data, copy := data.with_name("before"))
    offsets_log = OffsetsLog(data, 50, threads=InlineThreads())
    offsets_log.open()
    offsets_log.halt()  # as after a kill: a journal and no note
    assert log("verify", "--data", data).code == 0
    shutil.rmtree(data / folder_name(3))
    result = log("verify", "--data", data)
    assert result.code == 3 and f"/{0:020d}-" in result.out and ".journal: " in result.out
    shutil.copytree(copy / folder_name(3), data / folder_name(3))
    assert log("verify", "--data", data).code == 0


@pytest.mark.parametrize(
    ("content", "message"), [('{"format": 99}', "a newer version wrote this folder"), ("x", "found no JSON")]
)
def test_verify_of_folder_refused_by_server_reports_it(data: Path, log: Any, content: str, message: str) -> None:
    (data / "callboard.json").write_text(content)
    for command in ("dump", "stats", "verify", "repair"):
        with pytest.raises(StartError, match=message):
            log(command, "--data", data)
    with pytest.raises(StartError, match=message):
        find_partition_sources(data, Disk(), print)


def test_journal_without_callboard_json_is_refused(data: Path, log: Any) -> None:
    (data / "callboard.json").unlink()
    with pytest.raises(StartError, match=r"found a journal and no callboard\.json"):
        log("verify", "--data", data)


def test_verify_beside_running_server_reports_nothing_missing(tmp_path: Path, log: Any) -> None:
    """After each checkpoint the oldest journal file states higher end offsets."""
    with DataFolder(tmp_path) as folder:
        offsets_log = OffsetsLog(folder.path, folder.offsets_partitions, threads=InlineThreads(), checkpoint_bytes=300)
        offsets_log.open()
        for number in range(12):
            entry = Entry(3 + number % 3, (offset("ghi"[number % 3], number),))
            offsets_log.append([entry], TIME_MS, lambda outcomes: None)
            assert log("verify", "--data", tmp_path).code == 0
        assert offsets_log.stats().checkpoints > 2
        offsets_log.close()
    assert log("verify", "--data", tmp_path).code == 0
