"""The usual ConsumerGroupHeartbeat is read without kio, with the same result."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from harness import versions
from hypothesis import given
from hypothesis import strategies as st
from peers.wire import message_type
from request_helpers import encode_body

from callboard.runtime.kafka.codec.kio import kio
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.short_heartbeat import NAME, ShortHeartbeat

texts = st.text(max_size=30) | st.sampled_from((125, 126, 127, 300)).map("x".__mul__)


def usual(version: int, group_id: str, member_id: str, epoch: int, instance_id: str | None = None) -> Any:
    return message_type(NAME, version, "request")(
        group_id=group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id, topic_partitions=None
    )


def read_by_kio(version: int, body: bytes) -> Any:
    return kio("serial").entity_reader(message_type(NAME, version, "request"))(body, 0)


@given(
    version=st.sampled_from(versions(NAME)),
    group_id=texts,
    member_id=texts,
    epoch=st.integers(-(2**31), 2**31 - 1),
    instance_id=st.none() | texts,
    before=st.binary(max_size=3),
    after=st.binary(max_size=3),
)
def test_usual_heartbeat_is_read_as_by_kio(
    version: int, group_id: str, member_id: str, epoch: int, instance_id: str | None, before: bytes, after: bytes
) -> None:
    body = encode_body(usual(version, group_id, member_id, epoch, instance_id))
    read, size = schema(NAME, version).read(before + body + after, len(before))
    expected, expected_size = read_by_kio(version, body)
    assert size == expected_size == len(body)
    for field in fields(expected):
        assert getattr(read, field.name) == getattr(expected, field.name)
    are_short = all(len(text.encode()) < 127 for text in (group_id, member_id, instance_id or ""))
    assert isinstance(read, ShortHeartbeat) == are_short


@pytest.mark.parametrize("version", versions(NAME))
def test_a_heartbeat_that_is_repeated_is_not_decoded_again(version: int) -> None:
    """Each byte counts, and so does nothing else in the buffer."""
    read = schema(NAME, version).read
    body = encode_body(usual(version, "group", "member", 3, "instance"))
    request, size = read(body, 0)
    assert read(b"before" + body + b"after", 6) == (request, size)
    for other in (usual(version, "group", "member", 4, "instance"), usual(version, "group", "member", 3)):
        read_again, _ = read(encode_body(other), 0)
        assert read_again is not request
        assert (read_again.member_epoch, read_again.instance_id) == (other.member_epoch, other.instance_id)


@pytest.mark.parametrize("version", versions(NAME))
@pytest.mark.parametrize(
    "change",
    [
        {"rack_id": "r"},
        {"rebalance_timeout": timedelta(milliseconds=0)},
        {"subscribed_topic_names": ()},
        {"server_assignor": ""},
        {"topic_partitions": ()},
    ],
    ids=str,
)
def test_other_heartbeats_are_read_by_kio(version: int, change: dict[str, Any]) -> None:
    request = replace(usual(version, "g", "m", 3), **change)
    assert schema(NAME, version).read(encode_body(request), 0)[0] == request


@pytest.mark.parametrize("version", versions(NAME))
@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_damaged_heartbeats_are_refused(version: int, instance_id: str | None) -> None:
    body = encode_body(usual(version, "group", "member", 3, instance_id))
    read = schema(NAME, version).read
    for end in range(len(body)):
        with pytest.raises((ValueError, IndexError, schema(NAME, version).decode_error)):
            read(body[:end], 0)
    with pytest.raises(UnicodeDecodeError):
        read(body.replace(b"member", b"memb\xff\xfe"), 0)
    with pytest.raises((ValueError, schema(NAME, version).decode_error)):
        read(b"\0" + body[6:], 0)  # a null group
