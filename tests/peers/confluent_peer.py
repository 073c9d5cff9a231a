"""confluent-kafka (librdkafka) as a peer: its consumer, its producer and its admin client."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .peer_main import (
    AUTO_COMMIT_INTERVAL_MS,
    HEARTBEAT_INTERVAL_MS,
    PARTITIONS_PER_TOPIC,
    POLL_S,
    AssignmentWatch,
    CommandClient,
    from_hex,
    print_event,
    print_record,
    run_peer,
)

ANSWER_TIMEOUT_S = 30
RESETS = {"earliest": "earliest", "none": "error"}


class ConfluentMember:
    """A consumer in a group."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._topic = options.topic
        self._watch = AssignmentWatch()
        self._consumer = Consumer(_consumer_settings(options))
        self._consumer.subscribe([options.topic], on_assign=_on_assign, on_revoke=_on_revoke, on_lost=_on_lost)

    def poll(self) -> None:
        message = self._consumer.poll(POLL_S)
        self._watch.update(part.partition for part in self._consumer.assignment())
        if message is not None:
            _print_message(message)

    def commit(self, offsets: list[tuple[int, int]]) -> None:
        parts = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets]
        done = self._consumer.commit(offsets=parts, asynchronous=False)
        for part in done or []:
            if part.error is not None:
                raise RuntimeError(f"partition {part.partition}: {part.error}")

    def close(self) -> None:
        self._consumer.close()


class ConfluentProducerAdmin(CommandClient):
    """A producer and an admin client."""

    def __init__(self, options: SimpleNamespace) -> None:
        common = {"bootstrap.servers": options.bootstrap}
        self._producer = Producer({**common, "error_cb": _on_client_error, "reconnect.backoff.max.ms": 500})
        self._admin = AdminClient(common)

    def create_topic(self, topic: str) -> None:
        new = NewTopic(topic, num_partitions=PARTITIONS_PER_TOPIC, replication_factor=1)
        self._admin.create_topics([new], request_timeout=ANSWER_TIMEOUT_S)[topic].result(ANSWER_TIMEOUT_S)

    def produce(self, topic: str, records: list[dict[str, Any]]) -> list[int]:
        """Send each record to its partition; return their offsets."""
        offsets = [-1] * len(records)
        for place, record in enumerate(records):
            headers: Any = [(name, bytes.fromhex(value)) for name, value in record["headers"]]
            self._producer.produce(
                topic,
                partition=record["partition"],
                key=from_hex(record["key"]),
                value=from_hex(record["value"]),
                headers=headers,
                on_delivery=partial(_delivered, offsets, place),
            )
        self._producer.flush(ANSWER_TIMEOUT_S)
        return offsets

    def list_groups(self) -> list[str]:
        listing = self._admin.list_consumer_groups(request_timeout=ANSWER_TIMEOUT_S).result(ANSWER_TIMEOUT_S)
        if listing.errors:
            raise RuntimeError(str(listing.errors))
        return [group.group_id for group in listing.valid]

    def describe_group(self, group: str) -> dict[str, Any]:
        futures = self._admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)
        found = futures[group].result(ANSWER_TIMEOUT_S)
        return {"state": found.state.name.title(), "members": [_member(member) for member in found.members]}

    def group_offsets(self, group: str, topic: str) -> list[tuple[int, int]]:
        request = ConsumerGroupTopicPartitions(group)
        found = self._admin.list_consumer_group_offsets([request])[group].result(ANSWER_TIMEOUT_S)
        return [(part.partition, part.offset) for part in found.topic_partitions if part.topic == topic]

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(ANSWER_TIMEOUT_S)

    def close(self) -> None:
        self._producer.flush(ANSWER_TIMEOUT_S)


class ConfluentTransactor(CommandClient):
    """A transactional producer. Its consumer only provides the group's metadata."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._topic = options.topic
        self._consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": options.group})
        settings = {
            "bootstrap.servers": options.bootstrap,
            "transactional.id": options.transactional_id,
            "transaction.timeout.ms": options.timeout_ms,
            "reconnect.backoff.max.ms": 500,
            "error_cb": _on_client_error,
        }
        self._producer = Producer(settings)

    def init(self) -> None:
        self._producer.init_transactions(ANSWER_TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, partition: int, value: str) -> None:
        self._producer.produce(self._topic, partition=partition, value=value.encode())
        self._producer.flush(ANSWER_TIMEOUT_S)

    def send_offsets(self, offsets: list[tuple[int, int]]) -> None:
        parts = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(parts, metadata, ANSWER_TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(ANSWER_TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(ANSWER_TIMEOUT_S)

    def close(self) -> None:
        self._consumer.close()


def _consumer_settings(options: SimpleNamespace) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": options.bootstrap,
        "client.id": options.client_id,
        "group.id": options.group,
        "auto.offset.reset": RESETS[options.reset],
        "enable.auto.commit": options.auto_commits,
        "auto.commit.interval.ms": AUTO_COMMIT_INTERVAL_MS,
        "isolation.level": options.isolation,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "error_cb": _on_client_error,
        **_protocol_settings(options),
    }
    return settings if options.instance is None else {**settings, "group.instance.id": options.instance}


def _protocol_settings(options: SimpleNamespace) -> dict[str, Any]:
    if options.protocol == "consumer":  # the coordinator has the timeouts and the assignors
        return {"group.protocol": "consumer"}
    return {
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        "partition.assignment.strategy": options.assignor,
    }


def _on_assign(_consumer: Consumer, parts: list[TopicPartition]) -> None:
    print_event("assigned", partitions=sorted(part.partition for part in parts))


def _on_revoke(_consumer: Consumer, parts: list[TopicPartition]) -> None:
    print_event("revoked", partitions=sorted(part.partition for part in parts))


def _on_lost(_consumer: Consumer, parts: list[TopicPartition]) -> None:
    print_event("lost", partitions=sorted(part.partition for part in parts))


def _on_client_error(error: KafkaError) -> None:
    # librdkafka reconnects by itself and reports lost connections here.
    print(f"client: {error}", file=sys.stderr, flush=True)


def _print_message(message: Message) -> None:
    error = message.error()
    if error is not None:
        print_event("error", text=str(error))
        return
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    headers: Any = message.headers() or []
    print_record(partition, offset, _bytes(message.key()), _bytes(message.value()), headers)


def _delivered(offsets: list[int], place: int, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        print(f"delivery: {error}", file=sys.stderr, flush=True)
        return
    offset = message.offset()
    assert offset is not None
    offsets[place] = offset


def _member(member: Any) -> dict[str, Any]:
    parts = [part.partition for part in member.assignment.topic_partitions]
    return {"client": member.client_id, "instance": member.group_instance_id, "partitions": sorted(parts)}


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


if __name__ == "__main__":
    run_peer({"member": ConfluentMember, "producer_admin": ConfluentProducerAdmin, "transactor": ConfluentTransactor})
