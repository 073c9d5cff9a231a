"""How long a group of many members takes to join, to sync and to rebalance, through TCP. ``callboard bench members``.

Every member has a connection of its own, as a client's has, since a parked request blocks its connection. One process
plays all of them. The leader of a Stable group rejoins, all others hear of it and rejoin, then all sync: that is a
rebalance, and it is done several times. What all send lies ready before the first of them sends it, so it comes as
fast as the system takes it. Meanwhile a second process beats for a member of another group and describes the crowd,
and notes how long that takes (``members_watch.py``). Twice as many members should take twice as long, not four times.
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
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from callboard.bench.enrolment import MEMBER_ID_REQUIRED, REBALANCING
from callboard.bench.harness import BenchError, Server, machine, print_table, process_cpu_s, write_json
from callboard.bench.members_watch import Seen, Span, Watcher, longest_s
from callboard.bench.server import callboard_server
from callboard.bench.wire import Client, api

PURPOSE = "Seconds that a group of many members takes to join, sync and rebalance, and how others are served meanwhile."
GROUP = "crowd"
PROTOCOL = "range"
SIZES = (10, 100, 1000, 5000)
QUICK_SIZES = (10, 100)
ROUNDS = 5  # rebalances; the first after a start is slower than the others
QUICK_ROUNDS = 2
SESSION_TIMEOUT_MS = 1_800_000  # nobody beats while we measure
SPARE_FILES = 200  # what server and bench have open besides connections: files of partitions, pipes
ANSWER_TIMEOUT_S = 120.0
UNKNOWN_SERVER_ERROR = -1  # what a record is answered that is too large for the log
LOOK_PAUSE_S = 0.01
SUBSCRIPTION = b"\0\0\0\0\0\1\0\5crowd\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\1\0\5crowd\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


class Found(NamedTuple):
    """What was measured for one number of members; times in seconds."""

    members: int
    join_s: float
    sync_s: float
    rebalance_s: float  # the median
    server_cpu_s: float | None  # of a rebalance, on average
    describe_max_s: float  # the longest waits of the bystander
    described: int
    beat_max_join_s: float  # while the first generation joined, while it synced, and in the rebalances
    beat_max_sync_s: float
    beat_max_s: float


class Seat:
    """A member, its connection and what it was last told."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.member_id = ""
        self.generation = -1

    def ask_to_join(self) -> None:
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

    def hear_id(self) -> None:
        answer = self._answer("JoinGroup", MEMBER_ID_REQUIRED)
        self.member_id = answer.member_id

    def hear_joined(self) -> Any:
        answer = self._answer("JoinGroup", 0)
        self.generation = answer.generation_id
        return answer

    def ask_to_sync(self, assignments: tuple[Any, ...] = ()) -> None:
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

    def hear_synced(self) -> int:
        """The error code, 0 or UNKNOWN_SERVER_ERROR."""
        answer = self._answer("SyncGroup", 0, UNKNOWN_SERVER_ERROR)
        if not answer.error_code and answer.assignment != ASSIGNMENT:
            raise BenchError(f"member {self.member_id!r} was given something else than its assignment")
        return int(answer.error_code)

    def hears_of_rebalance(self) -> bool:
        beat = api("heartbeat", 4)
        answer = self.client.ask(beat, group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        if answer.error_code not in (0, REBALANCING):
            raise BenchError(f"a heartbeat was answered with error code {int(answer.error_code)}, expected 0 or 27")
        return bool(answer.error_code == REBALANCING)

    def _answer(self, what: str, *expected: int) -> Any:
        answer = self.client.receive()
        if answer.error_code not in expected:
            codes = " or ".join(map(str, expected))
            raise BenchError(f"{what} was answered with error code {int(answer.error_code)}, expected {codes}")
        return answer


class Crowd:
    """All members of the group. Everything is sent before the first answer is waited for."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.seats = [Seat(client) for client in clients]
        self.leader = self.seats[0]
        self.preparing_s = 0.0  # what all requests took to be made

    def get_ids(self) -> None:
        for seat in self.seats:
            seat.ask_to_join()
        for seat in self.seats:
            seat.hear_id()

    def join(self) -> None:
        """The first makes the group alone (there is no initial delay here) and rejoins when all others are parked."""
        self.leader.ask_to_join()
        self.leader.hear_joined()
        self._send(self._prepared([(seat, seat.join_request) for seat in self.seats[1:]]))
        _wait_until(self._all_are_members, f"all {len(self.seats)} are members")
        self.leader.ask_to_join()
        self._hear_joined()

    def sync(self) -> None:
        one = api("sync_group", 5).types.SyncGroupRequestAssignment
        all_of_them = tuple(one(member_id=seat.member_id, assignment=ASSIGNMENT) for seat in self.seats)
        leader = (self.leader, partial(self.leader.sync_request, all_of_them))
        followers = [(seat, seat.sync_request) for seat in self.seats if seat is not self.leader]
        self._send(self._prepared([leader, *followers]))
        self._hear_synced()

    def _hear_synced(self) -> None:
        for seat in self.seats:
            error = seat.hear_synced()
            if error == UNKNOWN_SERVER_ERROR:
                raise BenchError(
                    f"the assignments of {len(self.seats):,} members were refused (error code {error}): the log has "
                    "one record for a group, and theirs is larger than message_max_bytes. Kafka refuses it with the "
                    "same code; ask for fewer --members"
                )

    def rebalance(self) -> None:
        """As when the leader's metadata has changed; the others hear of it with their next heartbeat."""
        self.leader.ask_to_join()
        followers = [seat for seat in self.seats if seat is not self.leader]
        if followers:
            _wait_until(followers[0].hears_of_rebalance, "a heartbeat tells of the rebalance")
        self._send(self._prepared([(seat, seat.join_request) for seat in followers]))
        self._hear_joined()
        self.sync()

    def _prepared(self, requests: Sequence[tuple[Seat, Callable[[], bytes]]]) -> list[tuple[Seat, bytes]]:
        started = time.perf_counter()
        prepared = [(seat, request()) for seat, request in requests]
        self.preparing_s += time.perf_counter() - started
        return prepared

    def _send(self, requests: Sequence[tuple[Seat, bytes]]) -> None:
        for seat, request in requests:
            seat.client.post(request)

    def _all_are_members(self) -> bool:
        return len(_described(self.leader.client).members) == len(self.seats)

    def _hear_joined(self) -> None:
        generations = set()
        for seat in self.seats:
            answer = seat.hear_joined()
            generations.add(answer.generation_id)
            if answer.members:
                self.leader = seat
                if len(answer.members) != len(self.seats):
                    raise BenchError(f"the leader was told {len(answer.members)} members, expected {len(self.seats)}")
        if len(generations) != 1:
            raise BenchError(f"the members are in the generations {sorted(generations)}, expected one")


def _wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise BenchError(f"waited {ANSWER_TIMEOUT_S:.0f} s in vain until {what}")
        time.sleep(LOOK_PAUSE_S)


def _described(client: Client) -> Any:
    [group] = client.ask(api("describe_groups", 5), groups=(GROUP,), include_authorized_operations=False).groups
    return group


# Measuring -----------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 when an answer was wrong or a server did not run."""
    options = _options(argv)
    try:
        found = [measure(size, options.rounds) for size in options.members]
    except (BenchError, OSError) as error:
        print(f"members: {error}", file=sys.stderr)
        return 1
    _show(found)
    if options.json is not None:
        sizes = [one._asdict() for one in found]
        write_json(options.json, {"rounds": options.rounds, "sizes": sizes, "machine": machine()})
    return 0


def measure(size: int, rounds: int) -> Found:
    """One group of ``size`` members on a fresh server, and ``rounds`` rebalances of it.

    Raises BenchError when an answer is wrong.
    """
    _allow_files(size + SPARE_FILES)
    with ExitStack() as stack:
        server = stack.enter_context(callboard_server())
        crowd = Crowd([stack.enter_context(_connect(server)) for _ in range(size)])
        crowd.get_ids()
        with Watcher(server.address, GROUP) as watcher:
            joining, syncing = _timed(crowd, crowd.join), _timed(crowd, crowd.sync)
            cpu_s = process_cpu_s(server.pid)
            rebalances = [_timed(crowd, crowd.rebalance) for _ in range(rounds)]
            cpu_after_s = process_cpu_s(server.pid)
            seen = watcher.stop_watching()
    used_s = None if cpu_s is None or cpu_after_s is None else (cpu_after_s - cpu_s) / rounds
    return _found(size, joining, syncing, rebalances, used_s, seen)


class Timed(NamedTuple):
    took_s: float  # without the preparation of requests
    span: Span


def _timed(crowd: Crowd, deed: Callable[[], None]) -> Timed:
    prepared_s, started = crowd.preparing_s, time.perf_counter()
    deed()
    ended = time.perf_counter()
    return Timed(ended - started - (crowd.preparing_s - prepared_s), Span(started, ended))


def _found(
    size: int, joining: Timed, syncing: Timed, rebalances: Sequence[Timed], used_s: float | None, seen: Seen
) -> Found:
    return Found(
        members=size,
        join_s=joining.took_s,
        sync_s=syncing.took_s,
        rebalance_s=median(one.took_s for one in rebalances),
        server_cpu_s=used_s,
        describe_max_s=max(wait.took_s for wait in seen.describes),
        described=len(seen.describes),
        beat_max_join_s=longest_s(seen.beats, [joining.span]),
        beat_max_sync_s=longest_s(seen.beats, [syncing.span]),
        beat_max_s=longest_s(seen.beats, [one.span for one in rebalances]),
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


# What it says --------------------------------------------------------------------------------------------------------


def _show(found: Sequence[Found]) -> None:
    base = found[-1].rebalance_s / found[-1].members
    rows = [
        (
            f"{one.members:,}",
            f"{one.join_s:.3f}",
            f"{one.sync_s:.3f}",
            f"{one.rebalance_s:.3f}",
            f"{one.rebalance_s / one.members * 1e6:,.0f}",
            f"{one.rebalance_s / one.members / base:.2f}",
            "" if one.server_cpu_s is None else f"{one.server_cpu_s / one.members * 1e6:,.0f}",
            *(
                f"{wait_s * 1e3:,.1f}"
                for wait_s in (one.describe_max_s, one.beat_max_join_s, one.beat_max_sync_s, one.beat_max_s)
            ),
        )
        for one in found
    ]
    columns = (
        *("members", "join\ns", "sync\ns", "rebalance\ns", "us a\nmember", "of the\nlast row"),
        *("server us\na member", "describe\nmax ms", "beat max ms\njoin", "\nsync", "\nrebalance"),
    )
    notes = [
        "a rebalance: the leader rejoins, the others hear of it and rejoin, all sync, durably; the median of several",
        "join is the first generation: all but one are parked until that one, who was first, rejoins",
        "describe, beat: the longest wait of a bystander who describes the group, and who beats in another one, one in",
        "flight of each: beats while the first generation joined, while it synced, and in the rebalances",
        "what the members send was made before; the time that took is in no column",
    ]
    print_table("A group of many members", columns, rows, notes)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench members", description=PURPOSE)
    parser.add_argument("--members", type=int, nargs="+", metavar="N", help="sizes of the group (10 100 1000 5000)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rebalances of each group ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="10 and 100 members, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args(argv)
    options.members = options.members or (QUICK_SIZES if options.quick else SIZES)
    options.rounds = (QUICK_ROUNDS if options.quick else ROUNDS) if options.rounds is None else options.rounds
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected 1 or more")
    if min(options.members) < 1:
        parser.error(f"--members {min(options.members)}: expected 1 or more")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
