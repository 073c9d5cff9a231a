"""ConsumerGroupHeartbeat (key 68, KIP-848). Answered when what it changes is durable.

It is as frequent as Heartbeat, but its responses differ between members. They are encoded without kio, which takes ten
times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from typing import Any

from ....actors.consumer_group.messages import JOIN_EPOCH, ConsumerHeartbeat, ConsumerHeartbeatReply, TopicFilter
from ....actors.consumer_group.records import Partition
from ....actors.consumer_group.unchanged import UNCHANGED
from ....actors.engine_ports import NOT_HANDLED
from ....actors.steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from ..authorization.authorize import authorize, authorize_in_steps
from ..authorization.checks import DESCRIBE_TOPIC, LISTED_TOPIC, READ_GROUP
from ..call import Body, Call, ResponseChannel
from ..client_notes import note_client
from ..codec.codes import milliseconds
from ..codec.rows import NO_TAGS, compact_count, compact_string
from ..codec.schemas import Schema, shortened
from ..codec.short_heartbeat import CACHED, ShortHeartbeat
from ..refusals import report_over_limit

MEMBER_CHOOSES_ID_FROM = 1  # KIP-1082
REGEX_FROM = 1
NO_TOPIC_ID = bytes(16)

NO_THROTTLE_MS = 0

_ERROR = struct.Struct(">ih")  # throttle time, error
_EPOCH = struct.Struct(">ii")  # member epoch, heartbeat interval
_NO_ERROR = _ERROR.pack(NO_THROTTLE_MS, 0) + compact_string(None)
_NO_ASSIGNMENT, _ASSIGNMENT = b"\xff" + NO_TAGS, b"\1"


def handle(call: Call) -> Steps[None]:
    request = call.request
    error = authorize(call, READ_GROUP, (request.group_id,)).error
    if not error:
        verdicts = yield from authorize_in_steps(call, DESCRIBE_TOPIC, request.subscribed_topic_names or ())
        error = verdicts.error
    if error:
        call.respond_with_bytes(_head(ConsumerHeartbeatReply(error)) + _NO_ASSIGNMENT)
    else:
        yield from _ask_in_steps(call, partial(_describable, call))


def _describable(call: Call, names: Collection[str]) -> Steps[Collection[str]]:
    verdicts = yield from authorize_in_steps(call, LISTED_TOPIC, names)
    return list(filter(verdicts.allows, names))


def handle_unchecked(call: Call) -> Steps[None] | None:
    request = call.request
    if type(request) is not ShortHeartbeat:
        return _ask_in_steps(call)
    channel, has_own_id = call.connection, call.schema.version >= MEMBER_CHOOSES_ID_FROM
    call.ask_group(_short_message(request, channel.client_id, channel.client_host, has_own_id), encode)
    return None


def answer_at_once(channel: ResponseChannel, schema: Schema, request: Any) -> bytes | None:
    """Only heartbeats that change nothing: their responses have no assignment."""
    if type(request) is not ShortHeartbeat:
        return None
    has_own_id = schema.version >= MEMBER_CHOOSES_ID_FROM
    message = _short_message(request, channel.client_id, channel.client_host, has_own_id)
    reply = channel.services.groups.answer_at_once(message)
    return (
        None if reply is NOT_HANDLED else _short_body(reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms)
    )


@lru_cache(CACHED)
def _short_message(request: ShortHeartbeat, client_id: str, client_host: str, has_own_id: bool) -> ConsumerHeartbeat:
    """The same object for each repetition, see ``actors.consumer_group.state.UnchangedHeartbeat``."""
    member = request.group_id, request.member_id, request.member_epoch, request.instance_id
    return ConsumerHeartbeat._make((*member, *UNCHANGED, client_id, client_host, has_own_id, None))


def _ask_in_steps(call: Call, describable: TopicFilter | None = None) -> Steps[None]:
    requested = call.request.topic_partitions
    owned: list[Partition] = []
    for topic in requested or ():
        topic_id = NO_TOPIC_ID if topic.topic_id is None else topic.topic_id.bytes
        for numbers in pieces(topic.partitions):
            owned += ((topic_id, number) for number in numbers)
            yield
        yield
    _ask(call, None if requested is None else tuple(owned), describable)


def _ask(call: Call, owned: tuple[Partition, ...] | None, describable: TopicFilter | None) -> None:
    request, version = call.request, call.schema.version
    message = ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        milliseconds(request.rebalance_timeout),
        request.subscribed_topic_names,
        request.subscribed_topic_regex if version >= REGEX_FROM else None,
        request.server_assignor,
        owned,
        call.connection.client_id,
        call.connection.client_host,
        version >= MEMBER_CHOOSES_ID_FROM,
        describable,
    )
    call.ask_group(message, _note_and_encode if request.member_epoch == JOIN_EPOCH else encode)


def _note_and_encode(call: Call, reply: ConsumerHeartbeatReply) -> Body:
    if not reply.error and reply.member_id is not None:
        note_client(call, call.request.group_id, reply.member_id)
    return encode(call, reply)


def encode(call: Call, reply: ConsumerHeartbeatReply) -> Body:
    if reply.limit:
        report_over_limit(call, reply.limit)
    assigned, member_id = reply.assigned, reply.member_id
    if assigned is None:
        if member_id is None or reply.error or reply.message is not None or type(call.request) is not ShortHeartbeat:
            return _head(reply) + _NO_ASSIGNMENT
        return _short_body(member_id, reply.member_epoch, reply.heartbeat_interval_ms)
    steps = _encode_in_steps(reply, assigned)
    return steps if len(assigned) > SHORT_WORK_ITEMS else run_steps(steps)


@lru_cache(CACHED)
def _short_body(member_id: str, member_epoch: int, heartbeat_interval_ms: int) -> bytes:
    """A member gets it again and again, until its epoch changes. Only for short requests, since their ids are short."""
    epoch = _EPOCH.pack(member_epoch, heartbeat_interval_ms)
    return _NO_ERROR + compact_string(member_id) + epoch + _NO_ASSIGNMENT


def _head(reply: ConsumerHeartbeatReply) -> bytes:
    message = None if reply.message is None else shortened(reply.message)
    return b"".join(
        (
            _ERROR.pack(NO_THROTTLE_MS, reply.error),
            compact_string(message),
            compact_string(reply.member_id),
            _EPOCH.pack(reply.member_epoch, reply.heartbeat_interval_ms),
        )
    )


def _encode_in_steps(reply: ConsumerHeartbeatReply, assigned: Sequence[Partition]) -> Steps[bytes]:
    topics: dict[bytes, list[int]] = {}
    for piece in pieces(assigned):
        for topic_id, number in piece:
            topics.setdefault(topic_id, []).append(number)
        yield
    parts = [_head(reply), _ASSIGNMENT, compact_count(len(topics))]
    for topic_id, numbers in topics.items():
        parts += topic_id, compact_count(len(numbers)), struct.pack(f">{len(numbers)}i", *numbers), NO_TAGS
        yield
    return b"".join((*parts, NO_TAGS, NO_TAGS))
