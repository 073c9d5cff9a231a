"""A consumer of librdkafka that counts its requests."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

STATISTICS_INTERVAL_MS = 50
LEAST_S = 1.0
COMMIT_INTERVAL_S = 0.2
COORDINATION = ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "Metadata")
"""What a client repeats while it has no coordinator."""


class CountedConsumer:
    """A consumer that polls and commits in a thread of its own. ``requests``: of all brokers, by name."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.requests: Counter[str] = Counter()
        self.is_assigned = threading.Event()
        self.commits = 0  # that were acknowledged
        self._topic = topic
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 300,
                "statistics.interval.ms": STATISTICS_INTERVAL_MS,
                "stats_cb": self._read_statistics,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def _read_statistics(self, text: str) -> None:
        requests: Counter[str] = Counter()
        for broker in json.loads(text)["brokers"].values():
            requests.update(broker["req"])
        self.requests = requests

    def _run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=lambda consumer, partitions: self.is_assigned.set())
        while not self._stopped.is_set():
            self._consumer.poll(COMMIT_INTERVAL_S)
            if self.is_assigned.is_set():
                self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        with suppress(KafkaException):
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, self.commits + 1)], asynchronous=False)
            self.commits += 1

    def count(self) -> int:
        """The requests about its group and the cluster so far. Those for records depend on how many there are."""
        return sum(self.requests[name] for name in COORDINATION)

    @contextmanager
    def running(self) -> Iterator[CountedConsumer]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            self._thread.join()


class Rate:
    """Requests of a consumer per second since this was made, for a second or longer."""

    def __init__(self, consumer: CountedConsumer) -> None:
        self._consumer = consumer
        self._count = consumer.count()
        self._start_s = time.monotonic()

    def read(self) -> float:
        time.sleep(max(0.0, self._start_s + LEAST_S - time.monotonic()))
        return (self._consumer.count() - self._count) / (time.monotonic() - self._start_s)
