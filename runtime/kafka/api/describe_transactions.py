"""DescribeTransactions (65): what transactional ids are doing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.transactions.rules import Transaction, TransactionState
from ..call import Call
from ..codec.codes import NO_THROTTLE, ONE_MILLISECOND, kafka_error

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_START = (-1).to_bytes(8, "big", signed=True)
BEHIND_START = 8 + 2 + 1 + 1  # producer id, epoch, no topics, no tagged fields


def handle(call: Call) -> None:
    items = [encoded(call, name) for name in call.request.transactional_ids]
    response = call.make("DescribeTransactionsResponse", throttle_time=NO_THROTTLE, transaction_states=())
    call.reply_bytes(call.schema.write_array(response, items))


def encoded(call: Call, name: str) -> bytes:
    """A state as bytes. Of a producer that has not begun a transaction Kafka says -1 for the time; kio cannot."""
    item = call.schema.write_item(state(call, name))
    transaction = call.node.transaction_table.get(name)
    if transaction is None or transaction.value.start_timestamp_ms >= 0:
        return item
    place = len(item) - BEHIND_START
    return item[: place - len(NO_START)] + NO_START + item[place:]


def state(call: Call, name: str) -> Any:
    transaction = call.node.transaction_table.get(name)
    if transaction is not None:
        return described(call, transaction)
    unknown = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if call.node.is_loading else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    error = unknown if name else ErrorCode.INVALID_REQUEST
    return call.make(
        "TransactionState",
        error_code=kafka_error(error),
        transactional_id=name,
        transaction_state="",
        transaction_timeout=NO_THROTTLE,
        transaction_start_time=EPOCH,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


def described(call: Call, transaction: Transaction) -> Any:
    value = transaction.value
    topics = groupby(sorted(value.partitions), key=lambda place: place[0])
    return call.make(
        "TransactionState",
        error_code=kafka_error(ErrorCode.NONE),
        transactional_id=transaction.transactional_id,
        transaction_state=name_of(transaction.state),
        transaction_timeout=timedelta(milliseconds=value.timeout_ms),
        transaction_start_time=EPOCH + max(value.start_timestamp_ms, 0) * ONE_MILLISECOND,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=tuple(
            call.make("TopicData", topic=topic, partitions=tuple(partition for _, partition in places))
            for topic, places in topics
        ),
    )


def name_of(one: TransactionState) -> str:
    """A state as Kafka writes it: "PrepareCommit"."""
    return one.name.title().replace("_", "")
