"""AddPartitionsToTxn (24): add partitions to a transaction. Version 4 and later: to several, for brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.transactions.messages import AddPartitions, VerifyPartitions
from ....actors.transactions.rules import NEW_PROTOCOL
from ..authorize import ALL_ALLOWED, Verdicts, authorize
from ..call import Call
from ..checks import ACT_AS_BROKER, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ..codec.codes import NO_THROTTLE, producer_error
from ..scatter_gather import ScatterGather

FENCED_FROM = 2
TRANSACTIONS_FROM = 4

TopicPartition = tuple[str, int]


class TransactionEntry(NamedTuple):
    """The entry of one transaction. ``errors``: one per partition if any is refused, else None."""

    message: AddPartitions | VerifyPartitions
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    errors: tuple[ErrorCode, ...] | None


def handle(call: Call) -> None:
    if call.version >= TRANSACTIONS_FROM:
        handle_broker_request(call)
        return
    request = call.request
    denial = authorize(call, WRITE_TRANSACTIONAL_ID, (request.v3_and_below_transactional_id,)).error
    if denial:
        call.respond_with_error(denial)
    else:
        add(call, authorize(call, WRITE_TOPIC, (topic.name for topic in request.v3_and_below_topics)))


def handle_broker_request(call: Call) -> None:
    """As in Kafka, the broker has authorized its client, and a denial has no entries."""
    denial = authorize(call, ACT_AS_BROKER).error
    if denial:
        fields = {"throttle_time": NO_THROTTLE, "error_code": denial, "results_by_transaction": ()}
        call.respond(call.make("AddPartitionsToTxnResponse", **fields))
    else:
        add(call, ALL_ALLOWED)


def add(call: Call, verdicts: Verdicts) -> None:
    requests = [check_transaction(call, verdicts, *entry) for entry in transaction_entries(call)]
    messages = [request.message for request in requests if request.errors is None]
    post = call.services.transactions.post
    ScatterGather(call, messages, lambda replies: encode(call, requests, replies), post).send_next_batch()


def transaction_entries(call: Call) -> Iterable[tuple[str, int, int, bool, Any]]:
    """Yield transactional id, producer id, epoch, whether it is only a check, and topics."""
    request = call.request
    if call.version >= TRANSACTIONS_FROM:
        for entry in request.transactions:
            yield entry.transactional_id, entry.producer_id, entry.producer_epoch, entry.verify_only, entry.topics
    else:
        producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        yield request.v3_and_below_transactional_id, *producer, False, request.v3_and_below_topics


def check_transaction(
    call: Call, verdicts: Verdicts, name: str, producer_id: int, epoch: int, verify_only: bool, topics: Any
) -> TransactionEntry:
    partitions = tuple((str(topic.name), int(index)) for topic in topics for index in topic.partitions)
    names = tuple(str(topic.name) for topic in topics)
    errors = tuple(verdicts.error_of(partition[0]) or partition_error(call, *partition) for partition in partitions)
    producer = int(producer_id), int(epoch)
    if verify_only:
        message: AddPartitions | VerifyPartitions = VerifyPartitions(name, *producer, partitions)
    else:
        protocol = NEW_PROTOCOL if call.version >= TRANSACTIONS_FROM else 0
        message = AddPartitions(name, *producer, frozenset(partitions), protocol)
    if not any(errors):
        return TransactionEntry(message, names, partitions, None)
    return TransactionEntry(
        message, names, partitions, tuple(error or ErrorCode.OPERATION_NOT_ATTEMPTED for error in errors)
    )


def partition_error(call: Call, name: str, index: int) -> ErrorCode:
    """Return the error of a partition. Internal topics are refused to clients, but not to brokers (version 4)."""
    topic = call.services.topics.get(name)
    if topic is not None and topic.is_internal and call.version < TRANSACTIONS_FROM:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    exists = topic is not None and topic.has_partition(index)
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def encode(
    call: Call, requests: Sequence[TransactionEntry], replies: Sequence[ErrorCode | tuple[ErrorCode, ...]]
) -> bytes:
    remaining = iter(replies)
    results = [
        result_topics(call, request, errors_of(request, next(remaining) if request.errors is None else request.errors))
        for request in requests
    ]
    if call.version < TRANSACTIONS_FROM:
        [topics] = results
        fields: dict[str, Any] = {"results_by_topic_v3_and_below": topics}
    else:
        fields = {
            "error_code": ErrorCode.NONE,
            "results_by_transaction": tuple(
                call.make(
                    "AddPartitionsToTxnResult", transactional_id=request.message.transactional_id, topic_results=topics
                )
                for request, topics in zip(requests, results, strict=True)
            ),
        }
    return call.schema.write(call.make("AddPartitionsToTxnResponse", throttle_time=NO_THROTTLE, **fields))


def errors_of(request: TransactionEntry, reply: ErrorCode | tuple[ErrorCode, ...]) -> tuple[ErrorCode, ...]:
    """Return an error for each partition. ``reply`` is one error for all, or one for each."""
    return (reply,) * len(request.partitions) if isinstance(reply, ErrorCode) else reply


def result_topics(call: Call, request: TransactionEntry, errors: Sequence[ErrorCode]) -> tuple[Any, ...]:
    topics: dict[str, list[Any]] = {name: [] for name in request.topics} if request.errors is None else {}
    for (name, index), error in zip(request.partitions, errors, strict=True):
        code = producer_error(error, call.version >= FENCED_FROM)
        result = call.make("AddPartitionsToTxnPartitionResult", partition_index=index, partition_error_code=code)
        topics.setdefault(name, []).append(result)
    return tuple(
        call.make("AddPartitionsToTxnTopicResult", name=name, results_by_partition=tuple(parts))
        for name, parts in topics.items()
    )
