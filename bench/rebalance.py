"""``callboard bench members --protocol consumer``: one more member joins a group of each protocol.

For each size and protocol, a group of N members shares N + 1 partitions, so that one of them has two. A member joins,
and gets one of those. Measured are the time until all have their final assignment, and the partition-seconds without an
owner: what the members stop, until somebody has it again. Then the member leaves, for the next round. The assignors of
all protocols are sticky, so the final assignment is the same. All members send a heartbeat per second, whatever
interval the server asks for, and are spread evenly over that second. A member learns by its heartbeat what to do.
"""

from __future__ import annotations

import argparse
import heapq
import select
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

from callboard.actors.assignors.cooperative import CooperativeSticky
from callboard.actors.assignors.sticky import Sticky
from callboard.bench.group_setup import await_group, create_named_topic, find_coordinator
from callboard.bench.harness import BenchError, median_or_none, print_table, process_cpu_s
from callboard.bench.rebalance_members import ClassicMember, ConsumerProtocolMember, Group, Member, Owners
from callboard.bench.serving import callboard_server
from callboard.bench.wire import Client

INTERVAL_S = 1.0
CALM_S = 2.2  # before a member joins: longer than a heartbeat interval and Kafka's assignment interval together
TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 120.0

MEMBERS: Mapping[str, Callable[[Client, Group], Member]] = {
    "classic, eager": lambda client, group: ClassicMember(client, group, Sticky()),
    "classic, cooperative": lambda client, group: ClassicMember(client, group, CooperativeSticky()),
    "consumer": ConsumerProtocolMember,
}
"""By protocol."""


class Round(NamedTuple):
    """``stopped``: partitions that their owners gave up. ``server_cpu_s``: None without ``/proc``, or of a target."""

    final_s: float
    unowned_partition_s: float
    stopped: int
    server_cpu_s: float | None


class Row(NamedTuple):
    """Medians of the rounds."""

    members: int
    protocol: str
    final_s: float
    unowned_partition_s: float
    stopped: float
    server_cpu_s: float | None


class Driver:
    """Runs the members of a group. ``clock``: in seconds."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._members: dict[int, Member] = {}  # by file descriptor
        self._due: list[tuple[float, int]] = []  # heartbeats, by time
        self._unsettled = 0
        self._epoll = select.epoll()

    @property
    def is_settled(self) -> bool:
        return not self._unsettled and self._group.owners.are_complete

    def join(self, members: Sequence[Member]) -> None:
        now_s = self._group.clock()
        for index, member in enumerate(members):
            fileno = member.client.socket.fileno()
            self._members[fileno] = member
            self._epoll.register(fileno, select.EPOLLIN)
            heapq.heappush(self._due, (now_s + INTERVAL_S * (1 + index / len(members)), fileno))
            self._unsettled += 1
            member.join()

    def leave(self, member: Member) -> None:
        fileno = member.client.socket.fileno()
        self.run(lambda: not member.is_waiting)
        self._epoll.unregister(fileno)
        self._unsettled -= not member.is_settled
        del self._members[fileno]
        member.leave()

    def settle(self) -> None:
        """Run until each member has its final assignment, and nothing has changed that for some time."""
        self.run(lambda: self.is_settled)
        while not self._stays_settled(self._group.clock() + CALM_S):
            self.run(lambda: self.is_settled)

    def _stays_settled(self, until_s: float) -> bool:
        self.run(lambda: not self.is_settled or self._group.clock() >= until_s)
        return self.is_settled

    def run(self, is_done: Callable[[], bool]) -> None:
        """Run until ``is_done``, which is asked after each answer. Raises BenchError if that takes too long."""
        clock = self._group.clock
        deadline_s = clock() + TIMEOUT_S
        while not is_done():
            now_s = clock()
            if now_s > deadline_s:
                raise BenchError(f"{self._group.group_id!r} has no final assignment after {TIMEOUT_S:.0f} s")
            self._send_due(now_s)
            wait_s = self._due[0][0] - now_s if self._due else INTERVAL_S
            for fileno, _ in self._epoll.poll(max(wait_s, 0.0)):
                self._receive(self._members[fileno])
                if is_done():
                    return

    def _send_due(self, now_s: float) -> None:
        while self._due and self._due[0][0] <= now_s:
            due_s, fileno = heapq.heappop(self._due)
            member = self._members.get(fileno)
            if member is None:
                continue
            heapq.heappush(self._due, (max(due_s + INTERVAL_S, now_s), fileno))
            if not member.is_waiting:
                member.beat()

    def _receive(self, member: Member) -> None:
        was_settled = member.is_settled
        member.receive()
        self._unsettled += was_settled - member.is_settled


def run(options: argparse.Namespace) -> list[Row]:
    """Raises BenchError if an answer is wrong, or a partition has two owners."""
    rows = []
    for size in options.members:
        with ExitStack() as stack:
            address, pid = options.bootstrap_server, None
            if address is None:
                server = stack.enter_context(callboard_server())
                address, pid = server.address, server.pid
            rows += [
                _row(size, protocol, _measure(address, pid, size, protocol, options.rounds)) for protocol in MEMBERS
            ]
    return rows


def _measure(address: str, pid: int | None, size: int, protocol: str, rounds: int) -> list[Round]:
    with ExitStack() as stack:
        topic, group_id = f"members-{size + 1}", f"members-{uuid.uuid4()}"
        first = stack.enter_context(Client(address))
        create_named_topic(first, topic, size + 1)
        coordinator = find_coordinator(first, group_id)
        clients = [stack.enter_context(Client(coordinator)) for _ in range(size + 1)]
        await_group(clients[0], group_id)
        for client in clients:
            client.socket.settimeout(ANSWER_TIMEOUT_S)
        group = Group(group_id, topic, Owners(size + 1, time.perf_counter()), time.perf_counter)
        *members, joining = [MEMBERS[protocol](client, group) for client in clients]
        driver = Driver(group)
        driver.join(members)
        driver.settle()
        return [_round(driver, group, joining, pid) for _ in range(rounds)]


def _round(driver: Driver, group: Group, joining: Member, pid: int | None) -> Round:
    cpu_s, began_s = process_cpu_s(pid), group.clock()
    group.owners.begin(began_s)
    driver.join([joining])
    driver.run(lambda: driver.is_settled)
    ended_s, cpu_after_s = group.clock(), process_cpu_s(pid)
    used_s = None if cpu_s is None or cpu_after_s is None else cpu_after_s - cpu_s
    result = Round(ended_s - began_s, group.owners.unowned_s(ended_s), group.owners.given_up, used_s)
    driver.settle()
    driver.leave(joining)
    driver.settle()
    return result


def _row(size: int, protocol: str, rounds: Sequence[Round]) -> Row:
    return Row(
        size,
        protocol,
        median(each.final_s for each in rounds),
        median(each.unowned_partition_s for each in rounds),
        median(each.stopped for each in rounds),
        median_or_none([each.server_cpu_s for each in rounds]),
    )


# Output --------------------------------------------------------------------------------------------------------------

COLUMNS = (
    "members",
    "protocol",
    "final\ns",
    "partition-seconds\nwithout owner",
    "partitions\nstopped",
    "server CPU\nms",
)


def show(rows: Sequence[Row]) -> None:
    cells = [
        (
            f"{row.members:,}",
            row.protocol,
            f"{row.final_s:.2f}",
            f"{row.unowned_partition_s:,.2f}",
            f"{row.stopped:,.0f}",
            "" if row.server_cpu_s is None else f"{row.server_cpu_s * 1e3:,.0f}",
        )
        for row in rows
    ]
    notes = [
        "final: from the first request of the member that joins until all have their final assignment; a median",
        "partitions stopped: those that a member gave up, for however short a time",
        f"all members send a heartbeat per {INTERVAL_S:g} s; server CPU includes these heartbeats",
        "one process runs all members, so its time to join and to assign is included",
    ]
    print_table("One member joins a group, which has one more partition than members", COLUMNS, cells, notes)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [row._asdict() for row in rows]
