"""Nodes of Kafka that have their internal topics, and a topic with records, but no groups."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from peers.waiting import wait_until
from peers.wire import Wire

from callboard.runtime.log.partition import TRANSACTIONS_TOPIC

from .kafka import TEST_SETTINGS, RealKafka

DEADLINE_S = 300.0
PARTITIONS, TRANSACTION_PARTITIONS = 5, 3
SETTINGS = {
    **TEST_SETTINGS,
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": TRANSACTION_PARTITIONS,
}
RECORDS = 10


class NewKafka:
    """Makes nodes that have not been started, on copies of one log. To make that log takes a start of Kafka."""

    def __init__(self, folder: Path) -> None:
        kafka = RealKafka(folder, SETTINGS)
        kafka.start()
        try:
            make_topic(kafka.bootstrap)
            with Wire(kafka.host, kafka.port) as wire:
                wire.ask("find_coordinator", 3, key="any", key_type=1)
            last = kafka.data / f"{TRANSACTIONS_TOPIC}-{TRANSACTION_PARTITIONS - 1}" / "partition.metadata"
            wait_until(last.exists, bool, "Kafka's topic for transactions", DEADLINE_S)
        finally:
            kafka.stop()
        self._data = kafka.data

    def __call__(self, folder: Path, settings: Mapping[str, object]) -> RealKafka:
        kafka = RealKafka(folder, settings)
        shutil.copytree(self._data, kafka.data)
        return kafka


def make_topic(bootstrap: str) -> None:
    """Create the topic orders with one partition and some records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(RECORDS):
        producer.produce("orders", b"x", partition=0)
    assert producer.flush(DEADLINE_S) == 0
