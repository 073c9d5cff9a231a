"""kafka-python as a peer: its consumer, its producer and its admin client, in pure Python with their own threads."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from kafka import (  # type: ignore[attr-defined, import-untyped, unused-ignore]
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.coordinator.assignors.cooperative_sticky import (  # type: ignore[attr-defined, import-untyped, unused-ignore]
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import (  # type: ignore[attr-defined, import-untyped, unused-ignore]
    RangePartitionAssignor,
)
from kafka.coordinator.assignors.roundrobin import (  # type: ignore[attr-defined, import-untyped, unused-ignore]
    RoundRobinPartitionAssignor,
)
from kafka.errors import KafkaConnectionError  # type: ignore[attr-defined, import-untyped, unused-ignore]

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
ASSIGNORS = {
    "roundrobin": RoundRobinPartitionAssignor,
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
    """Prints the rebalance callbacks of the library."""

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        print_event("revoked", partitions=sorted(part.partition for part in revoked))

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        print_event("assigned", partitions=sorted(part.partition for part in assigned))


class KafkaPythonMember:
    """A consumer in a group."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._topic = options.topic
        self._watch = AssignmentWatch()
        self._consumer = KafkaConsumer(**_consumer_settings(options))
        self._consumer.subscribe([options.topic], listener=Listener())
        # If a leader of version 3.0 assigns before it has the metadata of its topic, it rejoins later, and never
        # completes that join if it takes longer than one poll: `join_group_async` checks need_rejoin() before its
        # pending task. So fetch the metadata first.
        self._consumer.topics()

    def poll(self) -> None:
        try:
            batches = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        except KafkaConnectionError as error:
            # The other libraries reconnect without an error; this one sometimes raises it to the application.
            print(f"client: {error}", file=sys.stderr, flush=True)
            return
        self._watch.update(part.partition for part in self._consumer.assignment())
        for records in batches.values():
            for record in records:
                print_record(record.partition, record.offset, record.key, record.value, record.headers)

    def commit(self, offsets: list[tuple[int, int]]) -> None:
        self._consumer.commit(
            {TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets}
        )

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonProducerAdmin(CommandClient):
    """A producer and an admin client."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._producer = KafkaProducer(bootstrap_servers=options.bootstrap, reconnect_backoff_max_ms=500)
        self._admin = KafkaAdminClient(bootstrap_servers=options.bootstrap)

    def create_topic(self, topic: str) -> None:
        self._admin.create_topics({topic: {"num_partitions": PARTITIONS_PER_TOPIC, "replication_factor": 1}})

    def produce(self, topic: str, records: list[dict[str, Any]]) -> list[int]:
        """Send each record to its partition; return their offsets."""
        futures = [
            self._producer.send(
                topic,
                partition=record["partition"],
                key=from_hex(record["key"]),
                value=from_hex(record["value"]),
                headers=[(name, bytes.fromhex(value)) for name, value in record["headers"]],
            )
            for record in records
        ]
        return [future.get(ANSWER_TIMEOUT_S).offset for future in futures]

    def list_groups(self) -> list[str]:
        return [group["group_id"] for group in self._admin.list_groups()]

    def describe_group(self, group: str) -> dict[str, Any]:
        found = self._admin.describe_groups([group])[group]
        if found["error"]:
            raise RuntimeError(found["error"])
        return {"state": found["group_state"], "members": [_member(member) for member in found["members"]]}

    def group_offsets(self, group: str, topic: str) -> list[tuple[int, int]]:
        found = self._admin.list_group_offsets(group)[group]
        return [(part.partition, committed.offset) for part, committed in found.items() if part.topic == topic]

    def delete_group(self, group: str) -> None:
        result = self._admin.delete_groups([group])[group]
        if result != "OK":
            raise RuntimeError(result)

    def close(self) -> None:
        self._producer.close()
        self._admin.close()


class KafkaPythonTransactor(CommandClient):
    """A transactional producer."""

    def __init__(self, options: SimpleNamespace) -> None:
        self._topic, self._group = options.topic, options.group
        self._producer = KafkaProducer(
            bootstrap_servers=options.bootstrap,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.timeout_ms,
            reconnect_backoff_max_ms=500,
        )

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, partition: int, value: str) -> None:
        self._producer.send(self._topic, partition=partition, value=value.encode()).get(ANSWER_TIMEOUT_S)

    def send_offsets(self, offsets: list[tuple[int, int]]) -> None:
        parts = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets
        }
        self._producer.send_offsets_to_transaction(parts, self._group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=ANSWER_TIMEOUT_S)


def _consumer_settings(options: SimpleNamespace) -> dict[str, Any]:
    return {
        "bootstrap_servers": options.bootstrap,
        "client_id": options.client_id,
        "group_id": options.group,
        "group_instance_id": options.instance,
        "session_timeout_ms": options.session_timeout_ms,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        "auto_offset_reset": options.reset,
        "enable_auto_commit": options.auto_commits,
        "auto_commit_interval_ms": AUTO_COMMIT_INTERVAL_MS,
        "isolation_level": options.isolation,
        "fetch_max_wait_ms": 100,
        "reconnect_backoff_max_ms": 500,
        "partition_assignment_strategy": [ASSIGNORS[options.assignor]],
    }


def _member(member: dict[str, Any]) -> dict[str, Any]:
    topics = member["member_assignment"]["assigned_partitions"] if member["member_assignment"] else []
    parts = [partition for topic in topics for partition in topic["partitions"]]
    return {"client": member["client_id"], "instance": member["group_instance_id"], "partitions": sorted(parts)}


if __name__ == "__main__":
    run_peer(
        {"member": KafkaPythonMember, "producer_admin": KafkaPythonProducerAdmin, "transactor": KafkaPythonTransactor}
    )
