"""``callboard bench hostile``: requests are those of kio's schemas; heartbeats count from their intended time."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from callboard.bench import hostile
from callboard.bench.__main__ import main as bench_main
from callboard.bench.discarding_connection import DiscardingConnection
from callboard.bench.group_setup import Member
from callboard.bench.harness import BenchError, Server, peak_resident_bytes, resident_bytes
from callboard.bench.hostile import QUIET, AttackResult, HostileClient, Row
from callboard.bench.hostile_frames import CLIENT_ID, list_groups
from callboard.bench.hostile_requests import ALL_REQUESTS, REQUESTS, HostileRequest, at_limit, prepare_batches
from callboard.bench.load_connections import FrameSequence, LoadConnection
from callboard.bench.load_generator import heartbeat_connection
from callboard.bench.open_loop import OpenLoopConnection, OpenLoopProcess, OpenLoopResult, run_open_loop
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client, api
from callboard.runtime.kafka.codec.frames import SIZE, message_type
from callboard.runtime.kafka.codec.kio import kio
from callboard.runtime.kafka.connections.handling_job import LARGE_REQUEST_BYTES
from callboard.runtime.settings.table import Settings

FRAME = b"\0\0\0\x04beat"

SCHEMAS: dict[str, tuple[str, int, Callable[[Any], Any]]] = {
    "describe-configs": ("describe_configs", 1, lambda request: request.resources),
    "metadata": ("metadata", 4, lambda request: request.topics),
    "offset-fetch": ("offset_fetch", 6, lambda request: request.topics[0].partition_indexes),
    "find-coordinator": ("find_coordinator", 4, lambda request: request.coordinator_keys),
    "fetch": ("fetch", 4, lambda request: request.topics[0].partitions),
    "leave-group": ("leave_group", 5, lambda request: request.members),
    "offset-commit": ("offset_commit", 8, lambda request: request.topics[0].partitions),
    "list-offsets": ("list_offsets", 1, lambda request: request.topics[0].partitions * 300),
    "metadata-all": ("metadata", 4, lambda request: [request.topics is None] * 300),
    "produce": ("produce", 8, lambda request: request.topic_data[0].partition_data),
    "join-group": ("join_group", 5, lambda request: request.protocols),
    "sync-group": ("sync_group", 5, lambda request: request.assignments),
    "offset-delete": ("offset_delete", 0, lambda request: request.topics[0].partitions),
    "describe-groups": ("describe_groups", 5, lambda request: request.groups),
    "delete-groups": ("delete_groups", 2, lambda request: request.groups_names),
    "create-topics": ("create_topics", 5, lambda request: request.topics),
    "transactions": ("describe_transactions", 0, lambda request: request.transactional_ids),
    "delete-groups-of-80": ("delete_groups", 2, lambda request: request.groups_names),
    "find-coordinator-of-80": ("find_coordinator", 4, lambda request: request.coordinator_keys),
}
BY_NAME = {request.name: request for request in REQUESTS}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with callboard_server() as running_server:
        yield running_server


@pytest.mark.parametrize("name", SCHEMAS)
def test_request_is_one_of_the_schema(name: str) -> None:
    """300 items, so that a compact count has two bytes."""
    api_name, version, items = SCHEMAS[name]
    frame = BY_NAME[name].make(300, 1)
    request_type = message_type(api_name, version, "request")
    assert SIZE.unpack_from(frame) == (len(frame) - SIZE.size,)
    read = kio("serial").entity_reader
    header, header_bytes = read(request_type.__header_schema__)(frame, SIZE.size)
    request, body_bytes = read(request_type)(frame, SIZE.size + header_bytes)
    assert (header.request_api_key, header.request_api_version) == (request_type.__api_key__, version)
    assert header.client_id == CLIENT_ID.decode()
    assert len(items(request)) == 300
    assert SIZE.size + header_bytes + body_bytes == len(frame)


def test_every_request_has_a_schema_here() -> None:
    assert {*SCHEMAS, "heartbeats", "list-groups", "metrics", "offset-commit-of-80"} == set(BY_NAME)


def test_request_at_limit_has_as_many_items_as_the_setting_allows() -> None:
    """One less, because the topic counts too."""
    by_name = {request.name: request.items for request in ALL_REQUESTS}
    assert by_name["offset-fetch-at-limit"] == Settings().max_request_items - 1
    assert by_name["describe-configs-at-limit"] == Settings().max_request_config_items - 1


@pytest.mark.parametrize("name", [name for name, row in BY_NAME.items() if row.connections > 1])
def test_request_of_many_connections_is_sent_on_all_and_has_no_second_row(server: Server, name: str) -> None:
    request = BY_NAME[name]
    assert at_limit(request) is None
    if request.prepare is not None:
        request.prepare(server.address, request.items)
    client = HostileClient(server.address, request)
    with ExitStack() as stack:
        connections = [stack.enter_context(DiscardingConnection(server.address)) for _ in range(3)]
        client.ask(*connections)
        for connection in connections:
            connection.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.socket.recv(1)
    assert client.result.answered == 3


def test_small_commits_are_below_the_size_that_is_decoded_in_slices() -> None:
    one = BY_NAME["offset-commit-of-80"].make(1, 1)
    assert 0.9 * LARGE_REQUEST_BYTES < len(one) < LARGE_REQUEST_BYTES
    assert 0.9 * LARGE_REQUEST_BYTES < len(BY_NAME["find-coordinator-of-80"].make(3_900, 1)) < LARGE_REQUEST_BYTES


@pytest.mark.parametrize("name", ["list-offsets", "list-groups", "metrics", "metadata-all", "metadata"])
def test_request_that_is_within_the_limit_has_no_second_row(name: str) -> None:
    assert at_limit(BY_NAME[name]) is None


def test_request_at_limit_is_answered_and_one_above_it_is_refused(server: Server) -> None:
    limited = at_limit(BY_NAME["leave-group"])
    assert limited is not None
    above = HostileClient(server.address, limited._replace(items=limited.items + 2))
    within = HostileClient(server.address, limited)
    with DiscardingConnection(server.address) as connection:
        within.ask(connection)
        above.ask(connection)
    assert within.result.answer_bytes > limited.items
    assert above.result.answer_bytes < 100


def test_metadata_names_new_topics_in_each_turn() -> None:
    names = [BY_NAME["metadata"].make(2, turn)[-21:] for turn in (1, 2)]
    assert names[0] != names[1]


@pytest.mark.parametrize("request_row", [request for request in REQUESTS if request.fill_folder is None])
def test_each_request_is_answered(server: Server, request_row: HostileRequest) -> None:
    few = request_row._replace(items=3)
    if few.prepare is not None:
        few.prepare(server.address, few.items)
    client = HostileClient(server.address, few)
    with DiscardingConnection(server.address) as connection:
        client.ask(connection)
    assert client.result.answered == 1
    assert client.result.answer_bytes > 0


def test_prepare_batches_appends_a_batch_for_each_record(server: Server) -> None:
    prepare_batches(server.address, 1200)
    with Client(server.address) as client:
        partition = {"partition_index": 0, "timestamp": -1}
        topics = ({"name": "hostile", "partitions": (partition,)},)
        answer = client.ask(api("list_offsets", 6), replica_id=-1, isolation_level=0, topics=topics)
    assert answer.topics[0].partitions[0].offset >= 1200


class PatientHostileClient(HostileClient):
    """Sends until a request was answered."""

    def run(self, seconds: float) -> AttackResult:
        while not super().run(seconds).answered:
            seconds *= 2
        return self.result


def test_bench_hostile_prints_table_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile, "HEARTBEATS_PER_S", 200)
    monkeypatch.setattr(hostile, "HostileClient", PatientHostileClient)
    json_path = tmp_path / "figures.json"
    arguments = ["--quick", "--only", "offset-commit,metrics", "--output", str(json_path)]
    assert bench_main(["hostile", *arguments]) == 0
    rows = json.loads(json_path.read_text())["rows"]
    assert [row["name"] for row in rows] == [QUIET, "offset-commit", "metrics"]
    assert all(row["heartbeats"]["answered"] == row["heartbeats"]["sent"] > 0 for row in rows)
    assert [row["attack"]["answered"] > 0 for row in rows] == [False, True, True]
    assert [row["items"] for row in rows] == ["", "600 partitions", "1 page"]
    assert "Heartbeats beside a hostile client" in capsys.readouterr().out


def test_no_seconds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        hostile.main(["--seconds", "0"])
    assert "--seconds 0: expected more than 0" in capsys.readouterr().err


# The hostile client --------------------------------------------------------------------------------------------------


def test_client_counts_closed_connections_and_connects_again() -> None:
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_close_three_then_answer, args=(listener, is_over))
        thread.start()
        host, port = listener.getsockname()
        request = HostileRequest("x", "x", 1, "x", _one_frame)
        result = HostileClient(f"{host}:{port}", request, lambda: 31.0 if is_over.is_set() else 0.0).run(30.0)
        thread.join()
    assert (result.closed, result.answered) == (3, 1)
    assert result.answer_bytes == 4


def _one_frame(_count: int, _turn: int) -> bytes:
    return FRAME


def _close_three_then_answer(listener: socket.socket, is_over: threading.Event) -> None:
    for number in range(4):
        connection, _ = listener.accept()
        with connection:
            connection.recv(len(FRAME), socket.MSG_WAITALL)
            if number == 3:
                is_over.set()
                connection.sendall(FRAME)


def test_client_reads_an_answer_for_each_frame(server: Server) -> None:
    request = HostileRequest("list-groups", "", 7, "", list_groups, answer="frame per item")
    client = HostileClient(server.address, request)
    with DiscardingConnection(server.address) as connection:
        client.ask(connection)
        connection.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.socket.recv(1)
    assert client.result.answered == 1
    assert client.result.request_bytes == 7 * len(list_groups(1, 0))


def test_client_without_server_raises() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(BenchError, match="cannot connect to"):
        HostileClient(address, HostileRequest("x", "x", 1, "x", _one_frame)).run(30.0)


# Heartbeats in an open loop ------------------------------------------------------------------------------------------


@pytest.fixture
def peers() -> Iterator[tuple[OpenLoopConnection, socket.socket]]:
    """A connection of the open loop, and the other end of its socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(30)
        frames = FrameSequence(FRAME, ()), FrameSequence(FRAME, ())
        yield OpenLoopConnection(LoadConnection(ours, "test", *frames)), theirs


def test_latency_counts_from_the_intended_time(peers: tuple[OpenLoopConnection, socket.socket]) -> None:
    """The peer answers the first heartbeat when it has the twentieth, which is due 95 ms later."""
    connection, theirs = peers

    def answer_all() -> None:
        received = b""
        while len(received) < 20 * len(FRAME):
            received += theirs.recv(1000)
        theirs.sendall(received)

    thread = threading.Thread(target=answer_all)
    thread.start()
    result = run_open_loop([connection], rate=200, seconds=0.1)
    thread.join()
    assert (result.sent, result.answered) == (20, 20)
    assert result.latency_max_s >= 0.095
    assert result.latency_p50_s >= 0.045


def test_heartbeat_without_answer_counts_with_its_age(peers: tuple[OpenLoopConnection, socket.socket]) -> None:
    connection, _ = peers
    result = run_open_loop([connection], rate=100, seconds=0.1, drain_s=0.1)
    assert (result.sent, result.answered) == (10, 0)
    assert result.latency_max_s >= 0.2


def test_wrong_answer_raises(peers: tuple[OpenLoopConnection, socket.socket]) -> None:
    connection, theirs = peers
    theirs.sendall(b"\0\0\0\x04boom")
    with pytest.raises(BenchError, match="a wrong response after 0 correct ones"):
        run_open_loop([connection], rate=100, seconds=1)


def test_open_loop_process_reports_wrong_answer(server: Server) -> None:
    with OpenLoopProcess(server.address, 2, rate=100, seconds=30) as heartbeats:
        with Client(server.address) as client:
            deleted = client.ask(api("leave_group", 5), group_id="load-000", members=_members(client, "load-000"))
            assert deleted.error_code == 0
        heartbeats.begin()
        with pytest.raises(BenchError, match="a wrong response after 0 correct ones"):
            heartbeats.result()


def _members(client: Client, group_id: str) -> tuple[dict[str, str], ...]:
    describe = api("describe_groups", 5)
    [group] = client.ask(describe, groups=(group_id,), include_authorized_operations=False).groups
    return tuple({"member_id": member.member_id} for member in group.members)


def test_unknown_member_is_a_wrong_answer(server: Server) -> None:
    with Client(server.address) as client:
        member = Member("nobody", "unknown", 1, "t", 0)
        connection = OpenLoopConnection(heartbeat_connection(client, member))
        with pytest.raises(BenchError, match="a wrong response"):
            run_open_loop([connection], rate=100, seconds=1)


# The row -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heartbeats", "is_accepted"),
    [
        (OpenLoopResult(10, 10, 0.001, 0.02, 0.1), True),
        (OpenLoopResult(10, 10, 0.001, 0.021, 0.1), False),
        (OpenLoopResult(10, 10, 0.001, 0.02, 0.101), False),
        (OpenLoopResult(10, 9, 0.001, 0.02, 0.1), False),
    ],
)
def test_row_is_accepted_within_both_limits(heartbeats: OpenLoopResult, is_accepted: bool) -> None:
    row = Row("x", "x", "1 x", AttackResult(), heartbeats, None, None)
    assert row.is_accepted == is_accepted


FAST, SLOW = OpenLoopResult(10, 10, 0.001, 0.002, 0.01), OpenLoopResult(10, 10, 0.001, 0.03, 0.2)


@pytest.mark.parametrize(
    ("quiet", "hostile_row", "exit_status"), [(FAST, FAST, 0), (FAST, SLOW, 1), (SLOW, SLOW, 0), (SLOW, FAST, 0)]
)
def test_missed_row_fails_on_quiet_machine(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    quiet: OpenLoopResult,
    hostile_row: OpenLoopResult,
    exit_status: int,
) -> None:
    def measure(request: HostileRequest | None, seconds: float) -> Row:
        name = QUIET if request is None else request.name
        return Row(name, name, "", AttackResult(), quiet if request is None else hostile_row, None, None)

    monkeypatch.setattr(hostile, "measure", measure)
    assert hostile.main(["--only", "fetch"]) == exit_status
    assert ("missed" in capsys.readouterr().out) == (SLOW in (quiet, hostile_row))


def test_peak_resident_bytes_are_at_least_the_resident_bytes() -> None:
    resident, peak = resident_bytes(os.getpid()), peak_resident_bytes(os.getpid())
    assert resident is not None
    assert peak is not None
    assert peak >= resident // 2 > 0
    assert peak_resident_bytes(None) is None
