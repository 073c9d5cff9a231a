"""The requests of transactional producers over TCP, in every version, and their records in topics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from harness import Client, async_test, commit_values, committed_partition, frame, running_node, versions
from peers.wire import Plain
from transaction_api_helpers import (
    CONCURRENT,
    TX,
    add_offsets,
    add_partitions,
    batch,
    begin_with_record,
    commit_offsets,
    end_transaction,
    fetch_partition,
    init_producer_id,
    produce,
    record_values,
    stable_offset,
)


@async_test
async def test_transaction_in_every_version(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        offset = 0
        for version in range(6):
            producer = await init_producer_id(client, version=version)
            for committed in (True, False):
                offset += 1
                if version < 5:
                    assert await add_offsets(client, producer, version=min(version, 4)) == "NONE"
                errors = await commit_offsets(client, producer, offset, version)
                assert errors == {("t", 0): "NONE"}
                answer = await end_transaction(client, producer, committed, version)
                assert answer["error_code"] == "NONE"
                if version >= 5:
                    assert answer["producer_epoch"] == producer["producer_epoch"] + 1
                    producer = {name: answer[name] for name in producer}
                assert await stable_offset(client) == (offset if committed else offset - 1)


@pytest.mark.parametrize(
    ("name", "newest_old"),
    [("add_offsets_to_txn", 1), ("end_txn", 1), ("add_partitions_to_txn", 1), ("init_producer_id", 3)],
)
@async_test
async def test_fenced_producer_gets_error_of_version(tmp_path: Path, name: str, newest_old: int) -> None:
    """KIP-588: PRODUCER_FENCED, and INVALID_PRODUCER_EPOCH in older versions."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        old = await init_producer_id(client)
        await init_producer_id(client)
        await init_producer_id(client)
        for version in versions(name, since=3 if name == "init_producer_id" else 0):
            values: dict[str, Plain] = {"transactional_id": TX, "group_id": "g", "committed": True, **old}
            values |= {"transaction_timeout": 60_000}
            values |= {f"v3_and_below_{field}": value for field, value in values.items()}
            topics = [{"name": "t", "partitions": [0]}]
            values |= {"v3_and_below_topics": topics}
            values |= {"transactions": [{"transactional_id": TX, "verify_only": False, "topics": topics, **old}]}
            answer = await client.ask(name, version, **values)
            expected = "INVALID_PRODUCER_EPOCH" if version <= newest_old else "PRODUCER_FENCED"
            assert expected in str(answer), f"version {version}: {answer}"


@async_test
async def test_txn_offset_commit_to_unknown_partitions_is_refused_in_every_version(tmp_path: Path) -> None:
    """Refused partitions come first and each topic occurs once, as in Kafka."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        await add_offsets(client, producer)
        topics = [
            {"name": "t", "partitions": [committed_partition(0), committed_partition(9)]},
            {"name": "nowhere", "partitions": [committed_partition(0)]},
        ]
        for version in versions("txn_offset_commit"):
            errors = await commit_offsets(client, producer, 0, version, topics=topics)
            assert list(errors.items()) == [
                (("t", 9), "UNKNOWN_TOPIC_OR_PARTITION"),
                (("t", 0), "NONE"),
                (("nowhere", 0), "UNKNOWN_TOPIC_OR_PARTITION"),
            ]
            errors = await commit_offsets(client, producer, 0, version, topics=topics[1:])
            assert errors == {("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION"}
            assert await commit_offsets(client, producer, 0, version, topics=[]) == {}


@async_test
async def test_add_partitions_to_txn_adds_all_or_none(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        for version in versions("add_partitions_to_txn"):
            mixed = [{"name": "t", "partitions": [0, 9]}, {"name": "nowhere", "partitions": [0]}]
            assert await add_partitions(client, producer, mixed, version) == [
                ("t", 0, "OPERATION_NOT_ATTEMPTED"),
                ("t", 9, "UNKNOWN_TOPIC_OR_PARTITION"),
                ("nowhere", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
            ]
            internal = [{"name": "__consumer_offsets", "partitions": [0]}]
            expected = "TOPIC_AUTHORIZATION_FAILED" if version < 4 else "NONE"
            assert await add_partitions(client, producer, internal, version) == [("__consumer_offsets", 0, expected)]
            valid = [{"name": "t", "partitions": [0, 1]}]
            assert await add_partitions(client, producer, valid, version) == [("t", 0, "NONE"), ("t", 1, "NONE")]


@async_test
async def test_add_partitions_to_txn_v4_verifies_several_transactions(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        first, other = await init_producer_id(client), await init_producer_id(client, "other")
        topics = [{"name": "t", "partitions": [0]}]
        requests = [
            {"transactional_id": TX, "verify_only": False, "topics": topics, **first},
            {"transactional_id": TX, "verify_only": True, "topics": [{"name": "t", "partitions": [0, 1]}], **first},
            {"transactional_id": "other", "verify_only": True, "topics": topics, **other},
            {"transactional_id": "nobody", "verify_only": False, "topics": topics, **other},
        ]
        for transactions, expected in (
            (requests[:1], [["NONE"]]),
            (
                requests[1:],
                [["NONE", "TRANSACTION_ABORTABLE"], ["TRANSACTION_ABORTABLE"], ["INVALID_PRODUCER_ID_MAPPING"]],
            ),
            ([], []),
        ):
            answer = await client.ask("add_partitions_to_txn", 5, transactions=transactions)
            assert [
                [
                    partition["partition_error_code"]
                    for topic in result["topic_results"]
                    for partition in topic["results_by_partition"]
                ]
                for result in answer["results_by_transaction"]
            ] == expected


@async_test
async def test_restart_during_transaction_keeps_it(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        await add_offsets(client, producer)
        await commit_offsets(client, producer, 5)
        await harness.restart()
        client = await harness.connect()
        assert await commit_offsets(client, producer, 6) == {("t", 0): "NONE"}
        assert (await end_transaction(client, producer))["error_code"] == "NONE"
        assert await stable_offset(client) == 6
        await harness.restart()
        client = await harness.connect()
        assert await stable_offset(client) == 6
        again = await init_producer_id(client)
        assert again == {**producer, "producer_epoch": producer["producer_epoch"] + 1}
        assert (await init_producer_id(client, "another"))["producer_id"] > producer["producer_id"]


@async_test
async def test_producer_ids_are_unique_after_loss_of_topics_json(tmp_path: Path) -> None:
    """With ``{}`` in ``topics.json`` the server starts without topics; the ids in the transaction log stay in use."""
    async with running_node(tmp_path) as harness:
        producer = await init_producer_id(await harness.connect())
    (tmp_path / "topics.json").write_text("{}")
    (tmp_path / "topics.ends").unlink()
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert (await init_producer_id(client, "another"))["producer_id"] > producer["producer_id"]


@async_test
async def test_end_txn_interrupted_by_stop_is_completed_after_restart(tmp_path: Path) -> None:
    """The server stops directly after the request. Answered or not, the state is complete after the restart."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        await add_offsets(client, producer)
        await commit_offsets(client, producer, 5)
        ending = asyncio.ensure_future(end_transaction(client, producer))
        await asyncio.sleep(0)
        await harness.node.stop()
        outcome = (await asyncio.gather(ending, return_exceptions=True))[0]
        await harness.start()
        client = await harness.connect()
        if not isinstance(outcome, BaseException) and outcome["error_code"] == "NONE":
            assert await stable_offset(client) == 5
        else:
            await init_producer_id(client)
            assert await stable_offset(client) == -1


# Records in topics ---------------------------------------------------------------------------------------------------


@async_test
async def test_read_committed_fetch_ends_at_first_open_transaction(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        await produce(client, batch(b"plain"), None)
        await begin_with_record(client, b"open", producer)
        await produce(client, batch(b"behind"), None)
        everything, committed = await fetch_partition(client, 0), await fetch_partition(client, 1)
        assert record_values(everything) == [b"plain", b"open", b"behind"]
        assert record_values(committed) == [b"plain"]
        assert [
            (partition["high_watermark"], partition["last_stable_offset"]) for partition in (everything, committed)
        ] == [(3, 1)] * 2
        assert (everything["aborted_transactions"], committed["aborted_transactions"]) == (None, [])
        assert await latest(client, 0) == 3
        assert await latest(client, 1) == 1
        await end_transaction(client, producer)
        assert record_values(await fetch_partition(client, 1)) == [b"plain", b"open", b"behind", True]
        assert await latest(client, 1) == 4


async def latest(client: Client, isolation_level: int) -> int:
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    topics = [{"name": "t", "partitions": partitions}]
    answer = await client.ask("list_offsets", 5, replica_id=-1, isolation_level=isolation_level, topics=topics)
    [[partition]] = [topic["partitions"] for topic in answer["topics"]]
    return int(partition["offset"])


@async_test
async def test_read_committed_fetch_lists_aborted_transactions(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        for sequence, (value, committed) in enumerate([(b"a", False), (b"b", True), (b"c", False)]):
            await begin_with_record(client, value, producer, sequence)
            assert (await end_transaction(client, producer, committed))["error_code"] == "NONE"
        fetched = await fetch_partition(client, 1)
        assert record_values(fetched) == [b"a", False, b"b", True, b"c", False]
        aborted = [
            (transaction["producer_id"], transaction["first_offset"]) for transaction in fetched["aborted_transactions"]
        ]
        assert aborted == [(producer["producer_id"], 0), (producer["producer_id"], 4)]
        later = await fetch_partition(client, 1, offset=2)
        assert [transaction["first_offset"] for transaction in later["aborted_transactions"]] == [4]
        assert (await fetch_partition(client, 0))["aborted_transactions"] is None


@async_test
async def test_read_committed_fetch_waits_for_end_of_transaction(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, reader = await harness.connect(), await harness.connect()
        producer = await init_producer_id(client)
        waiting = asyncio.ensure_future(fetch_partition(reader, 1, wait_ms=25_000))
        await begin_with_record(client, b"open", producer)
        assert record_values(await fetch_partition(client, 0)) == [b"open"]
        assert not waiting.done()
        await end_transaction(client, producer)
        assert record_values(await waiting) == [b"open", True]


@async_test
async def test_produce_outside_of_transaction_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        records = batch(b"x", producer)
        assert await produce(client, records) == "INVALID_TXN_STATE"
        assert await produce(client, records, version=11) == "TRANSACTION_ABORTABLE"
        assert await produce(client, records, None) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        assert await produce(client, records, "nobody") == "INVALID_PRODUCER_ID_MAPPING"
        await init_producer_id(client)
        assert await produce(client, records) == "INVALID_PRODUCER_EPOCH"
        assert record_values(await fetch_partition(client, 0)) == []


@async_test
async def test_produce_v12_adds_partition_to_transaction(tmp_path: Path) -> None:
    """KIP-890: no AddPartitionsToTxn, and the next epoch with each end."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        assert await produce(client, batch(b"x", producer), version=12) == "NONE"
        answer = await end_transaction(client, producer, version=5)
        assert await produce_when_complete(client, batch(b"zombie", producer, 1)) == "INVALID_PRODUCER_EPOCH"
        producer = {name: answer[name] for name in producer}
        assert await produce_when_complete(client, batch(b"y", producer)) == "NONE"
        assert record_values(await fetch_partition(client, 0)) == [b"x", True, b"y"]
        assert record_values(await fetch_partition(client, 1)) == [b"x", True]


@async_test
async def test_produce_v12_with_acks_0_gets_no_response(tmp_path: Path) -> None:
    """Not even after the question to the transaction's coordinator. A refused one closes the connection."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        values: dict[str, Plain] = {"transactional_id": TX, "acks": 0, "timeout": 1000}
        topics: Plain = [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"x", producer)}]}]
        client.write(frame("produce", 12, topic_data=topics, **values))
        assert record_values(await fetch_partition(client, 0)) == [b"x"], "the next response is that of the Fetch"
        await init_producer_id(client)
        client.write(frame("produce", 12, topic_data=topics, **values))
        assert await client.responses_until_disconnect() == []


async def produce_when_complete(client: Client, data: bytes) -> str:
    """Produce until the previous transaction is complete; return the error code."""
    while (error := await produce(client, data, version=12)) == CONCURRENT:
        pass
    return error


@async_test
async def test_end_txn_with_deleted_topic_completes(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        await begin_with_record(client, b"x", producer)
        await add_offsets(client, producer)
        await commit_offsets(client, producer, 5)
        await client.ask("delete_topics", 5, topic_names=["t"], timeout=1000)
        assert (await end_transaction(client, producer))["error_code"] == "NONE"
        assert await stable_offset(client) == -1, "the offsets are deleted with the topic"


@async_test
async def test_offset_commit_and_transaction_on_one_connection(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        producer = await init_producer_id(client)
        await add_offsets(client, producer)
        await commit_offsets(client, producer, 5)
        await client.ask("offset_commit", 9, **commit_values("g", offset=60))
        await end_transaction(client, producer)
        assert await stable_offset(client) == 60
