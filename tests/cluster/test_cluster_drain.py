"""``callboard cluster drain`` and ``seal`` beside living, dead and restarted nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.runtime.cluster.session import Session

from .command_helpers import Run, runner
from .node_thread import COUNTS, NodeThread, node_thread
from .simulated_node import SimulatedNode

PARTITIONS = sum(COUNTS)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("CALLBOARD_CLUSTER", tmp_path.as_uri())
    return runner(capsys)


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[NodeThread]:
    """Two nodes that share the partitions."""
    with node_thread(tmp_path.as_uri()) as thread:
        thread.start("a")
        thread.start("b")
        thread.wait_until_balanced()
        yield thread


def session_of(node: SimulatedNode) -> Session:
    assert node.session is not None
    return node.session


def test_drained_node_gives_everything_away_and_takes_nothing(thread: NodeThread, run: Run) -> None:
    thread.commit(0, b"k", 1)
    result = run("drain", "a")
    assert result.code == 0, result.err
    assert "a owns nothing: others serve its 4 partitions" in result.out
    thread.wait(lambda: len(thread.nodes["b"].values) == PARTITIONS)
    assert thread.nodes["a"].values == {}
    thread.start("c")
    thread.wait(lambda: len(thread.nodes["c"].values) == PARTITIONS // 2)
    assert thread.nodes["a"].values == {}
    assert run("status", "--json").json["nodes"][0]["state"] == "draining"
    thread.commit(0, b"k", 2)


def test_drain_can_be_undone(thread: NodeThread, run: Run) -> None:
    run("drain", "a")
    assert run("drain", "a", "--undo").out == "a takes partitions again\n"
    thread.wait_until_balanced()
    assert run("drain", "a", "--undo").out == "a was not drained\n"


def test_drain_of_a_drained_node_does_nothing(thread: NodeThread, run: Run) -> None:
    run("drain", "a")
    session = session_of(thread.nodes["a"]).name
    assert f"{session} owns nothing: others serve its 0 partitions" in run("drain", session).out


def test_drain_lasts_over_a_fenced_session_and_ends_with_a_restart(thread: NodeThread, run: Run) -> None:
    run("drain", "a")
    fenced = session_of(thread.nodes["a"])
    thread.call(fence(fenced))
    thread.wait(lambda: session_of(thread.nodes["a"]) is not fenced)
    thread.wait(lambda: session_of(thread.nodes["a"]).register.current is not None)
    thread.start("c")
    thread.wait(lambda: len(thread.nodes["c"].values) == PARTITIONS // 2)
    assert thread.nodes["a"].values == {}
    thread.halt("a")
    thread.start("a")
    thread.wait_until_balanced()


async def fence(session: Session) -> None:
    session.fence("for a test")


def test_last_node_that_takes_partitions_cannot_be_drained(thread: NodeThread, run: Run) -> None:
    run("drain", "a")
    result = run("drain", "b")
    assert (result.code, result.out) == (1, "")
    assert "no other node takes partitions than b" in result.err
    assert len(thread.nodes["b"].values) == PARTITIONS


def test_unknown_node_is_refused_with_the_names_of_all(thread: NodeThread, run: Run) -> None:
    for command in ("drain", "seal"):
        result = run(command, "q")
        assert result.code == 1
        assert "the cluster has no node 'q'; its nodes: a, b" in result.err


def test_drain_of_a_node_that_does_not_answer_ends_with_the_time(thread: NodeThread, run: Run) -> None:
    thread.halt("a")
    thread.halt("b")
    result = run("drain", "a", "--timeout", "0.3")
    assert result.code == 1
    assert "a still owns 4 partitions after 0.3 s" in result.err


# Seal ----------------------------------------------------------------------------------------------------------------


def test_seal_shows_what_would_happen_and_changes_nothing(thread: NodeThread, run: Run) -> None:
    before = {name: session_of(node) for name, node in thread.nodes.items()}
    shown = run("seal", "a")
    assert "a is alive: callboard cluster drain a moves its partitions without an interruption" in shown.out
    assert "4 partitions would move to b" in shown.out
    assert "joins again as another session" in shown.out
    assert "nothing was changed; --execute does it" in shown.out
    assert run("status", "--json").json["tombstones"] == 0
    assert {name: session_of(node) for name, node in thread.nodes.items()} == before


def test_seal_ends_the_session_of_a_living_node(thread: NodeThread, run: Run) -> None:
    thread.commit(0, b"k", 1)
    ended = session_of(thread.nodes["a"])
    done = run("seal", "a", "--execute")
    assert done.code == 0
    assert f"the WAL of session {ended.name} was sealed" in done.out
    thread.wait(lambda: session_of(thread.nodes["a"]) is not ended)
    thread.wait_until_balanced()
    status = run("status", "--json").json
    assert status["tombstones"] == 1
    assert ended.name not in {node["session"] for node in status["nodes"]}
    thread.commit(0, b"k", 2)


def test_seal_of_a_silent_node_moves_its_partitions(tmp_path: Path, run: Run) -> None:
    with node_thread(tmp_path.as_uri()) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        thread.commit(0, b"k", 1)
        thread.halt("a")
        done = run("seal", "a", "--execute")
        assert "a shows no sign of life for 1.5 s" in done.out
        assert f"{PARTITIONS} partitions moved to the next node that joins" in done.out
        node = thread.start("b")
        thread.wait(lambda: len(node.values) == PARTITIONS)
        assert node.values[0] == {b"k": 1}
