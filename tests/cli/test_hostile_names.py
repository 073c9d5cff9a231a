"""Names and texts of clients in all output: none can control a terminal or add a line."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log_helpers import offset
from partition_helpers import SUBSCRIPTION, TIME_MS, plain, transactional, write
from peers.wire import Wire
from project_paths import ROOT

from callboard import Coordinator
from callboard.actors.records import (
    GroupRecord,
    GroupValue,
    MemberValue,
    PendingOffsetRecord,
    TransactionRecord,
    TransactionValue,
    UnknownRecord,
)
from callboard.actors.text import printable
from callboard.runtime.cli import main as cli
from callboard.runtime.common import printing
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.transaction_records import encode_transaction
from callboard.runtime.log.partition import TRANSACTIONS_TOPIC
from callboard.runtime.testing.plugin.facts import RequestFacts
from callboard.runtime.testing.plugin.timeline import Timeline

MARK = "INJECTED"
# Line ends, escape sequences of both kinds, DEL, bidirectional overrides, a separator, an invisible tag.
EVIL = f"evil\n{MARK}\r{MARK}\x1b[31m\x9b2J\x07\x7f\x85\u2028\u202e\u2066\U000e0041=cmd"
ESCAPED = r"evil\nINJECTED\rINJECTED\x1b[31m\x9b2J\x07\x7f\x85\u2028\u202e\u2066\U000e0041=cmd"


def refuse_what_is_not_printable(text: str) -> None:
    assert sorted({character for character in text if not (character.isprintable() or character == "\n")}) == []
    assert not [line for line in text.split("\n") if line.startswith(MARK)]


class CommandOutput:
    """The checked output of a command."""

    def __init__(self, code: int, out: str, err: str, is_checked: bool = True) -> None:
        self.code, self.out, self.err = code, out, err
        if is_checked:
            refuse_what_is_not_printable(out)
        refuse_what_is_not_printable(err)


Callboard = Callable[..., CommandOutput]


@pytest.fixture
def callboard(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callboard:
    def run(*arguments: object, is_checked: bool = True) -> CommandOutput:
        monkeypatch.setattr(sys, "argv", ["callboard", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        code: Any = end.value.code
        return CommandOutput(code or 0, out, err, is_checked)

    return run


def join_group(wire: Wire, group: str, instance: str | None = None) -> str:
    """The only member of a stable group."""
    offered = [{"name": "range", "metadata": SUBSCRIPTION}]
    values: dict[str, Any] = {"session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": ""}
    joined = wire.ask(
        "join_group",
        5,
        group_id=group,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=offered,
        **values,
    )
    member: str = joined["member_id"]
    assignments = [{"member_id": member, "assignment": b""}]
    values = {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": member,
        "group_instance_id": instance,
    }
    assert wire.ask("sync_group", 3, **values, assignments=assignments)["error_code"] == "NONE"
    return member


def commit(wire: Wire, group: str) -> None:
    partition_offset = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": -1,
        "committed_metadata": EVIL,
    }
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": "orders", "partitions": [partition_offset]}]
    answer = wire.ask("offset_commit", 8, **values, topics=topics)
    assert answer["topics"][0]["partitions"][0]["error_code"] == "NONE"


FULL, EMPTY = f"full {EVIL}", f"empty {EVIL}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """A group with a member and a group with an offset, with hostile names."""
    with Coordinator.in_thread(tmp_path / "served", "127.0.0.1:0", topics={"orders": 2}) as server:
        host, port = server.bootstrap.rsplit(":", 1)
        with Wire(host, int(port)) as wire:
            join_group(wire, FULL, instance=EVIL)
            commit(wire, EMPTY)
            yield server


def test_groups_commands_escape_names(server: Any, callboard: Callboard) -> None:
    server_option = ("--bootstrap-server", server.bootstrap)
    assert ESCAPED in callboard("groups", "list", *server_option).out
    assert {group["group"] for group in json.loads(callboard("groups", "list", "--json", *server_option).out)} == {
        FULL,
        EMPTY,
    }
    for group in (FULL, EMPTY, EVIL):
        for arguments in (["describe", group], ["describe", group, "--json"], ["offsets", group]):
            callboard("groups", *arguments, *server_option)
    description = json.loads(callboard("groups", "describe", FULL, "--json", *server_option).out)
    assert (description["group"], description["members"][0]["instance"]) == (FULL, EVIL)
    assert json.loads(callboard("groups", "offsets", EMPTY, "--json", *server_option).out)[0]["metadata"] == EVIL


def test_reset_and_delete_escape_names(server: Any, callboard: Callboard) -> None:
    server_option = ("--bootstrap-server", server.bootstrap)
    to = ("--all-topics", "--to-latest")
    assert ESCAPED in callboard("groups", "reset", EMPTY, *to, *server_option).out
    assert json.loads(callboard("groups", "reset", EMPTY, *to, "--json", *server_option).out)["group"] == EMPTY
    assert ESCAPED in callboard("groups", "reset", EMPTY, *to, "--execute", *server_option).out
    assert ESCAPED in callboard("groups", "reset", FULL, *to, *server_option).err
    assert callboard("groups", "reset", EVIL, *to, *server_option).code == 1
    assert callboard("groups", "reset", EMPTY, "--topic", EVIL, "--to-latest", *server_option).code != 0
    assert ESCAPED in callboard("groups", "delete", EMPTY, "--offsets", EVIL, *server_option).err
    assert ESCAPED in callboard("groups", "delete", FULL, EVIL, *server_option).err
    callboard("groups", "delete", FULL, EVIL, "--json", *server_option)
    with Coordinator.in_thread(None, "127.0.0.1:0", topics={"orders": 1}) as other_server:
        host, port = other_server.bootstrap.rsplit(":", 1)
        with Wire(host, int(port)) as wire:
            commit(wire, EVIL)
        assert ESCAPED in callboard("groups", "delete", EVIL, "--offsets", "orders", "-b", other_server.bootstrap).out
        with Wire(host, int(port)) as wire:
            commit(wire, EVIL)
        assert ESCAPED in callboard("groups", "delete", EVIL, "-b", other_server.bootstrap).out


def test_export_and_import_escape_names(server: Any, callboard: Callboard, tmp_path: Path) -> None:
    server_option, file = ("--bootstrap-server", server.bootstrap), tmp_path / "offsets"
    exact_csv = callboard("export", *server_option, is_checked=False).out
    assert [row[0] for row in csv.reader(io.StringIO(exact_csv, newline=""))][1:] == [EMPTY]
    assert json.loads(callboard("export", "--format", "json", *server_option).out)[0]["metadata"] == EVIL
    assert ESCAPED in callboard("export", "--group", EVIL, *server_option).err
    rows = [{"group": group, "topic": "orders", "partition": 1, "offset": 3} for group in (FULL, EMPTY)]
    file.write_text(json.dumps(rows))
    assert ESCAPED in callboard("import", file, *server_option).err
    callboard("import", file, "--json", *server_option)
    assert ESCAPED in callboard("import", file, "--group", EVIL, *server_option).err
    for bad_row in ({**rows[0], "topic": EVIL}, {**rows[0], EVIL: 1}, {**rows[0], "offset": EVIL}):
        file.write_text(json.dumps([bad_row, rows[0], rows[0]]))
        assert callboard("import", file, *server_option).code == 2


def test_csv_on_terminal_is_escaped(server: Any, callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal gets escapes and quoted lines; a pipe gets the exact bytes."""
    server_option = ("--bootstrap-server", server.bootstrap)

    def export(*arguments: str) -> str:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        return callboard(*arguments, *server_option, is_checked=False).out

    for arguments in (["export"], ["groups", "offsets", EMPTY, "--csv"]):
        output = export(*arguments)
        assert (
            output
            and sorted({character for character in output if not (character.isprintable() or character == "\n")}) == []
        )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Logs with content that a server would not have accepted, as after an import."""
    folder = tmp_path / "data"
    DataFolder(folder).close()
    member = MemberValue(EVIL, EVIL, EVIL, EVIL, 60_000, 10_000, SUBSCRIPTION, b"")
    group = GroupValue(EVIL, 3, EVIL, EVIL, TIME_MS, (member,))
    pending = PendingOffsetRecord(EVIL, EVIL, 1, offset(EVIL, 7, EVIL).value, 9, 1)
    unknown_record = UnknownRecord(30, b"\0\x1e" + EVIL.encode(), EVIL.encode())
    not_text = frame_record(0, 0, b"\0\1\0\2\xff\x9b\0\1t\0\0\0\0", b"\0\3")
    batches = [
        plain(
            0, GroupRecord(EVIL, group), offset(EVIL, 42, EVIL, EVIL), GroupRecord(f"gone {EVIL}", None), unknown_record
        ),
        transactional(4, pending),
        encode_batch(5, TIME_MS, TIME_MS, [not_text]),
    ]
    write(folder, 3, batches, [plain(6, offset(EVIL, 43, EVIL, EVIL))])
    value = TransactionValue(9, 1, 60_000, 1, frozenset({(EVIL, 0)}), TIME_MS, TIME_MS)
    record = frame_record(0, 0, *encode_transaction(TransactionRecord(EVIL, value)))
    write(folder, 7, [encode_batch(0, TIME_MS, TIME_MS, [record])], topic=TRANSACTIONS_TOPIC)
    return folder


def test_log_commands_escape_names(data: Path, callboard: Callboard) -> None:
    dump = callboard("log", "dump", "--data", data)
    assert dump.code == 3 and dump.out.count(ESCAPED) > 8
    records = [json.loads(line) for line in callboard("log", "dump", "--data", data, "--json").out.split("\n") if line]
    assert records[0]["members"][0]["client_id"] == records[0]["group"] == EVIL
    assert ESCAPED in callboard("log", "stats", "--data", data).out
    callboard("log", "stats", "--data", data, "--json")
    assert callboard("log", "verify", "--data", data).code == 3
    callboard("log", "verify", "--data", data, "--json")
    callboard("export", "--data", data, is_checked=False)
    callboard("export", "--data", data, "--format", "json")
    callboard("log", "repair", "--data", data)
    callboard("log", "repair", "--data", data, "--execute")
    callboard("log", "verify", "--data", data)
    callboard("compact", "--data", data, "--dry-run")
    callboard("compact", "--data", data, "--force")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_server_log_lines_escape_names(stream: io.StringIO) -> None:
    program = f"""
import io, json, logging, sys
from callboard.runtime.common import logs
class Terminal(io.StringIO):
    def isatty(self): return {stream.isatty()}
evil, stream = json.loads(sys.argv[1]), Terminal()
logs.configure(stream)
log = logs.get_logger("callboard.test")
log.warning("a member is gone", group=evil, members=[evil], error=ValueError(evil), many={{evil: evil}}, count=3)
logging.getLogger("other").warning("about %s", evil)
try:
    raise ValueError(evil.replace("\\n", " "))
except ValueError:
    log.exception("failed", client_id=evil)
print(json.dumps(stream.getvalue()))
"""
    completed = subprocess.run(
        [sys.executable, "-c", program, json.dumps(EVIL)], capture_output=True, text=True, check=True
    )
    text = json.loads(completed.stdout)
    if stream.isatty():  # the colours come from Callboard
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    refuse_what_is_not_printable(text)
    assert text.count(MARK) >= 10


def test_timeline_escapes_names() -> None:
    timeline = Timeline(lambda: 0)
    facts = RequestFacts(api="JoinGroup", version=5, client_id=EVIL, groups=(EVIL,), members=(EVIL,), instances=(EVIL,))
    timeline.answer(timeline.request(facts, EVIL), facts, [EVIL], EVIL)
    refuse_what_is_not_printable(timeline.text())
    assert ESCAPED in timeline.text()


def test_printable_escapes_lone_surrogates_and_leaves_text_alone() -> None:
    assert printable("\udc9b \ud800") == r"\udc9b \ud800"
    assert printable(r"Grüße, 世界 \n 🎉") == r"Grüße, 世界 \n 🎉"
    assert printing.printable_lines("a\nb\x1b") == "a\nb\\x1b"


def test_json_text_round_trips_and_is_printable() -> None:
    value = {"a": [EVIL, "ü世🎉", "\udc9b"], EVIL: None}
    for indent in (None, 2):
        text = printing.json_text(value, indent)
        assert json.loads(text) == value
        assert "ü世🎉" in text
        refuse_what_is_not_printable(text)


PRINTING = sorted(
    path
    for folder in ("runtime", "spark")
    for path in (ROOT / folder).rglob("*.py")
    if path.name not in ("printing.py", "settings.py") and "testing" not in path.parts
)


@pytest.mark.parametrize("path", PRINTING, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_print_only_through_printing(path: Path) -> None:
    """Every module must print through printing.py."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    lines = [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    assert lines == []
