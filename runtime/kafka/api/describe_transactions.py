"""DescribeTransactions (65): the states of transactional ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.steps import Steps
from ....actors.transactions.rules import Transaction, TransactionState
from ..authorize import Verdicts, authorize, authorize_in_steps
from ..call import Call
from ..checks import DESCRIBE_TRANSACTIONAL_ID, FILTERED_TOPIC
from ..codec.codes import NO_THROTTLE, ONE_MILLISECOND, kafka_error

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_START = (-1).to_bytes(8, "big", signed=True)
BYTES_AFTER_START = 8 + 2 + 1 + 1  # producer id, epoch, no topics, no tagged fields


def handle(call: Call) -> Steps[None]:
    verdicts = yield from authorize_in_steps(call, DESCRIBE_TRANSACTIONAL_ID, call.request.transactional_ids)
    items = (encoded(call, verdicts, name) for name in call.request.transactional_ids)
    fields = {"throttle_time": NO_THROTTLE, "transaction_states": items}
    yield from call.respond_in_steps(call.make("DescribeTransactionsResponse", **fields))


def encoded(call: Call, verdicts: Verdicts, name: str) -> bytes:
    """Encode a state. If no transaction has begun, the start time is -1 in Kafka, which kio cannot encode."""
    if not verdicts.allows(name):
        return call.schema.write_item(error_state(call, name, verdicts.code))
    item = call.schema.write_item(transaction_state(call, name))
    transaction = call.services.transaction_table.get(name)
    if transaction is None or transaction.value.start_timestamp_ms >= 0:
        return item
    end = len(item) - BYTES_AFTER_START
    return item[: end - len(NO_START)] + NO_START + item[end:]


def transaction_state(call: Call, name: str) -> Any:
    transaction = call.services.transaction_table.get(name)
    if transaction is not None:
        return described(call, transaction)
    unknown = call.services.transaction_table.error_for(name) or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    return error_state(call, name, unknown if name else ErrorCode.INVALID_REQUEST)


def error_state(call: Call, name: str, error: ErrorCode) -> Any:
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
    verdicts = authorize(call, FILTERED_TOPIC, (name for name, _ in value.partitions))
    shown = (partition for partition in sorted(value.partitions) if verdicts.allows(partition[0]))
    topics = groupby(shown, key=lambda partition: partition[0])
    return call.make(
        "TransactionState",
        error_code=kafka_error(ErrorCode.NONE),
        transactional_id=transaction.transactional_id,
        transaction_state=state_name(transaction.state),
        transaction_timeout=timedelta(milliseconds=value.timeout_ms),
        transaction_start_time=EPOCH + max(value.start_timestamp_ms, 0) * ONE_MILLISECOND,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=tuple(
            call.make("TopicData", topic=topic, partitions=tuple(partition for _, partition in partitions))
            for topic, partitions in topics
        ),
    )


def state_name(state: TransactionState) -> str:
    """Return Kafka's name of a state: "PrepareCommit"."""
    return state.name.title().replace("_", "")
