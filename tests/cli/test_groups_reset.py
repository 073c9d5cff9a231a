"""Tests of ``callboard groups reset``: the new offsets, the dry run, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from groups_program import START_MS, CommandResult, GroupsCommand, assigned, committed, filled_server, program_at
from hypothesis import given
from hypothesis import strategies as st
from peers.server import ServerProcess

from callboard.runtime.cli.groups.reset import (
    OffsetBounds,
    ResetMode,
    ResetTarget,
    parse_datetime,
    parse_topic,
    plan_reset,
)
from callboard.runtime.client.cluster import OffsetAndMetadata


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with filled_server(tmp_path_factory.mktemp("groups")) as server:
        yield server


@pytest.fixture
def callboard(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Iterator[GroupsCommand]:
    with program_at(server, capsys) as program:
        yield program


def after(result: CommandResult) -> dict[tuple[str, int], int]:
    return {(change["topic"], change["partition"]): change["after"] for change in result.json["offsets"]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], {("orders", 0): 0, ("orders", 1): 0}),
        (["--to-latest"], {("orders", 0): 100, ("orders", 1): 100}),
        (["--to-offset", "7"], {("orders", 0): 7, ("orders", 1): 7}),
        (["--to-offset", "1000"], {("orders", 0): 100, ("orders", 1): 100}),
        (["--shift-by", "-3"], {("orders", 0): 2, ("orders", 1): 95}),
        (["--shift-by", "10"], {("orders", 0): 15, ("orders", 1): 100}),
        (["--to-datetime", "2026-01-01T00:00:30"], {("orders", 0): 30, ("orders", 1): 30}),
        (["--to-datetime", "2026-01-01T02:00:30+02:00"], {("orders", 0): 30, ("orders", 1): 30}),
        (["--to-datetime", "2030-01-01"], {("orders", 0): 100, ("orders", 1): 100}),
    ],
    ids=lambda parameter: " ".join(parameter) if isinstance(parameter, list) else "",
)
def test_reset_writes_only_with_execute(
    callboard: GroupsCommand, options: list[str], expected: dict[tuple[str, int], int]
) -> None:
    """Offsets are written only with --execute, and are those of the dry run."""
    callboard.commit("simple", orders_0=5, orders_1=98, refunds_0=3)
    offsets_before = committed(callboard)
    dry_run = callboard("reset", "simple", "--topic", "orders", *options, "--json")
    assert after(dry_run) == expected
    assert dry_run.json["executed"] is False
    assert committed(callboard) == offsets_before
    executed = callboard("reset", "simple", "--topic", "orders", *options, "--execute", "--json")
    assert (after(executed), executed.json["executed"]) == (expected, True)
    assert committed(callboard) == {
        **{f"{topic}_{partition}": to for (topic, partition), to in expected.items()},
        "refunds_0": 3,
    }


@pytest.mark.parametrize(
    ("first", "end", "offset", "note"),
    [(5, 9, 3, "3 is before the first"), (5, 9, 10, "10 is after the end"), (0, 0, 3, "3 is after the end")],
)
def test_note_says_where_offset_is(first: int, end: int, offset: int, note: str) -> None:
    partition = ("orders", 0)
    bounds = OffsetBounds({partition: first}, {partition: end}, {})
    [change] = plan_reset([partition], {}, bounds, ResetTarget(ResetMode.OFFSET, offset))
    assert change.note == note


def test_reset_prints_changes_and_notes(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5)
    dry_run = callboard("reset", "simple", "--topic", "orders:0", "--to-offset", "1000")
    header, row, last = dry_run.out.splitlines()
    assert header.split() == ["topic", "partition", "before", "after", "change", "note"]
    assert row.split(maxsplit=5) == ["orders", "0", "5", "100", "95", "1000 is after the end"]
    assert last == "dry run: 1 offset of group 'simple' would be written; --execute writes them"
    executed = callboard("reset", "simple", "--topic", "orders:0", "--to-latest", "--execute")
    assert executed.out.splitlines()[-1] == "1 offset of group 'simple' written"


def test_reset_of_partitions_and_all_topics(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5, refunds_0=3)
    selected = callboard("reset", "simple", "--topic", "refunds", "--topic", "orders:1,0,1", "--to-latest", "--json")
    assert list(after(selected)) == [("orders", 0), ("orders", 1), ("refunds", 0)]
    all_topics = callboard("reset", "simple", "--all-topics", "--to-latest", "--json")
    assert after(all_topics) == {("orders", 0): 100, ("refunds", 0): 10}


def test_reset_from_file_reads_output_of_offsets_csv(callboard: GroupsCommand, tmp_path: Path) -> None:
    callboard.commit("simple", orders_0=5, refunds_0=3)
    file = tmp_path / "offsets.csv"
    file.write_text(callboard("offsets", "simple", "--csv").out)
    callboard("reset", "simple", "--all-topics", "--to-latest", "--execute")
    assert committed(callboard) == {"orders_0": 100, "refunds_0": 10}
    assert callboard("reset", "simple", "--from-file", str(file), "--execute").code == 0
    assert committed(callboard) == {"orders_0": 5, "refunds_0": 3}


def test_reset_of_group_with_members_is_refused(callboard: GroupsCommand) -> None:
    callboard.commit("shop", orders_0=5)
    callboard.add_static_member("shop", assigned(orders=[0]))
    for execute in ([], ["--execute"]):
        result = callboard("reset", "shop", "--topic", "orders", "--to-earliest", *execute)
        assert result == CommandResult(
            1,
            "",
            "callboard: group 'shop' is Stable with 1 member: stop its consumers first, "
            "because they would overwrite the new offsets (a killed consumer is a member until its session ends), "
            "or let a Callboard server remove them (--evict)\n",
        )
    assert committed(callboard, "shop") == {"orders_0": 5}


def test_reset_of_missing_group_needs_create(callboard: GroupsCommand) -> None:
    refused = callboard("reset", "nobdy", "--topic", "orders", "--to-latest", "--execute")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "there is no such group (GROUP_ID_NOT_FOUND); --create creates it" in refused.err
    assert callboard("list", "--json").json == []
    callboard("reset", "new", "--topic", "orders", "--to-latest", "--execute", "--create")
    assert committed(callboard, "new") == {"orders_0": 100, "orders_1": 100}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--topic", "orders"], "expected exactly one of --to-earliest"),
        (["--topic", "orders", "--to-earliest", "--to-offset", "3"], "not --to-earliest and --to-offset"),
        (["--to-earliest"], "expected what to reset: --topic"),
        (["--topic", "orders", "--all-topics", "--to-latest"], "expected what to reset: --topic"),
        (["--topic", "orders:", "--to-latest"], "bad topic 'orders:': expected TOPIC or TOPIC:PARTITION"),
        (["--topic", "orders:x", "--to-latest"], "bad topic 'orders:x'"),
        (["--topic", f"orders:{2**31}", "--to-latest"], "with partitions of 0 to 2147483647"),
        (["--topic", "orders:" + "9" * 5000, "--to-latest"], "bad topic 'orders:999"),
        (["--topic", "orders", "--to-datetime", "yesterday"], "bad --to-datetime 'yesterday': expected ISO 8601"),
        (["--from-file", "/nowhere/at.all"], "/nowhere/at.all: cannot be read: No such file"),
    ],
    ids=lambda parameter: " ".join(parameter)[:60] if isinstance(parameter, list) else "",
)
def test_reset_with_invalid_arguments_exits_with_2(callboard: GroupsCommand, options: list[str], says: str) -> None:
    """The exit code is 2, and no request is sent: no server is running."""
    result = callboard.at("127.0.0.1:1", "reset", "simple", *options)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert says in result.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no lines of topic,partition,offset"),
        ("orders,0,1\norders,0\n", "line 2 of "),
        ("orders,zero,1\n", "expected topic,partition,offset, as in orders,0,42"),
        ("orders,0,1_0\n", "expected topic,partition,offset, as in orders,0,42"),
        ("orders,\u0661,1\n", "expected topic,partition,offset, as in orders,0,42"),
        ("g,orders,0,1\n", "is 'g,orders,0,1'"),
        ("group,topic,partition,offset\na,orders,0,1\nb,orders,0,1\n", "has offsets of 2 groups"),
        ("group,topic,partition,offset\na,orders\n", "line 2 of "),
    ],
)
def test_reset_from_invalid_file_exits_with_2(
    callboard: GroupsCommand, tmp_path: Path, content: str, says: str
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(content)
    result = callboard("reset", "simple", "--from-file", str(file))
    assert result.code == 2
    assert says in result.err


def test_reset_of_missing_partition_is_refused(callboard: GroupsCommand) -> None:
    callboard.commit("simple", orders_0=5)
    unknown = callboard("reset", "simple", "--topic", "nowhere", "--to-latest")
    assert unknown == CommandResult(
        1, "", "callboard: topic 'nowhere': there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)\n"
    )
    assert "partition orders:7 does not exist" in callboard("reset", "simple", "--topic", "orders:7", "--to-latest").err
    unread = callboard("reset", "simple", "--topic", "orders:1", "--shift-by", "1")
    assert "the group has no offset for orders:1 to shift" in unread.err


@given(
    before=st.none() | st.integers(0, 200),
    low=st.integers(0, 50),
    size=st.integers(0, 100),
    target=st.builds(
        ResetTarget,
        st.sampled_from([ResetMode.EARLIEST, ResetMode.LATEST, ResetMode.OFFSET]),
        st.integers(-(2**63), 2**63 - 1),
    ),
)
def test_plan_reset_stays_within_partition(before: int | None, low: int, size: int, target: ResetTarget) -> None:
    committed = {} if before is None else {("t", 0): OffsetAndMetadata(before, -1, "")}
    [step] = plan_reset([("t", 0)], committed, OffsetBounds({("t", 0): low}, {("t", 0): low + size}), target)
    assert low <= step.after <= low + size
    assert step.before == before


def test_parse_datetime_without_zone_is_utc() -> None:
    assert parse_datetime("2026-01-01") == parse_datetime("2026-01-01T01:00:00+01:00") == START_MS
    assert parse_datetime("2026-01-01T00:00:00.250Z") == START_MS + 250


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "half\udcff"),
        ("reset", "simple", "--topic", "half\udcff", "--to-latest"),
        ("reset", "half\udcff", "--topic", "orders", "--to-latest"),
    ],
)
def test_name_that_is_not_utf_8_is_refused_in_one_line(callboard: GroupsCommand, arguments: tuple[str, ...]) -> None:
    callboard.commit("simple", orders_0=5)
    result = callboard(*arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert "bad text 'half\\udcff': found bytes that are not UTF-8" in result.err


def test_parse_topic_reads_topic_and_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:3,0,3") == ("orders", (3, 0))
