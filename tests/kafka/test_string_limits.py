"""A client cannot make the response to another client impossible, by a long string or by many bytes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness import (
    Client,
    MemoryClient,
    async_test,
    framed,
    heartbeat_values,
    join_and_sync,
    join_values,
    random_entity,
    running_node,
    versions,
)
from kio.serial import _introspect as introspect
from kio.serial import entity_writer
from peers.wire import decode, encode, message_type
from request_helpers import API_VERSIONS

from callboard.actors.errors import ErrorCode
from callboard.actors.group import members
from callboard.actors.messages import Heartbeat, Joined, JoinGroup, Protocol
from callboard.actors.strings import STRING_BYTES_MAX, fits_kafka_string
from callboard.runtime.kafka.api import APIS, Api
from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.codec.schemas import ERROR_MESSAGE_CHARS_MAX, schema
from callboard.runtime.kafka.services import Origin

LONGEST = "x" * STRING_BYTES_MAX
TOO_LONG = LONGEST + "x"
TURNS = 100
ORIGIN = Origin("test", "/127.0.0.1", 1)


async def ask_as(client: Client, client_id: str, name: str, version: int, **values: Any) -> dict[str, Any]:
    client.write(framed(encode(name, version, values, client_id=client_id)))
    return await client.receive(name, version)


async def described_in_every_version(client: Client, group_id: str) -> None:
    for version in versions("describe_groups"):
        answer = await client.ask("describe_groups", version, groups=[group_id], include_authorized_operations=False)
        [group] = answer["groups"]
        assert (group["error_code"], group["group_state"], len(group["members"])) == ("NONE", "Stable", 1)


# Member ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions("join_group"))
@async_test
async def test_join_whose_member_id_would_be_too_long_is_refused(tmp_path: Path, version: int) -> None:
    """A member id is the client id and a UUID. Members can still be described and rebalance."""
    async with running_node(tmp_path) as harness:
        client, stranger = await harness.connect(), await harness.connect()
        member = await join_and_sync(client, "g")
        answer = await ask_as(stranger, LONGEST, "join_group", version, **join_values("g"))
        assert answer["error_code"] == "INVALID_REQUEST"
        await described_in_every_version(client, "g")
        beat = await client.ask("heartbeat", **heartbeat_values("g", member))
        assert beat["error_code"] == "NONE", "no rebalance has begun"
        fitting = LONGEST[: -len("-01234567-89ab-cdef-0123-456789abcdef")]
        answer = await ask_as(stranger, fitting, "join_group", 4, **join_values("h"))
        assert (answer["error_code"], len(answer["member_id"])) == ("MEMBER_ID_REQUIRED", STRING_BYTES_MAX)


@async_test
async def test_join_with_group_instance_id_that_makes_member_id_too_long_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path) as harness:
        client, stranger = await harness.connect(), await harness.connect()
        await join_and_sync(client, "g")
        for version in versions("join_group", since=5):
            answer = await stranger.ask("join_group", version, **join_values("g", group_instance_id=LONGEST))
            assert answer["error_code"] == "INVALID_REQUEST"
        await described_in_every_version(client, "g")
    [line] = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
    assert line.endswith("has more than 32767 bytes; use a shorter one (logged once)")


@pytest.mark.parametrize(
    "change",
    [
        {"group_id": TOO_LONG},
        {"member_id": TOO_LONG},
        {"group_instance_id": TOO_LONG},
        {"client_id": TOO_LONG},
        {"client_host": TOO_LONG},
        {"protocol_type": TOO_LONG},
        {"protocols": (Protocol(TOO_LONG, b""),)},
        {"client_id": "ä" * (STRING_BYTES_MAX // 2)},
    ],
    ids=lambda change: next(iter(change)),
)
@async_test
async def test_join_in_this_process_with_too_long_string_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """Requests of this process are not decoded, so their strings are not checked there."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join_and_sync(client, "g")
        protocols = (Protocol("range", b""),)
        request = JoinGroup("g", "", None, "c", "h", 30_000, 30_000, "consumer", protocols, False, False, None)
        answer: Joined = await harness.node.local.ask(request._replace(**change), ORIGIN)
        assert answer.error in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_GROUP_ID)
        await described_in_every_version(client, "g")


@async_test
async def test_request_in_this_process_with_too_long_group_id_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        answer = await harness.node.local.ask(Heartbeat(TOO_LONG, "m", None, 1), ORIGIN)
        assert answer is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("text", "fits"),
    [(None, True), ("", True), (LONGEST, True), (TOO_LONG, False), ("ä" * 16383, True), ("ä" * 16384, False)],
    ids=["null", "empty", "longest", "too long", "two bytes each", "two bytes each, too long"],
)
def test_string_limits_count_utf8_bytes(text: str | None, fits: bool) -> None:
    assert fits_kafka_string(text) is fits


# Every string of every request ---------------------------------------------------------------------------------------


def with_long_strings(entity: Any) -> Iterator[tuple[str, Any]]:
    """Yield the entity with one too long string, for each string of it and its entries."""
    for field in fields(entity):
        value = getattr(entity, field.name)
        kind = introspect.classify_field(field)
        is_text = not is_dataclass(kind.type_) and field.metadata.get("kafka_type") == "string"
        if is_text:
            yield field.name, replace(entity, **{field.name: (TOO_LONG,) if kind.is_array else TOO_LONG})
        elif kind.is_array and is_dataclass(kind.type_):
            item: Any = random_entity(kind.type_, Random(1))
            for name, changed in with_long_strings(item):
                yield f"{field.name}.{name}", replace(entity, **{field.name: (changed,)})
        elif is_dataclass(value):
            for name, changed in with_long_strings(value):
                yield f"{field.name}.{name}", replace(entity, **{field.name: changed})


def long_requests(api: Api, version: int) -> Iterator[tuple[str, bytes]]:
    """Return frames, each with one string of 32,768 bytes, by the path of its field."""
    request_type = message_type(api.name, version, "request")
    if not request_type.__flexible__:
        return  # a length of 16 bits cannot express it
    head = encode("api_versions", 0, {})[4:]  # correlation id and client id
    for path, entity in with_long_strings(random_entity(request_type, Random(2))):
        body = io.BytesIO()
        write(request_type)(body, entity)
        key = api.key.to_bytes(2, "big") + version.to_bytes(2, "big")
        yield path, framed(key + head + b"\0" + body.getvalue())


@cache
def write(request_type: Any) -> Any:
    return entity_writer(request_type)


@async_test
async def test_too_long_string_in_any_request_closes_only_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "g")
        for api, version in API_VERSIONS:
            for path, sent in long_requests(api, version):
                caplog.clear()
                stranger = MemoryClient(harness.node)
                stranger.feed(sent)
                for _ in range(TURNS):  # JoinGroup and SyncGroup are handled in a later iteration
                    if stranger.is_closed:
                        break
                    await asyncio.sleep(0)
                assert stranger.is_closed, (api.name, version, path)
                assert stranger.answers() == []
                assert "a string of 32768 bytes, expected at most 32767" in caplog.text, (api.name, version, path)
                tried += 1
            assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"
        await described_in_every_version(client, "g")
    assert tried > 100


# Error messages ------------------------------------------------------------------------------------------------------


@async_test
async def test_error_message_that_names_a_long_string_is_short(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in versions("describe_configs"):
            resource = {"resource_type": 4, "resource_name": LONGEST, "configuration_keys": None}
            answer = await client.ask(
                "describe_configs", version, resources=[resource], include_synonyms=False, include_documentation=False
            )
            assert_short(answer["results"][0])
        configs = [{"name": LONGEST, "config_operation": 0, "value": None} for _ in range(2)]
        configs[1]["name"] = LONGEST[:-1]
        for version in versions("incremental_alter_configs"):
            resource = {"resource_type": 4, "resource_name": "1", "configs": configs}
            answer = await client.ask("incremental_alter_configs", version, resources=[resource], validate_only=False)
            assert_short(answer["responses"][0])
        answer = await client.ask("describe_groups", 6, groups=[LONGEST], include_authorized_operations=False)
        assert_short(answer["groups"][0])


def assert_short(answer: dict[str, Any]) -> None:
    assert answer["error_code"] != "NONE"
    assert ERROR_MESSAGE_CHARS_MAX < len(answer["error_message"]) < ERROR_MESSAGE_CHARS_MAX + 50


# Very many bytes -----------------------------------------------------------------------------------------------------


@async_test
async def test_join_that_makes_leader_response_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Existing members stay, and a member with smaller protocols can join."""
    monkeypatch.setattr(members, "SIZE_MAX", 10_000)
    async with running_node(tmp_path) as harness:
        client, stranger = await harness.connect(), await harness.connect()
        member = await join_and_sync(client, "g")
        large = [{"name": "range", "metadata": bytes(10_000)}]
        first = await stranger.ask("join_group", **join_values("g", protocols=large))
        assert first["error_code"] == "GROUP_MAX_SIZE_REACHED"
        assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"
        await described_in_every_version(client, "g")
        assert (await stranger.ask("join_group", **join_values("g")))["error_code"] == "MEMBER_ID_REQUIRED"


class Huge(bytes):
    """A body that claims to be larger than a frame can be."""

    def __len__(self) -> int:
        return 2**31


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@async_test
async def test_response_larger_than_a_frame_becomes_error(tmp_path: Path, api: Api) -> None:
    async with running_node(tmp_path) as harness:
        for version in versions(api.name):
            client = MemoryClient(harness.node)
            request = random_entity(message_type(api.name, version, "request"), Random(3))
            call = Call(client.connection, schema(api.name, version), 7, request)
            client.connection.requests.calls.append(call)
            call.respond_with_bytes(Huge())
            if not client.is_closed:
                [answer] = await client.answered(1)
                decode(api.name, version, answer)


@async_test
async def test_describe_groups_with_too_large_response_returns_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = [f"g{number}" for number in range(10)]
    protocols = [{"name": "range", "metadata": bytes(20_000)}]
    async with running_node(tmp_path, queued_max_response_bytes=100_000) as harness:
        client = await harness.connect()
        for group in groups:
            await join_and_sync(client, group, protocols=protocols)
        answer = await client.ask("describe_groups", groups=groups, include_authorized_operations=False)
        assert {group["error_code"] for group in answer["groups"]} == {"UNKNOWN_SERVER_ERROR"}
        assert "is too large, expected fewer groups in one request" in caplog.text
        await described_in_every_version(client, "g0")
