"""Hand-written encoding of member lists equals that of kio, in every version."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from harness import versions
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Described, DescribedMember, Joined, JoinedMember
from callboard.actors.steps import run_steps
from callboard.runtime.kafka.api import describe_groups, join_group
from callboard.runtime.kafka.authorization.authorizer import AllowAll
from callboard.runtime.kafka.codec.codes import NO_THROTTLE
from callboard.runtime.kafka.codec.rows import encode_rows
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.step_writer import write_in_steps

SIZES = (0, 1, 5, 126, 127, 128, 1023, 1024, 16_383, 16_384, 32_767)
texts = st.one_of(st.text(max_size=20), st.sampled_from(SIZES).map("x".__mul__))
some_bytes = st.one_of(st.binary(max_size=20), st.sampled_from((*SIZES, 70_000)).map(bytes))
joined = st.builds(JoinedMember, texts, st.none() | texts, some_bytes)
described = st.builds(DescribedMember, texts, st.none() | texts, texts, texts, some_bytes, some_bytes)


def call(name: str, version: int, **request: Any) -> Any:
    """A call with the attributes that encoders use."""
    api_schema = schema(name, version)
    services = SimpleNamespace(authorizer=AllowAll())
    return SimpleNamespace(
        schema=api_schema,
        version=version,
        make=api_schema.make,
        services=services,
        request=SimpleNamespace(**request),
    )


@given(members=st.lists(joined, max_size=4), version=st.sampled_from(versions("join_group")))
def test_join_group_member_rows_equal_kio_encoding(members: list[JoinedMember], version: int) -> None:
    join_call = call("join_group", version)
    joined_group = Joined(ErrorCode.NONE, "me", 3, "consumer", "range", "me", tuple(members))
    response = join_call.make(
        "JoinGroupResponse",
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE,
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader="me",
        skip_assignment=False,
        member_id="me",
        members=tuple(join_call.make("JoinGroupResponseMember", **member._asdict()) for member in members),
    )
    assert join_group.encode(join_call, joined_group) == join_call.schema.write(response)


@given(
    members=st.lists(described, max_size=4),
    version=st.sampled_from(versions("describe_groups")),
    with_operations=st.booleans(),
)
def test_describe_groups_member_rows_equal_kio_encoding(
    members: list[DescribedMember], version: int, with_operations: bool
) -> None:
    describe_call = call("describe_groups", version, include_authorized_operations=with_operations)
    described_group = Described(ErrorCode.NONE, "g", "Stable", "consumer", "range", tuple(members))
    operations = 3400 if with_operations else describe_groups.OPERATIONS_UNKNOWN
    group = describe_call.make(
        "DescribedGroup",
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=tuple(_member_entity(describe_call, member) for member in members),
        authorized_operations=operations,
    )
    response = describe_call.make("DescribeGroupsResponse", throttle_time=NO_THROTTLE, groups=(group, group))
    item = run_steps(describe_groups._encode_group(describe_call, described_group))
    body = run_steps(write_in_steps(replace(response, groups=(item, item))))
    assert body == describe_call.schema.write(response)


def _member_entity(describe_call: Any, member: DescribedMember) -> Any:
    values = member._asdict()
    metadata, assignment = values.pop("metadata"), values.pop("assignment")
    return describe_call.make("DescribedGroupMember", **values, member_metadata=metadata, member_assignment=assignment)


def test_too_long_string_in_inflexible_row_raises() -> None:
    row = ("x" * 32_768, b"")
    assert len(encode_rows([row], flexible=True)[0]) == 32_768 + 3 + 2
    with pytest.raises(struct.error):
        encode_rows([row], flexible=False)
