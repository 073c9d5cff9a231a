"""OffsetCommit (key 8). Answered when the offsets are durable.

A response depends only on the partitions and their errors, and a consumer commits the same partitions repeatedly, so
encoded responses are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any
from uuid import UUID

from ....actors.errors import ErrorCode
from ....actors.messages import Commit, Committed, OffsetCommit
from ....actors.new_tuple import new_tuple
from ....actors.steps import Steps, pieces, run_steps
from ..authorization.authorize import Verdicts, are_granted, authorize, authorize_in_steps
from ..authorization.checks import READ_GROUP, READ_TOPIC
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE, milliseconds
from ..codec.schemas import Schema
from ..codec.step_writer import write_in_steps
from ..partition_results import (
    NO_PARTITION,
    TopicErrors,
    counts_if_topic_repeated,
    group_by_topic,
    split_by_counts,
)
from ..refusals import report_over_limit

RETENTION_UNTIL = 4
LEADER_EPOCH_FROM = 6  # KIP-320
INSTANCE_ID_FROM = 7  # KIP-345
UNKNOWN_GROUP_FROM = 9  # KIP-848: GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION
TOPIC_IDS_FROM = 10
NO_LEADER_EPOCH = -1
SMALL_COMMIT_MAX = 64  # a larger one is handled in steps; its response, or one with unknown topics, is not cached

CommitTarget = tuple[str, UUID | None, int]
"""The name and id of a topic, as in the request, and a partition."""

FoundTopic = tuple[str, int, ErrorCode]
"""The name of a topic, its number of partitions, and the error of partitions that do not exist."""

FindTopic = Callable[[Call, Any, dict[str, UUID]], FoundTopic]

Refused = tuple[tuple[CommitTarget, ErrorCode], ...]
"""Partitions that do not exist or are denied, with their errors. They are not sent to the group."""


def handle(call: Call) -> Steps[None] | None:
    topics = call.request.topics
    if len(topics) <= SMALL_COMMIT_MAX and are_granted(call, READ_GROUP, (call.request.group_id,)):
        names = (_find_topic(call, topic, {})[0] for topic in topics)
        if are_granted(call, READ_TOPIC, names):
            return handle_unchecked(call)
    return _handle_checked(call)


def _handle_checked(call: Call) -> Steps[None]:
    error = authorize(call, READ_GROUP, (call.request.group_id,)).error
    if error:
        call.respond_with_error(error)
        return
    names = (_find_topic(call, topic, {})[0] for topic in call.request.topics)
    verdicts = yield from authorize_in_steps(call, READ_TOPIC, filter(None, names))
    yield from _commit_in_steps(call, partial(_find_allowed_topic, verdicts))


def handle_unchecked(call: Call) -> Steps[None] | None:
    topics = call.request.topics
    if len(topics) == 1 and _commit_few_of_one_topic(call, topics[0]):
        return None
    count = 0
    for topic in topics:
        count += len(topic.partitions) or 1
        if count > SMALL_COMMIT_MAX:
            return _commit_in_steps(call, _find_topic)
    split = SplitCommits(call)
    for topic in topics:
        found = _find_topic(call, topic, split.ids)
        split.add(topic, found, topic.partitions)
    _ask_group(call, split, run_steps(_repeated_counts(call, split)) if len(topics) > 1 else ())
    return None


def _commit_few_of_one_topic(call: Call, topic: Any) -> bool:
    """Send the most frequent kind of request to the group. False, without an effect, for any other kind."""
    partitions = topic.partitions
    if not 0 < len(partitions) <= SMALL_COMMIT_MAX:
        return False
    ids: dict[str, UUID] = {}
    name, count, _ = _find_topic(call, topic, ids)
    topic_id, has_epoch = ids.get(name), call.schema.version >= LEADER_EPOCH_FROM
    commits, targets = [], []
    for partition in partitions:
        index = partition.partition_index
        if not 0 <= index < count:
            return False
        epoch = partition.committed_leader_epoch if has_epoch else NO_LEADER_EPOCH
        offset, metadata = partition.committed_offset, partition.committed_metadata or ""
        commits.append(new_tuple(Commit, (name, index, offset, epoch, metadata)))
        targets.append((name, topic_id, index))
    call.ask_group(_message(call, commits), partial(_encode, (), tuple(targets)))
    return True


def _commit_in_steps(call: Call, find_topic: FindTopic) -> Steps[None]:
    split = SplitCommits(call)
    for topic in call.request.topics:
        found = find_topic(call, topic, split.ids)
        for partitions in pieces(topic.partitions):
            split.add(topic, found, partitions)
            yield
        if not topic.partitions:
            split.add(topic, found, ())
            yield
    _ask_group(call, split, (yield from _repeated_counts(call, split)))


class SplitCommits:
    """The commits to partitions that exist, the ids of topics by name, and the refused partitions."""

    __slots__ = ("_has_epoch", "commits", "ids", "refused", "targets")

    def __init__(self, call: Call) -> None:
        self._has_epoch = call.schema.version >= LEADER_EPOCH_FROM
        self.ids: dict[str, UUID] = {}
        self.commits: list[Commit] = []
        self.targets: list[CommitTarget] = []
        self.refused: list[tuple[CommitTarget, ErrorCode]] = []

    def add(self, topic: Any, found: FoundTopic, partitions: Sequence[Any]) -> None:
        """Add partitions of a topic of the request."""
        name, count, error = found
        has_epoch, topic_id = self._has_epoch, self.ids.get(name)
        for partition in partitions:
            index = partition.partition_index
            if 0 <= index < count:
                epoch = partition.committed_leader_epoch if has_epoch else NO_LEADER_EPOCH
                metadata = partition.committed_metadata or ""
                self.commits.append(Commit(name, index, partition.committed_offset, epoch, metadata))
                self.targets.append((name, topic_id, index))
            else:
                self.refused.append(((name, getattr(topic, "topic_id", None), index), error))
        if not (count or partitions):
            self.refused.append(((name, getattr(topic, "topic_id", None), NO_PARTITION), error))


def _repeated_counts(call: Call, split: SplitCommits) -> Steps[Sequence[int]]:
    """See ``counts_if_topic_repeated``; nothing if there are refused partitions."""
    if split.refused:
        return ()
    names, counts = (target[0] for target in split.targets), (len(topic.partitions) for topic in call.request.topics)
    return (yield from counts_if_topic_repeated(names, counts))


def _ask_group(call: Call, split: SplitCommits, counts: Sequence[int]) -> None:
    """Send the commits to the group, or answer if there are none. ``counts``: see ``_repeated_counts``."""
    refused, targets = tuple(split.refused), tuple(split.targets)
    if not targets:
        call.encode_and_respond(lambda: _encode(refused, (), call, Committed(())))
        return
    encode = partial(_encode_by_counts, counts, targets) if counts else partial(_encode, refused, targets)
    call.ask_group(_message(call, split.commits), encode)


def _message(call: Call, commits: Sequence[Commit]) -> OffsetCommit:
    request, version = call.request, call.schema.version
    group_id, generation_id = request.group_id, request.generation_id_or_member_epoch
    return new_tuple(
        OffsetCommit,
        (
            group_id,
            request.member_id,
            request.group_instance_id if version >= INSTANCE_ID_FROM else None,
            generation_id,
            tuple(commits),
            milliseconds(request.retention_time) if version <= RETENTION_UNTIL else -1,
            version >= UNKNOWN_GROUP_FROM,
            call.services.used_member_ids.last(call.connection, group_id) if generation_id < 0 else "",
        ),
    )


def _find_allowed_topic(verdicts: Verdicts, call: Call, request: Any, ids: dict[str, UUID]) -> FoundTopic:
    """Find a topic. One that is denied has no partitions, whether it exists or not."""
    found = _find_topic(call, request, ids)
    return found if verdicts.allows(found[0]) else (found[0], 0, verdicts.code)


def _find_topic(call: Call, request: Any, ids: dict[str, UUID]) -> FoundTopic:
    if call.schema.version < TOPIC_IDS_FROM:
        topic = call.services.topics.get(request.name)
        return request.name, len(topic.partitions) if topic is not None else 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = call.services.topics.by_id(request.topic_id)
    if topic is None:
        return "", 0, ErrorCode.UNKNOWN_TOPIC_ID
    ids[topic.name] = topic.topic_id
    return topic.name, len(topic.partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _encode(refused: Refused, targets: tuple[CommitTarget, ...], call: Call, answer: Committed) -> Body:
    if answer.limit:
        report_over_limit(call, answer.limit)
    if len(targets) + len(refused) <= SMALL_COMMIT_MAX:
        body = _body if refused else _cached_body
        return body(call.schema, refused, targets, answer.errors)
    return _body_in_steps(call.schema, refused, targets, answer.errors)


def _body(schema: Schema, refused: Refused, targets: tuple[CommitTarget, ...], errors: tuple[ErrorCode, ...]) -> bytes:
    return run_steps(_body_in_steps(schema, refused, targets, errors))


def _body_in_steps(
    schema: Schema, refused: Refused, targets: tuple[CommitTarget, ...], errors: tuple[ErrorCode, ...]
) -> Steps[bytes]:
    answers = chain(refused, zip(targets, errors, strict=True))
    topics = yield from group_by_topic(((name, topic_id), index, error) for (name, topic_id, index), error in answers)
    return (yield from _encode_topics(schema, topics))


def _encode_by_counts(counts: Sequence[int], targets: tuple[CommitTarget, ...], call: Call, answer: Committed) -> Body:
    if answer.limit:
        report_over_limit(call, answer.limit)
    answers = zip(targets, answer.errors, strict=True)
    topics = split_by_counts((((name, topic_id), index, error) for (name, topic_id, index), error in answers), counts)
    steps = _encode_topics(call.schema, topics)
    return run_steps(steps) if len(targets) <= SMALL_COMMIT_MAX else steps


def _encode_topics(schema: Schema, topics: Iterable[TopicErrors[tuple[str, UUID | None]]]) -> Steps[bytes]:
    """Encode the response as bytes in one piece, since responses to small commits are sent together with it."""
    entries = (
        schema.make(
            "OffsetCommitResponseTopic",
            name=name,
            topic_id=topic_id,
            partitions=(
                schema.make("OffsetCommitResponsePartition", partition_index=index, error_code=error)
                for index, error in partitions
            ),
        )
        for (name, topic_id), partitions in topics
    )
    response = schema.make("OffsetCommitResponse", throttle_time=NO_THROTTLE, topics=entries)
    return bytes((yield from write_in_steps(response)))


_cached_body = lru_cache(maxsize=4096)(_body)
