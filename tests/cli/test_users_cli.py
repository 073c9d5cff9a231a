"""``callboard users``: on a server, and in the folder of a stopped one. No password is on a command line."""

from __future__ import annotations

import asyncio
import io
import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_helpers import Command, CommandResult, command
from harness import async_test
from program_helpers import PROGRAM
from structlog.testing import capture_logs

from callboard import Coordinator, ThreadCoordinator
from callboard.runtime.cli import users
from callboard.runtime.cli.workers_folder import check_folder
from callboard.runtime.client.connection import LoginRefused, connect_to
from callboard.runtime.client.security import load_security
from callboard.runtime.common.errors import StartError
from callboard.runtime.log.folder import LOCK_NAME
from callboard.runtime.security.document import USERS
from callboard.runtime.security.store import FILE_NAME
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.table import Options

LIST_TITLES = ["user", "mechanism", "iterations"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(users.main, capsys)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\nanother line\n")
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadCoordinator]:
    with Coordinator.in_thread(listen="127.0.0.1:0") as coordinator:
        yield coordinator


@pytest.fixture(params=["server", "folder"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The option that says where the users are."""
    if request.param == "folder":
        return "--data", str(tmp_path / "data")
    coordinator: ThreadCoordinator = request.getfixturevalue("server")
    return "--bootstrap-server", coordinator.bootstrap


def test_users_are_added_listed_changed_and_removed(run: Command, where: tuple[str, str], secret: Path) -> None:
    assert run("add", "alice", "--password-file", secret, *where).out == "user 'alice' added\n"
    one = ("--mechanism", "scram-sha-512", "--iterations", 8192)
    assert run("add", "bob", "--password-file", secret, *one, *where).out == "user 'bob' added\n"
    assert [line.split() for line in run("list", *where).out.splitlines()] == [
        LIST_TITLES,
        ["alice", "SCRAM-SHA-256", "4096"],
        ["alice", "SCRAM-SHA-512", "4096"],
        ["bob", "SCRAM-SHA-512", "8192"],
    ]
    again = run("add", "alice", "--password-file", secret, *where)
    assert again.code == 2
    assert again.err == "user 'alice' exists already: `callboard users passwd` changes the password\n"
    changed = run("passwd", "bob", "--password-file", secret, *where)
    assert changed.out == "password of user 'bob' changed\n"
    assert json.loads(run("list", "--json", *where).out)[2] == {
        "user": "bob",
        "mechanism": "SCRAM-SHA-512",
        "iterations": 4096,
    }
    assert run("remove", "alice", "bob", *where).out == "user 'alice' removed\nuser 'bob' removed\n"
    empty = run("list", *where)
    assert (empty.code, empty.out) == (0, "") and empty.err.startswith("callboard: no users ")
    for name in ("passwd", "remove"):
        missing = run(name, "alice", *where)
        assert missing.err == "there is no user 'alice': `callboard users list` shows all\n"
        assert missing.code == 2


def test_password_is_asked_for(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, object]] = []

    def prompt(text: str, **options: object) -> str:
        assert not (tmp_path / "data").exists(), "whoever gives up here has changed nothing"
        asked.append((text, options["hide_input"] and options["confirmation_prompt"]))
        return "hunter2"

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr(users, "_has_terminal", lambda: True)
    assert run("add", "alice", "--data", tmp_path / "data").code == 0
    assert asked == [("Password", True)]


def test_password_cannot_be_asked_for_without_a_terminal(tmp_path: Path) -> None:
    """In a process without one. It warned that the password may be echoed, and aborted at the end of the input."""
    arguments = ("users", "add", "alice", "--data", str(tmp_path / "data"))
    result = subprocess.run(
        [*PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True
    )
    expected = "callboard: there is no terminal to ask for the password: expected --password-file FILE, or - for"
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(expected)


def test_password_from_standard_input(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    assert run("add", "alice", "--password-file", "-", "--data", tmp_path / "data").code == 0


def test_byte_order_mark_is_no_part_of_a_password(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("\ufeffhunter2\n")
    assert users._password(str(path)) == "hunter2"


def test_stored_users_have_no_password_and_only_the_owner_may_read_them(
    run: Command, tmp_path: Path, secret: Path
) -> None:
    assert run("add", "alice", "--password-file", secret, "--data", tmp_path / "data").code == 0
    path = tmp_path / "data" / FILE_NAME
    assert "hunter2" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("add", "", "--password-file", "{secret}"), "bad user '': expected printable ASCII characters, at least one"),
        (("add", "ålice", "--password-file", "{secret}"), "bad user 'ålice': expected printable ASCII characters"),
        (("add", "alice", "--password-file", "{empty}"), "the password is empty: expected at least one character"),
        (("add", "alice", "--password-file", "{none}"), "cannot read the password file '{none}': No such file"),
        (("add", "alice", "--password-file", "{secret}", "--mechanism", "PLAIN"), "bad --mechanism 'PLAIN': expected"),
    ],
)
def test_bad_input_is_refused(
    run: Command, tmp_path: Path, secret: Path, arguments: tuple[str, ...], text: str
) -> None:
    (tmp_path / "empty").write_text("\nhunter2\n")
    names = {name: str(tmp_path / name) for name in ("empty", "none")} | {"secret": str(secret)}
    result = run(*(argument.format(**names) for argument in arguments), "--data", tmp_path / "data")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(text.format(**names))
    assert not (tmp_path / "data").exists()


def test_folder_of_a_running_server_is_refused_for_changes_and_listed(
    run: Command, tmp_path: Path, secret: Path
) -> None:
    """Only the server changes its users. Each change replaces the file, so it may be read."""
    where = ("--data", tmp_path / "data")
    run("add", "alice", "--password-file", secret, *where)
    with Coordinator.in_thread(data=tmp_path / "data"):
        password = ("--password-file", secret)
        for arguments in (("add", "bob", *password), ("passwd", "alice", *password), ("remove", "alice")):
            refused = run(*arguments, *where)
            assert (refused.code, refused.out) == (2, "")
        assert "alice" in run("list", *where).out


def test_list_writes_nothing(run: Command, tmp_path: Path, secret: Path) -> None:
    """So it can show the users of a folder that is read-only. Root may write to that as well."""
    data = tmp_path / "data"
    run("add", "alice", "--password-file", secret, "--data", data)
    (data / LOCK_NAME).unlink()
    before = data.stat().st_mtime_ns
    assert "alice" in run("list", "--data", data).out
    assert data.stat().st_mtime_ns == before
    assert [path.name for path in data.iterdir()] == [FILE_NAME]


def test_log_names_the_mechanism_of_each_change(run: Command, server: ThreadCoordinator, secret: Path) -> None:
    """A request changes one mechanism of a user. Without it each change seemed to be logged twice."""
    with capture_logs() as log_output:
        assert run("add", "carol", "--password-file", secret, "-b", server.bootstrap).code == 0
        assert run("remove", "carol", "-b", server.bootstrap).code == 0
    lines = [line["users"] for line in log_output if line["event"] == "users were changed"]
    assert lines == 2 * [["carol (SCRAM-SHA-256)"], ["carol (SCRAM-SHA-512)"]]


@pytest.mark.parametrize("name", ["list", "passwd", "remove"])
@pytest.mark.parametrize("is_file", [False, True])
def test_wrong_path_is_named_and_no_folder_created(run: Command, tmp_path: Path, name: str, is_file: bool) -> None:
    path = tmp_path / "data"
    if is_file:
        path.touch()
    result = run(name, *(() if name == "list" else ("alice",)), "--data", path)
    expected = f"{path}: found no folder, expected the data folder of a server; check the path\n"
    assert (result.code, result.out, result.err) == (2, "", expected)
    assert path.exists() == is_file


@async_test
async def test_users_of_a_cluster_are_changed_in_its_store_and_its_nodes_know_them(
    run: Command, tmp_path: Path, secret: Path
) -> None:
    (tmp_path / "store").mkdir()
    where = ("--cluster", (tmp_path / "store").as_uri())

    def call(*arguments: object) -> CommandResult:
        return run(*arguments, *where)

    empty = await asyncio.to_thread(call, "list")
    assert (empty.code, "has no cluster: no node has started with it yet" in empty.err) == (1, True)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "hunter2",
    }
    async with Coordinator(
        tmp_path / "data", cluster=where[1], security=login, cluster_session_timeout_ms=500
    ) as coordinator:
        host, _, port = coordinator.bootstrap.rpartition(":")
        address = Address(host, int(port))
        with pytest.raises(LoginRefused):
            await connect_to(address, "c", load_security(login, {}))
        assert (await asyncio.to_thread(call, "add", "alice", "--password-file", secret)).code == 0
        assert "alice" in (await asyncio.to_thread(call, "list")).out
        while not coordinator.node.services.security.get(USERS):
            await asyncio.sleep(0.01)
        (await connect_to(address, "c", load_security(login, {}))).close()
        assert (await asyncio.to_thread(call, "remove", "alice")).code == 0
        while coordinator.node.services.security.get(USERS):
            await asyncio.sleep(0.01)
    both = run("list", *where, "--data", tmp_path / "data")
    assert (both.code, both.err) == (2, "both --data and --cluster are given: expected one of them\n")


def test_folder_of_workers_is_refused_since_their_users_are_in_their_store(
    run: Command, tmp_path: Path, secret: Path
) -> None:
    data = tmp_path / "data"
    (data / "cluster").mkdir(parents=True)
    refused = run("add", "alice", "--password-file", secret, "--data", data)
    assert (refused.code, refused.out) == (2, "")
    assert f"expected --cluster local://{data}/cluster" in refused.err
    assert [path.name for path in data.iterdir()] == ["cluster"]


def test_workers_refuse_a_folder_with_users_that_they_would_not_see(run: Command, tmp_path: Path, secret: Path) -> None:
    assert run("add", "alice", "--password-file", secret, "--data", tmp_path).code == 0
    with pytest.raises(StartError, match=f"workers do not read.* users add --cluster local://{tmp_path}/cluster"):
        check_folder(Options(data=tmp_path))
