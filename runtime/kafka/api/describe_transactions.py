"""DescribeTransactions (65): the states of transactional ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.records import partitions_by_topic
from ....actors.steps import Steps
from ....actors.transactions.rules import Transaction, TransactionState
from ...common.shared_bytes import SharedBytes
from ...log.format.varint import encode_unsigned
from ..authorization.authorize import Verdicts, authorize_in_steps
from ..authorization.checks import DESCRIBE_TRANSACTIONAL_ID, FILTERED_TOPIC
from ..call import Call
from ..codec.codes import NO_THROTTLE, ONE_MILLISECOND, kafka_error
from ..codec.step_writer import write_in_steps

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_START = (-1).to_bytes(8, "big", signed=True)
BYTES_AFTER_START = 8 + 2 + 1 + 1  # producer id, epoch, no topics, no tagged fields


def handle(call: Call) -> Steps[None]:
    verdicts = yield from authorize_in_steps(call, DESCRIBE_TRANSACTIONAL_ID, call.request.transactional_ids)
    fields = {"throttle_time": NO_THROTTLE, "transaction_states": items(call, verdicts)}
    yield from call.respond_in_steps(call.make("DescribeTransactionsResponse", **fields))


def items(call: Call, verdicts: Verdicts) -> Iterator[bytes | SharedBytes | None]:
    """The encoded states, and pauses between them. An id that is requested again gets the same bytes."""
    states: dict[str, bytes | SharedBytes] = {}
    for name in call.request.transactional_ids:
        if name not in states:
            states[name] = (
                (yield from encoded(call, name))
                if verdicts.allows(name)
                else call.schema.write_item(error_state(call, name, verdicts.code))
            )
        yield states[name]


def encoded(call: Call, name: str) -> Steps[bytes | SharedBytes]:
    """Encode a state. If no transaction has begun, the start time is -1 in Kafka, which kio cannot encode."""
    table = call.services.transaction_table
    transaction = table.get(name)
    if transaction is None:
        unknown = table.error_for(name) or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return call.schema.write_item(error_state(call, name, unknown if name else ErrorCode.INVALID_REQUEST))
    if transaction.value.start_timestamp_ms >= 0:
        return (yield from write_in_steps((yield from described(call, transaction))))
    item = call.schema.write_item(state_of(call, transaction))
    end = len(item) - BYTES_AFTER_START
    return item[: end - len(NO_START)] + NO_START + item[end:]


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


def described(call: Call, transaction: Transaction) -> Steps[Any]:
    """The state of a transaction that may have many partitions, as it is now: it may change during the pauses."""
    state, partitions = state_of(call, transaction), transaction.value.partitions
    topics = yield from partitions_by_topic(partitions)
    verdicts = yield from authorize_in_steps(call, FILTERED_TOPIC, (topic for topic, _ in topics))
    shown = (encoded_topic(topic, numbers) for topic, numbers in topics if verdicts.allows(topic))
    return replace(state, topics=shown) if topics else state


def encoded_topic(topic: str, partitions: Sequence[int]) -> bytes:
    """Kafka's TopicData: kio takes a microsecond for each partition."""
    name, count = topic.encode(), len(partitions)
    numbers = Struct(f">{count}i").pack(*partitions)
    return b"".join((encode_unsigned(len(name) + 1), name, encode_unsigned(count + 1), numbers, b"\0"))


def state_of(call: Call, transaction: Transaction) -> Any:
    """The state without its topics."""
    value = transaction.value
    return call.make(
        "TransactionState",
        error_code=kafka_error(ErrorCode.NONE),
        transactional_id=transaction.transactional_id,
        transaction_state=state_name(transaction.state),
        transaction_timeout=timedelta(milliseconds=value.timeout_ms),
        transaction_start_time=EPOCH + max(value.start_timestamp_ms, 0) * ONE_MILLISECOND,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=(),
    )


def state_name(state: TransactionState) -> str:
    """Return Kafka's name of a state: "PrepareCommit"."""
    return state.name.title().replace("_", "")
