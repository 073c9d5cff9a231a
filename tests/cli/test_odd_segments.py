"""What has the name of a segment and is no file: each command that reads a log refuses it at once, by its name."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from log_helpers import offset
from partition_helpers import plain, write

from callboard.runtime.cli import compact
from callboard.runtime.cli.backup import backup_command
from callboard.runtime.cli.exchange import export
from callboard.runtime.cli.log import commands as log
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.partition import folder_name
from callboard.runtime.log.reading.segment import segment_name
from callboard.runtime.log.recovery.clean_stop import EMPTY_NOTE, write_note

Main = Callable[[Sequence[str]], int]

COMMANDS: dict[str, tuple[Main, tuple[str, ...]]] = {
    "log dump": (log.main, ("dump", "--data", "DATA")),
    "log stats": (log.main, ("stats", "--data", "DATA")),
    "log verify": (log.main, ("verify", "--data", "DATA")),
    "log verify --quick": (log.main, ("verify", "--quick", "--data", "DATA")),
    "log repair": (log.main, ("repair", "--data", "DATA")),
    "export": (export.main, ("--data", "DATA")),
    "backup": (backup_command.main, ("DATA", "COPY")),
    "compact": (compact.main, ("--data", "DATA", "--force")),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log with three segments."""
    folder = tmp_path / "data"
    DataFolder(folder).close()
    write_note(Disk(), folder, EMPTY_NOTE)
    write(folder, 3, *([plain(number, offset("g", number))] for number in range(3)))
    return folder


def put_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)  # to bind takes a path of at most 107 bytes


KINDS: dict[str, Callable[[Path], None]] = {"a FIFO": os.mkfifo, "a socket": put_socket, "a folder": Path.mkdir}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in COMMANDS for number in (1, 2) if (name, number) != ("compact", 2)]
)
def test_no_file_is_refused_by_its_name(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, number: int, kind: str
) -> None:
    """``number``: a closed segment, or the newest one, which compaction does not read."""
    main, arguments = COMMANDS[name]
    path = data / folder_name(3) / segment_name(number)
    path.unlink()
    KINDS[kind](path)
    paths = {"DATA": str(data), "COPY": str(tmp_path / "copy")}
    code, said = run(main, [paths.get(argument, argument) for argument in arguments], capsys)
    assert code in (1, 2, 3)
    assert f"{path}: found {kind}, expected a file" in said
    assert not (tmp_path / "copy").exists()
    assert said.count(str(path)) == 1


def run(main: Main, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    try:
        code: object = main(arguments)
    except StartError as error:
        code, text = error.exit_code, str(error)
    except SystemExit as ended:
        code, text = ended.code, ""
    else:
        text = ""
    output = capsys.readouterr()
    return code, text + output.out + output.err
