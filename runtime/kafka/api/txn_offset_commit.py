"""TxnOffsetCommit (28): offsets that become effective when a transaction commits. Answered when they are durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Commit, Committed, TxnOffsetCommit
from ....actors.steps import ITEMS_PER_STEP, Steps, pieces
from ..authorization.authorize import authorize, authorize_in_steps
from ..authorization.checks import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps
from ..partition_results import NO_PARTITION, TopicErrors, counts_if_topic_repeated, group_by_topic, split_by_counts
from ..refusals import report_over_limit

LEADER_EPOCH_FROM = 2
LOADING_FROM = 2
MEMBER_FROM = 3  # KIP-447
ABORTABLE_FROM = 4  # KIP-890
IMPLICIT_ADD_FROM = 5  # KIP-890: without AddOffsetsToTxn
NO_LEADER_EPOCH = -1
NO_GENERATION = -1

RefusedPartition = tuple[str, int, ErrorCode]
TopicPartition = tuple[str, int]


def handle(call: Call) -> Steps[None]:
    request, version = call.request, call.version
    denial = authorize(call, WRITE_TRANSACTIONAL_ID, (request.transactional_id,)).error
    denial = denial or authorize(call, READ_GROUP, (request.group_id,)).error
    if denial:
        call.respond_with_error(denial)
        return
    commits, refused = yield from split_commits(call)
    if not commits:
        call.encode_and_respond(lambda: encode(refused, (), call, Committed(())))
        return
    message = TxnOffsetCommit(
        group_id=str(request.group_id),
        transactional_id=request.transactional_id,
        producer_id=int(request.producer_id),
        producer_epoch=request.producer_epoch,
        member_id=request.member_id if version >= MEMBER_FROM else "",
        group_instance_id=request.group_instance_id if version >= MEMBER_FROM else None,
        generation_id=request.generation_id if version >= MEMBER_FROM else NO_GENERATION,
        commits=commits,
        adds_partition_to_transaction=version >= IMPLICIT_ADD_FROM,
        supports_transaction_abortable=version >= ABORTABLE_FROM,
    )
    partitions: list[TopicPartition] = []
    for piece in pieces(commits):
        partitions += [(commit.topic, commit.partition) for commit in piece]
        yield
    call.ask_transactions(message, partial(encode, refused, partitions))


def split_commits(call: Call) -> Steps[tuple[tuple[Commit, ...], tuple[RefusedPartition, ...]]]:
    """Return the commits to partitions that exist, and the partitions that do not exist or are denied."""
    commits: list[Commit] = []
    refused: list[RefusedPartition] = []
    verdicts = yield from authorize_in_steps(call, READ_TOPIC, (topic.name for topic in call.request.topics))
    count = 0
    for requested in call.request.topics:
        count += 1
        if count % ITEMS_PER_STEP == 0:
            yield
        denial = verdicts.error_of(requested.name)
        error = denial or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = None if denial else call.services.topics.get(requested.name)
        for partition in requested.partitions:
            count += 1
            if count % ITEMS_PER_STEP == 0:
                yield
            if topic is None or not topic.has_partition(partition.partition_index):
                refused.append((str(requested.name), partition.partition_index, error))
                continue
            epoch = partition.committed_leader_epoch if call.version >= LEADER_EPOCH_FROM else NO_LEADER_EPOCH
            offset, metadata = partition.committed_offset, partition.committed_metadata or ""
            commits.append(Commit(topic.name, partition.partition_index, offset, epoch, metadata))
        if topic is None and not requested.partitions:
            refused.append((str(requested.name), NO_PARTITION, error))
    return tuple(commits), tuple(refused)


def _error_for_version(call: Call, error: ErrorCode) -> ErrorCode:
    """Replace COORDINATOR_LOAD_IN_PROGRESS, which old versions do not have."""
    is_old = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_FROM
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_old else error


def encode(
    refused: tuple[RefusedPartition, ...], partitions: Sequence[TopicPartition], call: Call, answer: Committed
) -> Body:
    if answer.limit:
        report_over_limit(call, answer.limit)
    response = call.make(
        "TxnOffsetCommitResponse", throttle_time=NO_THROTTLE, topics=topics(refused, partitions, call, answer)
    )
    return write_in_steps(response)


def topics(
    refused: tuple[RefusedPartition, ...], partitions: Sequence[TopicPartition], call: Call, answer: Committed
) -> Iterator[Any]:
    answers = (
        (name, index, _error_for_version(call, error))
        for (name, index), error in zip(partitions, answer.errors, strict=True)
    )
    counts: Sequence[int] = ()
    if not refused:
        requested_counts = (len(topic.partitions) for topic in call.request.topics)
        counts = yield from counts_if_topic_repeated((name for name, _ in partitions), requested_counts)
    grouped: Iterable[TopicErrors[str]] = (
        split_by_counts(answers, counts) if counts else (yield from group_by_topic(chain(refused, answers)))
    )
    for name, errors in grouped:
        entries = (
            call.make("TxnOffsetCommitResponsePartition", partition_index=index, error_code=error)
            for index, error in errors
        )
        yield call.make("TxnOffsetCommitResponseTopic", name=name, partitions=entries)
