"""``callboard bench members`` writes its figures, and detects wrong responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from callboard.bench import members
from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import BenchError
from callboard.bench.members import GROUP, MemberGroup
from callboard.bench.members_bystander import Bystander, Span, Wait, longest_s
from callboard.bench.server import callboard_server
from callboard.bench.wire import Client


@pytest.fixture
def crowd() -> Iterator[MemberGroup]:
    """Three members of one generation, with their assignments."""
    with ExitStack() as stack:
        server = stack.enter_context(callboard_server())
        three = MemberGroup([stack.enter_context(Client(server.address)) for _ in range(3)])
        three.request_member_ids()
        three.join()
        three.sync()
        yield three


def test_bench_members_prints_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "told.json"
    assert bench_main(["members", "--members", "1", "12", "--rounds", "2", "--json", str(told)]) == 0
    found = json.loads(told.read_text())
    assert found["rounds"] == 2
    assert [one["members"] for one in found["sizes"]] == [1, 12]
    for one in found["sizes"]:
        assert min(one["join_s"], one["sync_s"], one["rebalance_s"], one["describe_max_s"]) > 0
        assert one["beat_max_s"] > 0
        assert one["described"] > 0
    assert "A group of many members" in capsys.readouterr().out


def test_rebalance_moves_all_members_to_next_generation(crowd: MemberGroup) -> None:
    before = crowd.leader.generation
    crowd.rebalance()
    crowd.rebalance()
    assert [member.generation for member in crowd.members] == [before + 2] * 3


def test_generation_without_all_members_raises(crowd: MemberGroup) -> None:
    """The benchmark expects a fourth member."""
    crowd.leader.send_join()
    for member in crowd.members:
        if member is not crowd.leader:
            member.send_join()
    crowd.members.append(crowd.members[0])
    with pytest.raises(BenchError, match="the leader received 3 members, expected 4"):
        crowd._receive_joins()


def test_wrong_assignment_raises(crowd: MemberGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd.leader.send_sync()
    monkeypatch.setattr(members, "ASSIGNMENT", b"another")
    with pytest.raises(BenchError, match="received a wrong assignment"):
        crowd.leader.receive_sync()


def test_heartbeat_of_unknown_member_raises(crowd: MemberGroup) -> None:
    crowd.leader.member_id = "nobody"
    with pytest.raises(BenchError, match="a heartbeat was answered with error code 25, expected 0 or 27"):
        crowd.leader.is_rebalancing()


def test_wait_until_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "ANSWER_TIMEOUT_S", 0.0)
    with pytest.raises(BenchError, match="waited 0 s in vain until it rains"):
        members._wait_until(lambda: False, "it rains")


def test_bystander_without_server_raises(tmp_path: Path) -> None:
    with callboard_server(tmp_path) as server:
        address = server.address
    with pytest.raises(BenchError, match=f"cannot connect to {address}"):
        Bystander(address, GROUP)


@pytest.mark.parametrize("option", ["members", "rounds"])
def test_invalid_number_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        members.main([f"--{option}", "0"])
    assert f"--{option} 0: expected 1 or more" in capsys.readouterr().err


def test_sync_with_record_too_large_raises(crowd: MemberGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for 10,000 members; here three have assignments of half a mebibyte."""
    monkeypatch.setattr(members, "ASSIGNMENT", bytes(512 * 1024))
    with pytest.raises(BenchError, match=r"the assignments of 3 members were refused .* message_max_bytes"):
        crowd.rebalance()


def test_longest_s_counts_only_overlapping_waits() -> None:
    waits = [Wait(0.0, 1.0), Wait(2.0, 0.5), Wait(5.0, 9.0)]
    assert longest_s(waits, [Span(0.5, 2.1)]) == 1.0
    assert longest_s(waits, [Span(2.1, 2.2), Span(6.0, 7.0)]) == 9.0
    assert longest_s(waits, [Span(1.5, 1.6)]) == 0.0
