"""TxnOffsetCommit (28): offsets that count when a transaction commits. Answered when they are durable."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import Commit, Committed, TxnOffsetCommit
from ..call import Call
from ..codes import NO_THROTTLE

LEADER_EPOCH_FROM = 2
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
        joins_transaction=version >= JOINS_FROM,
        tells_abortable=version >= ABORTABLE_FROM,
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
            if topic is None or topic.partition(one.partition_index) is None:
                refused.append((str(asked.name), one.partition_index))
                continue
            epoch = one.committed_leader_epoch if call.version >= LEADER_EPOCH_FROM else NO_LEADER_EPOCH
            commits.append(
                Commit(topic.name, one.partition_index, one.committed_offset, epoch, one.committed_metadata or "")
            )
    return tuple(commits), tuple(refused)


def encode(refused: tuple[Place, ...], places: tuple[Place, ...], call: Call, answer: Committed) -> bytes:
    """What was refused here comes first, as in Kafka; a topic that is in both stands once."""
    found = [(place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for place in refused]
    topics: dict[str, list[Any]] = {}
    for (name, index), error in (*found, *zip(places, answer.errors, strict=True)):
        partition = call.make("TxnOffsetCommitResponsePartition", partition_index=index, error_code=error)
        topics.setdefault(name, []).append(partition)
    made = tuple(
        call.make("TxnOffsetCommitResponseTopic", name=name, partitions=tuple(partitions))
        for name, partitions in topics.items()
    )
    return call.schema.write(call.make("TxnOffsetCommitResponse", throttle_time=NO_THROTTLE, topics=made))
