"""Time that a group of many members takes to join, sync and rebalance over TCP. ``callboard bench members``.

Every member has a connection of its own, since a pending request blocks its connection; one process runs all members.
In a rebalance the leader of a Stable group rejoins; when the heartbeat of one other member returns
REBALANCE_IN_PROGRESS, all others rejoin; then all sync. All requests are prepared before the first one is sent.
Meanwhile a second process (``members_bystander.py``) sends heartbeats for a member of another group, describes the
large group, and measures the response times. The time should be proportional to the number of members.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from callboard.bench import rebalance
from callboard.bench.group_setup import MEMBER_ID_REQUIRED, REBALANCING
from callboard.bench.harness import (
    BenchError,
    Server,
    add_output,
    machine,
    numbers,
    print_table,
    process_cpu_s,
    write_json,
)
from callboard.bench.members_bystander import Bystander, BystanderWaits, Span, longest_s
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client, api

PURPOSE = "Measure the time of many members to join, sync and rebalance, and the response times for another group."
GROUP = "large"
PROTOCOL = "range"
SIZES = (10, 100, 1000, 5000)
QUICK_SIZES = (10, 100)
ROUNDS = 5  # rebalances; the first after a start is slower than the others
QUICK_ROUNDS = 2
SESSION_TIMEOUT_MS = 1_800_000  # members send no heartbeats during the measurement
SPARE_FILES = 200  # open files besides connections: partitions' files, pipes
ANSWER_TIMEOUT_S = 120.0
CLASSIC, CONSUMER = "classic", "consumer"
UNKNOWN_SERVER_ERROR = -1  # the response for a record that is too large for the log
LOOK_PAUSE_S = 0.01
SUBSCRIPTION = b"\0\0\0\0\0\1\0\5large\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\1\0\5large\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


class MemberFigures(NamedTuple):
    """The figures for one number of members; times in seconds."""

    members: int
    join_s: float
    sync_s: float
    rebalance_s: float  # the median
    server_cpu_s: float | None  # of a rebalance, on average
    describe_max_s: float  # the bystander's longest response times
    described: int
    beat_max_join_s: float  # while the first generation joined, while it synced, and in the rebalances
    beat_max_sync_s: float
    beat_max_s: float


class MemberConnection:
    """A member, its connection, and its last known id and generation."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.member_id = ""
        self.generation = -1

    def send_join(self) -> None:
        self.client.post(self.join_request())

    def join_request(self) -> bytes:
        join = api("join_group", 9)
        protocol = join.types.JoinGroupRequestProtocol(name=PROTOCOL, metadata=SUBSCRIPTION)
        timeout = timedelta(milliseconds=SESSION_TIMEOUT_MS)
        return self.client.prepare(
            join,
            group_id=GROUP,
            session_timeout=timeout,
            rebalance_timeout=timeout,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(protocol,),
        )

    def receive_member_id(self) -> None:
        answer = self._answer("JoinGroup", MEMBER_ID_REQUIRED)
        self.member_id = answer.member_id

    def receive_join(self) -> Any:
        answer = self._answer("JoinGroup", 0)
        self.generation = answer.generation_id
        return answer

    def send_sync(self, assignments: tuple[Any, ...] = ()) -> None:
        self.client.post(self.sync_request(assignments))

    def sync_request(self, assignments: tuple[Any, ...] = ()) -> bytes:
        return self.client.prepare(
            api("sync_group", 5),
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )

    def receive_sync(self) -> int:
        """The error code, 0 or UNKNOWN_SERVER_ERROR."""
        answer = self._answer("SyncGroup", 0, UNKNOWN_SERVER_ERROR)
        if not answer.error_code and answer.assignment != ASSIGNMENT:
            raise BenchError(f"member {self.member_id!r} received a wrong assignment")
        return int(answer.error_code)

    def is_rebalancing(self) -> bool:
        heartbeat = api("heartbeat", 4)
        answer = self.client.ask(heartbeat, group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        if answer.error_code not in (0, REBALANCING):
            raise BenchError(f"a heartbeat was answered with error code {int(answer.error_code)}, expected 0 or 27")
        return bool(answer.error_code == REBALANCING)

    def _answer(self, request_name: str, *expected: int) -> Any:
        answer = self.client.receive()
        if answer.error_code not in expected:
            codes = " or ".join(map(str, expected))
            raise BenchError(f"{request_name} was answered with error code {int(answer.error_code)}, expected {codes}")
        return answer


class MemberGroup:
    """All members of the group. All requests are sent before the first response is received."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.members = [MemberConnection(client) for client in clients]
        self.leader = self.members[0]
        self.preparing_s = 0.0  # the time of encoding requests

    def request_member_ids(self) -> None:
        for member in self.members:
            member.send_join()
        for member in self.members:
            member.receive_member_id()

    def join(self) -> None:
        """The first member creates the group (without initial delay), and rejoins when all others are waiting."""
        self.leader.send_join()
        self.leader.receive_join()
        self._send(self._prepared([(member, member.join_request) for member in self.members[1:]]))
        _wait_until(self._all_are_members, f"all {len(self.members)} are members")
        self.leader.send_join()
        self._receive_joins()

    def sync(self) -> None:
        Assignment = api("sync_group", 5).types.SyncGroupRequestAssignment
        assignments = tuple(Assignment(member_id=member.member_id, assignment=ASSIGNMENT) for member in self.members)
        leader = (self.leader, partial(self.leader.sync_request, assignments))
        followers = [(member, member.sync_request) for member in self.members if member is not self.leader]
        self._send(self._prepared([leader, *followers]))
        self._receive_syncs()

    def _receive_syncs(self) -> None:
        for member in self.members:
            error = member.receive_sync()
            if error == UNKNOWN_SERVER_ERROR:
                raise BenchError(
                    f"the assignments of {len(self.members):,} members were refused (error code {error}): the log has "
                    "one record for a group, and theirs is larger than message_max_bytes. Kafka refuses it with the "
                    "same code; ask for fewer --members"
                )

    def rebalance(self) -> None:
        """The leader rejoins; after a follower's heartbeat returns REBALANCE_IN_PROGRESS, the others do; all sync."""
        self.leader.send_join()
        followers = [member for member in self.members if member is not self.leader]
        if followers:
            _wait_until(followers[0].is_rebalancing, "a heartbeat returns REBALANCE_IN_PROGRESS")
        self._send(self._prepared([(member, member.join_request) for member in followers]))
        self._receive_joins()
        self.sync()

    def _prepared(
        self, requests: Sequence[tuple[MemberConnection, Callable[[], bytes]]]
    ) -> list[tuple[MemberConnection, bytes]]:
        started = time.perf_counter()
        prepared = [(member, request()) for member, request in requests]
        self.preparing_s += time.perf_counter() - started
        return prepared

    def _send(self, requests: Sequence[tuple[MemberConnection, bytes]]) -> None:
        for member, request in requests:
            member.client.post(request)

    def _all_are_members(self) -> bool:
        return len(_described(self.leader.client).members) == len(self.members)

    def _receive_joins(self) -> None:
        generations = set()
        for member in self.members:
            answer = member.receive_join()
            generations.add(answer.generation_id)
            if answer.members:
                self.leader = member
                if len(answer.members) != len(self.members):
                    raise BenchError(f"the leader received {len(answer.members)} members, expected {len(self.members)}")
        if len(generations) != 1:
            raise BenchError(f"the members are in the generations {sorted(generations)}, expected one")


def _wait_until(condition: Callable[[], bool], description: str) -> None:
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"waited {ANSWER_TIMEOUT_S:.0f} s in vain until {description}")
        time.sleep(LOOK_PAUSE_S)


def _described(client: Client) -> Any:
    [group] = client.ask(api("describe_groups", 5), groups=(GROUP,), include_authorized_operations=False).groups
    return group


# Measuring -----------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 if a response was wrong or a server did not run."""
    options = _options(argv)
    if options.protocol == CONSUMER:
        return _compare_protocols(options)
    try:
        figures = [measure(size, options.rounds) for size in options.members]
    except (BenchError, OSError) as error:
        print(f"members: {error}", file=sys.stderr)
        return 1
    _show(figures)
    if options.output is not None:
        sizes = [size_figures._asdict() for size_figures in figures]
        write_json(options.output, {"rounds": options.rounds, "sizes": sizes, "machine": machine()})
    return 0


def _compare_protocols(options: argparse.Namespace) -> int:
    try:
        _allow_files(2 * max(options.members) + SPARE_FILES)
        rows = rebalance.run(options)
    except (BenchError, OSError) as error:
        print(f"members: {error}", file=sys.stderr)
        return 1
    rebalance.show(rows)
    if options.output is not None:
        rows_json = rebalance.as_json(rows)
        write_json(options.output, {"rounds": options.rounds, "rows": rows_json, "machine": machine()})
    return 0


def measure(size: int, rounds: int) -> MemberFigures:
    """One group of ``size`` members on a fresh server, and ``rounds`` rebalances of it.

    Raises BenchError when an answer is wrong.
    """
    _allow_files(size + SPARE_FILES)
    with ExitStack() as stack:
        server = stack.enter_context(callboard_server())
        group = MemberGroup([stack.enter_context(_connect(server)) for _ in range(size)])
        group.request_member_ids()
        with Bystander(server.address, GROUP) as watcher:
            joining, syncing = _timed(group, group.join), _timed(group, group.sync)
            cpu_s = process_cpu_s(server.pid)
            rebalances = [_timed(group, group.rebalance) for _ in range(rounds)]
            cpu_after_s = process_cpu_s(server.pid)
            bystander_waits = watcher.stop_and_collect()
    used_s = None if cpu_s is None or cpu_after_s is None else (cpu_after_s - cpu_s) / rounds
    return _figures(size, joining, syncing, rebalances, used_s, bystander_waits)


class Timed(NamedTuple):
    took_s: float  # without the preparation of requests
    span: Span


def _timed(group: MemberGroup, action: Callable[[], None]) -> Timed:
    prepared_s, started = group.preparing_s, time.perf_counter()
    action()
    ended_s = time.perf_counter()
    return Timed(ended_s - started - (group.preparing_s - prepared_s), Span(started, ended_s))


def _figures(
    size: int,
    joining: Timed,
    syncing: Timed,
    rebalances: Sequence[Timed],
    used_s: float | None,
    bystander_waits: BystanderWaits,
) -> MemberFigures:
    return MemberFigures(
        members=size,
        join_s=joining.took_s,
        sync_s=syncing.took_s,
        rebalance_s=median(rebalance.took_s for rebalance in rebalances),
        server_cpu_s=used_s,
        describe_max_s=max(wait.took_s for wait in bystander_waits.describes),
        described=len(bystander_waits.describes),
        beat_max_join_s=longest_s(bystander_waits.heartbeats, [joining.span]),
        beat_max_sync_s=longest_s(bystander_waits.heartbeats, [syncing.span]),
        beat_max_s=longest_s(bystander_waits.heartbeats, [rebalance.span for rebalance in rebalances]),
    )


@contextmanager
def _connect(server: Server) -> Iterator[Client]:
    with Client(server.address) as client:
        client.socket.settimeout(ANSWER_TIMEOUT_S)
        yield client


def _allow_files(count: int) -> None:
    """A connection takes a file descriptor here, and another in the server, which inherits this limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"{count} files are needed and this user may open {hard}: raise `ulimit -n`, or ask for fewer")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


# Output --------------------------------------------------------------------------------------------------------------


def _show(figures: Sequence[MemberFigures]) -> None:
    base = figures[-1].rebalance_s / figures[-1].members
    rows = [
        (
            f"{size_figures.members:,}",
            f"{size_figures.join_s:.3f}",
            f"{size_figures.sync_s:.3f}",
            f"{size_figures.rebalance_s:.3f}",
            f"{size_figures.rebalance_s / size_figures.members * 1e6:,.0f}",
            f"{size_figures.rebalance_s / size_figures.members / base:.2f}",
            ""
            if size_figures.server_cpu_s is None
            else f"{size_figures.server_cpu_s / size_figures.members * 1e6:,.0f}",
            *(
                f"{wait_s * 1e3:,.1f}"
                for wait_s in (
                    size_figures.describe_max_s,
                    size_figures.beat_max_join_s,
                    size_figures.beat_max_sync_s,
                    size_figures.beat_max_s,
                )
            ),
        )
        for size_figures in figures
    ]
    columns = (
        *("members", "join\ns", "sync\ns", "rebalance\ns", "us per\nmember", "x last\nrow"),
        *("server us\nper member", "describe\nmax ms", "heartbeat\nmax ms, join", "\nsync", "\nrebalance"),
    )
    notes = [
        "a rebalance: the leader rejoins, the others get REBALANCE_IN_PROGRESS and rejoin, all sync, durably; a median",
        "join: the first generation; all others wait until the first member rejoins",
        "describe, heartbeat: the longest response times for DescribeGroups of the group and for heartbeats of another",
        "group, one request in flight of each; heartbeats during the first join, the first sync, and the rebalances",
        "the time to encode the members' requests is not included",
    ]
    print_table("A group of many members", columns, rows, notes)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench members", description=PURPOSE)
    parser.add_argument("--members", type=numbers, metavar="N,N", help="sizes of the group (10,100,1000,5000)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rebalances of each group ({ROUNDS})")
    parser.add_argument(
        "--protocol",
        choices=(CLASSIC, CONSUMER),
        default=CLASSIC,
        help="consumer: compare the consumer protocol with the classic one while one member joins (default classic)",
    )
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="measure this server, with --protocol consumer (default: start one)",
    )
    parser.add_argument("--quick", action="store_true", help="10 and 100 members, as a smoke test")
    add_output(parser)
    options = parser.parse_args(argv)
    options.members = options.members or (QUICK_SIZES if options.quick else SIZES)
    options.rounds = (QUICK_ROUNDS if options.quick else ROUNDS) if options.rounds is None else options.rounds
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected 1 or more")
    if options.bootstrap_server is not None and options.protocol != CONSUMER:
        parser.error("--bootstrap-server: only with --protocol consumer; otherwise the benchmark starts its server")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
