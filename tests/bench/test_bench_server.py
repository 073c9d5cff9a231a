"""``callboard bench server`` verifies every response, and measures correct ones."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bench import server as bench
from callboard.bench.__main__ import main as bench_main
from callboard.bench.bare_server import Answers, BareConnection
from callboard.bench.group_setup import Member, commit, commit_fields, committed, create_topic, join_members, leave
from callboard.bench.harness import BenchError, ChildProcess, Server, parse_address, process_cpu_s, summarise
from callboard.bench.load_connections import FRAMES, FrameSequence, LoadResult
from callboard.bench.load_generator import COMMITS, Load, LoadProcess, commit_requests, group_names
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client, api

SHORT_S = 0.1
HEAD = b"\0\0\0\x0a"
FRAME = HEAD + bytes(10)  # size 10: a number of 2 bytes at 4 and one of 8 bytes at 6
FIELDS = [(4, 2), (6, 8)]


@pytest.fixture(scope="module")
def bare() -> Iterator[Server]:
    with Server(["-m", "callboard.bench.bare_server"], "the bare server") as server:
        yield server


@pytest.fixture(scope="module")
def callboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with callboard_server(tmp_path_factory.mktemp("server")) as server:
        yield server


def frames(count: int) -> bytes:
    """The frames of a sequence of FRAME, generated one by one."""
    return b"".join(HEAD + number.to_bytes(2, "big") + number.to_bytes(8, "big") for number in range(count))


def assert_measured(outcome: LoadResult, in_flight: int) -> None:
    assert outcome.answers > in_flight
    assert outcome.elapsed_s > 0
    assert 0 < outcome.latency_p50_s <= outcome.latency_p99_s <= outcome.latency_p999_s
    assert outcome.load_cpu_s > 0
    assert 0 < outcome.ready_each_poll <= 4


# The bare server and the load -----------------------------------------------------------------------------------------


def test_load_with_correct_responses_is_measured(bare: Server) -> None:
    """Twice, because numbers continue from run to run."""
    with LoadProcess(bare.address, 4, group_names(4), joins=False, server_pids=[bare.pid]) as load:
        for requests, in_flight in 2 * list(product(bench.REQUESTS, (1, 16))):
            outcome = load.run(requests, in_flight, SHORT_S)
            assert_measured(outcome, in_flight)
            assert outcome.server_cpu_s is None or outcome.server_cpu_s >= 0


@pytest.mark.parametrize(("requests", "in_flight"), [(bench.REQUESTS[0], 1), *((name, 16) for name in bench.REQUESTS)])
def test_load_with_wrong_correlation_id_raises(requests: str, in_flight: int) -> None:
    """Response number 500 is wrong only in its correlation id."""
    with (
        Server(["-m", "callboard.bench.bare_server", "--wrong-at", "500"], "the bare server") as server,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(Client(server.address)) for _ in range(4)]
        load = Load(clients, group_names(4), joins=False, server_pids=())
        with pytest.raises(BenchError, match="a wrong response after"):  # long before 60 s
            load.execute({"do": "run", "requests": requests, "in_flight": in_flight, "seconds": 60.0})


def test_wrong_response_ends_the_process_of_the_load() -> None:
    with (
        Server(["-m", "callboard.bench.bare_server", "--wrong-at", "500"], "the bare server") as server,
        LoadProcess(server.address, 1, group_names(1), joins=False, server_pids=()) as load,
        pytest.raises(BenchError, match="a wrong response after"),
    ):
        load.run(COMMITS, 16, 60.0)


def test_load_with_closed_connection_raises(bare: Server) -> None:
    """The bare server supports none of the requests that join members."""
    with pytest.raises(BenchError, match="closed the connection instead of answering find_coordinator v4"):
        LoadProcess(bare.address, 1, group_names(1), joins=True, server_pids=())


def test_load_without_server_raises() -> None:
    with pytest.raises(BenchError, match=r"cannot connect to 127\.0\.0\.1:1"):
        LoadProcess("127.0.0.1:1", 1, group_names(1), joins=True, server_pids=())


# Frame sequences ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, FRAMES), max_size=12))
def test_frame_sequence_take_returns_numbered_frames(counts: list[int]) -> None:
    reel = FrameSequence(FRAME, FIELDS)
    assert b"".join(reel.take(count) for count in counts) == frames(sum(counts))


@given(st.lists(st.integers(1, 2 * FRAMES * len(FRAME)), min_size=1, max_size=8))
def test_frame_sequence_accepts_stream_split_anywhere(pieces: list[int]) -> None:
    """TCP has no message boundaries: responses may be split or combined."""
    stream = frames(3 * FRAMES)
    reel, start, sizes = FrameSequence(FRAME, FIELDS), 0, cycle(pieces)
    while start < len(stream):
        end = start + next(sizes)
        assert reel.accept(stream[start:end])
        start = end
    assert reel.take(1) == frames(3 * FRAMES + 1)[-len(FRAME) :]


@given(st.integers(0, 2 * FRAMES * len(FRAME) - 1), st.integers(1, 255))
def test_frame_sequence_rejects_single_wrong_byte(index: int, wrong_byte: int) -> None:
    stream = bytearray(frames(2 * FRAMES))
    stream[index] ^= wrong_byte
    assert not FrameSequence(FRAME, FIELDS).accept(bytes(stream))


@pytest.mark.parametrize("partition", [3, 0x5A, 0x5A5A])
def test_commit_requests_equal_kio_encoding_with_increasing_offset(partition: int) -> None:
    """The 300th request equals kio's encoding for offset 299. Some partitions end like the mark of the offset."""
    member = Member("load-000", "a-member", 7, "load", partition)
    reel = commit_requests(member)
    requests = reel.take(150) + reel.take(150)
    last = api("offset_commit", 9).request(299, **commit_fields(member, 299))
    assert requests.endswith(last)
    assert len(requests) == 300 * len(last)


# The bare server's frames ---------------------------------------------------------------------------------------------


class Written(asyncio.Transport):
    """Keeps the written data."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True


@given(st.integers(1, 400))
def test_bare_server_responds_to_requests_split_anywhere(piece: int) -> None:
    heartbeat = api("heartbeat", 4)
    stream = b"".join(heartbeat.request(number, group_id="g", generation_id=1, member_id="m") for number in range(10))
    transport, connection = Written(), BareConnection(Answers())
    connection.connection_made(transport)
    for start in range(0, len(stream), piece):
        connection.data_received(stream[start : start + piece])
    assert [transport.data[position + 4 : position + 8] for position in range(0, len(transport.data), 16)] == [
        number.to_bytes(4, "big") for number in range(10)
    ]


def test_bare_server_closes_on_unknown_request() -> None:
    transport, connection = Written(), BareConnection(Answers())
    connection.connection_made(transport)
    connection.data_received(api("leave_group", 5).request(1, group_id="g", members=()))
    assert transport.closed
    assert transport.data == b""


# Callboard ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [2, 1])
def test_load_on_callboard_has_correct_heartbeats_and_commits(callboard: Server, groups: int) -> None:
    """Two connections, with one group each or one for both; the last offsets are read back.

    Consumer heartbeats that changed something would have other responses.
    """
    with LoadProcess(callboard.address, 2, group_names(groups), joins=True, server_pids=[callboard.pid]) as load:
        for requests in bench.REQUESTS:
            for in_flight in (1, 16):
                assert_measured(load.run(requests, in_flight, SHORT_S), in_flight)
        assert load.verify() == 2
        load.leave()


def test_members_of_one_group_are_in_one_generation(callboard: Server) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(callboard.address)) for _ in range(5)]
        topic = create_topic(clients[0], 5)
        members = join_members(clients, ["crowd"] * 5, topic)
        assert len({member.generation for member in members}) == 1
        assert len({member.member_id for member in members}) == 5
        for client, member in zip(clients, members, strict=True):
            commit(client, member, 100 + member.partition)
            assert committed(client, member) == 100 + member.partition
            leave(client, member)


def test_verify_after_other_commit_raises(callboard: Server) -> None:
    """Another client commits, so that the load generator's verification must fail."""
    with Client(callboard.address) as client:
        load = Load([client], group_names(1), joins=True, server_pids=())
        order = {"do": "run", "requests": COMMITS, "in_flight": 1, "seconds": SHORT_S}
        assert load.execute(order)["answers"] > 1
        assert load.execute({"do": "verify"}) == {"compared": 1}
        commit(client, load.members[0], 0)
        with pytest.raises(BenchError, match="the server has 0"):
            load.execute({"do": "verify"})
        load.execute({"do": "leave"})


def test_bench_server_prints_table_and_writes_json(
    callboard: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running server is measured with ``--bootstrap-server`` and compared with the bare server."""
    file = tmp_path / "bench.json"
    arguments = [
        "server",
        "--bootstrap-server",
        callboard.address,
        "--seconds",
        "0.1",
        "--rounds",
        "2",
        "--connections",
        "2",
    ]
    assert bench_main([*arguments, "--output", str(file)]) == 0
    output = capsys.readouterr().out
    assert "2 last committed offsets were read back" in output
    result = json.loads(file.read_text())
    assert [(row["server"], row["requests"], row["in_flight"]) for row in result["rows"]] == [
        (server, requests, in_flight)
        for in_flight in (1, 16)
        for requests in bench.REQUESTS
        for server in ("bare", "target")
    ]
    assert all((row["of_bare"] is None) == (row["server"] == "bare") for row in result["rows"])


# The harness and the list ---------------------------------------------------------------------------------------------


def test_cpu_time_of_a_process_is_that_of_its_clock() -> None:
    before_s = time.process_time()
    cpu_s = process_cpu_s(os.getpid())
    assert cpu_s is not None
    assert before_s <= cpu_s <= time.process_time()


def test_process_that_has_ended_has_no_cpu_time() -> None:
    with ChildProcess(["-c", "pass"], "the child") as child:
        pass
    assert process_cpu_s(child.pid) is None
    assert process_cpu_s(None) is None


def test_server_that_exits_is_reported_with_its_error() -> None:
    with pytest.raises(BenchError, match=r"the child ended with exit code 3(.|\n)*no luck"):
        Server(["-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"], "the child")


def test_read_line_of_silent_child_times_out() -> None:
    with (
        ChildProcess(["-c", "input()"], "the child") as child,
        pytest.raises(BenchError, match="sent no output in time"),
    ):
        child.read_line(0.01)


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", ":9092", "localhost:kafka"])
def test_parse_address_with_invalid_text_raises(text: str) -> None:
    with pytest.raises(BenchError, match=f"'{text}' is not an address; expected HOST:PORT"):
        parse_address(text)


def test_a_summary_is_the_median_and_the_relative_spread() -> None:
    assert summarise([90.0, 100.0, 130.0]) == (100.0, 0.4)


def test_bench_lists_names_and_suggests_nearest() -> None:
    command = [sys.executable, "-m", "callboard.bench"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "server" in listed.stdout
    completed = subprocess.run([*command, "serve"], capture_output=True, text=True, check=False)
    assert completed.returncode == 2
    suggestion = "callboard: there is no benchmark 'serve': did you mean 'server'? expected one of server, "
    assert completed.stderr.startswith(suggestion)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--groups", "3", "--connections", "2"], "--groups 3: expected at most"), (["--seconds", "0"], "--seconds 0.0")],
)
def test_invalid_options_are_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_main(["server", *arguments])
    assert complaint in capsys.readouterr().err
