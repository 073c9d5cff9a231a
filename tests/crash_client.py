"""The load of the crash test, as a subprocess: it commits and joins as fast as it can and reports the responses.

It reads ``run HOST PORT`` lines from standard input. Each run lasts until the server ends. It prints a line ``begun``
when each connection of a run has had its first responses, and a report (one JSON line) at its end. Each report covers
all runs so far.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from peers.wire import Wire, decode, encode

TOPIC = "load"
PARTITIONS = 3
SIMPLE_GROUPS = 4
MEMBER_GROUPS = 2
# Commits that a connection sends before it waits for the first response; a kill may interrupt any of them.
PIPELINE = 4
# So long that no member of the load expires while the test checks the server.
SESSION_TIMEOUT_MS = 600_000

COMMIT_VERSION = 8
JOIN_VERSION = 3  # the last version in which one request adds a member
SYNC_VERSION = 5


@dataclass
class Membership:
    """A member that has received its assignment. It never leaves its group."""

    group: str
    member: str
    generation: int
    assignment: str

    def to_json(self) -> list[Any]:
        return [self.group, self.member, self.generation, self.assignment]


@dataclass
class Committer:
    """Commits increasing offsets to one group over one connection, as a member or as a simple consumer."""

    group: str
    is_member: bool
    membership: Membership | None = None
    next_offset: int = 1
    sent: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)

    def run(self, wire: Wire, begun: Callable[[], None]) -> None:
        if self.is_member and self.membership is None:
            self.membership = become_member(wire, self.group)
        while True:
            burst = [self._send(wire, partition % PARTITIONS) for partition in range(PIPELINE)]
            for partition, offset in burst:
                self._receive(wire, partition, offset)
            begun()

    def _send(self, wire: Wire, partition: int) -> tuple[int, int]:
        offset = self.next_offset
        self.next_offset += 1
        self.sent[partition] = offset
        wire.send(encode("offset_commit", COMMIT_VERSION, self._values(partition, offset)))
        return partition, offset

    def _receive(self, wire: Wire, partition: int, offset: int) -> None:
        response = decode("offset_commit", COMMIT_VERSION, wire.receive())
        code = response["topics"][0]["partitions"][0]["error_code"]
        if code != "NONE":
            raise RuntimeError(f"commit of offset {offset} to {self.group}-{partition} was refused: {code}")
        self.acknowledged[partition] = offset

    def _values(self, partition: int, offset: int) -> dict[str, Any]:
        member = self.membership
        commit = {"partition_index": partition, "committed_offset": offset, "committed_metadata": f"at {offset}"}
        return {
            "group_id": self.group,
            "generation_id_or_member_epoch": member.generation if member else -1,
            "member_id": member.member if member else "",
            "topics": [{"name": TOPIC, "partitions": [commit]}],
        }


@dataclass
class Joiner:
    """Creates groups with one member each, one after the other."""

    name: str
    numbers: count[int] = field(default_factory=count)
    memberships: list[Membership] = field(default_factory=list)

    def run(self, wire: Wire, begun: Callable[[], None]) -> None:
        while True:
            self.memberships.append(become_member(wire, f"{self.name}-{next(self.numbers)}"))
            begun()


Worker = Committer | Joiner


def become_member(wire: Wire, group: str) -> Membership:
    """Join a new group as its leader, with an assignment that contains the name of the group."""
    joined = wire.ask(
        "join_group",
        JOIN_VERSION,
        group_id=group,
        session_timeout=SESSION_TIMEOUT_MS,
        rebalance_timeout=SESSION_TIMEOUT_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    if joined["error_code"] != "NONE":
        raise RuntimeError(f"join of {group} was refused: {joined['error_code']}")
    member, generation = joined["member_id"], joined["generation_id"]
    assignment = f"all of {group}".encode()
    synced = wire.ask(
        "sync_group",
        SYNC_VERSION,
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member, "assignment": assignment}],
    )
    if synced["error_code"] != "NONE" or synced["assignment"] != assignment:
        raise RuntimeError(f"sync of {group}: {synced}")
    return Membership(group, member, generation, assignment.hex())


class Load:
    """All workers. During a run each has its own thread and connection."""

    def __init__(self) -> None:
        simple = [Committer(f"simple-{number}", is_member=False) for number in range(SIMPLE_GROUPS)]
        members = [Committer(f"member-{number}", is_member=True) for number in range(MEMBER_GROUPS)]
        self._committers = [*simple, *members]
        self._joiner = Joiner("joined")
        self._refusals: list[str] = []
        self._waiting: set[str] = set()
        """The names of the threads of this run without responses."""
        self._lock = threading.Lock()

    def run(self, host: str, port: int) -> None:
        """Run all workers until the server ends."""
        workers: Sequence[Worker] = [*self._committers, self._joiner]
        threads = [threading.Thread(target=self._work, args=(worker, host, port)) for worker in workers]
        self._waiting = {thread.name for thread in threads}
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def report(self) -> dict[str, Any]:
        """All commits with their acknowledgements, all memberships, and all unexpected errors."""
        commits = [
            [committer.group, partition, offset, committer.acknowledged.get(partition, -1)]
            for committer in self._committers
            for partition, offset in committer.sent.items()
        ]
        of_committers = [committer.membership for committer in self._committers if committer.membership is not None]
        members = [membership.to_json() for membership in [*of_committers, *self._joiner.memberships]]
        return {"commits": commits, "members": members, "refusals": self._refusals}

    def _work(self, worker: Worker, host: str, port: int) -> None:
        try:
            with Wire(host, port) as wire:
                worker.run(wire, self._note_begun)
        except OSError:
            return  # the server was killed
        except Exception as error:
            self._refusals.append(f"{type(error).__name__}: {error}")

    def _note_begun(self) -> None:
        name = threading.current_thread().name
        if name in self._waiting:
            with self._lock:
                self._waiting.remove(name)
                if not self._waiting:
                    print("begun", flush=True)


def main() -> None:
    load = Load()
    for line in sys.stdin:
        _run, host, port = line.split()
        load.run(host, int(port))
        print(json.dumps(load.report()), flush=True)


if __name__ == "__main__":
    main()
