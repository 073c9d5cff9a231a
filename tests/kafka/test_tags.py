"""Unknown tagged fields of newer clients: a request is decoded as if it had none.

In flexible versions, any struct may end with fields that the receiver does not know (KIP-482).
"""

from __future__ import annotations

import io
from random import Random
from typing import Any

import pytest
from harness import (
    Member,
    MemoryClient,
    async_test,
    commit_values,
    fetch_values,
    frame,
    framed,
    heartbeat_values,
    join_and_sync,
    join_values,
    random_entity,
    running_node,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer
from peers.wire import message_type
from tag_helpers import section, uvarint, with_unknown_tags

from callboard.runtime.kafka.api import APIS
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.tags import read_uvarint, skip_tagged_fields, without_unknown_tags

FLEXIBLE = [
    (api.name, version)
    for api in APIS
    for version in range(api.min_version, api.max_version + 1)
    if message_type(api.name, version, "request").__flexible__
]
each_flexible_request = pytest.mark.parametrize(
    ("name", "version"), FLEXIBLE, ids=[f"{name}-v{version}" for name, version in FLEXIBLE]
)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@each_flexible_request
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_unknown_tagged_fields_are_removed(name: str, version: int, seed: int) -> None:
    chance = Random(seed)
    entity = random_entity(message_type(name, version, "request"), chance)
    tagged = with_unknown_tags(entity, chance)
    copied, end = without_unknown_tags(type(entity), b"before" + tagged + b"behind", len(b"before"))
    assert end == len(b"before" + tagged)
    assert copied == written(entity)
    assert schema(name, version).read(copied, 0) == (entity, len(copied))


@each_flexible_request
def test_request_without_unknown_tagged_fields_is_unchanged(name: str, version: int) -> None:
    for seed in range(5):
        plain = written(random_entity(message_type(name, version, "request"), Random(seed)))
        assert without_unknown_tags(message_type(name, version, "request"), plain, 0) == (plain, len(plain))


@each_flexible_request
def test_truncated_tagged_fields_raise(name: str, version: int) -> None:
    """A request that ends inside a tagged field is invalid."""
    chance = Random(f"{name} {version}")
    entity = random_entity(message_type(name, version, "request"), chance)
    tagged = with_unknown_tags(entity, chance)
    errors = (ValueError, IndexError, schema(name, version).decode_error)
    for end in range(len(tagged)):
        with pytest.raises(errors):
            without_unknown_tags(type(entity), tagged[:end], 0)


def test_nonzero_byte_of_boolean_is_true() -> None:
    """As in Kafka's protocol guide; kio accepts only 1."""
    entity = message_type("end_txn", 3, "request")(
        transactional_id="t", producer_id=1, producer_epoch=2, committed=True
    )
    plain = written(entity)
    odd = plain[:-2] + b"\x16" + plain[-1:]
    assert odd[-3:] == b"\x02\x16\x00"
    assert without_unknown_tags(type(entity), odd, 0) == (plain, len(odd))


# Through the door -----------------------------------------------------------------------------------------------------


def tagged_frame(name: str, version: int, header_tags: dict[int, bytes], seed: int, **values: Any) -> bytes:
    """Return a request with those tags in its header and random ones in its body."""
    plain = frame(name, version, **values)
    head = 4 + 2 + 2 + 4 + 2 + len("wire")
    entity, size = schema(name, version).read(plain, head + 1)
    assert head + 1 + size == len(plain)
    return framed(plain[4:head] + section(header_tags) + with_unknown_tags(entity, Random(seed)))


@async_test
async def test_requests_with_unknown_tagged_fields_get_same_response(tmp_path: Any) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g")
        for name, version, values in (
            ("heartbeat", 4, heartbeat_values("g", member)),
            ("offset_commit", 8, commit_values("g", member)),
            ("offset_commit", 9, commit_values("g", member)),
            ("offset_fetch", 9, fetch_values("g", 0, 1, 7)),
            ("find_coordinator", 6, {"key_type": 0, "coordinator_keys": ["g", "h"]}),
            ("describe_groups", 6, {"groups": ["g"], "include_authorized_operations": False}),
            ("list_groups", 5, {"states_filter": ["stable"], "types_filter": []}),
            ("join_group", 9, join_values("g", "nobody")),
            ("heartbeat", 4, heartbeat_values("g", Member("nobody", 1))),
        ):
            expected = await client.ask(name, version, **values)
            for seed, header_tags in enumerate(({}, {0: b""}, {1: b"xyz", 300: b"\0" * 200})):
                client.write(tagged_frame(name, version, header_tags, seed, **values))
                assert await client.receive(name, version) == expected


@async_test
async def test_request_with_boolean_byte_2_is_answered_as_true(tmp_path: Any) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in range(3, 7):
            request = frame("describe_groups", version, groups=["g"], include_authorized_operations=True)
            tag_bytes = 1 if version >= 5 else 0  # no tagged fields
            position = len(request) - 1 - tag_bytes
            client.write(request + request[:position] + b"\x80" + request[position + 1 :])
            expected = await client.receive("describe_groups", version)
            assert await client.receive("describe_groups", version) == expected


@async_test
async def test_truncated_request_with_unknown_tagged_fields_closes_connection(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown tags and a truncated request: bytes of the next frame are not read."""
    async with running_node(tmp_path) as harness:
        request = tagged_frame("heartbeat", 4, {7: b"x"}, 3, **heartbeat_values("g", Member("m", 1)))
        for size in range(20, len(request) - 4):
            client = MemoryClient(harness.node)
            client.feed(framed(request[4 : 4 + size]) + request)
            assert client.is_closed
            client.close()
        assert not [record for record in caplog.records if record.exc_info]


# The parts ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**35 - 1))
def test_uvarints_are_decoded(value: int) -> None:
    assert read_uvarint(b"?" + uvarint(value) + b"?", 1) == (value, 1 + len(uvarint(value)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 10])
def test_unterminated_uvarint_raises(data: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        read_uvarint(data, 0)


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=9), max_size=4))
def test_tagged_fields_section_is_skipped(tags: dict[int, bytes]) -> None:
    data = section(tags)
    assert skip_tagged_fields(b"?" + data + b"?", 1) == 1 + len(data)
    for end in range(len(data)):
        with pytest.raises(ValueError, match="cut off"):
            skip_tagged_fields(data[:end], 0)
