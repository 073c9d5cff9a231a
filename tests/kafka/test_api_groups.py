"""The group APIs over TCP: every served version, and invalid requests."""

from __future__ import annotations

from collections.abc import Callable, Hashable
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

from callboard.actors.steps import Steps
from callboard.runtime.kafka.api import APIS
from callboard.runtime.kafka.shared_steps import SharedSteps
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import Listener


class VersionedClient:
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
    """The life of a group from FindCoordinator to DeleteGroups, in every version of each API."""
    async with running_node(tmp_path) as harness:
        client, topic = VersionedClient(await harness.connect(), age), {"name": "t", "topic_id": topic_id(harness, "t")}
        response = await client.ask("find_coordinator", key="g", key_type=0, coordinator_keys=["g"])
        [coordinator] = response.get("coordinators", [response])
        assert (coordinator["error_code"], coordinator["node_id"], coordinator["port"]) == ("NONE", 1, harness.port)

        member = await join_and_sync_alone(client)
        assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"

        commit = commit_values(
            "g", member, topics=[{**topic, "partitions": [committed_partition(0), committed_partition(2)]}]
        )
        [topic_result] = (await client.ask("offset_commit", **commit))["topics"]
        assert topic_result["partitions"] == [
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
        [described_member] = described["members"]
        assert (described_member["member_id"], described_member["client_id"], described_member["client_host"]) == (
            member.member_id,
            "wire",
            "/127.0.0.1",
        )
        assert (described_member["member_metadata"], described_member["member_assignment"]) == (b"\x01\x02", b"\x09")

        [listed] = (await client.ask("list_groups", states_filter=[], types_filter=[]))["groups"]
        expected = {"group_id": "g", "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
        assert listed == {key: value for key, value in expected.items() if key in listed}

        await leave_and_delete(client, member)


async def join_and_sync_alone(client: VersionedClient) -> Member:
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


async def committed(
    client: VersionedClient, topic: dict[str, Any], partitions: list[int]
) -> dict[int, tuple[int, str]]:
    topics = [{**topic, "partition_indexes": partitions}]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    answer = await client.ask("offset_fetch", group_id="g", topics=topics, groups=[group], require_stable=True)
    [group] = answer.get("groups", [answer])
    assert group.get("error_code", "NONE") == "NONE"
    [topic_result] = group["topics"]
    return {
        partition["partition_index"]: (partition["committed_offset"], partition["metadata"])
        for partition in topic_result["partitions"]
        if partition["error_code"] == "NONE"
    }


async def leave_and_delete(client: VersionedClient, member: Member) -> None:
    leaving = {"member_id": member.member_id, "group_instance_id": None, "reason": "the end"}
    response = await client.ask("leave_group", group_id="g", member_id=member.member_id, members=[leaving])
    assert [
        response["error_code"],
        *(member_result["error_code"] for member_result in response.get("members", [])),
    ] in (["NONE"], ["NONE"] * 2)
    deleted = await client.ask("delete_groups", groups_names=["g"])
    assert deleted["results"] == [{"group_id": "g", "error_code": "NONE"}]
    [described] = (await client.ask("describe_groups", groups=["g"], include_authorized_operations=False))["groups"]
    assert described["group_state"] == "Dead"
    assert described["error_code"] == ("GROUP_ID_NOT_FOUND" if client.version("describe_groups") >= 6 else "NONE")


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
            served = {
                api_row["api_key"]: (api_row["min_version"], api_row["max_version"]) for api_row in answer["api_keys"]
            }
            assert served == {
                api.key: (api.min_version if api.key else 0, api.max_version) for api in APIS
            }  # Produce (key 0): librdkafka requires version 0


@async_test
async def test_api_versions_has_the_feature_of_consumer_groups(tmp_path: Path) -> None:
    """As in Kafka: clients below version 4 cannot read a feature that begins at version 0."""
    supported = {"name": "group.version", "min_version": 0, "max_version": 1}
    finalized = {"name": "group.version", "max_version_level": 1, "min_version_level": 1}
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        for version, features in ((3, []), (4, [supported])):
            answer = await client.ask(
                "api_versions", version, client_software_name="a", client_software_version="1.0-b"
            )
            assert answer["supported_features"] == features
            assert (answer["finalized_features_epoch"], answer["finalized_features"]) == (0, [finalized])


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
    async with running_node(
        tmp_path, {"listeners": (Listener(advertised=Address("stage.example", 19092)),)}
    ) as harness:
        client = await harness.connect()
        for version in versions("find_coordinator", since=4):
            answer = await client.ask("find_coordinator", version, key_type=0, coordinator_keys=["", "g", "g"])
            assert [coordinator["key"] for coordinator in answer["coordinators"]] == ["", "g", "g"]
            for coordinator in answer["coordinators"]:
                assert (coordinator["host"], coordinator["port"], coordinator["error_message"]) == (
                    "stage.example",
                    19092,
                    "",
                )
            answer = await client.ask("find_coordinator", version, key_type=0, coordinator_keys=[])
            assert answer["coordinators"] == []
        for version in versions("find_coordinator", since=1):
            answer = await client.ask("find_coordinator", version, key="tx", key_type=1, coordinator_keys=["tx"])
            [coordinator] = answer.get("coordinators", [answer])
            assert (coordinator["error_code"], coordinator["node_id"], coordinator["host"]) == (
                "NONE",
                1,
                "stage.example",
            )
            for key_type in (2, 9, -1):
                answer = await client.ask(
                    "find_coordinator", version, key="g", key_type=key_type, coordinator_keys=["g"]
                )
                [coordinator] = answer.get("coordinators", [answer])
                assert coordinator["error_code"] == "INVALID_REQUEST"
                has_no_message = key_type == 2 and version >= 4  # the type of share groups: each key has its own error
                assert bool(coordinator["error_message"]) != has_no_message
                assert (coordinator["node_id"], coordinator["host"], coordinator["port"]) == (-1, "", -1)


# Members --------------------------------------------------------------------------------------------------------------


@async_test
async def test_invalid_group_request_is_refused_in_every_version(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client, nobody = await harness.connect(), Member("nobody", 1)
        for version in versions("join_group"):
            response = await client.ask("join_group", version, **join_values("g", session_timeout=1))
            assert (response["error_code"], response["generation_id"], response["members"]) == (
                "INVALID_SESSION_TIMEOUT",
                -1,
                [],
            )
            response = await client.ask("join_group", version, **join_values(""))
            assert response["error_code"] == "INVALID_GROUP_ID"
            assert response["protocol_name"] == (None if version >= 7 else "")
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
            response = await client.ask("leave_group", version, group_id="g", member_id="m", members=[leaving])
            members = [member["error_code"] for member in response.get("members", [])]
            expected = ("NONE", ["UNKNOWN_MEMBER_ID"]) if version >= 3 else ("UNKNOWN_MEMBER_ID", [])
            assert (response["error_code"], members) == expected
        assert (await client.ask("list_groups", states_filter=[], types_filter=[]))["groups"] == []


@async_test
async def test_sync_group_v5_without_protocol_is_refused(tmp_path: Path) -> None:
    """From version 5 on, these fields are checked before the group."""
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
        response = await client.ask("leave_group", 5, group_id="g", members=members)
        assert response["error_code"] == "NONE"
        assert [(member["member_id"], member["group_instance_id"]) for member in response["members"]] == identities
        assert [member["error_code"] for member in response["members"]] == [
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
        assert await listed([], [" classic"]) == set(), "Kafka ignores spaces around a state, but not around a type"
        assert await listed(["stable"], ["Classic", "share"]) == {"members"}


@async_test
async def test_list_groups_keeps_only_the_words_that_name_a_state_or_a_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may have 50,000 words. Hashing them all, to share the answer, would hold the event loop."""
    keys: list[Hashable] = []
    result = SharedSteps.result

    def recorded(shared: SharedSteps, key: Hashable, make: Callable[[], Steps[Any]]) -> Steps[Any]:
        keys.append(key)
        return result(shared, key, make)

    monkeypatch.setattr(SharedSteps, "result", recorded)
    unknown = [f"no such word {number}" for number in range(300)]
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        await client.ask("offset_commit", 9, **commit_values("simple"))
        answer = await client.ask(
            "list_groups", 5, states_filter=["Empty", *unknown], types_filter=["Classic", *unknown]
        )
        assert [group["group_id"] for group in answer["groups"]] == ["simple"]
        for states, types in ((unknown, []), ([], unknown), (["Empty"], unknown), (unknown, ["Classic"])):
            assert (await client.ask("list_groups", 5, states_filter=states, types_filter=types))["groups"] == []
    assert len(keys) == 5
    assert "no such word" not in str(keys)


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
            assert [group["group_id"] for group in described] == groups
            assert [group["group_state"] for group in described] == ["Stable", "Dead", "Empty", "Stable"]
            assert described[0] == described[3]
            assert described[0]["members"][0].get("group_instance_id", "i") == "i"
            missing = "GROUP_ID_NOT_FOUND" if version >= 6 else "NONE"
            assert [group["error_code"] for group in described] == ["NONE", missing, "NONE", "NONE"]
            if version >= 6:
                assert [group["error_message"] for group in described] == [None, "Group nobody not found.", None, None]
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
            assert [(result["group_id"], result["error_code"]) for result in answer["results"]] == [
                ("stable", "NON_EMPTY_GROUP"),
                ("simple", "NONE"),
                ("nobody", "GROUP_ID_NOT_FOUND"),
                ("", "NONE"),
            ]
            assert await offsets(client, "simple") == {}
            assert (await client.ask("delete_groups", version, groups_names=[]))["results"] == []
        assert (await client.ask("heartbeat", **heartbeat_values("stable", member)))["error_code"] == "NONE"
