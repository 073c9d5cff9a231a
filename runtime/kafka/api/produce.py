"""Produce (0): append batches to topics in memory.

Answered when the new end offset survives an exit of the process (see ``topics.ends``). The records do not survive it,
whatever acks says. As in Kafka, v0-v2 are advertised for librdkafka, but are not served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ....actors.transactions.messages import AddPartitions, VerifyPartitions
from ....actors.transactions.peers import Peers
from ....actors.transactions.rules import NEW_PROTOCOL
from ....actors.transactions.table import TransactionTable
from ...common.shared_bytes import SharedBytes
from ...topics.batch import transactional_producer
from ...topics.partition_log import PartitionLog
from ...topics.produced_times import InvalidTime, InvalidTimestamps, find_invalid_times
from ...topics.topic import Topic
from ...topics.transactions import TransactionCheck
from ..authorization.authorize import ALL_ALLOWED, Verdicts, allows_everything, authorize_in_steps
from ..authorization.checks import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ..call import NO_ACKS, NO_BODY, Body, Call
from ..codec.codes import NO_THROTTLE, kafka_error
from ..codec.step_writer import write_in_steps
from .list_offsets import leader_error

ACKS = (-1, NO_ACKS, 1)
NO_OFFSET = -1
TOPIC_ID_FROM = 13
ABORTABLE_FROM = 11
RECORD_ERRORS_FROM = 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BATCHES_PER_STEP = 64  # whose headers are read
IMPLICIT_ADD_FROM = 12  # KIP-890: without AddPartitionsToTxn


UNVERIFIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of the coordinator for which Kafka's ReplicaManager answers NOT_ENOUGH_REPLICAS, which all clients retry."""


class Admission(NamedTuple):
    """Which batches are stored: none if there is a ``refusal``. ``checks``: None if this node decides alone, else the
    partitions (topic and index) for which the transaction's coordinator was asked.
    """

    refusal: CoordinatorError | None = None
    checks: Mapping[tuple[str, int], TransactionCheck] | None = None


HERE = Admission()


def handle(call: Call) -> Steps[None]:
    ids = yield from transactional_ids(call)
    if (yield from authorize_in_steps(call, WRITE_TRANSACTIONAL_ID, ids)).error:
        yield from store_and_respond(call, ALL_ALLOWED, Admission(CoordinatorError(*WRITE_TRANSACTIONAL_ID.denial)))
        return
    verdicts = yield from authorize_in_steps(call, WRITE_TOPIC, topic_names(call))
    peers, partitions = coordinating_peers(call), None
    if call.request.transactional_id and (peers is not None or call.version >= IMPLICIT_ADD_FROM):
        partitions = yield from partitions_to_add(call, verdicts)
    if partitions is None:
        yield from store_and_respond(call, verdicts)
    elif peers is None:
        call.ask_transactions(partitions, partial(store_after_add, verdicts))
    else:
        yield from ask_other_node(call, verdicts, peers, partitions)


def coordinating_peers(call: Call) -> Peers | None:
    """The other nodes, if one of them coordinates the transactions of the request."""
    services, name = call.services, call.request.transactional_id
    if name is None or services.peers is None:
        return None
    return services.peers if services.transaction_table.error_for(name) is ErrorCode.NOT_COORDINATOR else None


def ask_other_node(call: Call, verdicts: Verdicts, peers: Peers, added: AddPartitions) -> Steps[None]:
    """Ask the coordinator about partitions in which the transaction has no batches yet. Then store the batches."""
    checks: dict[tuple[str, int], TransactionCheck] = {}
    for name, index in added.partitions:
        topic = call.services.topics.get(name)
        if topic is not None and topic.has_partition(index) and not leader_error(call, topic):
            log = topic.partitions[index]
            if not log.has_open_transaction(added.producer_id, added.producer_epoch):
                checks[name, index] = log.transactions.begin_check(added.producer_id)
        yield
    if checks:
        call.ask_transactions(question(call, added, checks), partial(store_after_check, verdicts, checks), peers)
    else:
        yield from store_and_respond(call, verdicts, Admission(checks=checks))


def question(
    call: Call, added: AddPartitions, partitions: Iterable[tuple[str, int]]
) -> AddPartitions | VerifyPartitions:
    if call.version >= IMPLICIT_ADD_FROM:
        return added._replace(partitions=frozenset(partitions))
    return VerifyPartitions(added.transactional_id, added.producer_id, added.producer_epoch, tuple(partitions))


def store_after_check(
    verdicts: Verdicts, checks: Mapping[tuple[str, int], TransactionCheck], call: Call, error: ErrorCode
) -> Body:
    """Store the batches that the coordinator on another node allows, and encode the response."""
    refusal = CoordinatorError(*refusal_of(call, error)) if error else None
    return store(call, verdicts, Admission(refusal, checks))


def refusal_of(call: Call, error: ErrorCode) -> tuple[ErrorCode, str]:
    """The error of a batch that its transaction does not allow, as in Kafka's ReplicaManager."""
    if error in UNVERIFIED or (error is ErrorCode.CONCURRENT_TRANSACTIONS and call.version < IMPLICIT_ADD_FROM):
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator of the transaction cannot be asked: {error.name}"
    if error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_FROM:
        error = ErrorCode.INVALID_TXN_STATE
    return error, f"the transaction of {call.request.transactional_id!r} does not allow this batch"


def transactional_ids(call: Call) -> Steps[tuple[str, ...]]:
    """Return the transactional id if the request has one and transactional batches. Not needed if all is allowed."""
    name = call.request.transactional_id
    if name is None or allows_everything(call):
        return ()
    batches = (partition.records for topic in call.request.topic_data for partition in topic.partition_data)
    for piece in pieces(batches, BATCHES_PER_STEP):
        if any(transactional_producer(records) is not None for records in piece):
            return (name,)
        yield
    return ()


def topic_names(call: Call) -> Iterable[str]:
    """Yield the names of the topics, except those with an unknown id."""
    for request in call.request.topic_data:
        topic = find(call, request)
        if topic is not None:
            yield topic.name
        elif call.version < TOPIC_ID_FROM:
            yield request.name


def store_and_respond(call: Call, verdicts: Verdicts, admission: Admission = HERE) -> Steps[None]:
    body = yield from store(call, verdicts, admission)
    if body is not NO_BODY:
        call.respond_with_bytes(body)


def partitions_to_add(call: Call, verdicts: Verdicts) -> Steps[AddPartitions | None]:
    """Return the partitions that this request adds to its transaction; None if there are none."""
    producers: dict[tuple[int, int], set[tuple[str, int]]] = {}
    for request in call.request.topic_data:
        yield
        topic = find(call, request)
        if topic is not None and not verdicts.allows(topic.name):
            continue
        for number, partition in enumerate(request.partition_data, 1):
            if number % BATCHES_PER_STEP == 0:
                yield
            producer = transactional_producer(partition.records)
            if producer is not None and topic is not None and topic.has_partition(partition.index):
                producers.setdefault(producer, set()).add((topic.name, partition.index))
    if len(producers) != 1:
        return None
    [((producer_id, epoch), partitions)] = producers.items()
    return AddPartitions(call.request.transactional_id, producer_id, epoch, frozenset(partitions), NEW_PROTOCOL)


def store_after_add(verdicts: Verdicts, call: Call, error: ErrorCode) -> Body:
    """Store the batches if the partitions were added to the transaction, and encode the response."""
    if error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    refusal = CoordinatorError(error, "this partition cannot be added to the transaction") if error else None
    return store(call, verdicts, Admission(refusal))


def store(call: Call, verdicts: Verdicts, admission: Admission) -> Steps[bytes | SharedBytes]:
    """Store the batches while the response is encoded. NO_BODY for acks=0: the call is completed without a response."""
    responses = topic_responses(call, verdicts, admission)
    if call.request.acks == NO_ACKS:
        yield from complete_without_response(call, responses)
        return NO_BODY
    return (yield from write_in_steps(call.make("ProduceResponse", responses=responses, throttle_time=NO_THROTTLE)))


def complete_without_response(call: Call, responses: Iterator[Any]) -> Steps[None]:
    has_error = False
    for topic in responses:
        yield
        for partition in topic.partition_responses:
            has_error |= partition is not None and bool(partition.error_code)
            yield
    if has_error:
        # As in Kafka: closing is the only way to report an error to a producer that gets no response.
        call.connection.close()
    call.respond_with_nothing()


def find(call: Call, request: Any) -> Topic | None:
    topics = call.services.topics
    topic: Topic | None = topics.by_id(request.topic_id) if call.version >= TOPIC_ID_FROM else topics.get(request.name)
    return topic


def topic_responses(call: Call, verdicts: Verdicts, whole: Admission) -> Iterator[Any]:
    """Append the batches, each partition separately. A topic's responses are an iterator, which appends."""
    for request in call.request.topic_data:
        topic, admission = find(call, request), whole
        if not verdicts.allows(topic.name if topic else getattr(request, "name", "")):
            admission = Admission(CoordinatorError(verdicts.code, ""))  # as in Kafka, without a text
        yield call.make(
            "TopicProduceResponse",
            name=getattr(request, "name", None),
            topic_id=getattr(request, "topic_id", None),
            partition_responses=partition_responses(call, topic, request, admission),
        )


def partition_responses(call: Call, topic: Topic | None, request: Any, admission: Admission) -> Iterator[Any]:
    """Yield the response of each partition, and None for a pause."""
    for partition in request.partition_data:
        if topic is None or admission.refusal is not None:
            yield append(call, topic, partition, admission)
            continue
        now_ms = call.services.clock.wall_ms()
        invalid_times = yield from find_invalid_times(partition.records, topic.policy.timestamps, now_ms)
        yield append(call, topic, partition, admission, now_ms, invalid_times)


def append(
    call: Call,
    topic: Topic | None,
    request: Any,
    admission: Admission,
    now_ms: int = 0,
    invalid_times: Sequence[InvalidTime] | None = None,
) -> Any:
    index = request.index
    try:
        if admission.refusal is not None:
            raise admission.refusal
        writable = check(call, topic, index)
        check_transaction(call, writable, request, admission.checks)
        append_time_ms = now_ms if writable.policy.timestamps.is_append_time else None
        base_offset = writable.append(index, request.records, append_time_ms, invalid_times)
        start_offset = writable.partitions[index].start_offset
        return answer(
            call, index, base_offset=base_offset, log_start_offset=start_offset, append_time_ms=append_time_ms
        )
    except InvalidTimestamps as refusal:
        assert topic is not None
        return answer(
            call,
            index,
            refusal.code,
            log_start_offset=topic.partitions[index].start_offset,
            error_message=str(refusal),
            record_errors=record_errors(call, refusal.records),
        )
    except CoordinatorError as refusal:
        return answer(call, index, refusal.code, error_message=str(refusal) or None)


def record_errors(call: Call, records: Sequence[InvalidTime]) -> Iterator[Any]:
    if call.version >= RECORD_ERRORS_FROM:
        for record in records:
            yield call.make(
                "BatchIndexAndErrorMessage", batch_index=record.batch_index, batch_index_error_message=record.message
            )


def check(call: Call, topic: Topic | None, index: int) -> Topic:
    """Return the topic if a client may append to the partition. Raises CoordinatorError."""
    if call.request.acks not in ACKS:
        raise CoordinatorError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {call.request.acks}: expected one of {ACKS}")
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if call.version >= TOPIC_ID_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise CoordinatorError(code, "there is no such topic")
    if call.services.is_loading:  # partition ends may depend on committed offsets that are not loaded yet
        raise CoordinatorError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is still being loaded; try again")
    if topic.is_internal:
        raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name!r} is internal")
    if not topic.has_partition(index):
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {index}")
    if leader_error(call, topic):
        raise CoordinatorError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another node leads the topic {topic.name!r}")
    return topic


def check_transaction(
    call: Call, topic: Topic, request: Any, checks: Mapping[tuple[str, int], TransactionCheck] | None
) -> None:
    """Raise CoordinatorError if the transaction does not allow this batch, like Kafka's AddPartitionsToTxnManager."""
    producer = transactional_producer(request.records)
    if producer is None:
        return
    name = call.request.transactional_id
    if name is None:
        raise CoordinatorError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch needs a transactional id",
        )
    error = ErrorCode.NONE
    if checks is None:
        error = verify(call.services.transaction_table, name, producer, (topic.name, request.index))
    elif not is_checked(topic.partitions[request.index], producer, checks.get((topic.name, request.index))):
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the client asks again, and so does this node
    if error:
        raise CoordinatorError(*refusal_of(call, error))


def verify(
    table: TransactionTable, transactional_id: str, producer: tuple[int, int], partition: tuple[str, int]
) -> ErrorCode:
    transaction = table.get(transactional_id)
    if transaction is None:
        return table.error_for(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return transaction.verify_partition(*producer, partition)


def is_checked(log: PartitionLog, producer: tuple[int, int], check: TransactionCheck | None) -> bool:
    """Whether no marker has come since the coordinator was asked."""
    return log.has_open_transaction(*producer) or log.transactions.is_current(check)


def answer(
    call: Call,
    index: int,
    error: ErrorCode = ErrorCode.NONE,
    base_offset: int = NO_OFFSET,
    log_start_offset: int = NO_OFFSET,
    error_message: str | None = None,
    append_time_ms: int | None = None,
    record_errors: Iterable[Any] = (),
) -> Any:
    """``append_time_ms``: None if records keep the timestamps of the producer."""
    return call.make(
        "PartitionProduceResponse",
        index=index,
        error_code=kafka_error(error),
        base_offset=base_offset,
        log_append_time=None if append_time_ms is None else EPOCH + timedelta(milliseconds=append_time_ms),
        log_start_offset=log_start_offset,
        record_errors=record_errors,
        error_message=error_message,
    )
