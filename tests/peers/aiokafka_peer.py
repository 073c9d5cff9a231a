"""aiokafka as a peer: its consumer, its producer and its admin client, on an event loop that runs only during calls.

The calls of ``poll`` follow each other without a pause, so heartbeats and fetches run as in an asyncio program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from types import SimpleNamespace
from typing import Any, TypeVar

from aiokafka import (  # type: ignore[import-untyped, unused-ignore]
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped, unused-ignore]
from aiokafka.coordinator.assignors.roundrobin import (  # type: ignore[import-untyped, unused-ignore]
    RoundRobinPartitionAssignor,
)
from aiokafka.coordinator.protocol import (  # type: ignore[import-untyped, unused-ignore]
    ConsumerProtocolMemberAssignment,
)

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

T = TypeVar("T")


class Listener(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
    """Prints the rebalance callbacks of the library."""

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        print_event("revoked", partitions=sorted(part.partition for part in revoked))

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        print_event("assigned", partitions=sorted(part.partition for part in assigned))


class Loop:
    """The event loop of a client. It runs only during ``run``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, awaitable: Awaitable[T]) -> T:
        return self._loop.run_until_complete(awaitable)

    def close(self) -> None:
        self._loop.close()


class AiokafkaMember:
    """A consumer in a group."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._topic = options.topic
        self._watch = AssignmentWatch()
        self._loop = Loop()
        self._consumer: Any = self._loop.run(_start_consumer(options))

    def poll(self) -> None:
        batches = self._loop.run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        self._watch.update(part.partition for part in self._consumer.assignment())
        for records in batches.values():
            for record in records:
                print_record(record.partition, record.offset, record.key, record.value, record.headers)

    def commit(self, offsets: list[tuple[int, int]]) -> None:
        parts = {TopicPartition(self._topic, partition): offset for partition, offset in offsets}
        self._loop.run(self._consumer.commit(parts))

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
        self._loop.close()


class AiokafkaProducerAdmin(CommandClient):
    """A producer and an admin client. This library cannot delete groups."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._loop = Loop()
        self._producer, self._admin = self._loop.run(_start_producer_and_admin(options))

    def create_topic(self, topic: str) -> None:
        new = NewTopic(topic, num_partitions=PARTITIONS_PER_TOPIC, replication_factor=1)
        answer = self._loop.run(self._admin.create_topics([new]))
        failed = [error for error in answer.topic_errors if error[1] != 0]
        if failed:
            raise RuntimeError(str(failed))

    def produce(self, topic: str, records: list[dict[str, Any]]) -> list[int]:
        """Send each record to its partition; return their offsets."""
        return self._loop.run(self._send_all(topic, records))

    def list_groups(self) -> list[str]:
        return [group[0] for group in self._loop.run(self._admin.list_consumer_groups())]

    def describe_group(self, group: str) -> dict[str, Any]:
        (answer,) = self._loop.run(self._admin.describe_consumer_groups([group]))
        code, _group, state, _type, _protocol, members = answer.groups[0][:6]
        if code != 0:
            raise RuntimeError(f"error code {code}")
        return {"state": state, "members": [_member(member) for member in members]}

    def group_offsets(self, group: str, topic: str) -> list[tuple[int, int]]:
        offsets = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return [(part.partition, committed.offset) for part, committed in offsets.items() if part.topic == topic]

    def close(self) -> None:
        self._loop.run(self._producer.stop())
        self._loop.run(self._admin.close())
        self._loop.close()

    async def _send_all(self, topic: str, records: list[dict[str, Any]]) -> list[int]:
        futures = [
            await self._producer.send(
                topic,
                partition=record["partition"],
                key=from_hex(record["key"]),
                value=from_hex(record["value"]),
                headers=[(name, bytes.fromhex(value)) for name, value in record["headers"]],
            )
            for record in records
        ]
        return [metadata.offset for metadata in await asyncio.gather(*futures)]


class AiokafkaTransactor(CommandClient):
    """A transactional producer."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._topic, self._group = options.topic, options.group
        self._loop = Loop()
        self._producer: Any = self._loop.run(_create_transactor(options))
        self._is_started = False

    def init(self) -> None:
        self._loop.run(self._producer.start())
        self._is_started = True

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send(self, partition: int, value: str) -> None:
        self._loop.run(self._producer.send_and_wait(self._topic, partition=partition, value=value.encode()))

    def send_offsets(self, offsets: list[tuple[int, int]]) -> None:
        parts = {TopicPartition(self._topic, partition): offset for partition, offset in offsets}
        self._loop.run(self._producer.send_offsets_to_transaction(parts, self._group))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        if self._is_started:
            self._loop.run(self._producer.stop())
        self._loop.close()


async def _create_transactor(options: SimpleNamespace) -> Any:
    return AIOKafkaProducer(
        bootstrap_servers=options.bootstrap,
        transactional_id=options.transactional_id,
        transaction_timeout_ms=options.timeout_ms,
    )


async def _start_consumer(options: SimpleNamespace) -> Any:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        client_id=options.client_id,
        group_id=options.group,
        group_instance_id=options.instance,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        auto_offset_reset=options.reset,
        enable_auto_commit=options.auto_commits,
        auto_commit_interval_ms=AUTO_COMMIT_INTERVAL_MS,
        isolation_level=options.isolation,
        fetch_max_wait_ms=100,
        # If the leader moves while a position is reset, ListOffsets goes to the old leader until metadata is that old.
        metadata_max_age_ms=1000,
        # The only assignor that all three libraries have, so that they can share a group.
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
    )
    consumer.subscribe([options.topic], listener=Listener())
    await consumer.start()
    return consumer


async def _start_producer_and_admin(options: SimpleNamespace) -> tuple[Any, Any]:
    producer = AIOKafkaProducer(bootstrap_servers=options.bootstrap)
    await producer.start()
    admin = AIOKafkaAdminClient(bootstrap_servers=options.bootstrap)
    await admin.start()
    return producer, admin


def _member(member: Any) -> dict[str, Any]:
    # (member id, instance id from version 4 on, client id, host, subscription, assignment)
    instance = member[1] if len(member) == 6 else None
    topics = ConsumerProtocolMemberAssignment.decode(member[-1]).assignment if member[-1] else []
    parts = [partition for _topic, partitions in topics for partition in partitions]
    return {"client": member[-4], "instance": instance, "partitions": sorted(parts)}


if __name__ == "__main__":
    run_peer({"member": AiokafkaMember, "producer_admin": AiokafkaProducerAdmin, "transactor": AiokafkaTransactor})
