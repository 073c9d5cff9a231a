"""Every change by an admin API or by the embedding program is a line of the audit trail, and so are denials."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from audit_helpers import HeldWrites, audit_lines
from authorizers import DenyingAuthorizer, Rule
from harness import (
    DEADLINE_S,
    Client,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    join_and_sync,
    running_node,
)
from peers.wire import Plain
from topic_request_helpers import grow

from callboard import Coordinator
from callboard.actors.coordinator.directory import Directory
from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.kafka.api import APIS, CHANGES
from callboard.runtime.kafka.audit.group_changes import OFFSETS_MAX
from callboard.runtime.node import node
from callboard.runtime.node.environment import Environment
from callboard.runtime.node.sample import sample
from callboard.runtime.security.audit_file import FILE_NAME
from callboard.runtime.security.resources import Operation, ResourceType
from callboard.runtime.settings.dynamic import DynamicSettings
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.files import TopicFiles

TOPIC, BROKER, GROUP = 2, 4, 32
SET = 0


def shown(folder: Path) -> list[tuple[str, str, str, Any, Any]]:
    return [
        (line["api"], line["operation"], line["resource"], line.get("before"), line.get("after"))
        for line in audit_lines(folder)
    ]


async def audited(
    folder: Path, act: Any, authorizer: Any = None, **settings: Any
) -> list[tuple[str, str, str, Any, Any]]:
    """What the audit trail of a node shows that has stopped after ``act``."""
    async with running_node(folder, None, authorizer, audit="file", **settings) as harness:
        await act(harness, await harness.connect())
    return shown(folder)


def new_topic(name: str, partitions: int, **configs: str) -> Plain:
    given: Plain = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": given,
    }


async def create_topics(client: Client, *topics: Plain, validate_only: bool = False) -> None:
    await client.ask("create_topics", topics=list(topics), timeout=1000, validate_only=validate_only)


@async_test
async def test_changes_of_topics_are_recorded(tmp_path: Path) -> None:
    async def act(_harness: NodeHarness, client: Client) -> None:
        await create_topics(client, new_topic("a", 2, retention_ms="5000"), new_topic("t", 1))
        await create_topics(client, new_topic("b", 2), validate_only=True)
        grown: Plain = [{"name": "a", "count": 5, "assignments": None}, {"name": "t", "count": 1, "assignments": None}]
        await client.ask("create_partitions", topics=grown, timeout=1000, validate_only=False)
        deleted: Plain = [{"name": "a", "topic_id": None}, {"name": "none", "topic_id": None}]
        await client.ask("delete_topics", topics=deleted, timeout=1000)
        await client.ask("metadata", 4, topics=[{"name": "auto"}], allow_auto_topic_creation=True)

    assert await audited(tmp_path, act) == [
        ("CreateTopics", "create", "Topic:a", None, {"partitions": 2, "settings": {"retention.ms": "5000"}}),
        ("CreatePartitions", "alter", "Topic:a", {"partitions": 2}, {"partitions": 5}),
        ("DeleteTopics", "delete", "Topic:a", {"partitions": 5, "settings": {"retention.ms": "5000"}}, None),
        ("Metadata", "create", "Topic:auto", None, {"partitions": 1, "settings": {}}),
    ]


def alteration(resource_type: int, name: str, key: str, value: str) -> Mapping[str, Plain]:
    config: Plain = {"name": key, "config_operation": SET, "value": value}
    return {"resource_type": resource_type, "resource_name": name, "configs": [config]}


@async_test
async def test_changes_of_settings_are_recorded(tmp_path: Path) -> None:
    async def act(_harness: NodeHarness, client: Client) -> None:
        for value in ("100", "200", "200"):
            resources: Sequence[Any] = [alteration(BROKER, "1", "group.max.size", value)]
            await client.ask("incremental_alter_configs", resources=resources, validate_only=False)
        resources = [
            alteration(TOPIC, "t", "retention.ms", "7"),
            alteration(GROUP, "g", "consumer.session.timeout.ms", "46000"),
            alteration(BROKER, "", "offset.metadata.max.bytes", "9"),
            alteration(BROKER, "1", "group.max.size", "0"),
        ]
        await client.ask("incremental_alter_configs", resources=resources, validate_only=False)
        await client.ask("incremental_alter_configs", resources=resources, validate_only=True)
        replaced: Plain = {"resource_type": TOPIC, "resource_name": "t", "configs": []}
        await client.ask("alter_configs", resources=[replaced], validate_only=False)

    changes = await audited(tmp_path, act)
    assert changes[:2] == [
        ("IncrementalAlterConfigs", "alter", "Broker:1", {"group_max_size": None}, {"group_max_size": 100}),
        ("IncrementalAlterConfigs", "alter", "Broker:1", {"group_max_size": 100}, {"group_max_size": 200}),
    ]
    altered = [
        ("Broker:", "offset_metadata_max_bytes", 9),
        ("Group:g", "consumer.session.timeout.ms", 46000),
        ("Topic:t", "retention.ms", "7"),
    ]
    assert sorted(changes[2:5], key=lambda change: change[2]) == [
        ("IncrementalAlterConfigs", "alter", resource, {key: None}, {key: value}) for resource, key, value in altered
    ]
    assert changes[5:] == [("AlterConfigs", "alter", "Topic:t", {"retention.ms": "7"}, {"retention.ms": None})]


@async_test
async def test_each_change_of_settings_is_recorded_as_its_own_if_several_share_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        (BROKER, "1"): (("group.max.size", "1"), ("group.max.size", "2"), ("groups.max", "3")),
        (TOPIC, "t"): (("retention.ms", "1"), ("retention.ms", "2"), ("max.message.bytes", "3")),
        (GROUP, "g"): (
            ("consumer.session.timeout.ms", "46000"),
            ("consumer.session.timeout.ms", "47000"),
            ("consumer.heartbeat.interval.ms", "6000"),
        ),
    }

    async def act(harness: NodeHarness, _client: Client) -> None:
        writes, altering = HeldWrites(monkeypatch, DynamicSettings, TopicFiles), []
        for number in range(3):
            client = await harness.connect()
            resources: Plain = [alteration(*resource, *each[number]) for resource, each in settings.items()]
            asked = client.ask("incremental_alter_configs", resources=resources, validate_only=False)
            altering.append(asyncio.create_task(asked))
            await writes.wait_for(3 * (number + 1))
        writes.release()
        await asyncio.gather(*altering)

    changes = await audited(tmp_path, act)
    for resource, (name, other), values in (
        ("Broker:1", ("group_max_size", "groups_max"), (1, 2, 3)),
        ("Topic:t", ("retention.ms", "max.message.bytes"), ("1", "2", "3")),
        ("Group:g", ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"), (46000, 47000, 6000)),
    ):
        assert [change[3:] for change in changes if change[2] == resource] == [
            ({name: None}, {name: values[0]}),
            ({name: values[0]}, {name: values[1]}),
            ({other: None}, {other: values[2]}),
        ]


@async_test
async def test_each_growth_of_a_topic_is_recorded_with_the_count_before_it_if_several_share_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(harness: NodeHarness, client: Client) -> None:
        await create_topics(client, new_topic("a", 1))
        writes, growing = HeldWrites(monkeypatch, TopicFiles), []
        for number, count in enumerate((2, 4, 7)):
            growing.append(asyncio.create_task(grow(await harness.connect(), "a", count)))
            await writes.wait_for(number + 1)
        writes.release()
        assert await asyncio.gather(*growing) == ["NONE"] * 3

    changes = await audited(tmp_path, act)
    assert [(change[3], change[4]) for change in changes if change[0] == "CreatePartitions"] == [
        ({"partitions": 1}, {"partitions": 2}),
        ({"partitions": 2}, {"partitions": 4}),
        ({"partitions": 4}, {"partitions": 7}),
    ]


async def make_group_of_others(client: Client, group: str, offset: int) -> None:
    """A group without members that had one, which has committed."""
    member = await join_and_sync(client, group)
    topics: Plain = [{"name": "t", "partitions": [committed_partition(0, offset), committed_partition(1, offset)]}]
    await client.ask("offset_commit", 8, **{**commit_values(group, member), "topics": topics})
    leaving: Plain = [{"member_id": member.member_id, "group_instance_id": None, "reason": "done"}]
    await client.ask("leave_group", group_id=group, members=leaving)


@async_test
async def test_changes_of_groups_are_recorded_with_the_offsets_before(tmp_path: Path) -> None:
    async def act(_harness: NodeHarness, client: Client) -> None:
        await make_group_of_others(client, "g", 5)
        reset: Plain = [{"name": "t", "partitions": [committed_partition(0, 3), committed_partition(9, 3)]}]
        await client.ask("offset_commit", 8, **{**commit_values("g"), "topics": reset})
        indexes: Plain = [{"partition_index": 1}, {"partition_index": 2}]
        await client.ask("offset_delete", group_id="g", topics=[{"name": "t", "partitions": indexes}])
        await client.ask("delete_groups", groups_names=["g", "none"])

    assert await audited(tmp_path, act) == [
        ("OffsetCommit", "commit", "Group:g", {"offsets": {"t": {"0": 5}}}, {"offsets": {"t": {"0": 3}}}),
        ("OffsetDelete", "delete offsets", "Group:g", {"offsets": {"t": {"1": 5}}}, None),
        ("DeleteGroups", "delete", "Group:g", {"offsets": {"t": {"0": 3}}}, None),
    ]
    assert [line["principal"] for line in audit_lines(tmp_path)] == ["User:ANONYMOUS"] * 3
    assert {(line["host"], line["client_id"], line["listener"]) for line in audit_lines(tmp_path)} == {
        ("127.0.0.1", "wire", "PLAINTEXT")
    }


@async_test
async def test_what_members_and_consumers_without_a_group_do_is_no_change(tmp_path: Path) -> None:
    async def act(_harness: NodeHarness, client: Client) -> None:
        await make_group_of_others(client, "g", 5)
        for _ in range(2):
            await client.ask("offset_commit", 8, **commit_values("standalone"))

    async with running_node(tmp_path, audit="file") as harness:
        await act(harness, await harness.connect())
    assert not (tmp_path / FILE_NAME).exists()


@async_test
async def test_member_that_an_admin_removes_is_recorded_with_the_reason(tmp_path: Path) -> None:
    async def act(_harness: NodeHarness, client: Client) -> None:
        member = await join_and_sync(client, "g")
        reason = "member was removed by an admin: it hangs"
        leaving: Plain = [{"member_id": member.member_id, "group_instance_id": None, "reason": reason}]
        await client.ask("leave_group", group_id="g", members=leaving)

    [(api, operation, resource, before, _)] = await audited(tmp_path, act)
    assert (api, operation, resource) == ("LeaveGroup", "remove members", "Group:g")
    assert len(before["members"]) == 1
    assert audit_lines(tmp_path)[0]["reason"] == "it hangs"


@async_test
async def test_line_has_a_bounded_number_of_offsets(tmp_path: Path) -> None:
    count = OFFSETS_MAX + 20

    async def act(_harness: NodeHarness, client: Client) -> None:
        await create_topics(client, new_topic("many", count))
        partitions: Plain = [committed_partition(number, 1) for number in range(count)]
        topics: Plain = [{"name": "many", "partitions": partitions}]
        await make_group_of_others(client, "g", 5)
        await client.ask("offset_commit", 8, **{**commit_values("g"), "topics": topics})
        indexes: Plain = [{"partition_index": number} for number in range(count)]
        await client.ask("offset_delete", group_id="g", topics=[{"name": "many", "partitions": indexes}])
        await client.ask("offset_commit", 8, **{**commit_values("h"), "topics": topics})
        await client.ask("delete_groups", groups_names=["h"])

    [_, commit, deletion, group_deletion] = await audited(tmp_path, act)
    for _, _, _, before, after in (commit, deletion, group_deletion):
        values = before or after
        assert (len(values["offsets"]["many"]), values["left_out"]) == (OFFSETS_MAX, 20)


@async_test
async def test_denials_are_recorded(tmp_path: Path) -> None:
    denying = DenyingAuthorizer(
        Rule(Operation.DELETE, ResourceType.GROUP, "secret"), Rule(Operation.DESCRIBE, ResourceType.GROUP, "hidden")
    )

    async def act(_harness: NodeHarness, client: Client) -> None:
        await client.ask("offset_commit", 8, **commit_values("hidden"))
        for _ in range(3):
            await client.ask("delete_groups", groups_names=["secret", "other"])
            await client.ask("list_groups", states_filter=[], types_filter=[])  # leaves out "hidden"

    assert await audited(tmp_path, act, denying) == [("DeleteGroups", "DELETE", "Group:secret", None, None)]
    [line] = audit_lines(tmp_path)
    assert (line["kind"], line["count"], line["principal"]) == ("denied", 3, "User:ANONYMOUS")


class FailingDisk(Disk):
    """Cannot open the audit file."""

    def open(self, path: Path, flags: int) -> int:
        if path.name == FILE_NAME:
            raise OSError(errno.ENOSPC, "no space")
        return super().open(path, flags)


@pytest.mark.parametrize("is_required", [True, False])
@async_test
async def test_changes_are_refused_while_a_required_trail_cannot_be_written(tmp_path: Path, is_required: bool) -> None:
    environment = Environment(disk=FailingDisk())
    settings: dict[str, Any] = {"audit": "file", "audit_required": is_required}
    async with running_node(tmp_path, environment=environment, **settings) as harness:
        client = await harness.connect()
        await create_topics(client, new_topic("a", 1))
        while not harness.node.services.audit.failure:
            await client.ask("api_versions", 0)
        assert sample(harness.node).audit_failure
        answer = await client.ask("delete_topics", topics=[{"name": "a", "topic_id": None}], timeout=1000)
        assert answer["responses"][0]["error_code"] == ("KAFKA_STORAGE_ERROR" if is_required else "NONE")
        assert (await client.ask("offset_commit", 8, **commit_values("g")))["topics"][0]["partitions"][0][
            "error_code"
        ] == "NONE"
        auto: Any = await client.ask("metadata", 4, topics=[{"name": "auto"}], allow_auto_topic_creation=True)
        assert auto["topics"][0]["error_code"] == ("UNKNOWN_TOPIC_OR_PARTITION" if is_required else "NONE")


def test_apis_of_changes_are_refused_without_a_required_trail() -> None:
    assert {api.name for api in APIS if api.key in CHANGES} == {
        "alter_client_quotas",
        "alter_user_scram_credentials",
        "alter_configs",
        "create_acls",
        "create_partitions",
        "create_topics",
        "delete_acls",
        "delete_groups",
        "delete_records",
        "delete_topics",
        "incremental_alter_configs",
        "offset_delete",
    }


@async_test
async def test_changes_by_the_program_are_recorded(tmp_path: Path) -> None:
    async with Coordinator(tmp_path, audit="file", topics={"t": 2}) as coordinator:
        await coordinator.reset("g", {("t", 0): 0})
        await coordinator.delete_offsets("g", [("t", 0)])
        await coordinator.reset("g", {("t", 1): 0})
        await coordinator.delete("g")
        await coordinator.create_topic("a", 1)
        await coordinator.grow_topic("a", 3)
        await coordinator.delete_topic("a")
        await coordinator.set(group_max_size=5)
        await coordinator.set(group_max_size=5)  # no change
        with pytest.raises(CoordinatorError):
            await coordinator.delete("g")
    none = {"offsets": {"t": {"0": 0}}}
    assert shown(tmp_path) == [
        ("Coordinator.reset", "commit", "Group:g", None, none),
        ("Coordinator.delete_offsets", "delete offsets", "Group:g", none, None),
        ("Coordinator.reset", "commit", "Group:g", None, {"offsets": {"t": {"1": 0}}}),
        ("Coordinator.delete", "delete", "Group:g", {"offsets": {"t": {"1": 0}}}, None),
        ("Coordinator.create_topic", "create", "Topic:a", None, {"partitions": 1, "settings": {}}),
        ("Coordinator.grow_topic", "alter", "Topic:a", {"partitions": 1}, {"partitions": 3}),
        ("Coordinator.delete_topic", "delete", "Topic:a", {"partitions": 3, "settings": {}}, None),
        ("Coordinator.set", "alter", "Broker:1", {"group_max_size": None}, {"group_max_size": 5}),
    ]
    assert {line["principal"] for line in audit_lines(tmp_path)} == {"User:callboard"}


@async_test
async def test_changes_by_the_program_are_refused_while_a_required_trail_cannot_be_written(tmp_path: Path) -> None:
    environment = Environment(disk=FailingDisk())
    async with Coordinator(tmp_path, audit="file", audit_required=True, environment=environment) as coordinator:
        await coordinator.create_topic("a", 1)
        while not coordinator.node.services.audit.failure:
            await asyncio.sleep(0.001)
        for change in (coordinator.delete_topic("a"), coordinator.set(group_max_size=5), coordinator.delete("g")):
            with pytest.raises(CoordinatorError, match="audit trail cannot be written") as raised:
                await change
            assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_required_trail_has_to_be_kept() -> None:
    with pytest.raises(StartError, match="audit_required=true needs an audit trail: set audit=file"):
        Settings(audit_required=True)
    with pytest.raises(StartError, match="expected one of none, file, stdout"):
        Settings(audit="disk")


@async_test
async def test_groups_are_not_asked_for_requests_that_are_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[str] = []
    post = Directory.post

    def note(directory: Directory, message: Any, reply: Any) -> None:
        posted.append(type(message).__name__)
        post(directory, message, reply)

    authorizer = DenyingAuthorizer(Rule(Operation.READ, ResourceType.GROUP), Rule(Operation.DELETE, ResourceType.GROUP))
    async with running_node(tmp_path, None, authorizer, audit="file") as harness:
        client = await harness.connect()
        monkeypatch.setattr(Directory, "post", note)
        await client.ask("offset_commit", 8, **commit_values("g"))
        await client.ask("offset_delete", group_id="g", topics=[])
        assert posted == []
        authorizer.denied.clear()
        await client.ask("offset_commit", 8, **commit_values("g"))
        assert posted == ["DescribeGroup", "OffsetFetch", "OffsetCommit"]
    denied = [(line["operation"], line["resource"], line["count"]) for line in audit_lines(tmp_path)]
    assert denied == [("READ", "Group:g", 1), ("DELETE", "Group:g", 1)]


class BlockedStream:
    """Standard output that is not read until ``unblocked`` is set."""

    def __init__(self) -> None:
        self.buffer = self
        self.unblocked = threading.Event()
        self.lines = b""

    def write(self, lines: bytes) -> None:
        self.unblocked.wait(DEADLINE_S)
        self.lines += lines

    def flush(self) -> None: ...


@async_test
async def test_changes_do_not_wait_for_the_reader_of_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = BlockedStream()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr(node, "STOP_TIMEOUT_S", 0.2)
    try:
        async with running_node(tmp_path, audit="stdout") as harness:
            client = await harness.connect()
            for value in ("100", "200"):
                resources: Sequence[Any] = [alteration(BROKER, "1", "group.max.size", value)]
                await client.ask("incremental_alter_configs", resources=resources, validate_only=False)
            assert harness.node.settings.group_max_size == 200
        assert "they could not be written within 0.2 s" in caplog.text
    finally:
        stream.unblocked.set()
    while stream.lines.count(b"IncrementalAlterConfigs") < 1:
        await asyncio.sleep(0.01)
