"""The group APIs over TCP: every served version, and invalid requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import (
    NEWEST,
    OLDEST,
    Client,
    Member,
    async_test,
    commit_values,
    committed_partition,
    heartbeat_values,
    join_and_sync,
    join_values,
    offsets,
    running_node,
    sync_values,
    topic_id,
    versions,
)

from callboard.runtime.kafka.api import APIS


class OfAge:
    """A client that uses the n-th oldest version of each API, or the newest if there are fewer."""

    def __init__(self, client: Client, age: int) -> None:
        self._client = client
        self._age = age

    def version(self, name: str) -> int:
        return min(OLDEST[name] + self._age, NEWEST[name])

    async def ask(self, name: str, **values: Any) -> dict[str, Any]:
        answer = await self._client.ask(name, self.version(name), **values)
        assert answer.get("throttle_time", 0) == 0
        return answer


AGES = range(max(len(versions(name)) for name in ("join_group", "offset_commit", "offset_fetch")))


@pytest.mark.parametrize("age", AGES)
@async_test
async def test_join_sync_heartbeat_leave_in_every_version(tmp_path: Path, age: int) -> None:
    """From FindCoordinator to DeleteGroups, so that every version is used once."""
    async with running_node(tmp_path) as harness:
        client, topic = OfAge(await harness.connect(), age), {"name": "t", "topic_id": topic_id(harness, "t")}
        found = await client.ask("find_coordinator", key="g", key_type=0, coordinator_keys=["g"])
        [place] = found.get("coordinators", [found])
        assert (place["error_code"], place["node_id"], place["port"]) == ("NONE", 1, harness.port)

        member = await joined_and_synced(client)
        assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"

        commit = commit_values(
            "g", member, topics=[{**topic, "partitions": [committed_partition(0), committed_partition(2)]}]
        )
        [answered] = (await client.ask("offset_commit", **commit))["topics"]
        assert answered["partitions"] == [
            {"partition_index": 0, "error_code": "NONE"},
            {"partition_index": 2, "error_code": "NONE"},
        ]
        assert await committed(client, topic, [2, 1]) == {2: (42, "x"), 1: (-1, "")}

        [described] = (await client.ask("describe_groups", groups=["g"], include_authorized_operations=False))["groups"]
        assert described["error_code"] == "NONE"
        assert [described[key] for key in ("group_state", "protocol_type", "protocol_data")] == [
            "Stable",
            "consumer",
            "range",
        ]
        [shown] = described["members"]
        assert (shown["member_id"], shown["client_id"], shown["client_host"]) == (
            member.member_id,
            "wire",
            "/127.0.0.1",
        )
        assert (shown["member_metadata"], shown["member_assignment"]) == (b"\x01\x02", b"\x09")

        [listed] = (await client.ask("list_groups", states_filter=[], types_filter=[]))["groups"]
        expected = {"group_id": "g", "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
        assert listed == {key: value for key, value in expected.items() if key in listed}

        await left_and_deleted(client, member)


async def joined_and_synced(client: OfAge) -> Member:
    answer = await client.ask("join_group", **join_values("g"))
    if client.version("join_group") >= 4:
        assert answer["error_code"] == "MEMBER_ID_REQUIRED"
        answer = await client.ask("join_group", **join_values("g", answer["member_id"]))
    assert (answer["error_code"], answer["generation_id"], answer["protocol_name"]) == ("NONE", 1, "range")
    assert answer["member_id"] == answer["leader"] == answer["members"][0]["member_id"]
    member = Member(answer["member_id"], 1)
    assignments = [{"member_id": member.member_id, "assignment": b"\x09"}]
    synced = await client.ask("sync_group", **sync_values("g", member, assignments))
    assert (synced["error_code"], synced["assignment"]) == ("NONE", b"\x09")
    return member


async def committed(client: OfAge, topic: dict[str, Any], partitions: list[int]) -> dict[int, tuple[int, str]]:
    topics = [{**topic, "partition_indexes": partitions}]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    answer = await client.ask("offset_fetch", group_id="g", topics=topics, groups=[group], require_stable=True)
    [group] = answer.get("groups", [answer])
    assert group.get("error_code", "NONE") == "NONE"
    [answered] = group["topics"]
    return {
        one["partition_index"]: (one["committed_offset"], one["metadata"])
        for one in answered["partitions"]
        if one["error_code"] == "NONE"
    }


async def left_and_deleted(client: OfAge, member: Member) -> None:
    leaving = {"member_id": member.member_id, "group_instance_id": None, "reason": "the end"}
    left = await client.ask("leave_group", group_id="g", member_id=member.member_id, members=[leaving])
    assert [left["error_code"], *(one["error_code"] for one in left.get("members", []))] in (["NONE"], ["NONE"] * 2)
    deleted = await client.ask("delete_groups", groups_names=["g"])
    assert deleted["results"] == [{"group_id": "g", "error_code": "NONE"}]
    [gone] = (await client.ask("describe_groups", groups=["g"], include_authorized_operations=False))["groups"]
    assert gone["group_state"] == "Dead"
    assert gone["error_code"] == ("GROUP_ID_NOT_FOUND" if client.version("describe_groups") >= 6 else "NONE")


# ApiVersions, FindCoordinator -----------------------------------------------------------------------------------------


@async_test
async def test_api_versions_returns_served_apis(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version in versions("api_versions"):
            answer = await client.ask(
                "api_versions", version, client_software_name="a", client_software_version="1.0-b"
            )
            assert answer["error_code"] == "NONE"
            served = {one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]}
            assert served == {
                api.key: (api.min_version if api.key else 0, api.max_version) for api in APIS
            }  # Produce: librdkafka needs it from 0 on


@pytest.mark.parametrize("name", ["", "-a", "a.", "a b", "é", "a\n"])
@async_test
async def test_api_versions_with_invalid_client_software_name_is_refused(tmp_path: Path, name: str) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for software in (
            {"client_software_name": name, "client_software_version": "1"},
            {
                "client_software_name": "a",
                "client_software_version": name,
            },
        ):
            answer = await client.ask("api_versions", 3, **software)
            assert (answer["error_code"], answer["api_keys"]) == ("INVALID_REQUEST", [])


@async_test
async def test_find_coordinator_accepts_groups_and_transactional_ids_only(tmp_path: Path) -> None:
    async with running_node(tmp_path, {"advertised": ("stage.example", 19092)}) as harness:
        client = await harness.connect()
        for version in versions("find_coordinator", since=4):
            answer = await client.ask("find_coordinator", version, key_type=0, coordinator_keys=["", "g", "g"])
            assert [one["key"] for one in answer["coordinators"]] == ["", "g", "g"]
            for one in answer["coordinators"]:
                assert (one["host"], one["port"], one["error_message"]) == ("stage.example", 19092, "")
            answer = await client.ask("find_coordinator", version, key_type=0, coordinator_keys=[])
            assert answer["coordinators"] == []
        for version in versions("find_coordinator", since=1):
            answer = await client.ask("find_coordinator", version, key="tx", key_type=1, coordinator_keys=["tx"])
            [place] = answer.get("coordinators", [answer])
            assert (place["error_code"], place["node_id"], place["host"]) == ("NONE", 1, "stage.example")
            for key_type in (2, 9, -1):
                answer = await client.ask(
                    "find_coordinator", version, key="g", key_type=key_type, coordinator_keys=["g"]
                )
                [place] = answer.get("coordinators", [answer])
                assert place["error_code"] == "INVALID_REQUEST"
                has_no_text = key_type == 2 and version >= 4  # share groups: each key is refused separately
                assert bool(place["error_message"]) != has_no_text
                assert (place["node_id"], place["host"], place["port"]) == (-1, "", -1)


# Members --------------------------------------------------------------------------------------------------------------


@async_test
async def test_invalid_group_request_is_refused_in_every_version(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, nobody = await harness.connect(), Member("nobody", 1)
        for version in versions("join_group"):
            short = await client.ask("join_group", version, **join_values("g", session_timeout=1))
            assert (short["error_code"], short["generation_id"], short["members"]) == (
                "INVALID_SESSION_TIMEOUT",
                -1,
                [],
            )
            nameless = await client.ask("join_group", version, **join_values(""))
            assert nameless["error_code"] == "INVALID_GROUP_ID"
            assert nameless["protocol_name"] == (None if version >= 7 else "")
            assert (await client.ask("join_group", version, **join_values("g", "m")))[
                "error_code"
            ] == "UNKNOWN_MEMBER_ID"
        for name in ("sync_group", "heartbeat"):
            for version in versions(name):
                values = sync_values("g", nobody)
                assert (await client.ask(name, version, **values))["error_code"] == "UNKNOWN_MEMBER_ID"
                assert (await client.ask(name, version, **{**values, "group_id": ""}))[
                    "error_code"
                ] == "INVALID_GROUP_ID"
        for version in versions("leave_group"):
            leaving = {"member_id": "m", "group_instance_id": None, "reason": None}
            left = await client.ask("leave_group", version, group_id="g", member_id="m", members=[leaving])
            members = [one["error_code"] for one in left.get("members", [])]
            expected = ("NONE", ["UNKNOWN_MEMBER_ID"]) if version >= 3 else ("UNKNOWN_MEMBER_ID", [])
            assert (left["error_code"], members) == expected
        assert (await client.ask("list_groups", states_filter=[], types_filter=[]))["groups"] == []


@async_test
async def test_sync_group_v5_without_protocol_is_refused(tmp_path: Path) -> None:
    """From version 5 on, before the group is looked up."""
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for missing in ("protocol_type", "protocol_name"):
            values = {**sync_values("", Member("m", 1)), missing: None}
            answer = await client.ask("sync_group", 5, **values)
            assert answer == {
                "throttle_time": 0,
                "error_code": "INCONSISTENT_GROUP_PROTOCOL",
                "protocol_type": None,
                "protocol_name": None,
                "assignment": b"",
            }
            assert (await client.ask("sync_group", 4, **values))["error_code"] == "INVALID_GROUP_ID"


@async_test
async def test_leave_group_returns_error_per_member(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join_and_sync(client, "g", group_instance_id="i")
        identities = [("stranger", None), ("", "i"), ("", "other"), ("", None)]
        members = [{"member_id": id_, "group_instance_id": instance, "reason": None} for id_, instance in identities]
        left = await client.ask("leave_group", 5, group_id="g", members=members)
        assert left["error_code"] == "NONE"
        assert [(one["member_id"], one["group_instance_id"]) for one in left["members"]] == identities
        assert [one["error_code"] for one in left["members"]] == [
            "UNKNOWN_MEMBER_ID",
            "NONE",
            "UNKNOWN_MEMBER_ID",
            "UNKNOWN_MEMBER_ID",
        ]
        assert (await client.ask("leave_group", 5, group_id="g", members=[]))["error_code"] == "NONE"


# ListGroups, DescribeGroups, DeleteGroups -----------------------------------------------------------------------------


@async_test
async def test_list_groups_filters_are_case_insensitive(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join_and_sync(client, "members")
        await client.ask("offset_commit", 9, **commit_values("simple"))

        async def listed(states: list[str], types: list[str], version: int = 5) -> set[str]:
            answer = await client.ask("list_groups", version, states_filter=states, types_filter=types)
            assert answer["error_code"] == "NONE"
            return {group["group_id"] for group in answer["groups"]}

        everything = {"members", "simple"}
        for version in versions("list_groups"):
            assert await listed([], [], version) == everything
        for version in (4, 5):
            assert await listed(["sTaBlE"], [], version) == {"members"}
            assert await listed([" empty "], [], version) == {"simple"}
            assert await listed(["Empty", "STABLE", "no such state"], [], version) == everything
            assert await listed(["no such state"], [], version) == set()
        assert await listed([], ["CLASSIC"]) == everything
        assert await listed([], ["consumer"]) == set()
        assert await listed([], ["no such type"]) == set()
        assert await listed([], [" classic"]) == set(), "Kafka forgives spaces around a state, not around a type"
        assert await listed(["stable"], ["Classic", "share"]) == {"members"}


@async_test
async def test_describe_groups_returns_each_group(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await join_and_sync(client, "stable", group_instance_id="i")
        await client.ask("offset_commit", 9, **commit_values(""))
        for version in versions("describe_groups"):
            groups = ["stable", "nobody", "", "stable"]
            answer = await client.ask("describe_groups", version, groups=groups, include_authorized_operations=True)
            described = answer["groups"]
            assert [one["group_id"] for one in described] == groups
            assert [one["group_state"] for one in described] == ["Stable", "Dead", "Empty", "Stable"]
            assert described[0] == described[3]
            assert described[0]["members"][0].get("group_instance_id", "i") == "i"
            missing = "GROUP_ID_NOT_FOUND" if version >= 6 else "NONE"
            assert [one["error_code"] for one in described] == ["NONE", missing, "NONE", "NONE"]
            if version >= 6:
                assert [one["error_message"] for one in described] == [None, "Group nobody not found.", None, None]
            assert (await client.ask("describe_groups", version, groups=[], include_authorized_operations=False))[
                "groups"
            ] == []


@async_test
async def test_delete_groups_returns_error_per_group(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        member = await join_and_sync(client, "stable")
        for version in versions("delete_groups"):
            for group in ("simple", ""):
                await client.ask("offset_commit", 9, **commit_values(group))
            names = ["stable", "simple", "nobody", "simple", "", "stable"]
            answer = await client.ask("delete_groups", version, groups_names=names)
            assert [(one["group_id"], one["error_code"]) for one in answer["results"]] == [
                ("stable", "NON_EMPTY_GROUP"),
                ("simple", "NONE"),
                ("nobody", "GROUP_ID_NOT_FOUND"),
                ("", "NONE"),
            ]
            assert await offsets(client, "simple") == {}
            assert (await client.ask("delete_groups", version, groups_names=[]))["results"] == []
        assert (await client.ask("heartbeat", **heartbeat_values("stable", member)))["error_code"] == "NONE"
