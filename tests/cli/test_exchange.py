"""Tests of ``callboard export`` and ``callboard import`` for tables of offsets."""

from __future__ import annotations

import csv
import io
import json
import shutil
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_helpers import Command, CommandResult, run_export, run_import
from groups_program import assigned, filled_server, program_at
from hypothesis import given
from hypothesis import strategies as st
from log_helpers import new_journal, offset
from partition_helpers import plain, transactional, write
from peers.server import ServerProcess

from callboard.actors.records import GroupRecord, GroupValue, MarkerRecord, OffsetRecord, PendingOffsetRecord
from callboard.runtime.cli.exchange import restore
from callboard.runtime.cli.exchange.parse import BAD_LINES_SHOWN, read_table
from callboard.runtime.cli.exchange.restore import OFFSETS_PER_REQUEST
from callboard.runtime.cli.exchange.rows import Row, sort_rows, write_csv, write_json
from callboard.runtime.client.cluster import Cluster, OffsetAndMetadata
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.log.folder import DataFolder
from callboard.runtime.log.journal_frames import encode_frame
from callboard.runtime.settings.address import Address

fixtures = run_export, run_import

HEADER = "group,topic,partition,offset,leader_epoch,metadata,commit_time\n"
NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ROWS = st.builds(
    Row,
    TEXTS,
    NAMES,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.none() | st.integers(0, 2**31 - 1),
    TEXTS,
    st.none() | st.just("2026-01-01T00:00:00.000Z"),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    DataFolder(folder).close()
    return folder


# The table -----------------------------------------------------------------------------------------------------------


@given(st.lists(ROWS, max_size=30, unique_by=lambda row: row.sort_key))
@pytest.mark.parametrize("form", [write_csv, write_json])
def test_written_table_round_trips(
    tmp_path_factory: pytest.TempPathFactory, form: Callable[..., None], rows: list[Row]
) -> None:
    """Names and metadata may contain line ends, quotes and commas, or be empty."""
    text = io.StringIO(newline="")
    form(rows, text)
    path = tmp_path_factory.getbasetemp() / "table"
    path.write_bytes(text.getvalue().encode())
    expected: dict[str, dict[tuple[str, int], OffsetAndMetadata]] = {}
    for row in rows:
        epoch = -1 if row.leader_epoch is None else row.leader_epoch
        offset = OffsetAndMetadata(row.offset, epoch, row.metadata)
        expected.setdefault(row.group, {})[row.topic, row.partition] = offset
    name = "csv" if form is write_csv else "json"
    if rows:
        assert read_table(path, pytest.fail, name) == expected
    else:
        with pytest.raises(StartError, match="found no offsets"):
            read_table(path, pytest.fail, name)


@given(st.lists(ROWS, max_size=60, unique_by=lambda row: row.sort_key), st.integers(1, 20))
def test_sort_rows_with_any_chunk_size_sorts(rows: list[Row], sorted_rows: int) -> None:
    assert list(sort_rows(rows, sorted_rows)) == sorted(rows, key=lambda row: row.sort_key)


def test_export_of_empty_folder_writes_empty_table(data: Path, run_export: Command) -> None:
    assert run_export("--data", data) == CommandResult(0, HEADER, "")
    assert run_export("--data", data, "--format", "json") == CommandResult(0, "[]\n", "")


# From a folder -------------------------------------------------------------------------------------------------------


def test_export_of_stopped_server_has_committed_offsets(data: Path, run_export: Command) -> None:
    """Only the newest committed offset of each partition, without deleted and uncommitted ones, sorted."""
    write(
        data,
        3,
        [
            plain(0, offset("z", 1), offset("z", 2, "x,y"), offset("gone", 1), OffsetRecord("gone", "t", 0, None)),
            transactional(4, PendingOffsetRecord("open", "t", 0, offset("", 7).value, 9, 1)),
            transactional(5, PendingOffsetRecord("over", "t", 0, offset("", 8).value, 10, 1)),
            transactional(6, MarkerRecord(10, 1, True)),
        ],
    )
    write(data, 40, [plain(0, offset("a", 5, topic="u"), GroupRecord("empty", GroupValue("", 0, None, None, 5, ())))])
    assert run_export("--data", data).out == (
        HEADER
        + "a,u,0,5,,,1970-01-01T00:00:00.005Z\n"
        + "over,t,0,8,,,1970-01-01T00:00:00.005Z\n"
        + 'z,t,0,2,,"x,y",1970-01-01T00:00:00.005Z\n'
    )
    [row] = json.loads(run_export("--data", data, "--format", "json", "--group", "z").out)
    assert row == {
        "group": "z",
        "topic": "t",
        "partition": 0,
        "offset": 2,
        "leader_epoch": None,
        "metadata": "x,y",
        "commit_time": "1970-01-01T00:00:00.005Z",
    }


def test_export_after_kill_reads_journal(data: Path, run_export: Command) -> None:
    """After ``kill -9``, also for a partition without a folder, and after a torn tail."""
    [path] = write(data, 3, [plain(0, offset("a", 1)), plain(1, offset("a", 2))])
    torn = plain(2, offset("a", 3))
    path.write_bytes(path.read_bytes() + torn[:20])
    frames = [
        encode_frame([(3, plain(1, offset("a", 2))), (3, torn)]),
        encode_frame([(7, plain(0, offset("b", 9))), (50, plain(0, offset("no offsets partition", 1)))]),
    ]
    (data / "journal").mkdir()
    journal = new_journal(Disk(), data / "journal", 0, {})
    for frame in frames:
        journal.write(frame)
    journal.close()
    files_before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    result = run_export("--data", data)
    assert [line.split(",")[:4] for line in result.out.splitlines()[1:]] == [["a", "t", "0", "3"], ["b", "t", "0", "9"]]
    assert (result.code, result.err) == (0, "")
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == files_before


def test_export_with_damage_reports_it_and_writes_rest(data: Path, run_export: Command) -> None:
    [path] = write(data, 3, [plain(0, offset("a", 1)), plain(1, offset("b", 2)), plain(2, offset("c", 3))])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    result = run_export("--data", data)
    assert result.code == 3
    assert str(path) in result.err and "damaged bytes at byte" in result.err
    assert [line.split(",")[0] for line in result.out.splitlines()[1:]] == ["a", "c"]


def test_a_group_that_is_not_there(data: Path, run_export: Command) -> None:
    """The existing groups are written nevertheless."""
    write(data, 3, [plain(0, offset("a", 1))])
    result = run_export("--data", data, "--group", "a", "--group", "nobody")
    assert (result.code, result.err) == (1, "callboard: group 'nobody' has no offsets\n")
    assert result.out.count("\n") == 2


def test_export_to_file_is_atomic(data: Path, run_export: Command, tmp_path: Path) -> None:
    target = tmp_path / "offsets.csv"
    target.write_text("before")
    write(data, 3, [plain(0, offset("a", 1))])
    assert run_export("--data", data, "-o", target) == CommandResult(0, "", "")
    assert target.read_text().startswith(HEADER + "a,t,0,1")
    shutil.rmtree(data)
    assert run_export("--data", data, "-o", target).code == 2
    assert target.read_text().startswith(HEADER + "a,t,0,1")
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "expected what to export: --data DIR or --bootstrap-server"),
        (["--data", "d", "-b", "h:1"], "and only one"),
        (["--data", "nowhere.d"], "nowhere.d: found no folder"),
        (["--data", ".", "--format", "xml"], "bad --format 'xml': expected csv or json"),
        (["--data", ".", "--replace"], "--replace is for --kafka-dir"),
        (["-b", "h:1", "--kafka-dir", "k"], "expected --data DIR, not a server"),
        (["--data", ".", "--kafka-dir", "k", "-o", "f"], "leave out --group and --output"),
    ],
)
def test_export_with_invalid_arguments_is_refused(run_export: Command, arguments: list[str], expected: str) -> None:
    result = run_export(*arguments)
    assert (result.code, result.out) == (2, "")
    assert expected in result.err


def parsed(tmp_path: Path, text: str | bytes, **options: Any) -> Any:
    path = tmp_path / "file"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    problems: list[str] = []
    try:
        return read_table(path, problems.append, **options)
    except StartError as error:
        return [*problems, str(error)]


@pytest.mark.parametrize(
    "text",
    [
        "group,topic,partition,offset\ng,t,0,42\n",
        "offset,partition,topic,group\n42,0,t,g",
        "\ufeffgroup,topic,partition,offset,metadata\r\ng,t,0,42,\r\n",
        "g,t,0,42\n",
        '"g","t",0,42\n',
        '[{"group": "g", "topic": "t", "partition": 0, "offset": 42}]',
        '{"group": "g", "topic": "t", "partition": 0, "offset": 42, "leader_epoch": null, "metadata": null}\n\n',
    ],
)
def test_read_table_accepts_all_formats(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callboard's format with and without optional columns, and Kafka's export of several groups; - is stdin."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    expected = {"g": {("t", 0): OffsetAndMetadata(42, -1, "")}}
    assert parsed(tmp_path, text) == read_table(Path("-"), pytest.fail) == expected


def test_read_table_of_kafka_export_without_group(tmp_path: Path) -> None:
    assert parsed(tmp_path, '"t",0,42\nt,1,43\n', group="g") == {
        "g": {("t", 0): OffsetAndMetadata(42, -1, ""), ("t", 1): OffsetAndMetadata(43, -1, "")}
    }
    assert (
        "line 1: found no group, expected one; say whose it is with --group NAME" in (parsed(tmp_path, "t,0,42\n")[0])
    )


def test_import_of_file_without_group_for_several_groups_is_refused(run_import: Command, tmp_path: Path) -> None:
    file = tmp_path / "kafka.csv"
    file.write_text("t,0,42\n")
    result = run_import(file, "-b", "127.0.0.1:1", "--group", "a", "--group", "b")
    assert result.code == 2 and "line 1: found no group" in result.err
    assert "1 bad line; nothing was written" in result.err


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("g,t,0,42\ng,t,0\n", 2, "found 3 fields, expected 4"),
        ("g,t,0,42\ng,t,x,1\n", 2, "partition is 'x', expected a number from 0 to 2147483647"),
        ("g,t,0,-1\n", 1, "offset is '-1', expected a number from 0 to 9223372036854775807"),
        ("g,t,0,9223372036854775808\n", 1, "offset is '9223372036854775808'"),
        ("g,t,0,1_0\n", 1, "offset is '1_0'"),
        ("g,a b,0,1\n", 1, "topic is 'a b', expected a topic's name"),
        ("g,..,0,1\n", 1, "topic is '..'"),
        ("g,t,0,1\n\n\ng,t,0,2\n", 4, "found 'g' t:0 a second time, expected each once; line 1 has it too"),
        ("group,topic,partition,offset,metdata\ng,t,0,1,\n", 2, "found the column 'metdata', expected some of group"),
        ('g,t,0,1\n"g,t,0,1\n', 2, "found no CSV"),
        (HEADER + '"g\nh",t,0,1,,,\ng,t,0,x,,,\n', 4, "offset is 'x'"),
        (HEADER + f"g,t,0,1,,{'x' * 32768},\n", 2, "metadata is 'xxx"),
        (b"g,t,0,1\ng\xff,t,0,1\n", 2, "found bytes that are not UTF-8"),
        ('[{"group": "g"},\n {"group": 7}]', 2, "group is 7, expected text"),
        ('[{"group": "g", "topic": "t", "partition": 0, "offset": true}]', 1, "offset is True"),
        ('{"group": "g", "topic": "t", "partition": 0, "offset": 1.0}', 1, "offset is 1.0"),
        ('{"group": "\\ud800", "topic": "t", "partition": 0, "offset": 1}', 1, "group is '\\ud800'"),
        ('{"group": "g", "topic": "t", "partition": 0, "offset": ' + "9" * 5000 + "}", 1, ""),
        ('[{"group": "g", "topic": "t",\n "partition": 0 "offset"', 2, "found no JSON"),
        ('[{"group": "g", "topic": "t", "partition": 0, "offset": 1},\n', 2, "found no end of the array"),
        ('[{"group": "g", "topic": "t", "partition": 0, "offset": 1}]\nmore', 1, "found more behind the end"),
        ('{"group": "g", "topic": "t", "partition": 0, "offset": 1}\n]', 2, "found no end of the array"),
        ("[1]", 1, "found 1, expected an object like"),
        ("[" * 100_000, 1, "found no JSON"),
    ],
)
def test_bad_line_is_reported_with_number(tmp_path: Path, text: str | bytes, line: int, expected: str) -> None:
    result = parsed(tmp_path, text)
    assert isinstance(result, list), result
    assert any(f"line {line}: " in error_line and expected in error_line for error_line in result), result
    assert all("\n" not in error_line for error_line in result)


def test_number_of_reported_bad_lines_is_limited(tmp_path: Path) -> None:
    *lines, last = parsed(tmp_path, "g,t,0,x\n" * 25)
    assert len(lines) == BAD_LINES_SHOWN
    assert "25 bad lines (15 more are not shown); nothing was written" in last


# Through a coordinator -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with filled_server(tmp_path_factory.mktemp("exchange")) as server:
        yield server


@pytest.fixture
def groups(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    with program_at(server, capsys) as program:
        yield program


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "offsets.csv"
    path.write_text("group,topic,partition,offset,leader_epoch,metadata\n" + "\n".join(lines) + "\n")
    return path


def rows(text: str) -> list[list[str]]:
    return [row[:6] for row in csv.reader(text.splitlines())][1:]


def test_export_of_server_and_of_its_folder_are_equal(server: ServerProcess, groups: Any, run_export: Command) -> None:
    """Only the folder has commit times. The newest commits are only in the journal."""
    groups.commit("shop", orders_0=5, orders_1=6)
    groups.commit("bank", refunds_0=7)
    from_server, from_folder = run_export("-b", server.bootstrap), run_export("--data", server.data)
    assert (from_server.code, from_folder.code, from_server.err, from_folder.err) == (0, 0, "", "")
    assert rows(from_server.out) == rows(from_folder.out)
    assert [row[:4] for row in rows(from_folder.out)] == [
        ["bank", "refunds", "0", "7"],
        ["shop", "orders", "0", "5"],
        ["shop", "orders", "1", "6"],
    ]
    assert rows(run_export("-b", server.bootstrap, "--group", "bank").out) == rows(from_folder.out)[:1]


def test_export_during_commits_has_acknowledged_offsets(
    server: ServerProcess, groups: Any, run_export: Command
) -> None:
    """Each commit is read from the journal, from the partition file that it was flushed to, or from both."""
    for number in range(30):
        groups.commit("shop", orders_0=number, orders_1=2 * number)
        assert [row[3] for row in rows(run_export("--data", server.data).out)] == [str(number), str(2 * number)]


def test_export_after_kill_has_acknowledged_offsets(tmp_path: Path, run_export: Command) -> None:
    with filled_server(tmp_path) as server:
        with Cluster(Address(server.host, server.port), 10) as cluster:
            for number in (5, 6):
                assert cluster.commit("shop", {("orders", 0): number}) == {}
        server.kill()
        files_before = {path: path.read_bytes() for path in server.data.rglob("*") if path.is_file()}
        assert rows(run_export("--data", server.data).out) == [["shop", "orders", "0", "6", "", ""]]
        assert {path: path.read_bytes() for path in server.data.rglob("*") if path.is_file()} == files_before
        server.start()
        assert rows(run_export("-b", server.bootstrap).out) == [["shop", "orders", "0", "6", "", ""]]


def test_import_writes_and_reads_back_offsets(
    server: ServerProcess, groups: Any, run_import: Command, run_export: Command, tmp_path: Path
) -> None:
    groups.commit("shop", orders_0=5, orders_1=6)
    file = table(tmp_path, "shop,orders,0,50,3,from the file", "shop,orders,1,6,,orders's", "new,refunds,0,4,,")
    dry_run = run_import(file, "-b", server.bootstrap, "--dry-run")
    assert dry_run == CommandResult(0, "dry run: 3 offsets of 2 groups would be written: 1 new, 1 changed\n", "")
    assert len(rows(run_export("-b", server.bootstrap).out)) == 2
    result = run_import(file, "-b", server.bootstrap)
    assert result == CommandResult(0, "3 offsets of 2 groups written and read back: 1 new, 1 changed\n", "")
    assert rows(run_export("-b", server.bootstrap).out) == [
        ["new", "refunds", "0", "4", "", ""],
        ["shop", "orders", "0", "50", "3", "from the file"],
        ["shop", "orders", "1", "6", "", "orders's"],
    ]


def test_export_of_one_server_imports_into_another(
    server: ServerProcess, groups: Any, run_import: Command, run_export: Command, tmp_path: Path
) -> None:
    """More offsets than go into one request, as both formats."""
    number = OFFSETS_PER_REQUEST + 7
    new = {"name": "wide", "num_partitions": number, "replication_factor": 1, "assignments": [], "configs": []}
    groups.wire.ask("create_topics", 4, topics=[new], timeout=30_000, validate_only=False)
    file = table(tmp_path, *(f"many,wide,{partition},{partition},,note {partition}" for partition in range(number)))
    assert run_import(file, "-b", server.bootstrap).out.startswith(f"{number} offsets of 1 group written and read back")
    for form in ("csv", "json"):
        exported = tmp_path / f"exported.{form}"
        assert run_export("-b", server.bootstrap, "--format", form, "-o", exported).code == 0
        assert run_import(exported, "-b", server.bootstrap).out == (
            f"{number} offsets of 1 group written and read back: 0 new, 0 changed\n"
        )


def test_import_refuses_group_with_members_and_writes_others(
    server: ServerProcess, groups: Any, run_import: Command, tmp_path: Path
) -> None:
    groups.commit("simple", orders_0=1)
    groups.add_static_member("busy", assigned(orders=[0]))
    file = table(tmp_path, "busy,orders,0,50,,", "simple,orders,0,50,,")
    for options, verb in ((["--dry-run"], "would be written"), ([], "written and read back")):
        result = run_import(file, "-b", server.bootstrap, *options)
        assert result.code == 1
        assert f"1 offset of 1 group {verb}" in result.out
        assert "group 'busy': it is Stable: the group has members; stop its consumers first" in result.err
        assert "1 of 2 groups refused" in result.err
    result = run_import(file, "-b", server.bootstrap, "--json")
    assert [group_result["group"] for group_result in json.loads(result.out)["groups"] if group_result["refused"]] == [
        "busy"
    ]


def test_import_with_missing_topic_is_reported_in_dry_run(
    server: ServerProcess, groups: Any, run_import: Command, tmp_path: Path
) -> None:
    file = table(tmp_path, "some,orders,0,50,,", "some,orders,77,50,,", "some,nowhere,0,50,,")
    for options, verb in ((["--dry-run"], "would be written"), ([], "written and read back")):
        result = run_import(file, "-b", server.bootstrap, *options)
        assert result.code == 1 and f"1 offset of 1 group {verb}" in result.out
        assert "group 'some': 2 of 3 offsets, " in result.err and "there is no such topic or partition" in result.err


def test_import_with_groups_option_writes_only_these(
    server: ServerProcess, groups: Any, run_import: Command, run_export: Command, tmp_path: Path
) -> None:
    """A name may contain commas."""
    file = table(tmp_path, "a,orders,0,1,,", "b,orders,0,2,,", '"c,d",orders,0,3,,', "e,orders,0,4,,")
    assert run_import(file, "-b", server.bootstrap, "--group", "a", "--group", "b", "--group", "c,d").code == 0
    assert [row[0] for row in rows(run_export("-b", server.bootstrap).out)] == ["a", "b", "c,d"]
    result = run_import(file, "-b", server.bootstrap, "--group", "a", "--group", "bb")
    assert result.code == 2 and "--group 'bb': the file has no such group" in result.err


def test_import_reports_different_read_back(
    server: ServerProcess, groups: Any, run_import: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client commits in between: the value is reported, and the exit code is 3."""
    original = Cluster.commit_offsets

    def and_then(cluster: Cluster, group: str, offsets: Any) -> Any:
        refused = original(cluster, group, offsets)
        groups.commit("shop", orders_0=9)
        return refused

    monkeypatch.setattr(Cluster, "commit_offsets", and_then)
    result = run_import(table(tmp_path, "shop,orders,0,50,,", "shop,orders,1,51,,"), "-b", server.bootstrap)
    assert result.code == 3
    assert "orders:0 was written as 50" in result.err and "read back as 9" in result.err
    assert "orders:1" not in result.err


def test_import_reports_refused_offsets(
    server: ServerProcess, groups: Any, run_import: Command, tmp_path: Path
) -> None:
    """Too long metadata is refused; the other offsets of the group are written."""
    file = table(tmp_path, f"shop,orders,0,50,,{'x' * 5000}", "shop,orders,1,51,,")
    result = run_import(file, "-b", server.bootstrap)
    assert (result.code, result.out) == (1, "1 offset of 1 group written and read back: 1 new, 0 changed\n")
    assert "group 'shop': 1 of 2 offsets, orders:0 first: " in result.err
    with Cluster(Address(server.host, server.port), 10) as cluster:
        assert cluster.committed("shop") == {("orders", 1): OffsetAndMetadata(51, -1, "")}
        assert restore.group_states(cluster)["shop"] == "Empty"


def test_import_of_bad_file_sends_no_request(run_import: Command, tmp_path: Path) -> None:
    result = run_import(table(tmp_path, "a,orders,0,1,,", "a,orders,0,x,,"), "-b", "nowhere.invalid:1")
    assert result.code == 2
    assert "offsets.csv, line 3: found" not in result.out
    assert "line 3: offset is 'x'" in result.err and "nothing was written" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], 2, "expected a FILE with offsets, or --kafka-dir KDIR"),
        (["nowhere.csv"], 2, "nowhere.csv: cannot be read"),
        (["."], 2, ".: cannot be read"),
        (["{}", "--format", "xml"], 2, "bad --format 'xml'"),
        (["{}", "--data", "d"], 2, "a FILE goes to a server"),
        (["--kafka-dir", "k"], 2, "expected --data DIR with it"),
        (["{}", "-b", "127.0.0.1:1"], 1, "cannot reach 127.0.0.1:1"),
    ],
)
def test_import_with_invalid_arguments_is_refused(
    run_import: Command, tmp_path: Path, arguments: list[str], code: int, expected: str
) -> None:
    file = table(tmp_path, "a,orders,0,1,,")
    result = run_import(*(str(file) if argument == "{}" else argument for argument in arguments))
    assert result.code == code
    assert expected in result.err


def test_import_without_server_prints_one_line(
    tmp_path: Path, run_import: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable names the server."""
    monkeypatch.setenv("CALLBOARD_BOOTSTRAP_SERVER", "127.0.0.1:1")
    table = tmp_path / "offsets.csv"
    table.write_text("group,topic,partition,offset,leader_epoch,metadata,commit_time\ng,t,0,3,,,\n")
    for arguments in ((table,), (table, "--dry-run"), (table, "--json")):
        result = run_import(*arguments)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("callboard: cannot reach 127.0.0.1:1: ") and result.err.count("\n") == 1
