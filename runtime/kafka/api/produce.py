"""Produce (0): a producer's batches go into the topics in memory.

The answer comes when the new end offset outlives the process (see ``topics.ends``); the records do not, whatever acks
says. Kafka advertises v0-v2 for the sake of librdkafka and cannot read them, and neither can we.
"""

from __future__ import annotations

from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.transactions.messages import AddPartitions
from ....actors.transactions.rules import NEW_PROTOCOL
from ...topics.batch import transactional_producer
from ...topics.topic import Topic
from ..call import Call
from ..codec.codes import NO_THROTTLE, kafka_error

NO_ANSWER = 0
ACKS = (-1, NO_ANSWER, 1)
NO_OFFSET = -1
BY_ID_SINCE = 13
ABORTABLE_SINCE = 11
JOINS_SINCE = 12  # KIP-890: without AddPartitionsToTxn


def handle(call: Call) -> None:
    joining = join_of(call) if call.version >= JOINS_SINCE and call.request.transactional_id else None
    if joining is not None:
        call.ask_transactions(joining, store_joined)
        return
    responses = tuple(store(call, sent) for sent in call.request.topic_data)
    if call.request.acks != NO_ANSWER:
        call.reply(call.make("ProduceResponse", responses=responses, throttle_time=NO_THROTTLE))
        return
    if any(partition.error_code for topic in responses for partition in topic.partition_responses):
        # As Kafka does: the only way to tell a producer that listens to no answer.
        call.connection.close()
    call.reply_nothing()


def join_of(call: Call) -> AddPartitions | None:
    """The partitions that this request makes part of its transaction; None when there are none that could be."""
    producers: dict[tuple[int, int], set[tuple[str, int]]] = {}
    for sent in call.request.topic_data:
        topic = find(call, sent)
        for one in sent.partition_data:
            producer = transactional_producer(one.records)
            if producer is not None and topic is not None and topic.has_partition(one.index):
                producers.setdefault(producer, set()).add((topic.name, one.index))
    if len(producers) != 1:
        return None
    [((producer_id, epoch), places)] = producers.items()
    return AddPartitions(call.request.transactional_id, producer_id, epoch, frozenset(places), NEW_PROTOCOL)


def store_joined(call: Call, error: ErrorCode) -> bytes:
    """The partitions belong to the transaction now, or why they do not."""
    if error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    refusal = CoordinatorError(error, "the transaction does not take this partition") if error else None
    responses = tuple(store(call, sent, refusal) for sent in call.request.topic_data)
    return call.schema.write(call.make("ProduceResponse", responses=responses, throttle_time=NO_THROTTLE))


def find(call: Call, sent: Any) -> Topic | None:
    topics = call.node.topics
    found: Topic | None = topics.by_id(sent.topic_id) if call.version >= BY_ID_SINCE else topics.get(sent.name)
    return found


def store(call: Call, sent: Any, refusal: CoordinatorError | None = None) -> Any:
    """Store what was sent for one topic, each partition for itself; nothing if all of it is refused."""
    topic = find(call, sent)
    return call.make(
        "TopicProduceResponse",
        name=getattr(sent, "name", None),
        topic_id=getattr(sent, "topic_id", None),
        partition_responses=tuple(append(call, topic, partition, refusal) for partition in sent.partition_data),
    )


def append(call: Call, topic: Topic | None, sent: Any, refused: CoordinatorError | None) -> Any:
    try:
        if refused is not None:
            raise refused
        writable = check(call, topic, sent.index)
        check_transaction(call, writable, sent)
        base_offset = writable.append(sent.index, sent.records)
        start_offset = writable.partitions[sent.index].start_offset
        return answer(call, sent.index, base_offset=base_offset, log_start_offset=start_offset)
    except CoordinatorError as refusal:
        return answer(call, sent.index, refusal.code, error_message=str(refusal))


def check(call: Call, topic: Topic | None, index: int) -> Topic:
    """The topic, if a client may append to this partition of it. Raises CoordinatorError with Kafka's code."""
    if call.request.acks not in ACKS:
        raise CoordinatorError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {call.request.acks}: expected one of {ACKS}")
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if call.version >= BY_ID_SINCE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise CoordinatorError(code, "there is no such topic")
    if call.node.is_loading:  # where its partitions end may only be known when all committed offsets are
        raise CoordinatorError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is still being loaded; try again")
    if topic.is_internal:
        raise CoordinatorError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name!r} is the coordinator's own")
    if not topic.has_partition(index):
        raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {index}")
    return topic


def check_transaction(call: Call, topic: Topic, sent: Any) -> None:
    """Raise CoordinatorError, as Kafka's AddPartitionsToTxnManager does, unless a transaction takes this batch."""
    producer = transactional_producer(sent.records)
    if producer is None:
        return
    name = call.request.transactional_id
    if name is None:
        raise CoordinatorError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch: expected its transactional id",
        )
    transaction = call.node.transaction_table.get(name)
    error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction is not None:
        error = transaction.verify(*producer, (topic.name, sent.index))
    if error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_SINCE:
        error = ErrorCode.INVALID_TXN_STATE
    if error:
        raise CoordinatorError(error, f"the transaction of {name!r} does not take a batch of producer {producer}")


def answer(
    call: Call,
    index: int,
    error: ErrorCode = ErrorCode.NONE,
    base_offset: int = NO_OFFSET,
    log_start_offset: int = NO_OFFSET,
    error_message: str | None = None,
) -> Any:
    return call.make(
        "PartitionProduceResponse",
        index=index,
        error_code=kafka_error(error),
        base_offset=base_offset,
        log_append_time=None,  # the record keeps its producer's time
        log_start_offset=log_start_offset,
        record_errors=(),
        error_message=error_message,
    )
