"""Tests of ``callboard groups``: output, changes and exit codes."""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from groups_program import DEADLINE_S, CommandResult, GroupsCommand, assigned, committed, filled_server, program_at
from hypothesis import given
from hypothesis import strategies as st
from peers.server import ServerProcess

from callboard.actors.assignors.assignment import read_assignment
from callboard.runtime.cli.groups import commands
from callboard.runtime.cli.groups.report import format_partitions
from callboard.runtime.client.cluster import Cluster, GroupListing
from callboard.runtime.client.versions import APIS
from callboard.runtime.kafka.api import APIS as SERVED
from callboard.runtime.kafka.api import NODE_APIS, OWN_APIS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with filled_server(tmp_path_factory.mktemp("groups")) as server:
        yield server


@pytest.fixture
def callboard(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Iterator[GroupsCommand]:
    with program_at(server, capsys) as program:
        yield program


# list ----------------------------------------------------------------------------------------------------------------


def test_list_prints_groups(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5)
    callboard.add_static_member("shop", assigned(orders=[0]))
    assert callboard("list").lines == [
        ["group", "state", "type", "protocol", "type"],
        ["shop", "Stable", "classic", "consumer"],
        ["simple", "Empty", "classic", "-"],
    ]
    assert callboard("list", "--json").json == [
        {"group": "shop", "state": "Stable", "type": "classic", "protocol_type": "consumer"},
        {"group": "simple", "state": "Empty", "type": "classic", "protocol_type": ""},
    ]


def test_list_with_state_filters_groups(callboard: GroupsCommand) -> None:
    """States are accepted in any case; an unknown state is refused before any request."""
    callboard.commit("simple", orders_0=5)
    callboard.add_static_member("shop", assigned())
    assert [line["group"] for line in callboard("list", "--state", "STABLE", "--json").json] == ["shop"]
    combined = callboard("list", "--state", "stable", "--state", "empty", "--json").json
    assert [line["group"] for line in combined] == ["shop", "simple"]
    refused = callboard.at("nowhere.invalid:1", "list", "--state", "stabel")
    assert (refused.code, refused.out) == (2, "")
    assert "unknown state 'stabel': did you mean 'Stable'?" in refused.err


def test_list_with_type_filters_groups(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5)
    assert [line["group"] for line in callboard("list", "--type", "Classic", "--json").json] == ["simple"]
    assert callboard("list", "--type", "consumer", "--json").json == []
    assert "no groups of this kind" in callboard("list", "--type", "share").err
    refused = callboard.at("nowhere.invalid:1", "list", "--type", "clasic")
    assert (refused.code, refused.out) == (2, "")
    assert "unknown type 'clasic': did you mean 'classic'?" in refused.err


def test_control_characters_in_names_are_escaped(callboard: GroupsCommand) -> None:
    """Text output is one line whatever the name of a group; JSON has the exact name."""
    callboard.commit("a\nb\x1b[31m\tü", orders_0=5)
    assert callboard("list").lines[1:] == [["a\\nb\\x1b[31m\\tü", "Empty", "classic", "-"]]
    assert callboard("describe", "a\nb\x1b[31m\tü").lines[0] == ["group", "a\\nb\\x1b[31m\\tü"]
    assert callboard("list", "--json").json[0]["group"] == "a\nb\x1b[31m\tü"


def test_list_without_groups_exits_with_0(callboard: GroupsCommand) -> None:
    """Standard output is empty; a message is on standard error."""
    assert callboard("list") == CommandResult(0, "", f"callboard: no groups on {callboard.server.bootstrap}\n")
    assert callboard("list", "--json").json == []
    callboard.commit("simple", orders_0=5)
    assert "no groups in this state" in callboard("list", "--state", "stable").err


# describe, offsets ---------------------------------------------------------------------------------------------------


def test_describe_prints_members_and_offsets(callboard: GroupsCommand) -> None:
    callboard.commit("shop", orders_0=58, refunds_0=10)
    member = callboard.add_static_member("shop", assigned(orders=[0, 1]))
    result = callboard("describe", "shop")
    facts, members, offsets = result.out.split("\n\n")
    assert facts.splitlines() == [
        "group        shop",
        "state        Stable",
        "protocol     range (consumer)",
        f"coordinator  {callboard.server.bootstrap}",
        "members      1",
        "lag          42 records in 2 of 3 partitions",
    ]
    assert members.splitlines()[1].split() == [member, "wire", "127.0.0.1", "seat", "2", "42", "orders:0-1"]
    assert [line.split() for line in offsets.splitlines()[1:]] == [
        ["orders", "0", "58", "100", "42", member, "wire"],
        ["orders", "1", "-", "100", "-", member, "wire"],
        ["refunds", "0", "10", "10", "0", "-", "-"],
    ]


def test_describe_with_watch_shows_the_group_until_interrupted(
    callboard: GroupsCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    callboard.commit("shop", orders_0=58)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        callboard.commit("shop", orders_0=59)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "time", SimpleNamespace(sleep=sleep))  # the client sleeps, too, before it tries again
    result = callboard("describe", "shop", "--watch", "2")
    assert [line[1] for line in result.lines if line[:1] == ["lag"]] == ["42", "41"]
    assert slept == [2.0, 2.0]


# evict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["member id", "instance id", "--all"])
def test_evict_removes_members_of_the_group(callboard: GroupsCommand, by: str) -> None:
    member = callboard.add_static_member("shop", assigned(orders=[0, 1]))
    argument = {"member id": member, "instance id": "seat", "--all": "--all"}[by]
    assert callboard("evict", "shop", argument).out == "1 member of group 'shop' removed\n"
    assert callboard("describe", "shop", "--json").json["members"] == []


def test_evict_without_such_member_is_refused(callboard: GroupsCommand) -> None:
    callboard.add_static_member("shop", assigned(orders=[0, 1]))
    refused = callboard("evict", "shop", "seet")
    assert (refused.code, refused.out) == (1, "")
    assert "group 'shop' has no member 'seet': did you mean 'seat'?" in refused.err
    assert callboard("evict", "shop").code == 2
    assert callboard("evict", "shop", "seat", "--all").code == 2


def test_numbers_are_right_aligned(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5, orders_1=98)
    header, *rows = callboard("offsets", "simple").out.splitlines()
    ends = {len(row.rstrip()) and row.index("100") + 3 for row in rows}
    assert ends == {header.index("end") + 3}
    assert all(line == line.rstrip() for line in (header, *rows))


def test_describe_json_has_members_and_offsets(callboard: GroupsCommand) -> None:
    callboard.commit("shop", orders_0=58)
    member = callboard.add_static_member("shop", assigned(orders=[0]))
    described = callboard("describe", "shop", "--json").json
    [seat] = described.pop("members")
    assert seat["assigned"] == [{"topic": "orders", "partition": 0}]
    assert (seat["member"], seat["instance"], seat["partitions"], seat["lag"]) == (member, "seat", 1, 42)
    [offset] = described.pop("offsets")
    assert offset == {
        "topic": "orders",
        "partition": 0,
        "committed": 58,
        "end": 100,
        "lag": 42,
        "member": member,
        "client": "wire",
    }
    assert described == {
        "group": "shop",
        "state": "Stable",
        "type": "classic",
        "protocol_type": "consumer",
        "protocol": "range",
        "coordinator": callboard.server.bootstrap,
        "lag": 42,
        "guarded_until": None,
    }


def test_describe_prints_epochs_and_targets_of_a_consumer_group(callboard: GroupsCommand) -> None:
    callboard.commit("shop", orders_0=58)
    callboard.add_consumer("shop", "m1", "orders", "seat")
    callboard.add_consumer("shop", "m2", "orders")
    assert callboard("list").lines[1:] == [["shop", "Reconciling", "consumer", "consumer"]]
    facts, members, offsets = callboard("describe", "shop").out.split("\n\n")
    assert facts.splitlines() == [
        "group        shop",
        "state        Reconciling",
        "type         consumer",
        "epoch        3",
        "protocol     uniform (consumer)",
        f"coordinator  {callboard.server.bootstrap}",
        "members      2",
        "lag          42 records in 1 of 2 partitions",
    ]
    header, *rows = (line.split() for line in members.splitlines())
    assert header[-2:] == ["epoch", "target"]
    first, second = sorted(rows)
    assert first[:8] == ["m1", "wire", "127.0.0.1", "seat", "2", "42", "orders:0-1", "2"]
    assert second[:8] == ["m2", "wire", "127.0.0.1", "-", "0", "-", "-", "3"]
    assert {first[8], second[8]} == {"orders:0", "orders:1"}
    assert [line.split()[-2] for line in offsets.splitlines()[1:]] == ["m1", "m1"]


def test_describe_json_has_epochs_and_targets_of_a_consumer_group(callboard: GroupsCommand) -> None:
    callboard.add_consumer("shop", "m1", "orders")
    described = callboard("describe", "shop", "--json").json
    assert (described["type"], described["epoch"], described["assignment_epoch"]) == ("consumer", 2, 2)
    both = [{"topic": "orders", "partition": number} for number in (0, 1)]
    [member] = described["members"]
    assert (member["epoch"], member["assigned"], member["target"]) == (2, both, both)


def test_members_of_a_consumer_group_are_removed_and_the_group_is_deleted(callboard: GroupsCommand) -> None:
    callboard.add_consumer("shop", "m1", "orders", "seat")
    callboard.add_consumer("shop", "m2", "orders")
    assert callboard("delete", "shop").code == 1, "it has members"
    assert callboard("evict", "shop", "m2").out == "1 member of group 'shop' removed\n"
    assert callboard("evict", "shop", "seat").out == "1 member of group 'shop' removed\n"
    assert callboard("describe", "shop", "--json").json["members"] == []
    assert callboard("delete", "shop").code == 0


def test_describe_with_invalid_assignment_prints_dash(callboard: GroupsCommand) -> None:
    callboard.add_static_member("shop", b"\x09")
    assert callboard("describe", "shop", "--json").json["members"][0]["assigned"] is None
    assert "-" in callboard("describe", "shop").out


def test_offsets_prints_committed_offsets_and_lag(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5, refunds_0=3)
    assert callboard("offsets", "simple").lines[1:] == [
        ["orders", "0", "5", "100", "95", "-", "orders's"],
        ["refunds", "0", "3", "10", "7", "-", "refunds's"],
    ]
    assert callboard("offsets", "simple", "--csv", "--json").err == "expected --json or --csv, not both\n"
    assert list(csv.reader(io.StringIO(callboard("offsets", "simple", "--csv").out))) == [
        ["orders", "0", "5"],
        ["refunds", "0", "3"],
    ]
    assert callboard("offsets", "simple", "--json").json[0]["lag"] == 95


@pytest.mark.parametrize("command", ["describe", "offsets", "delete"])
def test_commands_for_missing_group_exit_with_1(callboard: GroupsCommand, command: str) -> None:
    result = callboard(command, "nobody")
    assert result == CommandResult(1, "", "callboard: group 'nobody': there is no such group (GROUP_ID_NOT_FOUND)\n")


def test_group_of_newer_protocol_is_refused_with_its_type(
    callboard: GroupsCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other servers list groups that DescribeGroups reports as dead; the message names the group's type."""
    newer = [GroupListing("new", "Stable", "share", "share")]
    monkeypatch.setattr(Cluster, "groups", lambda _self: newer)
    result = callboard("describe", "new")
    one_line(result, "group 'new' is of type share, and only those of the types classic and consumer can be described")


def test_offsets_of_group_without_offsets_prints_message(callboard: GroupsCommand) -> None:
    callboard.add_static_member("shop", assigned())
    assert callboard("offsets", "shop") == CommandResult(0, "", "callboard: group 'shop' has no offsets\n")
    assert "lag          -\n" in callboard("describe", "shop").out


# delete --------------------------------------------------------------------------------------------------------------


def test_delete_of_several_groups_reports_each_refusal(callboard: GroupsCommand) -> None:
    """A refused group does not prevent the deletion of the others."""
    callboard.commit("one", orders_0=5)
    callboard.commit("two", orders_0=5)
    callboard.add_static_member("shop", assigned())
    result = callboard("delete", "one", "shop", "nobody", "two")
    assert (result.code, result.out) == (1, "group 'one' deleted\ngroup 'two' deleted\n")
    assert sorted(result.err.splitlines()) == [
        "callboard: group 'nobody': there is no such group (GROUP_ID_NOT_FOUND)",
        "callboard: group 'shop': the group has members; stop its consumers first (NON_EMPTY_GROUP)",
    ]
    assert [line["group"] for line in callboard("list", "--json").json] == ["shop"]


def test_delete_with_offsets_deletes_only_these(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5, orders_1=6, refunds_0=3)
    assert callboard("delete", "simple", "--offsets", "orders:1").out == "1 offset of group 'simple' deleted\n"
    assert committed(callboard) == {"orders_0": 5, "refunds_0": 3}
    deleted = callboard("delete", "simple", "--offsets", "orders", "--offsets", "refunds", "--json").json
    assert deleted["deleted"] == [{"topic": "orders", "partition": 0}, {"topic": "refunds", "partition": 0}]
    assert callboard("offsets", "simple").err == "callboard: group 'simple' has no offsets\n"
    assert "has no offsets for topic 'orders'" in callboard("delete", "simple", "--offsets", "orders").err
    assert callboard("delete", "nobody", "--offsets", "orders").code == 1
    assert callboard("delete", "simple", "other", "--offsets", "orders").code == 2


def test_delete_of_subscribed_offsets_is_refused(callboard: GroupsCommand) -> None:
    callboard.commit("shop", orders_0=5, refunds_0=3)
    callboard.add_static_member("shop", assigned(orders=[0]))
    result = callboard("delete", "shop", "--offsets", "orders", "--offsets", "refunds")
    assert (result.code, result.out) == (1, "1 offset of group 'shop' deleted\n")
    assert "1 of 2 refused, orders:0 first: the group's members subscribe to this topic" in result.err
    assert committed(callboard, "shop") == {"orders_0": 5}


# The server ----------------------------------------------------------------------------------------------------------


def one_line(result: CommandResult, *texts: str) -> None:
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1), result
    assert all(text in result.err for text in texts), result.err


def test_unreachable_server_exits_with_1(callboard: GroupsCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        port = free_socket.getsockname()[1]
    one_line(callboard.at(f"127.0.0.1:{port}", "list"), f"cannot reach 127.0.0.1:{port}: ", "refused", "--bootstrap")
    one_line(callboard.at("nowhere.invalid:9092", "list"), "cannot reach nowhere.invalid:9092: ")


def test_first_of_several_servers_that_answers_is_asked(callboard: GroupsCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        port = free_socket.getsockname()[1]
    assert callboard.at(f"127.0.0.1:{port}, {callboard.server.bootstrap}", "list").code == 0
    nobody = callboard.at(f"127.0.0.1:{port},localhost:{port}", "list")
    one_line(nobody, f"cannot reach 127.0.0.1:{port}: ", f"; cannot reach localhost:{port}: ")
    bad = callboard.at(f"{callboard.server.bootstrap},", "list")
    assert bad.code == 2
    assert "bad --bootstrap-server '': expected HOST:PORT" in bad.err


@contextmanager
def other_server(answer: bytes) -> Iterator[str]:
    """A server with another protocol: it sends ``answer`` and closes the connection, or sends nothing."""

    def serve() -> None:
        try:
            peer, _ = listening.accept()
        except OSError:
            return
        with peer:
            peer.recv(1000)
            if answer:
                peer.sendall(answer)
            else:
                finished.wait(DEADLINE_S)

    finished = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        finished.set()
    thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (b"\0\0", "closed the connection"),
        (b"\0\0\0\4\0\0\0\7", "cannot be read"),
        (b"\0\0\0\6\0\0\0\1\0\0", "cannot be read"),
    ],
)
def test_invalid_response_exits_with_1(callboard: GroupsCommand, answer: bytes, says: str) -> None:
    with other_server(answer) as address:
        one_line(callboard.at(address, "list"), address, says)


def test_server_without_response_times_out(callboard: GroupsCommand) -> None:
    with other_server(b"") as address:
        one_line(callboard.at(address, "list", "--timeout", "0.2"), "no answer within 0.2 s")


@pytest.mark.parametrize("address", ["9092", "host", "host:99999", "host:0"])
def test_invalid_address_exits_with_2(callboard: GroupsCommand, address: str) -> None:
    result = callboard.at(address, "list")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert address in result.err


def test_client_uses_versions_that_server_supports() -> None:
    """All versions that the client can write are served, some between nodes, so these tests detect a wrong version."""
    served = {api.key: api for api in (*SERVED, *NODE_APIS, *OWN_APIS)}
    for name, known in APIS.items():
        api = served[known.api_key]
        assert name == api.name
        assert api.min_version <= known.max_version <= api.max_version


# As a program --------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "callboard", "groups", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_program_exit_codes(callboard: GroupsCommand) -> None:
    server_option = ["-b", callboard.server.bootstrap]
    assert run("list", *server_option).returncode == 0
    failed = run("describe", "nobody", *server_option)
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    rejected = run("reset", "nobody", *server_option)
    assert (rejected.returncode, rejected.stdout, rejected.stderr.count("\n")) == (2, "", 1)
    assert run("lisst").returncode == 2
    help_ = run("--help")
    assert all(command in help_.stdout for command in ("list", "describe", "offsets", "reset", "delete"))


def on_a_terminal(columns: int, *arguments: str) -> str:
    """The output on a terminal of ``columns`` columns, without colours."""
    master_fd, terminal_fd = pty.openpty()
    command = [sys.executable, "-m", "callboard", "groups", *arguments]
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen(command, stdout=terminal_fd, env=env) as process:
        os.close(terminal_fd)
        output = b""
        try:
            while part := os.read(master_fd, 4096):
                output += part
        except OSError:  # the terminal's other end is closed
            pass
        os.close(master_fd)
        assert process.wait(DEADLINE_S) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", output.decode())


def test_terminal_table_has_thousands_separators(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5)
    callboard.commit("simple", refunds_0=123_456)
    output = on_a_terminal(100, "offsets", "simple", "-b", callboard.server.bootstrap)
    assert "123,456" in output
    assert "─" in output


@pytest.mark.parametrize("columns", [10, 40, 200])
def test_table_on_narrow_terminal_is_not_cut(callboard: GroupsCommand, columns: int) -> None:
    callboard.commit("simple", refunds_0=1_123_456_789)
    lines = on_a_terminal(columns, "offsets", "simple", "-b", callboard.server.bootstrap).splitlines()
    assert lines[0].split() == ["topic", "partition", "committed", "end", "lag", "leader", "epoch", "metadata"]
    assert lines[2].split()[:3] == ["refunds", "0", "1,123,456,789"]


# Small parts ---------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text("abc", min_size=1), st.lists(st.integers(0, 2**31 - 1), max_size=5, unique=True)))
def test_read_assignment_returns_sorted_partitions(topics: dict[str, list[int]]) -> None:
    expected = sorted((topic, partition) for topic, partitions in topics.items() for partition in partitions)
    assert read_assignment(assigned(**topics)) == tuple(expected)


@given(st.binary(max_size=60))
def test_read_assignment_of_arbitrary_bytes_does_not_raise(data: bytes) -> None:
    assignment = read_assignment(data)
    assert assignment is None or assignment == () or all(isinstance(partition, int) for _, partition in assignment)


@pytest.mark.parametrize("size", range(1, len(assigned(orders=[1, 2])) - 4))
def test_read_assignment_of_truncated_bytes_returns_none(size: int) -> None:
    assert read_assignment(assigned(orders=[1, 2])[:size]) is None


def test_format_partitions_joins_ranges() -> None:
    partitions = [("b", 3), ("a", 0), ("a", 1), ("a", 2), ("a", 7), ("b", 1)]
    assert format_partitions(partitions) == "a:0-2,7 b:1,3"
    assert format_partitions([]) == ""
