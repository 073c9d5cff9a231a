"""AddPartitionsToTxn (24): what a transaction will write to. From version 4 on several transactions, as brokers ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.transactions.messages import AddPartitions, VerifyPartitions
from ....actors.transactions.rules import NEW_PROTOCOL
from ..call import Call
from ..codec.codes import NO_THROTTLE, producer_error
from ..gather import Gather

FENCED_FROM = 2
TRANSACTIONS_FROM = 4

Place = tuple[str, int]


class Asked(NamedTuple):
    """What one transaction asks for. ``errors``: why it may not, if not all of its partitions can be written to."""

    message: AddPartitions | VerifyPartitions
    topics: tuple[str, ...]
    places: tuple[Place, ...]
    errors: tuple[ErrorCode, ...] | None


def handle(call: Call) -> None:
    asked = [examine(call, *transaction) for transaction in transactions(call)]
    sent = [one.message for one in asked if one.errors is None]
    Gather(call, sent, lambda answers: encode(call, asked, answers), call.node.transactions.post).send()


def transactions(call: Call) -> Iterable[tuple[str, int, int, bool, Any]]:
    """Transactional id, producer id, epoch, whether it only asks, and topics."""
    request = call.request
    if call.version >= TRANSACTIONS_FROM:
        for one in request.transactions:
            yield one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only, one.topics
    else:
        producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        yield request.v3_and_below_transactional_id, *producer, False, request.v3_and_below_topics


def examine(call: Call, name: str, producer_id: int, epoch: int, only_asks: bool, topics: Any) -> Asked:
    places = tuple((str(topic.name), int(index)) for topic in topics for index in topic.partitions)
    names = tuple(str(topic.name) for topic in topics)
    errors = tuple(refusal_of(call, *place) for place in places)
    producer = int(producer_id), int(epoch)
    if only_asks:
        message: AddPartitions | VerifyPartitions = VerifyPartitions(name, *producer, places)
    else:
        protocol = NEW_PROTOCOL if call.version >= TRANSACTIONS_FROM else 0
        message = AddPartitions(name, *producer, frozenset(places), protocol)
    if not any(errors):
        return Asked(message, names, places, None)
    return Asked(message, names, places, tuple(error or ErrorCode.OPERATION_NOT_ATTEMPTED for error in errors))


def refusal_of(call: Call, name: str, index: int) -> ErrorCode:
    """Why a partition cannot be written to. What clients may not touch is Kafka's own business, between brokers."""
    topic = call.node.topics.get(name)
    if topic is not None and topic.is_internal and call.version < TRANSACTIONS_FROM:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_there = topic is not None and topic.has_partition(index)
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def encode(call: Call, asked: Sequence[Asked], answers: Sequence[ErrorCode | tuple[ErrorCode, ...]]) -> bytes:
    told = iter(answers)
    results = [
        result_topics(call, one, errors_of(one, next(told) if one.errors is None else one.errors)) for one in asked
    ]
    if call.version < TRANSACTIONS_FROM:
        [topics] = results
        made: dict[str, Any] = {"results_by_topic_v3_and_below": topics}
    else:
        made = {
            "error_code": ErrorCode.NONE,
            "results_by_transaction": tuple(
                call.make(
                    "AddPartitionsToTxnResult", transactional_id=one.message.transactional_id, topic_results=topics
                )
                for one, topics in zip(asked, results, strict=True)
            ),
        }
    return call.schema.write(call.make("AddPartitionsToTxnResponse", throttle_time=NO_THROTTLE, **made))


def errors_of(asked: Asked, answer: ErrorCode | tuple[ErrorCode, ...]) -> tuple[ErrorCode, ...]:
    """An error for each place: one for all, or one for each."""
    return (answer,) * len(asked.places) if isinstance(answer, ErrorCode) else answer


def result_topics(call: Call, asked: Asked, errors: Sequence[ErrorCode]) -> tuple[Any, ...]:
    topics: dict[str, list[Any]] = {name: [] for name in asked.topics} if asked.errors is None else {}
    for (name, index), error in zip(asked.places, errors, strict=True):
        code = producer_error(error, call.version >= FENCED_FROM)
        made = call.make("AddPartitionsToTxnPartitionResult", partition_index=index, partition_error_code=code)
        topics.setdefault(name, []).append(made)
    return tuple(
        call.make("AddPartitionsToTxnTopicResult", name=name, results_by_partition=tuple(parts))
        for name, parts in topics.items()
    )
