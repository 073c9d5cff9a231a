"""Hand-written encoding of responses about consumer groups equals that of kio, in every version."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from harness import versions
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.consumer_group.messages import (
    ConsumerGroupDescribed,
    ConsumerHeartbeatReply,
    DescribedConsumer,
)
from callboard.actors.consumer_group.records import Partition
from callboard.actors.errors import ErrorCode
from callboard.actors.steps import SHORT_WORK_ITEMS, Steps, run_steps
from callboard.runtime.kafka.api import consumer_group_describe, consumer_group_heartbeat
from callboard.runtime.kafka.authorization.authorizer import AllowAll
from callboard.runtime.kafka.codec.codes import NO_THROTTLE, ONE_MILLISECOND
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.short_heartbeat import ShortHeartbeat

NAMES = {UUID(int=number): f"topic-{number}" for number in range(1, 4)}
DELETED = UUID(int=99)

texts = st.one_of(st.text(max_size=20), st.sampled_from((126, 127, 128, 1024)).map("x".__mul__))
numbers = st.integers(0, 2**31 - 1)
partitions = st.lists(
    st.tuples(st.sampled_from([*NAMES, DELETED]).map(lambda topic_id: topic_id.bytes), numbers), max_size=5
).map(lambda each: tuple(sorted(each)))
consumers = st.builds(
    DescribedConsumer,
    *(texts, st.none() | texts, st.none() | texts, numbers, texts, texts),
    st.lists(texts, max_size=3).map(tuple),
    *(texts, partitions, partitions, st.booleans()),
)


def call(name: str, version: int, **request: Any) -> Any:
    """A call with the attributes that encoders use."""
    api_schema = schema(name, version)
    topics = SimpleNamespace(by_id=lambda topic_id: _topic(topic_id) if topic_id in NAMES else None)
    return SimpleNamespace(
        schema=api_schema,
        version=version,
        make=api_schema.make,
        services=SimpleNamespace(authorizer=AllowAll(), topics=topics),
        request=SimpleNamespace(**request),
    )


def _topic(topic_id: UUID) -> Any:
    return SimpleNamespace(name=NAMES[topic_id])


def by_topic(make: Any, assigned: Sequence[Partition], names: bool) -> tuple[Any, ...]:
    entries = []
    for raw_id, group in groupby(assigned, key=lambda partition: partition[0]):
        topic_id = UUID(bytes=raw_id)
        name = {"topic_name": NAMES.get(topic_id, "")} if names else {}
        if not names or topic_id in NAMES:
            entries.append(
                make("TopicPartitions", topic_id=topic_id, partitions=tuple(number for _, number in group), **name)
            )
    return tuple(entries)


def body_of(encoded: bytes | Steps[bytes]) -> bytes:
    return encoded if isinstance(encoded, bytes) else run_steps(encoded)


@given(
    version=st.sampled_from(versions("consumer_group_heartbeat")),
    reply=st.builds(
        ConsumerHeartbeatReply,
        *(st.sampled_from(ErrorCode), st.none() | texts, st.none() | texts, st.integers(-2, 2**31 - 1), numbers),
        st.none() | partitions,
        limit=st.just(""),
    ),
)
def test_heartbeat_reply_equals_kio_encoding(version: int, reply: ConsumerHeartbeatReply) -> None:
    _check_heartbeat(version, reply)


def test_long_assignment_is_encoded_in_steps() -> None:
    """And None differs from an empty assignment."""
    [topic_id] = [topic_id for topic_id in NAMES if topic_id.int == 1]
    many = tuple((topic_id.bytes, number) for number in range(SHORT_WORK_ITEMS + 1))
    reply = ConsumerHeartbeatReply(member_id="m", member_epoch=3, assigned=many)
    heartbeat_call = call("consumer_group_heartbeat", 1)
    assert not isinstance(consumer_group_heartbeat.encode(heartbeat_call, reply), bytes)
    _check_heartbeat(1, reply)
    _check_heartbeat(1, reply._replace(assigned=()))
    _check_heartbeat(1, reply._replace(assigned=None))
    assert consumer_group_heartbeat.encode(heartbeat_call, reply._replace(assigned=())) != (
        consumer_group_heartbeat.encode(heartbeat_call, reply._replace(assigned=None))
    )


def _check_heartbeat(version: int, reply: ConsumerHeartbeatReply) -> None:
    """Also for a short heartbeat, of whose responses some are kept."""
    heartbeat_call = call("consumer_group_heartbeat", version)
    make = heartbeat_call.make
    assignment = None
    if reply.assigned is not None:
        assignment = make("Assignment", topic_partitions=by_topic(make, reply.assigned, names=False))
    response = make(
        "ConsumerGroupHeartbeatResponse",
        throttle_time=NO_THROTTLE,
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=reply.heartbeat_interval_ms * ONE_MILLISECOND,
        assignment=assignment,
    )
    expected = heartbeat_call.schema.write(response)
    short = ShortHeartbeat("g", "m", 1, None)
    for request in (heartbeat_call.request, short, short):
        heartbeat_call.request = request
        assert body_of(consumer_group_heartbeat.encode(heartbeat_call, reply)) == expected  # type: ignore[arg-type]


@given(
    version=st.sampled_from(versions("consumer_group_describe")),
    members=st.lists(consumers, max_size=3),
    with_operations=st.booleans(),
)
def test_described_group_equals_kio_encoding(
    version: int, members: list[DescribedConsumer], with_operations: bool
) -> None:
    """Without the partitions of a deleted topic."""
    describe_call = call("consumer_group_describe", version, include_authorized_operations=with_operations)
    make = describe_call.make
    reply = ConsumerGroupDescribed(ErrorCode.NONE, "g", None, "Stable", 7, 6, "uniform", tuple(members))
    group = make(
        "DescribedGroup",
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id="g",
        group_state="Stable",
        group_epoch=7,
        assignment_epoch=6,
        assignor_name="uniform",
        members=tuple(_member_entity(make, member) for member in members),
        authorized_operations=3400 if with_operations else consumer_group_describe.OPERATIONS_UNKNOWN,
    )
    assert run_steps(consumer_group_describe._encode_group(describe_call, reply)) == describe_call.schema.write_item(
        group
    )


def _member_entity(make: Any, member: DescribedConsumer) -> Any:
    assigned, target = (
        make("Assignment", topic_partitions=by_topic(make, each, names=True))
        for each in (member.assigned, member.target)
    )
    return make(
        "Member",
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=assigned,
        target_assignment=target,
        member_type=0 if member.is_classic else 1,
    )
