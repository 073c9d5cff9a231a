"""Requests of transactional producers over TCP, in any version."""

from __future__ import annotations

from typing import Any

from harness import Client, committed_partition
from peers.wire import Plain

from callboard.runtime.disk.crc import crc32c
from callboard.runtime.log.format.batch import Producer, encode_batch, frame_record, read_batches
from callboard.runtime.log.format.transaction_records import decode_batch

TX = "tx"
CONCURRENT = "CONCURRENT_TRANSACTIONS"

ProducerOf = dict[str, int]


async def init_producer_id(client: Client, name: str = TX, version: int = 4, **values: Plain) -> ProducerOf:
    """Return the id and epoch of a producer; retries CONCURRENT_TRANSACTIONS."""
    request = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1, **values}
    while True:
        response = await client.ask("init_producer_id", version, transactional_id=name, **request)
        if response["error_code"] != CONCURRENT:
            assert response["error_code"] == "NONE"
            return {"producer_id": response["producer_id"], "producer_epoch": response["producer_epoch"]}


async def add_offsets(client: Client, producer: ProducerOf, group: str = "g", version: int = 3) -> str:
    response = await ask_until_not_concurrent(
        client, "add_offsets_to_txn", version, transactional_id=TX, group_id=group, **producer
    )
    return str(response["error_code"])


async def ask_until_not_concurrent(client: Client, name: str, version: int, **values: Plain) -> dict[str, Plain]:
    """Return the response after the previous transaction is complete."""
    while True:
        response = await client.ask(name, version, **values)
        if CONCURRENT not in str(response):
            return response


async def commit_offsets(client: Client, producer: ProducerOf, offset: int, version: int = 3, **values: Plain) -> Any:
    request = {
        "transactional_id": TX,
        "group_id": "g",
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [committed_partition(0, offset)]}],
        **producer,
        **values,
    }
    response = await ask_until_not_concurrent(client, "txn_offset_commit", version, **request)
    return {
        (topic["name"], partition["partition_index"]): partition["error_code"]
        for topic in response["topics"]
        for partition in topic["partitions"]
    }


async def end_transaction(
    client: Client, producer: ProducerOf, committed: bool = True, version: int = 3
) -> dict[str, Plain]:
    return await client.ask("end_txn", version, transactional_id=TX, committed=committed, **producer)


async def add_partitions(client: Client, producer: ProducerOf, topics: Plain, version: int = 3) -> Any:
    if version >= 4:
        request = {"transactional_id": TX, "verify_only": False, "topics": topics, **producer}
        response = await ask_until_not_concurrent(client, "add_partitions_to_txn", version, transactions=[request])
        [result] = response["results_by_transaction"]
        topic_results = result["topic_results"]
    else:
        request = {f"v3_and_below_{name}": value for name, value in producer.items()}
        request |= {"v3_and_below_transactional_id": TX, "v3_and_below_topics": topics}
        topic_results = (await ask_until_not_concurrent(client, "add_partitions_to_txn", version, **request))[
            "results_by_topic_v3_and_below"
        ]
    return [
        (topic["name"], partition["partition_index"], partition["partition_error_code"])
        for topic in topic_results
        for partition in topic["results_by_partition"]
    ]


async def stable_offset(client: Client, group: str = "g") -> int:
    """Return the committed offset after all transactions have ended."""
    request = {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}], "require_stable": True}
    while True:
        response = await client.ask("offset_fetch", 7, **request)
        [[partition]] = [topic["partitions"] for topic in response["topics"]]
        if partition["error_code"] == "NONE":
            return int(partition["committed_offset"])
        assert partition["error_code"] == "UNSTABLE_OFFSET_COMMIT"


def batch(value: bytes, producer: ProducerOf | None = None, sequence: int = 0) -> bytes:
    """Encode a batch of one record, transactional if a producer is given."""
    batch_producer = Producer(producer["producer_id"], producer["producer_epoch"]) if producer else None
    data = bytearray(encode_batch(0, 1, 1, [frame_record(0, 0, b"k", value)], batch_producer))
    data[53:57] = sequence.to_bytes(4, "big", signed=True)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


async def produce(client: Client, data: bytes, name: str | None = TX, version: int = 9) -> str:
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    response = await client.ask("produce", version, transactional_id=name, acks=-1, timeout=1000, topic_data=topics)
    [[partition]] = [topic["partition_responses"] for topic in response["responses"]]
    return str(partition["error_code"])


def fetch_request(isolation_level: int = 0, offset: int = 0, wait_ms: int = 0) -> dict[str, Plain]:
    """The values of a Fetch of version 11."""
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 10**6,
        "isolation_level": isolation_level,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [fetch_part(offset)]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


async def fetch_partition(client: Client, isolation_level: int, offset: int = 0, wait_ms: int = 0) -> dict[str, Plain]:
    response = await client.ask("fetch", 11, **fetch_request(isolation_level, offset, wait_ms))
    [[partition]] = [topic["partitions"] for topic in response["responses"]]
    assert isinstance(partition, dict)
    return partition


def fetch_part(offset: int) -> dict[str, Plain]:
    return {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 10**6,
    }


def record_values(partition: dict[str, Plain]) -> list[Any]:
    """Return the values of the records, and for each marker whether it is a commit."""
    values: list[Any] = []
    for record_batch in read_batches(partition["records"] or b""):
        if record_batch.is_control:
            values += [marker.committed for _, _, marker in decode_batch(record_batch)]  # type: ignore[union-attr]
        else:
            values += [value for _, _, _, value in record_batch.records()]
    return values


async def begin_with_record(client: Client, value: bytes, producer: ProducerOf, sequence: int = 0) -> None:
    assert await add_partitions(client, producer, [{"name": "t", "partitions": [0]}]) == [("t", 0, "NONE")]
    assert await produce(client, batch(value, producer, sequence)) == "NONE"
