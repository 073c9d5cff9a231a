"""``callboard bench members`` writes its figures, and detects wrong responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from callboard.bench import members, rebalance
from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import BenchError, Server
from callboard.bench.hostile import free_port
from callboard.bench.members import GROUP, MemberGroup
from callboard.bench.members_bystander import Bystander, Span, Wait, longest_s
from callboard.bench.rebalance_members import ConsumerProtocolMember, Group, Owners
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with callboard_server(tmp_path_factory.mktemp("server")) as running_server:
        yield running_server


@pytest.fixture
def member_group(
    server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MemberGroup]:
    """Three members of one generation, with their assignments. Each test has a group of its own."""
    monkeypatch.setattr(members, "GROUP", request.node.name)
    with ExitStack() as stack:
        group = MemberGroup([stack.enter_context(Client(server.address)) for _ in range(3)])
        group.request_member_ids()
        group.join()
        group.sync()
        yield group


def test_bench_members_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_path = tmp_path / "figures.json"
    assert bench_main(["members", "--members", "1,12", "--rounds", "2", "--output", str(json_path)]) == 0
    result = json.loads(json_path.read_text())
    assert result["rounds"] == 2
    assert [size_figures["members"] for size_figures in result["sizes"]] == [1, 12]
    for size_figures in result["sizes"]:
        assert (
            min(
                size_figures["join_s"],
                size_figures["sync_s"],
                size_figures["rebalance_s"],
                size_figures["describe_max_s"],
            )
            > 0
        )
        assert "beat_max_s" in size_figures  # 0 if no heartbeat was under way: a rebalance takes a few ms
        assert size_figures["described"] > 0
    assert "A group of many members" in capsys.readouterr().out


def test_rebalance_moves_all_members_to_next_generation(member_group: MemberGroup) -> None:
    generation = member_group.leader.generation
    member_group.rebalance()
    member_group.rebalance()
    assert [member.generation for member in member_group.members] == [generation + 2] * 3


def test_generation_without_all_members_raises(member_group: MemberGroup) -> None:
    """The benchmark expects a fourth member."""
    member_group.leader.send_join()
    for member in member_group.members:
        if member is not member_group.leader:
            member.send_join()
    member_group.members.append(member_group.members[0])
    with pytest.raises(BenchError, match="the leader received 3 members, expected 4"):
        member_group._receive_joins()


def test_wrong_assignment_raises(member_group: MemberGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    member_group.leader.send_sync()
    monkeypatch.setattr(members, "ASSIGNMENT", b"another")
    with pytest.raises(BenchError, match="received a wrong assignment"):
        member_group.leader.receive_sync()


def test_heartbeat_of_unknown_member_raises(member_group: MemberGroup) -> None:
    member_group.leader.member_id = "nobody"
    with pytest.raises(BenchError, match="a heartbeat was answered with error code 25, expected 0 or 27"):
        member_group.leader.is_rebalancing()


def test_wait_until_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "ANSWER_TIMEOUT_S", 0.0)
    with pytest.raises(BenchError, match="waited 0 s in vain until it rains"):
        members._wait_until(lambda: False, "it rains")


def test_bystander_without_server_raises() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(BenchError, match=f"cannot connect to {address}"):
        Bystander(address, GROUP)


@pytest.mark.parametrize(
    ("option", "expected"),
    [("members", "--members: '0': expected numbers, each at least 1"), ("rounds", "--rounds 0: expected 1 or more")],
)
def test_invalid_number_is_refused(option: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        members.main([f"--{option}", "0"])
    assert expected in capsys.readouterr().err


def test_sync_with_record_too_large_raises(member_group: MemberGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for 10,000 members; here three have assignments of half a mebibyte."""
    monkeypatch.setattr(members, "ASSIGNMENT", bytes(512 * 1024))
    with pytest.raises(BenchError, match=r"the assignments of 3 members were refused .* message_max_bytes"):
        member_group.rebalance()


def test_longest_s_counts_only_overlapping_waits() -> None:
    waits = [Wait(0.0, 1.0), Wait(2.0, 0.5), Wait(5.0, 9.0)]
    assert longest_s(waits, [Span(0.5, 2.1)]) == 1.0
    assert longest_s(waits, [Span(2.1, 2.2), Span(6.0, 7.0)]) == 9.0
    assert longest_s(waits, [Span(1.5, 1.6)]) == 0.0


# One member joins, in each protocol ----------------------------------------------------------------------------------


def test_bench_members_compares_the_protocols(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four partitions, only those that move stop with a sticky protocol; with the eager one all do."""
    monkeypatch.setattr(rebalance, "INTERVAL_S", 0.05)
    monkeypatch.setattr(rebalance, "CALM_S", 0.2)
    json_path = tmp_path / "figures.json"
    arguments = ["members", "--protocol", "consumer", "--members", "3", "--rounds", "1", "--output", str(json_path)]
    assert bench_main(arguments) == 0
    rows = json.loads(json_path.read_text())["rows"]
    assert {row["protocol"]: row["stopped"] for row in rows} == {
        "classic, eager": 4,
        "classic, cooperative": 1,
        "consumer": 1,
    }
    assert all(row["final_s"] > 0 and row["unowned_partition_s"] > 0 for row in rows)
    assert "One member joins" in capsys.readouterr().out


def test_partition_seconds_are_counted_from_stop_to_start() -> None:
    owners = Owners(3, 0.0)
    group = Group("g", "t", owners, lambda: 0.0)
    first, second = (ConsumerProtocolMember(None, group) for _ in range(2))  # type: ignore[arg-type]
    owners.change(first, frozenset({0, 1, 2}), 5.0)
    assert owners.are_complete
    owners.begin(5.0)
    owners.change(first, frozenset({0}), 7.0)
    assert not owners.are_complete
    owners.change(second, frozenset({2}), 8.5)
    assert (owners.given_up, owners.unowned_s(10.0)) == (2, 1.5 + 3.0)
    with pytest.raises(BenchError, match="partition 0 has two owners"):
        owners.change(second, frozenset({0, 2}), 11.0)


def test_only_the_comparison_measures_another_server(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        members.main(["--bootstrap-server", "127.0.0.1:9092"])
    assert "--bootstrap-server: only with --protocol consumer" in capsys.readouterr().err
