"""The clients of one test: members of one group on one topic, producers and admin clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from .peer import ConsumerPeer, Peer, Record
from .peer_main import PARTITIONS_PER_TOPIC
from .waiting import wait_until

PARTITIONS = frozenset(range(PARTITIONS_PER_TOPIC))

# Long enough that no session expires in these tests on a slow machine.
PATIENT_SESSION_TIMEOUT_MS = 45_000
PATIENT_TRANSACTION_TIMEOUT_MS = 60_000


class GroupClients:
    """Starts the clients of a test."""

    def __init__(self, bootstrap: str, folder: Path, group: str, topic: str, closing: ExitStack) -> None:
        self.group = group
        self.topic = topic
        self._bootstrap = bootstrap
        self._folder = folder
        self._closing = closing
        self._numbers = count(1)

    def producer_admin(self, library: str) -> Peer:
        """A producer and an admin client of a library."""
        name = f"producer-admin-{library}-{next(self._numbers)}"
        peer = Peer(library, "producer_admin", name, self._folder, bootstrap=self._bootstrap)
        self._closing.callback(peer.finish)
        return peer

    def member(
        self,
        library: str,
        name: str,
        *,
        session_timeout_ms: int = PATIENT_SESSION_TIMEOUT_MS,
        reset: str = "earliest",
        instance: str | None = None,
        isolation: str = "read_uncommitted",
        protocol: str = "classic",
        topic: str | None = None,
        auto_commits: bool = False,
        assignor: str = "roundrobin",
    ) -> ConsumerPeer:
        """A consumer that is subscribed to the topic, or to another one.

        ``auto_commits``: whether the library commits what was received, every ``AUTO_COMMIT_INTERVAL_MS``.
        ``assignor``: confluent-kafka and kafka-python also have ``range`` and ``cooperative-sticky``.
        ``reset``: ``earliest`` or ``none`` (an error).
        ``protocol``: of the group; only confluent-kafka has the other one, ``consumer`` (KIP-848).
        """
        member = ConsumerPeer(
            library,
            "member",
            name,
            self._folder,
            bootstrap=self._bootstrap,
            client_id=name,
            group=self.group,
            topic=topic or self.topic,
            session_timeout_ms=session_timeout_ms,
            reset=reset,
            instance=instance,
            isolation=isolation,
            protocol=protocol,
            auto_commits=auto_commits,
            assignor=assignor,
        )
        self._closing.callback(member.finish)
        return member

    def transactor(self, library: str, timeout_ms: int = PATIENT_TRANSACTION_TIMEOUT_MS) -> Peer:
        """A transactional producer. Its transactional id is the group id, so a later one replaces it."""
        peer = Peer(
            library,
            "transactor",
            f"transactor-{library}-{next(self._numbers)}",
            self._folder,
            bootstrap=self._bootstrap,
            transactional_id=self.group,
            timeout_ms=timeout_ms,
            group=self.group,
            topic=self.topic,
        )
        self._closing.callback(peer.finish)
        return peer

    def produce(self, producer: Peer, records: Iterable[Record]) -> list[int]:
        """Send records and return their offsets."""
        requests = [record.to_json() for record in records]
        offsets: list[int] = producer.ask("produce", topic=self.topic, records=requests)
        assert -1 not in offsets, (
            f"not delivered: {[record for record, offset in zip(requests, offsets, strict=True) if offset < 0]}"
        )
        return offsets


class PartitionOwner(Protocol):
    """A consumer of any library."""

    name: str

    @property
    def assignment(self) -> frozenset[int]: ...


def wait_until_partitions_are_shared(*members: PartitionOwner) -> list[frozenset[int]]:
    """Wait until each partition has one owner among the members and their shares are balanced."""
    return wait_until(
        lambda: [member.assignment for member in members],
        is_fair_share,
        f"{[member.name for member in members]} to share {sorted(PARTITIONS)}",
    )


def is_fair_share(shares: Sequence[frozenset[int]]) -> bool:
    """Whether shares are disjoint, contain every partition, and differ by at most one."""
    sizes = [len(share) for share in shares]
    complete = frozenset().union(*shares) == PARTITIONS
    return complete and sum(sizes) == len(PARTITIONS) and max(sizes) - min(sizes) <= 1


def wait_for_records(members: Sequence[ConsumerPeer], expected_count: int) -> list[tuple[int, Record]]:
    """Wait until the members have received this many records in total; return them, sorted."""
    records = wait_until(
        lambda: [received for member in members for received in member.received()],
        lambda received: len(received) >= expected_count,
        f"{expected_count} records",
    )
    return sorted(records, key=lambda received: (received[1].partition, received[0]))


def describe(admin: Peer, group: str) -> dict[str, Any]:
    """The group as the library's admin client describes it."""
    described: dict[str, Any] = admin.ask("describe_group", group=group)
    return described
