"""OffsetCommit and OffsetFetch over TCP: unusual requests in every version, and cached responses."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from actor_system.instances import instance
from harness import (
    Member,
    async_test,
    commit_values,
    committed_partition,
    fetch_values,
    frame,
    join_and_sync,
    offsets,
    running_node,
    topic_id,
    versions,
)
from kio.serial import entity_writer
from peers.wire import build, message_type

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import Committed, OffsetCommit
from callboard.runtime.kafka.api import heartbeat, offset_commit
from callboard.runtime.kafka.authorization.authorizer import AllowAll
from callboard.runtime.kafka.call import Call
from callboard.runtime.kafka.codec.codes import kafka_error
from callboard.runtime.kafka.codec.durations import MAX_DURATION_MS
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.connections.used_member_ids import UsedMemberIds

NOBODY = UUID(int=7)
TOO_LONG = "x" * 4097


# OffsetCommit ---------------------------------------------------------------------------------------------------------


def partitions(*specs: int | tuple[int, int | str | None]) -> list[dict[str, Any]]:
    """Return partitions to commit. A spec is an index, or an index with an offset or with metadata."""
    result = []
    for spec in specs:
        index, value = spec if isinstance(spec, tuple) else (spec, 42)
        result.append(
            committed_partition(index, value) if isinstance(value, int) else committed_partition(index, 42, value)
        )
    return result


def codes(answer: dict[str, Any], key: str = "name") -> list[tuple[Any, list[tuple[int, str]]]]:
    return [
        (topic[key], [(partition["partition_index"], partition["error_code"]) for partition in topic["partitions"]])
        for topic in answer["topics"]
    ]


@async_test
async def test_offset_commit_to_unknown_partitions_returns_them_first(tmp_path: Path) -> None:
    """In every version, unknown partitions come first, in the order of the request, then the results of the group."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in range(2, 10):
            topics = [
                {"name": "t", "partitions": partitions(0, 3, 2, -1)},
                {"name": "nowhere", "partitions": partitions(0)},
                {"name": "u", "partitions": partitions(0)},
            ]
            answer = await client.ask("offset_commit", version, **commit_values("g", topics=topics))
            assert codes(answer) == [
                (
                    "t",
                    [(3, "UNKNOWN_TOPIC_OR_PARTITION"), (-1, "UNKNOWN_TOPIC_OR_PARTITION"), (0, "NONE"), (2, "NONE")],
                ),
                ("nowhere", [(0, "UNKNOWN_TOPIC_OR_PARTITION")]),
                ("u", [(0, "NONE")]),
            ]


@async_test
async def test_offset_commit_to_partition_minus_2_31_is_refused_as_unknown(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        topics = [{"name": name, "partitions": partitions(-(2**31), 0)} for name in ("t", "nowhere")]
        refused = (-(2**31), "UNKNOWN_TOPIC_OR_PARTITION")
        expected = [("t", [refused, (0, "NONE")]), ("nowhere", [refused, (0, "UNKNOWN_TOPIC_OR_PARTITION")])]
        assert codes(await client.ask("offset_commit", 9, **commit_values("g", topics=topics))) == expected
        topics = topics[1:]  # without a transaction, existing partitions would be refused
        producer = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0, "generation_id": -1}
        answer = await client.ask("txn_offset_commit", 3, **producer, **commit_values("g", topics=topics))
        assert codes(answer) == expected[1:]


@async_test
async def test_offset_commit_with_topic_ids(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, t, u = await harness.connect(), topic_id(harness, "t"), topic_id(harness, "u")
        topics = [
            {"topic_id": u, "partitions": partitions(0)},
            {"topic_id": NOBODY, "partitions": partitions(0, 1)},
            {"topic_id": None, "partitions": partitions(4)},
            {"topic_id": t, "partitions": partitions(1, 9)},
        ]
        answer = await client.ask("offset_commit", 10, **commit_values("g", topics=topics))
        assert codes(answer, "topic_id") == [
            (NOBODY, [(0, "UNKNOWN_TOPIC_ID"), (1, "UNKNOWN_TOPIC_ID")]),
            (None, [(4, "UNKNOWN_TOPIC_ID")]),
            (t, [(9, "UNKNOWN_TOPIC_OR_PARTITION"), (1, "NONE")]),
            (u, [(0, "NONE")]),
        ]
        fetched_topics = [
            {"topic_id": NOBODY, "partition_indexes": [0, 5]},
            {"topic_id": u, "partition_indexes": [0]},
            {"topic_id": t, "partition_indexes": [0, 1]},
        ]
        group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": fetched_topics}
        [fetched] = (await client.ask("offset_fetch", 10, groups=[group], require_stable=False))["groups"]
        assert codes(fetched, "topic_id") == [
            (u, [(0, "NONE")]),
            (t, [(0, "NONE"), (1, "NONE")]),
            (NOBODY, [(0, "UNKNOWN_TOPIC_ID"), (5, "UNKNOWN_TOPIC_ID")]),
        ]
        [everything] = (await client.ask("offset_fetch", 10, **fetch_values("g")))["groups"]
        assert {topic["topic_id"] for topic in everything["topics"]} == {t, u}


@async_test
async def test_offset_commit_to_unknown_partitions_only_is_not_sent_to_group(tmp_path: Path) -> None:
    """So an unknown member id is not refused."""
    async with running_node(tmp_path) as harness:
        client, stranger = await harness.connect(), Member("stranger", 5)
        for version in versions("offset_commit"):
            answer = await client.ask("offset_commit", version, **commit_values("g", stranger, topics=[]))
            assert answer["topics"] == []
            empty_topic = [{"name": "t", "topic_id": topic_id(harness, "t"), "partitions": []}]
            assert (await client.ask("offset_commit", version, **commit_values("g", stranger, topics=empty_topic)))[
                "topics"
            ] == []
        assert (await client.ask("list_groups", states_filter=[], types_filter=[]))["groups"] == []


@async_test
async def test_offset_commit_with_repeated_partition_returns_it_twice(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        topics = [{"name": "t", "partitions": partitions((0, 1), (1, 2), (0, 3))}]
        answer = await client.ask("offset_commit", 9, **commit_values("g", topics=topics))
        assert codes(answer) == [("t", [(0, "NONE"), (1, "NONE"), (0, "NONE")])]
        assert await offsets(client, "g") == {("t", 0): 3, ("t", 1): 2}


@async_test
async def test_offset_commit_with_repeated_topic_returns_it_twice_unless_partitions_are_unknown(
    tmp_path: Path,
) -> None:
    """The same for all three requests that contain partitions (compared with Kafka 4.3.1)."""

    def topic(name: str, *indexes: int) -> dict[str, Any]:
        topic_uuid = topic_id(harness, name) if name != "nix" else NOBODY
        return {"name": name, "topic_id": topic_uuid, "partitions": partitions(*indexes)}

    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 9, **commit_values("g"))
        for topics, expected in (
            ([topic("t", 0), topic("t", 1)], [("t", [0]), ("t", [1])]),
            ([topic("t", 0), topic("u", 0), topic("t", 1, 0)], [("t", [0]), ("u", [0]), ("t", [1, 0])]),
            ([topic("t", 0), topic("u"), topic("t", 1)], [("t", [0]), ("t", [1])]),
            ([topic("nix", 0), topic("t", 0), topic("t", 1)], [("nix", [0]), ("t", [0, 1])]),
            ([topic("t", 0), topic("t", 99, 1)], [("t", [99, 0, 1])]),
            ([topic("nix"), topic("t", 0), topic("t", 1)], [("nix", []), ("t", [0, 1])]),
            ([topic("nix"), topic("nix")], [("nix", [])]),
        ):
            answers = [await client.ask("offset_commit", v, **commit_values("g", topics=topics)) for v in (2, 9)]
            answers.append(await client.ask("offset_delete", group_id="g", topics=topics))
            answers.append(await client.ask("txn_offset_commit", 3, **in_a_transaction(topics)))
            for answer in answers:
                result = [
                    (name, [index for index, _ in indexes_and_errors]) for name, indexes_and_errors in codes(answer)
                ]
                assert result == expected
            by_id = codes(await client.ask("offset_commit", 10, **commit_values("g", topics=topics)), "topic_id")
            names = {topic_id(harness, "t"): "t", topic_id(harness, "u"): "u", NOBODY: "nix"}
            assert [
                (names[topic_uuid], [index for index, _ in indexes_and_errors])
                for topic_uuid, indexes_and_errors in by_id
            ] == expected


def in_a_transaction(topics: list[dict[str, Any]]) -> dict[str, Any]:
    """TxnOffsetCommit of an unknown producer, for the order of its response."""
    nobody = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0, "member_id": "", "generation_id": -1}
    return {**nobody, "group_id": "g", "group_instance_id": None, "topics": topics}


@async_test
async def test_offset_commit_with_too_long_metadata_is_refused_for_that_partition_only(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in range(2, 10):
            group = f"g{version}"
            topics = [{"name": "t", "partitions": partitions((0, TOO_LONG), (1, TOO_LONG[1:]), (2, None))}]
            answer = await client.ask("offset_commit", version, **commit_values(group, topics=topics))
            assert codes(answer) == [("t", [(0, "OFFSET_METADATA_TOO_LARGE"), (1, "NONE"), (2, "NONE")])]
            assert await offsets(client, group) == {("t", 1): 42, ("t", 2): 42}


@async_test
async def test_offset_commit_to_unknown_group_returns_error_of_version(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, stranger = await harness.connect(), Member("stranger", 1)
        member = await join_and_sync(client, "known")
        for version in range(2, 10):
            answer = await client.ask("offset_commit", version, **commit_values("g", stranger))
            assert codes(answer) == [("t", [(0, "GROUP_ID_NOT_FOUND" if version >= 9 else "ILLEGAL_GENERATION")])]
            answer = await client.ask("offset_commit", version, **commit_values("known", stranger))
            assert codes(answer) == [("t", [(0, "UNKNOWN_MEMBER_ID")])]
            answer = await client.ask(
                "offset_commit", version, **commit_values("known", member._replace(generation_id=7))
            )
            assert codes(answer) == [("t", [(0, "ILLEGAL_GENERATION")])]


@async_test
async def test_offset_commit_with_retention_time_is_accepted(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in (2, 3, 4):
            for retention_ms in (-1, 0, 60_000, 10**12):
                group = f"g{version} {retention_ms}"
                answer = await client.ask("offset_commit", version, **commit_values(group, retention_time=retention_ms))
                assert codes(answer) == [("t", [(0, "NONE")])]
                assert await offsets(client, group) == {("t", 0): 42}


@async_test
@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 2, 2**62, MAX_DURATION_MS + 1, -(2**63)])
async def test_offset_commit_with_retention_time_beyond_kio_maximum_is_accepted(
    tmp_path: Path, retention_ms: int
) -> None:
    """kio cannot represent such a duration; clients send it to keep an offset for ever."""
    placeholder = 123_456_789
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in (2, 3, 4):
            group = f"g{version}"
            request = frame("offset_commit", version, **commit_values(group, retention_time=placeholder))
            assert request.count(placeholder.to_bytes(8, "big")) == 1
            client.write(request.replace(placeholder.to_bytes(8, "big"), retention_ms.to_bytes(8, "big", signed=True)))
            assert codes(await client.receive("offset_commit", version)) == [("t", [(0, "NONE")])]
            assert await offsets(client, group) == {("t", 0): 42}
            [(_, _, value)] = instance(harness.node.groups.groups[group]).data.offsets
            is_in_far_future = value.expire_timestamp_ms > value.commit_timestamp_ms + 10**15
            assert is_in_far_future == (retention_ms > 0)


# OffsetFetch ----------------------------------------------------------------------------------------------------------


@async_test
async def test_offset_fetch_of_one_group_in_every_version(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 9, **commit_values("g"))
        topics = [{"name": "nowhere", "partition_indexes": [1]}, {"name": "t", "partition_indexes": [1, 0, 0]}]
        for version in range(1, 8):
            answer = await client.ask("offset_fetch", version, group_id="g", topics=topics, require_stable=False)
            assert answer.get("error_code", "NONE") == "NONE"
            assert [topic["name"] for topic in answer["topics"]] == ["nowhere", "t"]
            [unknown], [uncommitted, first, again] = (topic["partitions"] for topic in answer["topics"])
            assert (unknown["committed_offset"], unknown["metadata"], unknown["error_code"]) == (-1, "", "NONE")
            assert uncommitted["committed_offset"] == -1
            assert first == again
            assert (first["committed_offset"], first["metadata"]) == (42, "x")
            assert first.get("committed_leader_epoch", 3) == 3
            if version >= 2:
                everything = await client.ask("offset_fetch", version, group_id="g", topics=None, require_stable=False)
                assert codes(everything) == [("t", [(0, "NONE")])]
                nothing = await client.ask("offset_fetch", version, group_id="none", topics=None, require_stable=True)
                assert (nothing["topics"], nothing["error_code"]) == ([], "NONE")


@async_test
async def test_offset_fetch_of_several_groups(tmp_path: Path) -> None:
    """One result per group of the request, in its order, with repeated groups; also a request without groups."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for offset, group in enumerate(("a", "b", "")):
            await client.ask("offset_commit", 9, **commit_values(group, offset=offset))
        for version in (8, 9):
            groups = [
                fetch_values(group, *partition_indexes)["groups"][0]
                for group, partition_indexes in (
                    ("b", (0, 1)),
                    ("nobody", (2,)),
                    ("a", ()),
                    ("b", ()),
                    ("nobody", ()),
                    ("", ()),
                )
            ]
            answer = await client.ask("offset_fetch", version, groups=groups, require_stable=True)
            offsets_by_group = [
                (
                    group["group_id"],
                    [partition["committed_offset"] for topic in group["topics"] for partition in topic["partitions"]],
                )
                for group in answer["groups"]
            ]
            assert offsets_by_group == [
                ("b", [1, -1]),
                ("nobody", [-1]),
                ("a", [0]),
                ("b", [1]),
                ("nobody", []),
                ("", [2]),
            ]
            assert (await client.ask("offset_fetch", version, groups=[], require_stable=False))["groups"] == []


# Cached responses -----------------------------------------------------------------------------------------------------


def by_kio(name: str, version: int, **values: Any) -> bytes:
    response_type = message_type(name, version, "response")
    buffer = io.BytesIO()
    entity_writer(response_type)(buffer, build(response_type, values))
    return buffer.getvalue()


@pytest.mark.parametrize("version", versions("heartbeat"))
def test_cached_heartbeat_response_equals_kio_encoding(version: int) -> None:
    for code in ErrorCode:
        for _ in range(2):  # encoded, then cached
            assert heartbeat.body(schema("heartbeat", version), code) == by_kio(
                "heartbeat", version, throttle_time=0, error_code=kafka_error(code)
            )


class StandInTopics:
    """One topic, ``t``, with two partitions."""

    _t = SimpleNamespace(name="t", topic_id=UUID(int=9), partitions=(None, None))

    def get(self, name: str) -> Any:
        return self._t if name == "t" else None

    def by_id(self, topic_id: UUID | None) -> Any:
        return self._t if topic_id == self._t.topic_id else None


class StandInGroups:
    """Answers every commit with the same error."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE

    def post(self, message: OffsetCommit, reply: Any) -> None:
        reply.set(Committed((self.error,) * len(message.commits)))


class StandInConnection:
    def __init__(self, services: Any) -> None:
        self.services = services

    def on_response_ready(self) -> None:
        """Nothing is sent."""


@pytest.mark.parametrize("version", versions("offset_commit"))
def test_cached_offset_commit_response_equals_kio_encoding(version: int) -> None:
    """A cached response is never returned for another request, whatever the order of errors and shapes."""
    groups = StandInGroups()
    services = {"topics": StandInTopics(), "groups": groups, "authorizer": AllowAll()}
    connection: Any = StandInConnection(SimpleNamespace(**services, used_member_ids=UsedMemberIds()))
    shapes: tuple[tuple[int, ...], ...] = ((0,), (1,), (0, 1), (1, 0))
    for code in [*ErrorCode, *reversed(ErrorCode)]:
        groups.error = code
        for indexes in shapes:
            topic = {"name": "t", "topic_id": UUID(int=9)}
            topics = [{**topic, "partitions": partitions(*indexes)}]
            request = build(message_type("offset_commit", version, "request"), commit_values("g", topics=topics))
            call = Call(connection, schema("offset_commit", version), 7, request)
            offset_commit.handle_unchecked(call)
            errors = [{"partition_index": index, "error_code": kafka_error(code)} for index in indexes]
            body = by_kio("offset_commit", version, throttle_time=0, topics=[{**topic, "partitions": errors}])
            header_size = 9 if schema("offset_commit", version).flexible_header else 8
            assert call.payload is not None
            assert bytes(call.payload)[header_size:] == body
