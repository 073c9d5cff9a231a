"""Groups of the consumer protocol over TCP: heartbeats, descriptions, and offsets of their members."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from authorizers import DenyingAuthorizer, Rule
from consumer_requests import beat, consumer_heartbeat_values, join
from harness import (
    Client,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    fetch_values,
    frame,
    join_and_sync,
    running_node,
    topic_id,
    versions,
)

from callboard.runtime.security.resources import Operation, ResourceType

AT_ONCE: dict[str, Any] = {"group_consumer_assignment_interval_ms": 0}
UNKNOWN_OPERATIONS = -(1 << 31)


async def describe(client: Client, *groups: str, version: int = 1, operations: bool = False) -> list[dict[str, Any]]:
    response = await client.ask(
        "consumer_group_describe", version, group_ids=list(groups), include_authorized_operations=operations
    )
    described: list[dict[str, Any]] = response["groups"]
    return described


def partitions_of(harness: NodeHarness, **topics: list[int]) -> dict[str, Any]:
    entries = [{"topic_id": str(topic_id(harness, name)), "partitions": numbers} for name, numbers in topics.items()]
    return {"topic_partitions": entries}


def text(assignment: Any) -> Any:
    """With topic ids as text."""
    if assignment is None:
        return None
    topics = [{**topic, "topic_id": str(topic["topic_id"])} for topic in assignment["topic_partitions"]]
    return {"topic_partitions": topics}


@async_test
async def test_members_share_a_topic_and_give_back_before_others_get(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client, topic = await harness.connect(), topic_id(harness, "t")
        first = await join(client, "a", "t")
        assert (first["error_code"], first["member_id"], first["member_epoch"]) == ("NONE", "a", 2)
        assert first["heartbeat_interval"] == 5000
        assert text(first["assignment"]) == partitions_of(harness, t=[0, 1, 2])
        second = await join(client, "b", "t")
        assert (second["member_epoch"], text(second["assignment"])) == (3, {"topic_partitions": []})
        asked = await beat(client, "a", 2, topic_partitions=[{"topic_id": topic, "partitions": [0, 1, 2]}])
        assert asked["member_epoch"] == 2
        kept = text(asked["assignment"])["topic_partitions"][0]["partitions"]
        given = sorted({0, 1, 2} - set(kept))
        assert (await beat(client, "b", 3))["assignment"] is None
        done = await beat(client, "a", 2, topic_partitions=[{"topic_id": topic, "partitions": kept}])
        assert (done["member_epoch"], done["assignment"]) == (3, None)
        assert text((await beat(client, "b", 3))["assignment"]) == partitions_of(harness, t=given)
        left = await beat(client, "b", -1)
        assert (left["error_code"], left["member_epoch"], left["heartbeat_interval"]) == ("NONE", -1, 0)


@async_test
async def test_members_keep_their_partitions_over_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        await join(await harness.connect(), "a", "t")
        await harness.restart()
        client = await harness.connect()
        again = await beat(client, "a", 2)
        assert (again["error_code"], again["member_epoch"], again["assignment"]) == ("NONE", 2, None)
        [group] = await describe(client, "g")
        assert (group["group_state"], group["members"][0]["client_id"]) == ("Stable", "wire")


@async_test
async def test_heartbeats_may_overlap_and_are_answered_in_order(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client = await harness.connect()
        await join(client, "a", "t")
        for epoch in (2, 9, 2):
            client.write(frame("consumer_group_heartbeat", 1, **consumer_heartbeat_values("a", epoch)))
        answers = [await client.receive("consumer_group_heartbeat", 1) for _ in range(3)]
        assert [answer["error_code"] for answer in answers] == ["NONE", "FENCED_MEMBER_EPOCH", "NONE"]


@async_test
async def test_errors_have_texts_and_nothing_else(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client = await harness.connect()
        await join_and_sync(client, "classic")
        await join(client, "a", "t")
        for answer, error, message in (
            (await beat(client, "z", 1), "UNKNOWN_MEMBER_ID", "Member z is not a member of group g."),
            (await beat(client, "", 1), "INVALID_REQUEST", "MemberId can't be empty."),
            (await beat(client, "a", 1, group_id="x"), "GROUP_ID_NOT_FOUND", "Consumer group x not found."),
            (await join(client, "", "t"), "INVALID_REQUEST", "MemberId can't be empty."),
            (
                await join(client, "b", "t", server_assignor="best"),
                "UNSUPPORTED_ASSIGNOR",
                "ServerAssignor best is not supported. Supported assignors: uniform, range.",
            ),
        ):
            expected = {"throttle_time": 0, "error_code": error, "error_message": message, "member_id": None}
            assert answer == {**expected, "member_epoch": 0, "heartbeat_interval": 0, "assignment": None}


@async_test
async def test_version_0_lets_the_coordinator_choose_the_member_id(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client = await harness.connect()
        joined = await join(client, "", "t", version=0)
        assert (joined["error_code"], len(joined["member_id"]), joined["member_epoch"]) == ("NONE", 22, 2)
        assert (await beat(client, joined["member_id"], 2, version=0))["error_code"] == "NONE"


@async_test
async def test_group_is_described_in_every_version(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client = await harness.connect()
        await join(client, "a", "t", "absent", instance_id="i", rack_id="r", server_assignor="range")
        await join_and_sync(client, "classic")
        topics = [{"topic_id": topic_id(harness, "t"), "topic_name": "t", "partitions": [0, 1, 2]}]
        member = {
            "member_id": "a",
            "instance_id": "i",
            "rack_id": "r",
            "member_epoch": 2,
            "client_id": "wire",
            "client_host": "/127.0.0.1",
            "subscribed_topic_names": ["absent", "t"],
            "subscribed_topic_regex": "",
            "assignment": {"topic_partitions": topics},
            "target_assignment": {"topic_partitions": topics},
        }
        for version in versions("consumer_group_describe"):
            typed = {"member_type": 1} if version else {}
            described, absent, other, again = await describe(client, "g", "x", "classic", "g", version=version)
            assert (
                described
                == again
                == {
                    "error_code": "NONE",
                    "error_message": None,
                    "group_id": "g",
                    "group_state": "Stable",
                    "group_epoch": 2,
                    "assignment_epoch": 2,
                    "assignor_name": "range",
                    "members": [{**member, **typed}],
                    "authorized_operations": UNKNOWN_OPERATIONS,
                }
            )
            assert (absent["error_code"], absent["error_message"]) == ("GROUP_ID_NOT_FOUND", "Group x not found.")
            assert other["error_code"] == "GROUP_ID_NOT_FOUND"
            assert other["error_message"] == "Group classic is not a consumer group."
        [with_operations] = await describe(client, "g", operations=True)
        assert with_operations["authorized_operations"] == sum(1 << number for number in (3, 6, 8, 10, 11))


@async_test
async def test_deleted_topics_are_not_described(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client = await harness.connect()
        await join(client, "a", "t", "u")
        await client.ask("delete_topics", 5, topic_names=["t"], timeout=1000)
        [group] = await describe(client, "g")
        [topic] = group["members"][0]["assignment"]["topic_partitions"]
        assert topic["topic_name"] == "u"


@async_test
async def test_denied_groups_come_first_and_denied_topics_hide_their_group(tmp_path: Path) -> None:
    authorizer = DenyingAuthorizer()
    async with running_node(tmp_path, authorizer=authorizer, **AT_ONCE) as harness:
        client = await harness.connect()
        await join(client, "a", "t")
        await join(client, "b", "u", group_id="h")
        authorizer.denied = {Rule(Operation.DESCRIBE, ResourceType.TOPIC, "t")}
        hidden, shown = await describe(client, "g", "h")
        assert (hidden["group_id"], hidden["error_code"], hidden["members"]) == ("g", "TOPIC_AUTHORIZATION_FAILED", [])
        assert hidden["error_message"] == (
            "The group has described topic(s) that the client is not authorized to describe."
        )
        assert (shown["group_state"], len(shown["members"])) == ("Stable", 1)
        authorizer.denied = {Rule(Operation.DESCRIBE, ResourceType.GROUP, "h")}
        first, second = await describe(client, "g", "h")
        assert (first["group_id"], first["error_code"]) == ("h", "GROUP_AUTHORIZATION_FAILED")
        assert (second["group_id"], second["group_state"]) == ("g", "Stable")


@async_test
async def test_member_may_not_subscribe_to_denied_topics(tmp_path: Path) -> None:
    """The whole heartbeat is refused, and the group is as before."""
    authorizer = DenyingAuthorizer(Rule(Operation.DESCRIBE, ResourceType.TOPIC, "u"))
    async with running_node(tmp_path, authorizer=authorizer, **AT_ONCE) as harness:
        client = await harness.connect()
        assert (await join(client, "a", "t", "u"))["error_code"] == "TOPIC_AUTHORIZATION_FAILED"
        assert (await join(client, "a", "t"))["error_code"] == "NONE"
        refused = await beat(client, "a", 2, subscribed_topic_names=["u"])
        assert (refused["error_code"], refused["error_message"]) == ("TOPIC_AUTHORIZATION_FAILED", None)
        assert (await beat(client, "a", 2))["error_code"] == "NONE"


@async_test
async def test_regular_expression_does_not_match_denied_topics(tmp_path: Path) -> None:
    """Those of whoever sends the heartbeat that lets it be resolved; as in Kafka, denials are not logged."""
    authorizer = DenyingAuthorizer(Rule(Operation.DESCRIBE, ResourceType.TOPIC, "u"))
    async with running_node(tmp_path, authorizer=authorizer, **AT_ONCE) as harness:
        client = await harness.connect()
        joining: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|u"}
        epoch = (await join(client, "a", **joining))["member_epoch"]
        async with asyncio.timeout(60):
            while (answer := await beat(client, "a", epoch))["assignment"] is None:
                epoch = answer["member_epoch"]
        assert text(answer["assignment"]) == partitions_of(harness, t=[0, 1, 2])
        topics = [action for action in authorizer.actions if action.resource_type is ResourceType.TOPIC]
        assert {(action.name, action.operation, action.logs_denial) for action in topics} == {
            ("t", Operation.DESCRIBE, False),
            ("u", Operation.DESCRIBE, False),
        }


@async_test
async def test_offsets_are_committed_and_fetched_by_member_epoch(tmp_path: Path) -> None:
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client = await harness.connect()
        await join(client, "a", "t")

        async def commit(version: int, epoch: int, member_id: str = "a") -> str:
            topics = [
                {"name": "t", "topic_id": topic_id(harness, "t"), "partitions": [committed_partition(0, 7)]},
            ]
            values = {**commit_values("g"), "member_id": member_id, "generation_id_or_member_epoch": epoch}
            response = await client.ask("offset_commit", version, **{**values, "topics": topics})
            return str(response["topics"][0]["partitions"][0]["error_code"])

        assert [await commit(version, 2) for version in (8, 9, 10)] == ["UNSUPPORTED_VERSION", "NONE", "NONE"]
        assert await commit(9, 3) == "STALE_MEMBER_EPOCH"
        assert await commit(9, 2, "z") == "UNKNOWN_MEMBER_ID"

        async def fetch(member_id: str | None, epoch: int) -> tuple[str, list[int]]:
            values = fetch_values("g", 0)
            values["groups"][0].update(member_id=member_id, member_epoch=epoch)
            [group] = (await client.ask("offset_fetch", 9, **values))["groups"]
            offsets = [each["committed_offset"] for topic in group["topics"] for each in topic["partitions"]]
            return group["error_code"], offsets

        assert await fetch("a", 2) == await fetch(None, -1) == ("NONE", [7])
        assert (await fetch("a", 1))[0] == "STALE_MEMBER_EPOCH"
        assert (await fetch("z", 2))[0] == "UNKNOWN_MEMBER_ID"


@async_test
async def test_all_offsets_of_one_group_are_fetched_for_each_member_separately(tmp_path: Path) -> None:
    """The same group twice in a request, with and without a member."""
    async with running_node(tmp_path, **AT_ONCE) as harness:
        client = await harness.connect()
        await join(client, "a", "t")
        plain = fetch_values("g")["groups"][0]
        groups = [plain, {**plain, "member_id": "a", "member_epoch": 1}]
        answers = (await client.ask("offset_fetch", 9, groups=groups, require_stable=False))["groups"]
        assert [answer["error_code"] for answer in answers] == ["NONE", "STALE_MEMBER_EPOCH"]


@async_test
async def test_long_assignments_are_answered_and_described(tmp_path: Path) -> None:
    async with running_node(tmp_path, {"topics": (("t", 2000),), "sync": "none"}, **AT_ONCE) as harness:
        client = await harness.connect()
        first = await join(client, "a", "t")
        assert len(first["assignment"]["topic_partitions"][0]["partitions"]) == 2000
        await join(client, "b", "t")
        [group] = await describe(client, "g")
        shown = [
            number
            for member in group["members"]
            for topic in member["target_assignment"]["topic_partitions"]
            for number in topic["partitions"]
        ]
        assert sorted(shown) == list(range(2000))
