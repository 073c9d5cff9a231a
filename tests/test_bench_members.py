"""``callboard bench members`` writes what it says, and notices members that were given something wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from callboard.bench import members
from callboard.bench.__main__ import main as bench_main
from callboard.bench.harness import BenchError
from callboard.bench.members import GROUP, Crowd
from callboard.bench.members_watch import Span, Wait, Watcher, longest_s
from callboard.bench.server import callboard_server
from callboard.bench.wire import Client


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """Three members of one generation, with their assignments."""
    with ExitStack() as stack:
        server = stack.enter_context(callboard_server())
        three = Crowd([stack.enter_context(Client(server.address)) for _ in range(3)])
        three.get_ids()
        three.join()
        three.sync()
        yield three


def test_it_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_rebalance_is_one_generation_of_all(crowd: Crowd) -> None:
    before = crowd.leader.generation
    crowd.rebalance()
    crowd.rebalance()
    assert [seat.generation for seat in crowd.seats] == [before + 2] * 3


def test_members_that_miss_in_a_generation_are_noticed(crowd: Crowd) -> None:
    """The bench believes in a fourth member."""
    crowd.leader.ask_to_join()
    for seat in crowd.seats:
        if seat is not crowd.leader:
            seat.ask_to_join()
    crowd.seats.append(crowd.seats[0])
    with pytest.raises(BenchError, match="the leader was told 3 members, expected 4"):
        crowd._hear_joined()


def test_a_wrong_assignment_is_noticed(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd.leader.ask_to_sync()
    monkeypatch.setattr(members, "ASSIGNMENT", b"another")
    with pytest.raises(BenchError, match="was given something else than its assignment"):
        crowd.leader.hear_synced()


def test_a_member_that_is_none_is_noticed(crowd: Crowd) -> None:
    crowd.leader.member_id = "nobody"
    with pytest.raises(BenchError, match="a heartbeat was answered with error code 25, expected 0 or 27"):
        crowd.leader.hears_of_rebalance()


def test_waiting_for_what_never_comes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "ANSWER_TIMEOUT_S", 0.0)
    with pytest.raises(BenchError, match="waited 0 s in vain until it rains"):
        members._wait_until(lambda: False, "it rains")


def test_the_watcher_tells_when_the_server_is_gone(tmp_path: Path) -> None:
    with callboard_server(tmp_path) as server:
        address = server.address
    with pytest.raises(BenchError, match=f"cannot connect to {address}"):
        Watcher(address, GROUP)


@pytest.mark.parametrize("option", ["members", "rounds"])
def test_an_impossible_number_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        members.main([f"--{option}", "0"])
    assert f"--{option} 0: expected 1 or more" in capsys.readouterr().err


def test_a_record_that_the_log_refuses_is_named(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of 10,000 members is; here a few have assignments of half a mebibyte."""
    monkeypatch.setattr(members, "ASSIGNMENT", bytes(512 * 1024))
    with pytest.raises(BenchError, match=r"the assignments of 3 members were refused .* message_max_bytes"):
        crowd.rebalance()


def test_only_waits_that_touch_a_span_count() -> None:
    waits = [Wait(0.0, 1.0), Wait(2.0, 0.5), Wait(5.0, 9.0)]
    assert longest_s(waits, [Span(0.5, 2.1)]) == 1.0
    assert longest_s(waits, [Span(2.1, 2.2), Span(6.0, 7.0)]) == 9.0
    assert longest_s(waits, [Span(1.5, 1.6)]) == 0.0
