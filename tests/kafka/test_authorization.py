"""What clients are told about denied groups, topics and transactional ids, as in Kafka 4.3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from authorizers import DenyingAuthorizer, Rule
from harness import (
    Client,
    NodeHarness,
    async_test,
    commit_values,
    committed_partition,
    fetch_values,
    heartbeat_values,
    join_and_sync,
    join_values,
    running_node,
    topic_id,
    versions,
)

from callboard.runtime.kafka.api import APIS, Routes, find_row, heartbeat, offset_commit
from callboard.runtime.kafka.authentication.principal import ANONYMOUS
from callboard.runtime.kafka.authorization.authorize import authorize
from callboard.runtime.kafka.authorization.authorizer import AllowAll
from callboard.runtime.kafka.authorization.checks import READ_TOPIC
from callboard.runtime.kafka.peer_gate import Purpose, Sender
from callboard.runtime.node.metrics import metrics
from callboard.runtime.security.resources import Operation, ResourceType

CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID = (
    ResourceType.CLUSTER,
    ResourceType.GROUP,
    ResourceType.TOPIC,
    ResourceType.TRANSACTIONAL_ID,
)
DENIED_GROUP, DENIED_TOPIC = "GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"
NO_CLUSTER = Rule(Operation.DESCRIBE, CLUSTER)


@asynccontextmanager
async def denying(folder: Path, *denied: Rule) -> AsyncIterator[tuple[DenyingAuthorizer, NodeHarness, Client]]:
    authorizer = DenyingAuthorizer(*denied)
    async with running_node(folder, authorizer=authorizer) as harness:
        yield authorizer, harness, await harness.connect()


# OffsetCommit --------------------------------------------------------------------------------------------------------


def commit_of(harness: NodeHarness, version: int, *names: str) -> dict[str, Any]:
    """An OffsetCommit of partition 0 of topics, by name or (v10) by id."""
    topics = [
        {
            "name": name,
            "topic_id": topic_id(harness, name) if version >= 10 else None,
            "partitions": [committed_partition(0)],
        }
        for name in names
    ]
    return commit_values("g", topics=topics)


def commit_errors(answer: dict[str, Any], key: str) -> list[Any]:
    return [(topic[key], [each["error_code"] for each in topic["partitions"]]) for topic in answer["topics"]]


@async_test
async def test_offset_commit_of_denied_topic_is_refused_and_others_are_stored(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.READ, TOPIC, "u")) as (_, harness, client):
        for version in versions("offset_commit"):
            key = "topic_id" if version >= 10 else "name"
            t, u = (topic_id(harness, name) if version >= 10 else name for name in "tu")
            answer = await client.ask("offset_commit", version, **commit_of(harness, version, "t", "u"))
            assert commit_errors(answer, key) == [(u, [DENIED_TOPIC]), (t, ["NONE"])], version
        [group] = (await client.ask("offset_fetch", 9, **fetch_values("g")))["groups"]
        assert [topic["name"] for topic in group["topics"]] == ["t"]


@async_test
async def test_offset_commit_does_not_tell_whether_denied_topic_exists(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.READ, TOPIC)) as (_, harness, client):
        answer = await client.ask("offset_commit", 9, **commit_of(harness, 9, "t", "missing"))
        assert commit_errors(answer, "name") == [("t", [DENIED_TOPIC]), ("missing", [DENIED_TOPIC])]
        page = (await metrics(lambda: harness.node)).decode().splitlines()
    assert 'callboard_denied_total{operation="READ"} 2.0' in page, "two topics"
    assert 'callboard_denied_total{operation="ALTER"} 0.0' in page


@async_test
async def test_offset_commit_of_denied_group_is_refused_in_each_partition(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.READ, GROUP, "g")) as (authorizer, harness, client):
        for version in versions("offset_commit"):
            answer = await client.ask("offset_commit", version, **commit_of(harness, version, "t", "u"))
            assert [errors for _, errors in commit_errors(answer, "partitions")] == [[DENIED_GROUP]] * 2, version
        assert {action.resource_type for action in authorizer.actions} == {GROUP}  # topics are not checked then


@async_test
async def test_authorizer_gets_principal_host_and_api(tmp_path: Path) -> None:
    async with denying(tmp_path) as (authorizer, harness, client):
        await client.ask("offset_commit", 8, **commit_of(harness, 8, "t"))
        [context, _] = authorizer.contexts
        assert context == (ANONYMOUS, "127.0.0.1", "wire", "offset_commit", 8)
        assert str(context.principal) == "User:ANONYMOUS"
        assert [tuple(action) for action in authorizer.actions] == [
            (Operation.READ, GROUP, "g", True),
            (Operation.READ, TOPIC, "t", True),
        ]


# Groups --------------------------------------------------------------------------------------------------------------


@async_test
async def test_list_groups_leaves_out_groups_that_may_not_be_described(tmp_path: Path) -> None:
    async with denying(tmp_path) as (authorizer, _, client):
        for name in ("mine", "other"):
            await client.ask("offset_commit", 8, **commit_values(name))
        authorizer.denied = {Rule(Operation.DESCRIBE, GROUP, "other"), NO_CLUSTER}
        authorizer.actions.clear()
        for version in versions("list_groups"):
            answer = await client.ask("list_groups", version, states_filter=[], types_filter=[])
            assert (answer["error_code"], [group["group_id"] for group in answer["groups"]]) == ("NONE", ["mine"])
        assert not any(action.logs_denial for action in authorizer.actions)


@async_test
async def test_list_groups_lists_all_to_client_that_may_describe_cluster(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.DESCRIBE, GROUP)) as (_, _, client):
        await client.ask("offset_commit", 8, **commit_values("g"))
        answer = await client.ask("list_groups", states_filter=[], types_filter=[])
        assert [group["group_id"] for group in answer["groups"]] == ["g"]


@async_test
async def test_describe_groups_puts_denied_groups_first_and_delete_groups_last(tmp_path: Path) -> None:
    denied = Rule(Operation.DESCRIBE, GROUP, "b"), Rule(Operation.DELETE, GROUP, "a")
    async with denying(tmp_path, *denied) as (_, _, client):
        answer = await client.ask("describe_groups", 5, groups=["a", "b"], include_authorized_operations=True)
        described = [
            (group["group_id"], group["error_code"], group["authorized_operations"]) for group in answer["groups"]
        ]
        assert described == [("b", DENIED_GROUP, -(2**31)), ("a", "NONE", 3400 - (1 << Operation.DELETE))]
        answer = await client.ask("delete_groups", groups_names=["a", "b"])
        results = [(result["group_id"], result["error_code"]) for result in answer["results"]]
        assert results == [("b", "GROUP_ID_NOT_FOUND"), ("a", DENIED_GROUP)]


@async_test
async def test_join_group_of_denied_group_has_no_member_id(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.READ, GROUP)) as (_, _, client):
        for version in versions("join_group"):
            answer = await client.ask("join_group", version, **join_values("g", "me"))
            assert (answer["error_code"], answer["member_id"], answer["generation_id"]) == (DENIED_GROUP, "", -1)


@async_test
async def test_heartbeat_of_group_that_became_denied_is_refused(tmp_path: Path) -> None:
    async with denying(tmp_path) as (authorizer, _, client):
        member = await join_and_sync(client, "g")
        authorizer.denied = {Rule(Operation.READ, GROUP, "g")}
        answer = await client.ask("heartbeat", **heartbeat_values("g", member))
        assert answer["error_code"] == DENIED_GROUP
        authorizer.denied = set()
        assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"


@async_test
async def test_offset_fetch_leaves_denied_topics_out_of_all_and_refuses_named_ones(tmp_path: Path) -> None:
    async with denying(tmp_path) as (authorizer, harness, client):
        await client.ask("offset_commit", 8, **commit_of(harness, 8, "u", "t"))
        authorizer.denied = {Rule(Operation.DESCRIBE, TOPIC, "u")}
        [group] = (await client.ask("offset_fetch", 9, **fetch_values("g")))["groups"]
        assert [topic["name"] for topic in group["topics"]] == ["t"]
        topics = [{"name": name, "partition_indexes": [0]} for name in ("u", "t")]
        answer = await client.ask("offset_fetch", 7, group_id="g", topics=topics, require_stable=False)
        assert [
            (topic["name"], each["error_code"], each["committed_offset"], each["metadata"])
            for topic in answer["topics"]
            for each in topic["partitions"]
        ] == [("t", "NONE", 42, "x"), ("u", DENIED_TOPIC, -1, "")]


# Metadata ------------------------------------------------------------------------------------------------------------


def metadata_values(names: list[str] | None, *, creates: bool = False) -> dict[str, Any]:
    return {
        "topics": None if names is None else [{"name": name, "topic_id": None} for name in names],
        "allow_auto_topic_creation": creates,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }


async def described_topics(client: Client, version: int, names: list[str] | None, **options: bool) -> dict[str, str]:
    answer: Any = await client.ask("metadata", version, **metadata_values(names, **options))
    return {topic["name"]: topic["error_code"] for topic in answer["topics"]}


@pytest.mark.parametrize("version", versions("metadata", since=1))
@async_test
async def test_metadata_of_all_leaves_out_denied_topics(version: int, tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.DESCRIBE, TOPIC, "u")) as (authorizer, _, client):
        shown = await described_topics(client, version, None)
        assert "t" in shown
        assert "u" not in shown
        assert not any(action.logs_denial for action in authorizer.actions if action.resource_type is TOPIC)


@async_test
async def test_metadata_of_named_denied_topic_is_error_whether_it_exists_or_not(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.DESCRIBE, TOPIC)) as (_, harness, client):
        answer: Any = await client.ask("metadata", 12, **metadata_values(["t", "missing"], creates=True))
        for name, topic in zip(("t", "missing"), answer["topics"], strict=True):
            assert (topic["name"], topic["error_code"], topic["topic_id"]) == (name, DENIED_TOPIC, None)
            assert topic["partitions"] == []
        assert harness.node.topics.get("missing") is None


@async_test
async def test_metadata_by_id_of_denied_topic_has_id_without_name(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.DESCRIBE, TOPIC)) as (_, harness, client):
        requested = [{"name": None, "topic_id": topic_id(harness, "t")}]
        [topic] = (await client.ask("metadata", 12, **{**metadata_values([]), "topics": requested}))["topics"]
        assert (topic["name"], topic["error_code"]) == (None, DENIED_TOPIC)
        assert topic["topic_id"] == topic_id(harness, "t")


@async_test
async def test_metadata_creates_topic_only_if_cluster_or_topic_allows_it(tmp_path: Path) -> None:
    denied = {Rule(Operation.CREATE, CLUSTER), Rule(Operation.CREATE, TOPIC, "no")}
    async with denying(tmp_path, *denied) as (authorizer, harness, client):
        assert await described_topics(client, 9, ["no", "yes"], creates=True) == {"no": DENIED_TOPIC, "yes": "NONE"}
        assert harness.node.topics.get("no") is None
        assert await described_topics(client, 9, ["no"]) == {"no": UNKNOWN}  # not to be created, so not denied
        authorizer.denied = {Rule(Operation.CREATE, TOPIC)}
        assert await described_topics(client, 9, ["no"], creates=True) == {"no": "NONE"}


@async_test
async def test_authorized_operations_are_those_that_are_allowed(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.WRITE, TOPIC), Rule(Operation.ALTER, CLUSTER)) as (
        authorizer,
        _,
        client,
    ):
        answer: Any = await client.ask("metadata", 9, **metadata_values(["t"]))
        assert answer["topics"][0]["topic_authorized_operations"] == 3576 - (1 << Operation.WRITE)
        assert answer["cluster_authorized_operations"] == 8096 - (1 << Operation.ALTER)
        authorizer.denied = {NO_CLUSTER}
        for name, version in (("metadata", 9), ("describe_cluster", 1)):
            values = metadata_values([]) if name == "metadata" else {"endpoint_type": 1}
            values["include_cluster_authorized_operations"] = True
            assert (await client.ask(name, version, **values))["cluster_authorized_operations"] == 0


# Topics --------------------------------------------------------------------------------------------------------------


@async_test
async def test_delete_topics_by_id_tells_name_only_to_client_that_may_describe(tmp_path: Path) -> None:
    cluster, describe, delete = (
        Rule(Operation.DELETE, CLUSTER),
        Rule(Operation.DESCRIBE, TOPIC),
        Rule(Operation.DELETE, TOPIC),
    )
    async with denying(tmp_path, cluster, describe, delete) as (authorizer, harness, client):
        requested = [{"name": None, "topic_id": topic_id(harness, "t")}]
        [result] = (await client.ask("delete_topics", 6, topics=requested, timeout=1000))["responses"]
        assert (result["name"], result["error_code"]) == (None, DENIED_TOPIC)
        authorizer.denied = {cluster, delete}
        [result] = (await client.ask("delete_topics", 6, topics=requested, timeout=1000))["responses"]
        assert (result["name"], result["error_code"]) == ("t", DENIED_TOPIC)
        authorizer.denied = {describe, delete}
        [result] = (await client.ask("delete_topics", 6, topics=requested, timeout=1000))["responses"]
        assert (result["name"], result["error_code"]) == ("t", "NONE")


@async_test
async def test_create_topics_without_right_to_describe_configs_leaves_them_out(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.DESCRIBE_CONFIGS, TOPIC)) as (_, _, client):
        topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        answer = await client.ask("create_topics", 7, topics=[topic], timeout=1000, validate_only=False)
        [result] = answer["topics"]
        assert (result["error_code"], result["configs"], result["topic_config_error_code"]) == ("NONE", [], 29)


# Transactions --------------------------------------------------------------------------------------------------------


def add_partitions(version: int, **topics: list[int]) -> dict[str, Any]:
    entries = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    if version >= 4:
        producer = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}
        return {"transactions": [{**producer, "verify_only": False, "topics": entries}]}
    producer = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}
    return {**{f"v3_and_below_{name}": value for name, value in producer.items()}, "v3_and_below_topics": entries}


def added(answer: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [
        (topic["name"], [each["partition_error_code"] for each in topic["results_by_partition"]])
        for topic in answer["results_by_topic_v3_and_below"]
    ]


@async_test
async def test_add_partitions_to_txn_with_denied_topic_attempts_none(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.WRITE, TOPIC, "u")) as (_, _, client):
        for version in range(4):
            answer = await client.ask("add_partitions_to_txn", version, **add_partitions(version, t=[0, 1], u=[0]))
            not_attempted = ["OPERATION_NOT_ATTEMPTED"] * 2
            assert added(answer) == [("t", not_attempted), ("u", [DENIED_TOPIC])], version


@async_test
async def test_add_partitions_to_txn_of_denied_transactional_id_is_refused_in_each_partition(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.WRITE, TRANSACTIONAL_ID, "tx")) as (_, _, client):
        denied = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        for version in range(4):
            answer = await client.ask("add_partitions_to_txn", version, **add_partitions(version, t=[0, 1], u=[0]))
            assert added(answer) == [("t", [denied, denied]), ("u", [denied])], version


@async_test
async def test_add_partitions_to_txn_of_brokers_needs_cluster_action_only(tmp_path: Path) -> None:
    rules = {Rule(Operation.WRITE, TOPIC), Rule(Operation.WRITE, TRANSACTIONAL_ID)}
    async with denying(tmp_path, *rules) as (authorizer, _, client):
        for version in (4, 5):
            answer = await client.ask("add_partitions_to_txn", version, **add_partitions(version, t=[0]))
            assert answer["error_code"] == "NONE"
            assert "AUTHORIZATION" not in str(answer)
        authorizer.denied = {Rule(Operation.CLUSTER_ACTION, CLUSTER)}
        answer = await client.ask("add_partitions_to_txn", 5, **add_partitions(5, t=[0]))
        assert answer["error_code"] == "CLUSTER_AUTHORIZATION_FAILED"
        assert answer["results_by_transaction"] == []


class GateOfNode:
    """Admits the clients of tests as nodes of the cluster."""

    def admit(self, client_id: str, connection: object, purpose: Purpose = Purpose.TRANSACTIONS) -> Sender | None:
        return Sender("node", 1, 1) if client_id == "wire" else None

    def accepts(self, _sender: Sender, _topic: str, _partition: int) -> bool:
        return True


@async_test
async def test_add_partitions_to_txn_of_node_that_has_proved_to_be_one_needs_no_right(tmp_path: Path) -> None:
    async with denying(tmp_path, Rule(Operation.CLUSTER_ACTION, CLUSTER)) as (_, harness, client):
        harness.node.services.routes.peer_gate = GateOfNode()
        assert (await client.ask("add_partitions_to_txn", 5, **add_partitions(5, t=[0])))["error_code"] == "NONE"


@async_test
async def test_init_producer_id_without_transaction_needs_idempotent_write_or_any_topic(tmp_path: Path) -> None:
    cluster, topic = Rule(Operation.IDEMPOTENT_WRITE, CLUSTER), Rule(Operation.WRITE, TOPIC)
    values = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    async with denying(tmp_path) as (authorizer, _, client):
        for denied, error in (
            ({cluster}, "NONE"),
            ({topic}, "NONE"),
            ({cluster, topic}, "CLUSTER_AUTHORIZATION_FAILED"),
        ):
            authorizer.denied = denied
            assert (await client.ask("init_producer_id", 4, **values))["error_code"] == error


@async_test
async def test_transactions_that_may_not_be_described_are_left_out_of_list_and_refused_by_name(tmp_path: Path) -> None:
    async with denying(tmp_path) as (authorizer, _, client):
        for name in ("mine", "other"):
            values = {"transactional_id": name, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
            assert (await client.ask("init_producer_id", 4, **values))["error_code"] == "NONE"
        authorizer.denied = {Rule(Operation.DESCRIBE, TRANSACTIONAL_ID, "other")}
        filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        listed = (await client.ask("list_transactions", 1, **filters))["transaction_states"]
        assert [each["transactional_id"] for each in listed] == ["mine"]
        described = await client.ask("describe_transactions", 0, transactional_ids=["other"])
        [state] = described["transaction_states"]
        assert state["error_code"] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


# Routes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [heartbeat, offset_commit])
def test_route_of_frequent_request_skips_checks_if_everything_is_allowed(module: Any) -> None:
    api = find_row(module.__name__.rpartition(".")[2])
    free = Routes(AllowAll()).find(api.key, api.max_version)
    checked = Routes(DenyingAuthorizer()).find(api.key, api.max_version)
    assert free is not None
    assert checked is not None
    assert (free.handle, checked.handle) == (module.handle_unchecked, module.handle)


@async_test
async def test_check_that_row_does_not_name_is_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "handle", lambda call: authorize(call, READ_TOPIC, ("t",)))
    async with denying(tmp_path) as (_, _, client):
        with pytest.raises(ConnectionError):
            await client.ask("heartbeat", group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    assert "the row of heartbeat does not name the check" in caplog.text


def test_each_row_has_its_own_name_and_key() -> None:
    assert len({api.name for api in APIS}) == len({api.key for api in APIS}) == len(APIS)
