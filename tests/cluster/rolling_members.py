"""librdkafka's consumers that poll and commit while the nodes of their cluster come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import Consumer, KafkaException, TopicPartition

from .cluster_server_helpers import ClusterServer
from .probe import TOPIC

GROUPS = 6
MEMBERS = 2
WAIT_S = 60.0


class Member:
    """A consumer in a thread of its own, which polls and commits. ``events``: its assignments and revocations."""

    def __init__(self, group: str, bootstrap: str) -> None:
        self.events: list[str] = []
        self.commits = 0
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 300,
                "log_level": 3,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._note("assigned"), on_revoke=self._note("revoked"))
        self._thread.start()

    def _note(self, event: str):  # type: ignore[no-untyped-def]  # confluent_kafka has no types
        return lambda consumer, partitions: self.events.append(event)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._consumer.poll(0.05)
            if self.events:
                self._commit()
        self.events.append("stopped")
        self._consumer.close()

    def _commit(self) -> None:
        try:
            self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.commits + 1)], asynchronous=False)
        except KafkaException:
            return
        self.commits += 1

    def wait_for_commits(self, count: int) -> None:
        goal, deadline_s = self.commits + count, time.monotonic() + WAIT_S
        while self.commits < goal:
            assert time.monotonic() < deadline_s, f"{self.commits} of {goal} commits"
            time.sleep(0.02)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


@contextmanager
def members_of(servers: list[ClusterServer]) -> Iterator[list[Member]]:
    """Members of several groups, whose groups have all members."""
    bootstrap = ",".join("{}:{}".format(*server.address) for server in servers)
    members = [Member(f"group-{number % GROUPS}", bootstrap) for number in range(GROUPS * MEMBERS)]
    with ExitStack() as stack:
        for member in members:
            member.start()
            stack.callback(member.stop)
        wait_until_complete(members)
        yield members


def wait_until_complete(members: list[Member]) -> None:
    """Each group has a generation with all its members: the others' partitions are revoked before one is assigned."""
    deadline_s = time.monotonic() + WAIT_S
    while not all(member.events[-1:] == ["assigned"] for member in members):
        assert time.monotonic() < deadline_s, [member.events for member in members]
        time.sleep(0.02)
