"""AddPartitionsToTxn (24): add partitions to a transaction. Version 4 and later: to several, for brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.steps import Steps, pieces
from ....actors.transactions.messages import AddPartitions, VerifyPartitions
from ....actors.transactions.rules import NEW_PROTOCOL
from ...common.shared_bytes import SharedBytes
from ..authorization.authorize import ALL_ALLOWED, Verdicts, authorize, authorize_in_steps
from ..authorization.checks import ACT_AS_BROKER, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ..call import Call, release_later
from ..codec.codes import NO_THROTTLE, producer_error
from ..codec.step_writer import write_in_steps
from ..scatter_gather import ScatterGather

FENCED_FROM = 2
TRANSACTIONS_FROM = 4
PARTITIONS_PER_STEP = 64

TopicPartition = tuple[str, int]


class TransactionEntry(NamedTuple):
    """The entry of one transaction. ``topics``: of the request. ``errors``: one per partition if any is refused,
    and then the others are not added either."""

    message: AddPartitions | VerifyPartitions
    topics: Any
    partitions: Sequence[TopicPartition]
    errors: Sequence[ErrorCode] | None


def handle(call: Call) -> Steps[None]:
    if call.version >= TRANSACTIONS_FROM:
        yield from handle_broker_request(call)
        return
    request = call.request
    denial = authorize(call, WRITE_TRANSACTIONAL_ID, (request.v3_and_below_transactional_id,)).error
    if denial:
        call.respond_with_error(denial)
    else:
        names = (topic.name for topic in request.v3_and_below_topics)
        yield from add(call, (yield from authorize_in_steps(call, WRITE_TOPIC, names)))


def handle_broker_request(call: Call) -> Steps[None]:
    """As in Kafka, the broker has authorized its client, and a denial has no entries.

    A node of the cluster needs no ACL: it has proved that it is one.
    """
    gate = call.services.peer_gate
    is_node = gate is not None and gate.admit(call.connection.client_id, call.connection) is not None
    denial = ErrorCode.NONE if is_node else authorize(call, ACT_AS_BROKER).error
    if denial:
        fields = {"throttle_time": NO_THROTTLE, "error_code": denial, "results_by_transaction": ()}
        call.respond(call.make("AddPartitionsToTxnResponse", **fields))
    else:
        yield from add(call, ALL_ALLOWED)


def add(call: Call, verdicts: Verdicts) -> Steps[None]:
    requests = []
    for entry in transaction_entries(call):
        requests.append((yield from check_transaction(call, verdicts, *entry)))
        yield
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
) -> Steps[TransactionEntry]:
    requested = ((str(topic.name), int(index)) for topic in topics for index in topic.partitions)
    partitions: list[TopicPartition] = []
    different: set[TopicPartition] = set()
    errors: list[ErrorCode] = []
    for piece in pieces(requested):
        partitions += piece
        different.update(piece)
        errors += (verdicts.error_of(topic) or partition_error(call, topic, index) for topic, index in piece)
        yield
    producer = int(producer_id), int(epoch)
    if verify_only:
        message: AddPartitions | VerifyPartitions = VerifyPartitions(name, *producer, tuple(partitions))
    else:
        protocol = NEW_PROTOCOL if call.version >= TRANSACTIONS_FROM else 0
        message = AddPartitions(name, *producer, frozenset(different), protocol)
    return TransactionEntry(message, topics, partitions, errors if any(errors) else None)


def partition_error(call: Call, name: str, index: int) -> ErrorCode:
    """Return the error of a partition. Internal topics are refused to clients, but not to brokers (version 4)."""
    topic = call.services.topics.get(name)
    if topic is not None and topic.is_internal and call.version < TRANSACTIONS_FROM:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    exists = topic is not None and topic.has_partition(index)
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def encode(
    call: Call, requests: Sequence[TransactionEntry], replies: Sequence[ErrorCode | Sequence[ErrorCode]]
) -> Steps[bytes | SharedBytes]:
    remaining = iter(replies)
    results = (
        (request, errors_of(request, next(remaining) if request.errors is None else request.errors))
        for request in requests
    )
    if call.version < TRANSACTIONS_FROM:
        fields: dict[str, Any] = {"results_by_topic_v3_and_below": result_topics(call, *next(results))}
    else:
        fields = {
            "error_code": ErrorCode.NONE,
            "results_by_transaction": (
                call.make(
                    "AddPartitionsToTxnResult",
                    transactional_id=request.message.transactional_id,
                    topic_results=result_topics(call, request, errors),
                )
                for request, errors in results
            ),
        }
    response = call.make("AddPartitionsToTxnResponse", throttle_time=NO_THROTTLE, **fields)
    body = yield from write_in_steps(response)
    release_later(call, requests, replies)
    return body


def errors_of(request: TransactionEntry, reply: ErrorCode | Sequence[ErrorCode]) -> Sequence[ErrorCode]:
    """Return an error for each partition. ``reply`` is one error for all, or one for each."""
    return (reply,) * len(request.partitions) if isinstance(reply, ErrorCode) else reply


def result_topics(call: Call, request: TransactionEntry, errors: Sequence[ErrorCode]) -> Iterator[Any]:
    """The topics of a transaction, for ``step_writer``."""
    topics: dict[str, list[tuple[int, ErrorCode]]] = {}
    for number, topic in enumerate(request.topics if request.errors is None else (), 1):
        topics[str(topic.name)] = []
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    accepted = ErrorCode.NONE if request.errors is None else ErrorCode.OPERATION_NOT_ATTEMPTED
    for number, ((name, index), error) in enumerate(zip(request.partitions, errors, strict=True), 1):
        topics.setdefault(name, []).append((index, error or accepted))
        if number % PARTITIONS_PER_STEP == 0:
            yield None
    for name in list(topics):
        results = partition_results(call, topics.pop(name))
        yield call.make("AddPartitionsToTxnTopicResult", name=name, results_by_partition=results)


def partition_results(call: Call, results: Iterable[tuple[int, ErrorCode]]) -> Iterator[Any]:
    for index, error in results:
        code = producer_error(error, call.version >= FENCED_FROM)
        yield call.make("AddPartitionsToTxnPartitionResult", partition_index=index, partition_error_code=code)
