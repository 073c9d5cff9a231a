"""TxnOffsetCommit (28): offsets that count when a transaction commits. Answered when they are durable."""

from __future__ import annotations

from functools import partial

from ....actors.errors import ErrorCode
from ....actors.messages import Commit, Committed, TxnOffsetCommit
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..places import NO_PARTITION, apart, counts_if_twice, together

LEADER_EPOCH_FROM = 2
LOADING_FROM = 2
MEMBER_FROM = 3  # KIP-447
ABORTABLE_FROM = 4  # KIP-890
JOINS_FROM = 5  # KIP-890: without AddOffsetsToTxn
NO_LEADER_EPOCH = -1
NO_GENERATION = -1

Place = tuple[str, int]


def handle(call: Call) -> None:
    request, version = call.request, call.version
    commits, refused = sort(call)
    if not commits:
        call.reply_bytes(encode(refused, (), call, Committed(())))
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
        adds_partition_to_transaction=version >= JOINS_FROM,
        supports_transaction_abortable=version >= ABORTABLE_FROM,
    )
    places = tuple((commit.topic, commit.partition) for commit in commits)
    call.ask_transactions(message, partial(encode, refused, places))


def sort(call: Call) -> tuple[tuple[Commit, ...], tuple[Place, ...]]:
    """The commits to partitions that exist, and the partitions that do not."""
    commits: list[Commit] = []
    refused: list[Place] = []
    for asked in call.request.topics:
        topic = call.node.topics.get(asked.name)
        for one in asked.partitions:
            if topic is None or not topic.has_partition(one.partition_index):
                refused.append((str(asked.name), one.partition_index))
                continue
            epoch = one.committed_leader_epoch if call.version >= LEADER_EPOCH_FROM else NO_LEADER_EPOCH
            commits.append(
                Commit(topic.name, one.partition_index, one.committed_offset, epoch, one.committed_metadata or "")
            )
        if topic is None and not asked.partitions:
            refused.append((str(asked.name), NO_PARTITION))
    return tuple(commits), tuple(refused)


def _told(call: Call, error: ErrorCode) -> ErrorCode:
    """Old clients do not know that a coordinator may be loading."""
    is_old = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_FROM
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_old else error


def encode(refused: tuple[Place, ...], places: tuple[Place, ...], call: Call, answer: Committed) -> bytes:
    found = [(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name, index in refused]
    answers = [(name, index, _told(call, error)) for (name, index), error in zip(places, answer.errors, strict=True)]
    asked = [len(topic.partitions) for topic in call.request.topics]
    counts = () if refused else counts_if_twice((name for name, _ in places), asked)
    made = tuple(
        call.make(
            "TxnOffsetCommitResponseTopic",
            name=name,
            partitions=tuple(
                call.make("TxnOffsetCommitResponsePartition", partition_index=index, error_code=error)
                for index, error in partitions
            ),
        )
        for name, partitions in (apart(answers, counts) if counts else together([*found, *answers]))
    )
    return call.schema.write(call.make("TxnOffsetCommitResponse", throttle_time=NO_THROTTLE, topics=made))
