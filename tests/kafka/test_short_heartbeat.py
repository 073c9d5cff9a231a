"""A short ConsumerGroupHeartbeat is read without kio, with the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from harness import versions
from hypothesis import given
from hypothesis import strategies as st
from peers.wire import message_type
from request_helpers import encode_body

from callboard.runtime.kafka.api import Route
from callboard.runtime.kafka.codec.kio import kio
from callboard.runtime.kafka.codec.repeated_requests import REPEATED_BYTES_MAX
from callboard.runtime.kafka.codec.rows import NO_TAGS
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.short_heartbeat import NAME, ShortHeartbeat
from callboard.runtime.kafka.connections.framing import BadRequest
from callboard.runtime.kafka.connections.request_decoding import decode_request

texts = st.text(max_size=30) | st.sampled_from((125, 126, 127, 300)).map("x".__mul__)


def short(version: int, group_id: str, member_id: str, epoch: int, instance_id: str | None = None) -> Any:
    return message_type(NAME, version, "request")(
        group_id=group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id, topic_partitions=None
    )


def read_by_kio(version: int, body: bytes) -> Any:
    return kio("serial").entity_reader(message_type(NAME, version, "request"))(body, 0)


def read_short(version: int, body: bytes) -> Any:
    reader = schema(NAME, version).read_repeated
    assert reader is not None
    return reader(body)


def decoded(version: int, body: bytes) -> Any:
    """As the connection reads the body of a frame."""
    route = Route(schema(NAME, version), lambda _call: None, False)
    return decode_request(route, b"frame" + NO_TAGS + body, len(b"frame"), len(b"frame" + NO_TAGS + body))


@given(
    version=st.sampled_from(versions(NAME)),
    group_id=texts,
    member_id=texts,
    epoch=st.integers(-(2**31), 2**31 - 1),
    instance_id=st.none() | texts,
    after=st.binary(max_size=3),
)
def test_short_heartbeat_is_read_as_by_kio(
    version: int, group_id: str, member_id: str, epoch: int, instance_id: str | None, after: bytes
) -> None:
    """Bytes behind it are ignored, as behind all requests; then it is not a short one."""
    body = encode_body(short(version, group_id, member_id, epoch, instance_id))
    expected, size = read_by_kio(version, body)
    assert size == len(body) <= REPEATED_BYTES_MAX or not read_short(version, body)
    read = decoded(version, body + after)
    for field in fields(expected):
        assert getattr(read, field.name) == getattr(expected, field.name)
    are_short = all(len(text.encode()) < 127 for text in (group_id, member_id, instance_id or ""))
    assert isinstance(read, ShortHeartbeat) == (are_short and not after)


@given(version=st.sampled_from(versions(NAME)), data=st.data())
def test_any_request_is_read_as_by_kio(version: int, data: st.DataObject) -> None:
    """Also one that differs from a short one in a few bytes: with the same fields, or the same refusal."""
    body = bytearray(encode_body(short(version, "group", "member", 3, data.draw(st.sampled_from((None, "i"))))))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from((0, 1, 2, 5, 7, 127, 128, 255)))
    read, expected = (outcome(read, version, bytes(body)) for read in (decoded, decoded_by_kio_only))
    assert read == expected


def decoded_by_kio_only(version: int, body: bytes) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema(NAME, version), "read_repeated", None)
        return decoded(version, body)


def outcome(read: Callable[[int, bytes], Any], version: int, body: bytes) -> object:
    try:
        request = read(version, body)
    except BadRequest as error:
        return type(error)
    return [getattr(request, field.name) for field in fields(message_type(NAME, version, "request"))]


@pytest.mark.parametrize("version", versions(NAME))
def test_a_heartbeat_that_is_repeated_is_not_decoded_again(version: int) -> None:
    """Each byte counts."""
    request = decoded(version, encode_body(short(version, "group", "member", 3, "instance")))
    assert decoded(version, encode_body(short(version, "group", "member", 3, "instance"))) is request
    for other in (short(version, "group", "member", 4, "instance"), short(version, "group", "member", 3)):
        read_again = decoded(version, encode_body(other))
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
    request = replace(short(version, "g", "m", 3), **change)
    assert decoded(version, encode_body(request)) == request


@pytest.mark.parametrize("version", versions(NAME))
@pytest.mark.parametrize("instance_id", [None, "instance"])
def test_damaged_heartbeats_are_refused(version: int, instance_id: str | None) -> None:
    body = encode_body(short(version, "group", "member", 3, instance_id))
    for end in range(len(body)):
        with pytest.raises(BadRequest):
            decoded(version, body[:end])
    with pytest.raises(BadRequest, match="utf-8"):
        decoded(version, body.replace(b"member", b"memb\xff\xfe"))
    with pytest.raises(BadRequest):
        decoded(version, b"\0" + body[6:])  # a null group
