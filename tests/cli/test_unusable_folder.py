"""Commands name a data folder that they may not look into, and end with one line.

The path has a name that is too long, which the system refuses as it refuses one without permission, also for root.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.runtime.cli import compact, serve_command, users
from callboard.runtime.cli.backup import backup_command, restore_command
from callboard.runtime.cli.cluster import commands as cluster_commands
from callboard.runtime.cli.exchange import export, imports
from callboard.runtime.cli.log import commands as log_commands
from callboard.runtime.common import logs
from callboard.runtime.common.errors import StartError

NAME = "x" * 300
LISTEN = ("--listen", "127.0.0.1:0")
DATA, COPY = "DATA", "COPY"
"""In the arguments: the folder that cannot be looked into, and another one."""

COMMANDS = {
    "serve": (serve_command.main, LISTEN),
    "serve --workers": (serve_command.main, ("--workers", "2", *LISTEN)),
    "compact": (compact.main, ()),
    "users list": (users.main, ("list",)),
    "users add": (users.main, ("add", "ann", "--password-file", "/dev/stdin")),
    "log dump": (log_commands.main, ("dump",)),
    "export": (export.main, ()),
    "backup": (backup_command.main, (DATA, COPY)),
    "restore": (restore_command.main, (DATA, COPY)),
    "import": (imports.main, ("--kafka-dir", COPY, "--data", DATA)),
    "cluster import": (cluster_commands.main, ("import", DATA, "--cluster", "file:///nowhere")),
    "cluster export": (cluster_commands.main, ("export", DATA, "--cluster", "file:///nowhere")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_names_folder_that_it_cannot_look_into(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "_first_line", lambda file: "secret")
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # a server would log to the standard error of this test
    main, arguments = COMMANDS[name]
    data = str(tmp_path / NAME)
    try:
        paths = {DATA: data, COPY: str(tmp_path / "copy")}
        given = arguments if DATA in arguments else (*arguments, "--data", DATA)
        code = main([paths.get(argument, argument) for argument in given])
    except StartError as error:
        message = str(error)
    else:
        assert code == 1
        message = capsys.readouterr().err
    assert NAME in message and "File name too long" in message
