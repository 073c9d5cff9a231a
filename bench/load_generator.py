"""The load generator, a process of its own: it joins the groups, then sends heartbeats or commits on command.

Commands are JSON lines on standard input, results are JSON lines on standard output; the first line says that it is
ready. Every response of the server is compared with the expected bytes. The first wrong one ends the process.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from ssl import SSLContext
from typing import Any

from callboard.bench.bare_server import commit_answer, consumer_heartbeat_answer
from callboard.bench.consumer_members import ConsumerMember, join_consumers
from callboard.bench.group_setup import (
    Member,
    commit,
    commit_fields,
    committed,
    create_topic,
    find_coordinator,
    join_members,
    leave,
)
from callboard.bench.harness import BenchError, ChildProcess, process_cpu_s
from callboard.bench.load_connections import FrameSequence, LoadConnection, LoadResult, run_load
from callboard.bench.tls_files import client_context
from callboard.bench.wire import (
    ANSWER_TIMEOUT_S,
    CORRELATION_AT_ANSWER,
    CORRELATION_AT_REQUEST,
    Client,
    api,
    no_error,
)

OFFSET_MARK = 0x5A5A5A5A5A5A5A5A  # marks the position of the offset in an encoded request
ORDER_TIMEOUT_S = 120.0  # beyond the seconds of a run
HEARTBEATS, CONSUMER_HEARTBEATS, COMMITS = "heartbeats", "consumer heartbeats", "commits"


def group_names(count: int) -> list[str]:
    return [f"load-{index:03d}" for index in range(count)]


class LoadProcess(ChildProcess):
    """Starts the load generator's process and sends it commands. ``groups``: the members' groups, in turn.

    ``joins`` False: the members do not join groups and have fictitious ids, since the bare server has no groups.
    """

    def __init__(
        self,
        address: str,
        connections: int,
        groups: Sequence[str],
        joins: bool,
        server_pids: Sequence[int],
        truststore: Path | None = None,
    ) -> None:
        """``truststore``: for connections with TLS."""
        arguments = [address, "--connections", str(connections), "--groups", ",".join(groups)]
        arguments += [] if joins else ["--no-join"]
        arguments += [] if truststore is None else ["--tls", str(truststore)]
        arguments += [part for pid in server_pids for part in ("--server-pid", str(pid))]
        super().__init__(["-m", "callboard.bench.load_generator", *arguments], "the load generator")
        try:
            self._answer(ORDER_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def run(self, requests: str, in_flight: int, seconds: float) -> LoadResult:
        """Keep ``in_flight`` requests of one kind in flight on each connection."""
        return LoadResult(**self._order("run", seconds, requests=requests, in_flight=in_flight, seconds=seconds))

    def verify(self) -> int:
        """Fetch every last committed offset and compare it; returns the number of comparisons."""
        return int(self._order("verify")["compared"])

    def leave(self) -> None:
        self._order("leave")

    def _order(self, command: str, runs_s: float = 0.0, **order: Any) -> dict[str, Any]:
        self.write_line(json.dumps({"do": command, **order}))
        return self._answer(runs_s + ORDER_TIMEOUT_S)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.read_line(timeout_s))
        if "error" in answer:
            raise BenchError(answer["error"])
        return answer


class Load:
    """Connections, their members, and a lane for each kind of request on each connection."""

    def __init__(
        self, clients: Sequence[Client], groups: Sequence[str], joins: bool, server_pids: Sequence[int]
    ) -> None:
        group_ids = in_turn(groups, len(clients))
        self._server_pids = server_pids
        self._consumer_groups = [f"{group_id}-consumer" for group_id in group_ids]
        self._joins = joins
        self.clients = clients
        self.members = self._join(group_ids) if joins else _fictitious_members(group_ids)
        pairs = list(zip(self.clients, self.members, strict=True))
        self._connections = {
            HEARTBEATS: [heartbeat_connection(client, member) for client, member in pairs],
            COMMITS: [commit_connection(client, member) for client, member in pairs],
        }

    def execute(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute one command. Raises BenchError at the first wrong response."""
        commands: dict[str, Callable[[], dict[str, Any]]] = {
            "run": lambda: self._run(order["requests"], order["in_flight"], order["seconds"]),
            "verify": self._verify,
            "leave": self._leave,
        }
        return commands[order["do"]]()

    def _join(self, group_ids: Sequence[str]) -> list[Member]:
        topic = create_topic(self.clients[0], len(group_ids))
        members = join_members(self.clients, group_ids, topic)
        for client, member in zip(self.clients, members, strict=True):
            commit(client, member, 0)
        return members

    def _run(self, requests: str, in_flight: int, seconds: float) -> dict[str, Any]:
        if requests == CONSUMER_HEARTBEATS:
            return self._run_consumers(in_flight, seconds)
        return run_load(self._connections[requests], in_flight, seconds, self._server_cpu_s)._asdict()

    def _run_consumers(self, in_flight: int, seconds: float) -> dict[str, Any]:
        """They join before each run and leave after it: their sessions are shorter than those of the other members."""
        members = self._join_consumers()
        connections = [consumer_heartbeat_connection(member) for member in members]
        result = run_load(connections, in_flight, seconds, self._server_cpu_s)._asdict()
        for client, member in zip(self.clients, members, strict=True):
            client.socket.settimeout(ANSWER_TIMEOUT_S)
            if self._joins:
                member.leave()
        return result

    def _join_consumers(self) -> list[ConsumerMember]:
        if self._joins:
            return join_consumers(self.clients, self._consumer_groups, self.members[0].topic)
        return [
            _fictitious_consumer(client, group_id, index)
            for index, (client, group_id) in enumerate(zip(self.clients, self._consumer_groups, strict=True))
        ]

    def _server_cpu_s(self) -> float | None:
        times_s = [process_cpu_s(pid) for pid in self._server_pids]
        return None if not times_s or None in times_s else sum(filter(None, times_s))

    def _verify(self) -> dict[str, Any]:
        for client, member, connection in zip(self.clients, self.members, self._connections[COMMITS], strict=True):
            expected, offset = max(0, connection.answered - 1), committed(client, member)
            if offset != expected:
                raise BenchError(
                    f"{member.group_id!r} committed {expected} to {member.topic}-{member.partition}, "
                    f"the server has {offset}"
                )
        return {"compared": len(self.members)}

    def _leave(self) -> dict[str, Any]:
        for client, member in zip(self.clients, self.members, strict=True):
            leave(client, member)
        return {"left": len(self.members)}


def in_turn(groups: Sequence[str], members: int) -> list[str]:
    """The group of each member."""
    return [groups[index % len(groups)] for index in range(members)]


def coordinators(address: str, groups: Sequence[str], tls: SSLContext | None = None) -> dict[str, str]:
    """The addresses of the groups' coordinators."""
    with Client(address, tls) as client:
        return {group: find_coordinator(client, group) for group in groups}


def heartbeat_connection(client: Client, member: Member) -> LoadConnection:
    """Heartbeat v4; its responses differ only in the correlation id."""
    heartbeat = api("heartbeat", 4)
    request = heartbeat.request(
        0, group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
    )
    answer = heartbeat.answer(0, throttle_time=timedelta(0), error_code=no_error())
    return LoadConnection(
        client.socket,
        f"heartbeats of {member.group_id!r}",
        FrameSequence(request, [(CORRELATION_AT_REQUEST, 4)]),
        FrameSequence(answer, [(CORRELATION_AT_ANSWER, 4)]),
    )


def consumer_heartbeat_connection(member: ConsumerMember) -> LoadConnection:
    """ConsumerGroupHeartbeat v1 that changes nothing. Its responses differ only in the correlation id."""
    request = api("consumer_group_heartbeat", 1).request(
        0, group_id=member.group_id, member_id=member.member_id, member_epoch=member.epoch, topic_partitions=None
    )
    answer = consumer_heartbeat_answer(member.member_id, member.epoch, member.interval_ms)
    return LoadConnection(
        member.client.socket,
        f"consumer heartbeats of {member.group_id!r}",
        FrameSequence(request, [(CORRELATION_AT_REQUEST, 4)]),
        FrameSequence(answer, [(CORRELATION_AT_ANSWER, 4)]),
    )


def commit_connection(client: Client, member: Member) -> LoadConnection:
    """OffsetCommit v9 of one offset, which increases by one with each request."""
    answer = commit_answer(member.topic, member.partition)
    return LoadConnection(
        client.socket,
        f"commits of {member.group_id!r}",
        commit_requests(member),
        FrameSequence(answer, [(CORRELATION_AT_ANSWER, 4)]),
    )


def commit_requests(member: Member) -> FrameSequence:
    """Request number n commits offset n."""
    request = api("offset_commit", 9).request(0, **commit_fields(member, OFFSET_MARK))
    offset_at = request.rindex(OFFSET_MARK.to_bytes(8, "big"))  # partition 90 ends with a byte of the mark, too
    return FrameSequence(request, [(CORRELATION_AT_REQUEST, 4), (offset_at, 8)])


def _fictitious_members(group_ids: Sequence[str]) -> list[Member]:
    """Members for a server without groups, with ids of realistic length."""
    return [Member(group_id, f"load-{index:036d}", 1, "load", index) for index, group_id in enumerate(group_ids)]


def _fictitious_consumer(client: Client, group_id: str, index: int) -> ConsumerMember:
    member = ConsumerMember(client, group_id, "load", f"load-{index:017d}")
    member.epoch = 1
    return member


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.bench.load_generator")
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--connections", type=int, metavar="N", default=50)
    parser.add_argument("--groups", metavar="NAMES", default="load", help="the groups, with commas between")
    parser.add_argument("--no-join", action="store_true", help="do not join groups; use fictitious members")
    parser.add_argument(
        "--server-pid", type=int, metavar="N", action="append", default=[], help="process whose CPU time is read"
    )
    parser.add_argument("--tls", type=Path, metavar="TRUSTSTORE", help="connect with TLS (default: without)")
    options = parser.parse_args(argv)
    try:
        _serve_orders(options)
    except (BenchError, OSError) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _serve_orders(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        groups, joins = options.groups.split(","), not options.no_join
        tls = client_context(options.tls)
        by_group = coordinators(options.address, groups, tls) if joins else dict.fromkeys(groups, options.address)
        members_groups = in_turn(groups, options.connections)
        clients = [stack.enter_context(Client(by_group[group], tls)) for group in members_groups]
        load = Load(clients, groups, joins, options.server_pid)
        gc.disable()  # there are no reference cycles, and a pause would be attributed to the server
        _say({"ready": options.connections})
        for line in sys.stdin:
            _say(load.execute(json.loads(line)))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
