"""Tests of ``callboard acls``: output, changes and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from peers.server import TEST_SETTINGS, ServerProcess

from callboard.runtime.cli import acls
from callboard.runtime.common.errors import StartError
from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Result]
SETTINGS = {**TEST_SETTINGS, "authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("acls"), settings=SETTINGS) as server:
        yield server


@pytest.fixture
def run(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Result:
        code: Any
        try:
            code = acls.main([*arguments, "--bootstrap-server", server.bootstrap])
        except StartError as error:
            return Result(2, "", str(error))
        except SystemExit as end:
            code = end.code
        return Result(code or 0, *capsys.readouterr())

    return run


def test_acls_are_added_listed_and_removed(run: Run) -> None:
    added = run("add", "User:alice", "read", "describe", "--group", "bills", "--topic", "orders")
    assert added.out == "4 ACLs of User:alice added\n"
    assert run("add", "User:bob", "all", "--topic", "or", "--prefixed", "--deny", "--host", "10.0.0.1").code == 0
    assert run("add", "User:*", "describe", "--on-cluster", "--prefixed").code == 0
    header, *rows = run("list", "--topic", "orders").out.splitlines()
    assert header.split() == ["resource", "name", "pattern", "principal", "permission", "operation", "host"]
    assert [row.split() for row in rows] == [
        ["topic", "or", "prefixed", "User:bob", "deny", "all", "10.0.0.1"],
        ["topic", "orders", "literal", "User:alice", "allow", "read", "*"],
        ["topic", "orders", "literal", "User:alice", "allow", "describe", "*"],
    ]
    assert len(run("list", "--json").json) == 6
    assert [row["principal"] for row in run("list", "--on-cluster", "--json").json] == ["User:*"]
    assert run("remove", "--topic", "or").err.startswith("callboard: no such ACLs")
    assert "1 ACL removed" in run("remove", "--topic", "or", "--prefixed").out
    assert len(run("remove", "--principal", "User:alice", "--operation", "read", "--json").json) == 2
    assert len(run("remove", "--group", "bills", "--topic", "orders", "--on-cluster", "--json").json) == 3
    assert run("list").err.startswith("callboard: no such ACLs")


def test_address_has_the_form_in_which_servers_compare_it(run: Run) -> None:
    """Java's. A denial of ``::1`` matched nobody."""
    hosts = ("--host", "::1", "--host", "::ffff:10.0.0.1", "--host", "*")
    assert run("add", "User:eve", "read", "--group", "g", "--deny", *hosts).out == "3 ACLs of User:eve added\n"
    removed = run("remove", "--principal", "User:eve", "--json").json
    assert {row["host"] for row in removed} == {"0:0:0:0:0:0:0:1", "10.0.0.1", "*"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "User:alice", "read"), "expected a resource"),
        (("add", "alice", "read", "--group", "g"), "no colon"),
        (("add", "User:alice", "read", "--group", ""), "empty resource name"),
        (("add", "User:alice", "reed", "--group", "g"), "did you mean 'read'"),
        (
            ("add", "User:alice", "read", "--group", "g", "--host", "10.0.0.0/8"),
            "bad --host '10.0.0.0/8': expected an IP",
        ),
        (("add", "User:alice", "read", "--group", "g", "--host", "example.com"), "bad --host 'example.com': expected"),
        (("remove",), "all ACLs would be removed"),
    ],
)
def test_wrong_arguments_are_refused_before_a_request(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert message in result.err


def test_server_without_acls_is_named_as_the_reason(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerProcess(tmp_path_factory.mktemp("open"), settings=TEST_SETTINGS) as server:
        assert acls.main(["list", "--bootstrap-server", server.bootstrap]) == 1
    assert "No Authorizer is configured on the broker (SECURITY_DISABLED)" in capsys.readouterr().err


def test_list_names_acls_that_kafkas_tools_can_add_and_no_client_matches(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(acls, "parse_host", str)
        assert run("add", "User:eve", "read", "--group", "g", "--deny", "--host", "10.0.0.0/8").code == 0
    run("add", "User:eve", "read", "--group", "g", "--host", "10.0.0.5")
    note = "no client matches 1 ACL of these: the host '10.0.0.0/8': expected an IP address, as in 10.0.0.5, or *"
    assert run("list").out.splitlines()[-1] == note
    assert len(run("list", "--json").json) == 2
    run("remove", "--principal", "User:eve")
