"""``callboard cluster status`` beside living, dead and stopped nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .command_helpers import Run, runner
from .node_thread import COUNTS, node_thread
from .postgres_server import PostgresServer


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_status_shows_living_nodes_with_their_partitions_and_content(tmp_path: Path, run: Run) -> None:
    with node_thread(tmp_path.as_uri()) as thread:
        thread.start("a")
        thread.start("b")
        thread.wait_until_balanced()
        thread.commit(0, b"k", 1)
        status = run("status", "--cluster", tmp_path.as_uri(), "--json").json
        sessions = {name: node.session.name for name, node in thread.nodes.items() if node.session}
    assert status["partitions"] == list(COUNTS)
    assert status["without_owner"] == status["not_loaded"] == []
    nodes = {node["name"]: node for node in status["nodes"]}
    assert {name: node["session"] for name, node in nodes.items()} == sessions
    assert [nodes[name]["node_id"] for name in ("a", "b")] == [1, 2]
    assert sum(node["offsets_partitions"] for node in nodes.values()) == COUNTS.offsets
    assert sum(node["transactions_partitions"] for node in nodes.values()) == COUNTS.transactions
    assert all(0 <= node["beat_age_ms"] <= status["session_timeout_ms"] for node in nodes.values())
    assert sum(status["tails"].values()) == sum(COUNTS), "each partition goes on in the WAL of its owner"


def test_status_of_a_stopped_cluster_says_that_no_node_gives_signs_of_life(tmp_path: Path, run: Run) -> None:
    with node_thread(tmp_path.as_uri()) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        thread.halt("a")
        shown = run("status", "--cluster", tmp_path.as_uri())
    assert shown.code == 0
    assert "without an owner  0" in shown.out
    [row] = [line.split() for line in shown.out.splitlines() if "a-" in line]
    assert row[:3] == ["a", "1", "active"]
    assert row[6] == "-", "the age of the last sign of life"


def test_status_counts_what_ended_sessions_have_left(tmp_path: Path, run: Run) -> None:
    with node_thread(tmp_path.as_uri()) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        thread.commit(0, b"k", 1)
        thread.halt("a")
        thread.start("b")
        thread.wait_until_balanced()
        status = run("status", "--cluster", tmp_path.as_uri(), "--json").json
    assert [node["name"] for node in status["nodes"]] == ["b"]
    assert status["tombstones"] == 1
    assert status["garbage"]["sessions"] == 1


def test_status_names_partitions_without_an_owner_after_all_nodes_have_left(tmp_path: Path, run: Run) -> None:
    with node_thread(tmp_path.as_uri()) as thread:
        node = thread.start("a")
        thread.wait_until_balanced()
        thread.call(node.leave())
        status = run("status", "--cluster", tmp_path.as_uri(), "--json").json
    assert status["nodes"] == []
    assert status["without_owner"][::7] == ["__consumer_offsets-0", "__transaction_state-1"]


def test_status_of_an_empty_store_says_how_a_cluster_begins(tmp_path: Path, run: Run) -> None:
    result = run("status", "--cluster", tmp_path.as_uri())
    assert (result.code, result.out) == (1, "")
    assert "has no cluster" in result.err
    assert "callboard serve --cluster URL" in result.err


def test_store_that_is_not_there_is_refused(tmp_path: Path, run: Run) -> None:
    result = run("status", "--cluster", (tmp_path / "nothing").as_uri())
    assert result.code == 1
    assert "there is no folder" in result.err


def test_url_is_read_from_the_environment(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "give the store" in run("status").err
    monkeypatch.setenv("CALLBOARD_CLUSTER", tmp_path.as_uri())
    assert "has no cluster" in run("status").err
    monkeypatch.setenv("CALLBOARD_CLUSTER", "mongodb://host")
    assert "no store has a URL like" in run("status").err


def test_store_that_does_not_answer_ends_the_command_with_its_reason(run: Run) -> None:
    result = run("status", "--cluster", "postgresql://somebody:secret@127.0.0.1:1/none", "--timeout", "0.5")
    assert result.code == 1
    assert "not done in 0.5 s: PostgreSQL at 127.0.0.1:1/none is not available" in result.err
    assert "secret" not in result.err


def test_status_reads_postgresql(postgres: PostgresServer, run: Run) -> None:
    postgres.sql("create database status")
    with node_thread(postgres.url(database="status")) as thread:
        thread.start("a")
        thread.wait_until_balanced()
        status = run("status", "--cluster", postgres.url(database="status"), "--json").json
    [node] = status["nodes"]
    assert (node["name"], node["offsets_partitions"]) == ("a", COUNTS.offsets)


def test_store_that_lacks_documents_or_has_damaged_ones_is_named(tmp_path: Path, run: Run) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    store.mkdir()
    with node_thread(store.as_uri()) as thread:
        thread.start("a")
        thread.wait_until_balanced()
    for manifest in (store / "man" / "00001").iterdir():
        manifest.unlink()
    exported = run("export", str(copy), "--cluster", store.as_uri())
    assert exported.code == 1
    assert "partition 1 has no manifest in the store; restore the store" in exported.err
    max((store / "cluster").iterdir()).write_text("")
    shown = run("status", "--cluster", store.as_uri())
    assert shown.code == 1
    assert "cluster/0000000" in shown.err
    assert "in the store cannot be read" in shown.err
