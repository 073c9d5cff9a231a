"""``callboard bench recorder``: what the flight recorder takes in the turns of a group.

A rebalance of N members: each is added or rejoins, the leader's assignment becomes durable, all have synced. Measured
is what ``RebalanceTracker`` does with its events and notes. The second figure is ``complete``, which a node runs in a
thread: it reads the assignments.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from callboard.actors.group.events import GroupEvent, Kind, Reason
from callboard.actors.group.rebalance_notes import AllSynced, Assigned, LeaderSynced, Note, Rejoined
from callboard.actors.recorder.clients import MemberClients
from callboard.actors.recorder.flight_recorder import complete
from callboard.actors.recorder.tracker import Draft, RebalanceTracker
from callboard.actors.records import MemberValue
from callboard.bench.harness import BenchError, add_output, machine, numbers, print_table, write_json

REBALANCE_US, MEMBER_US = 20, 2
"""The aim: at most so much for a rebalance, and for each member."""


class Row(NamedTuple):
    """The best of the rounds. ``thread_us``: outside of the group's turns."""

    members: int
    turns_us: float
    aim_us: int
    thread_us: float


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("callboard bench recorder", description="What the flight recorder costs.")
    parser.add_argument("--members", type=numbers, default=[3, 100, 1000, 5000], metavar="N,N")
    parser.add_argument("--rounds", type=int, default=50, metavar="N")
    add_output(parser)
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: expected 1 or more")
    rows = [measure(members, arguments.rounds) for members in arguments.members]
    cells = [(str(row.members), f"{row.turns_us:.1f}", str(row.aim_us), f"{row.thread_us:.0f}") for row in rows]
    columns = ("members", "us in turns", "aim", "us in the thread")
    print_table("A rebalance in the flight recorder", columns, cells, ["The best of the rounds."])
    if arguments.output is not None:
        write_json(arguments.output, {"machine": machine(), "rows": [row._asdict() for row in rows]})
    return 0


def measure(members: int, rounds: int) -> Row:
    """Half of the members join, the others rejoin."""
    joining, notes = _events(members), _notes(members)
    turns_us, thread_us = [], []
    for _ in range(rounds):
        tracker = RebalanceTracker("group")
        start_s = time.perf_counter()
        draft = _rebalance(tracker, joining, notes)
        turns_us.append((time.perf_counter() - start_s) * 1e6)
        start_s = time.perf_counter()
        record = complete(draft, MemberClients())
        thread_us.append((time.perf_counter() - start_s) * 1e6)
        if record.moves is None or record.moves.total != members:
            raise BenchError(f"the record of {members} members has {record.moves}, expected a partition for each")
    return Row(members, min(turns_us), REBALANCE_US + MEMBER_US * members, min(thread_us))


def _rebalance(tracker: RebalanceTracker, events: Sequence[GroupEvent], notes: Sequence[Note]) -> Draft:
    draft: Draft | None = None
    *joining, completing, stable = events
    for event in joining:
        tracker.add(event)
    rejoined, last = notes[:-3], notes[-3:]
    for note in rejoined:
        tracker.note(note)
    tracker.add(completing)
    for note in last:
        tracker.note(note)
    draft = tracker.add(stable)
    if draft is None:
        raise BenchError("the rebalance has no record")
    return draft


def _events(members: int) -> list[GroupEvent]:
    added = [_event(Kind.MEMBER_ADDED, Reason.MEMBER_JOINED, "Stable", number) for number in range(0, members, 2)]
    begun = _event(Kind.STATE_CHANGED, Reason.MEMBER_JOINED, "PreparingRebalance", 0)
    completing = GroupEvent(1, 1, Kind.STATE_CHANGED, Reason.ALL_JOINED, "CompletingRebalance", 2)
    stable = GroupEvent(2, 2, Kind.STATE_CHANGED, Reason.ASSIGNMENT_STORED, "Stable", 2)
    return [added[0], begun, *added[1:], completing, stable]


def _event(kind: Kind, reason: Reason, state: str, number: int) -> GroupEvent:
    return GroupEvent(0, 0, kind, reason, state, 1, f"client-{number}-uuid", None, f"client-{number}", "/10.0.0.1")


def _notes(members: int) -> list[Note]:
    rejoining = [_event(Kind.MEMBER_ADDED, Reason.LOADED, "", number) for number in range(1, members, 2)]
    values = tuple(
        MemberValue(f"client-{number}-uuid", None, "", "", 0, 0, b"", _assignment(number)) for number in range(members)
    )
    assigned = Assigned("range", "client-0-uuid", values)
    return [*(Rejoined(1, event) for event in rejoining), LeaderSynced(1), AllSynced(1), assigned]


def _assignment(number: int) -> bytes:
    return struct.pack(">hi", 0, 1) + struct.pack(">h", 6) + b"orders" + struct.pack(">ii", 1, number)
