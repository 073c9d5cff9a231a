"""Servers with access control lists: requests about them, rights that come and go, and what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from audit_helpers import HeldWrites, audit_lines
from harness import (
    Client,
    Member,
    NodeHarness,
    async_test,
    commit_values,
    frame,
    heartbeat_values,
    join_and_sync,
    running_node,
    topic_id,
    versions,
)
from peers.wire import Hangup
from sasl_helpers import add_user, log_in, running_sasl_node

from callboard.runtime.common.errors import StartError
from callboard.runtime.disk.disk import Disk
from callboard.runtime.disk.group_commit import outcome_of
from callboard.runtime.kafka.api import delete_acls
from callboard.runtime.kafka.authorization.grants import GRANTS_MAX, NAME_CHARS_MAX
from callboard.runtime.kafka.connections.connection import Connection
from callboard.runtime.security.acl_store import ROWS
from callboard.runtime.security.acls import AclRules
from callboard.runtime.security.document import ACLS
from callboard.runtime.security.store import SecurityStore
from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER
from callboard.runtime.settings.table import load_settings

TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL, READ, ALTER, DESCRIBE = 2, 3, 7, 8
ANONYMOUS = "User:ANONYMOUS"
DENIED_GROUP, DENIED_CLUSTER = "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"


def creation(resource_type: int, name: str, operation: int, permission: int = DENY, **changes: Any) -> dict[str, Any]:
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": ANONYMOUS,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
        **changes,
    }


def filter_of(**changes: Any) -> dict[str, Any]:
    anything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "operation": 1}
    return {**anything, "principal_filter": None, "host_filter": None, "permission_type": 1, **changes}


@asynccontextmanager
async def open_to_all(folder: Path, **settings: Any) -> AsyncIterator[tuple[NodeHarness, Client]]:
    """A node where everything is allowed on a resource that no ACL matches."""
    options = {"authorizer_class_name": STANDARD_AUTHORIZER, "allow_everyone_if_no_acl_found": True, **settings}
    async with running_node(folder, **options) as harness:
        yield harness, await harness.connect()


async def create(client: Client, *creations: dict[str, Any], version: int = 3) -> list[tuple[str, str | None]]:
    answer: Any = await client.ask("create_acls", version, creations=list(creations))
    return [(result["error_code"], result["error_message"]) for result in answer["results"]]


async def shown(client: Client, version: int = 3, **changes: Any) -> list[tuple[Any, ...]]:
    answer: Any = await client.ask("describe_acls", version, **filter_of(**changes))
    assert answer["error_code"] == "NONE", answer
    return [(resource["resource_name"], *acl.values()) for resource in answer["resources"] for acl in resource["acls"]]


# Requests about lists ------------------------------------------------------------------------------------------------


@async_test
async def test_acls_are_created_shown_and_deleted_and_survive_a_restart(tmp_path: Path) -> None:
    async with open_to_all(tmp_path) as (harness, client):
        for version in versions("create_acls"):
            assert await create(client, creation(GROUP, f"g{version}", READ), version=version) == [("NONE", "")]
        await harness.restart()
        client = await harness.connect()
        for version in versions("describe_acls"):
            rows = [(f"g{number}", ANONYMOUS, "*", READ, DENY) for number in versions("create_acls")]
            assert await shown(client, version) == rows
        for version in versions("delete_acls"):
            by_name = filter_of(resource_name_filter=f"g{version}")
            answer: Any = await client.ask("delete_acls", version, filters=[by_name, filter_of(host_filter="1.1.1.1")])
            [deleted, nothing] = answer["filter_results"]
            assert [acl["resource_name"] for acl in deleted["matching_acls"]] == [f"g{version}"]
            assert (nothing["error_code"], nothing["matching_acls"]) == ("NONE", [])
        assert await shown(client) == []


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("host", "10.0.0.0/8", "the host '10.0.0.0/8': expected an IP address, as in 10.0.0.5, or *"),
        ("host", "db.example.com", "the host 'db.example.com': expected an IP address, as in 10.0.0.5, or *"),
        ("host", "", "the host '': expected an IP address, as in 10.0.0.5, or *"),
        ("host", "::1", "the host '::1': expected it as 0:0:0:0:0:0:0:1"),
        ("principal", "Group:a", "the principal 'Group:a': all clients have one of the type User, as in User:alice"),
    ],
)
@async_test
async def test_acl_that_matches_no_client_is_created_as_in_kafka_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, value: str, expected: str
) -> None:
    matching = [creation(GROUP, "g", READ, host=host) for host in ("*", "10.0.0.1", "0:0:0:0:0:0:0:1")]
    async with open_to_all(tmp_path) as (_, client):
        await create(client, *matching, creation(GROUP, "", READ, host="x"))
        assert "match no client" not in caplog.text
        changes: dict[str, Any] = {field: value}
        assert await create(client, creation(GROUP, "g", READ, **changes)) == [("NONE", "")]
        assert len(await shown(client)) == len(matching) + 1
    assert f"ACLs that match no client count=1 reason={expected!r}" in caplog.text


@async_test
async def test_acls_need_an_authorizer(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        described: Any = await client.ask("describe_acls", **filter_of())
        text = "No Authorizer is configured on the broker"
        assert (described["error_code"], described["error_message"]) == ("SECURITY_DISABLED", text)
        refused = ("SECURITY_DISABLED", "No Authorizer is configured.")
        assert await create(client, creation(GROUP, "g", READ)) == [refused]
        deleted: Any = await client.ask("delete_acls", filters=[filter_of()])
        assert [(each["error_code"], each["error_message"]) for each in deleted["filter_results"]] == [refused]


@async_test
async def test_acls_are_for_those_who_may_see_and_change_the_cluster(tmp_path: Path) -> None:
    async with open_to_all(tmp_path) as (_, client):
        await create(client, creation(CLUSTER, "kafka-cluster", DESCRIBE, ALLOW))
        assert len(await shown(client)) == 1
        assert await create(client, creation(GROUP, "g", READ)) == [(DENIED_CLUSTER, "Cluster authorization failed.")]
        answer: Any = await client.ask("delete_acls", filters=[filter_of()])
        [result] = answer["filter_results"]
        assert (result["error_code"], result["matching_acls"]) == (DENIED_CLUSTER, [])
        assert len(await shown(client)) == 1


@async_test
async def test_unknown_parts_of_acls_and_filters_are_refused(tmp_path: Path) -> None:
    async with open_to_all(tmp_path) as (_, client):
        for change in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
            for number in (0, 99):
                [(code, _)] = await create(client, {**creation(GROUP, "g", READ), change: number})
                assert code == "INVALID_REQUEST", change
        for change in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
            described: Any = await client.ask("describe_acls", **filter_of(**{change: 0}))
            deleted: Any = await client.ask("delete_acls", filters=[filter_of(**{change: 99})])
            assert described["error_code"] == deleted["filter_results"][0]["error_code"] == "INVALID_REQUEST", change
        assert await shown(client) == []


@async_test
async def test_filters_that_match_too_many_acls_delete_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the ACLs of each filter, and ten thousand filters may match all of them."""
    monkeypatch.setattr(delete_acls, "MATCHES_MAX", 4)
    async with open_to_all(tmp_path) as (_, client):
        await create(client, *(creation(GROUP, f"g{number}", READ) for number in range(2)))
        anything = filter_of()
        answer: Any = await client.ask("delete_acls", filters=[anything] * 3)
        text = "Cannot remove more than 10000 acls in a single delete operation."
        assert answer["filter_results"] == 3 * [
            {"error_code": "INVALID_REQUEST", "error_message": text, "matching_acls": []}
        ]
        assert len(await shown(client)) == 2
        answer = await client.ask("delete_acls", filters=[anything] * 2)
        assert [len(result["matching_acls"]) for result in answer["filter_results"]] == [2, 2]
        assert await shown(client) == []


@async_test
async def test_disk_error_is_answered_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_to_all(tmp_path) as (_, client):
        assert await create(client, creation(GROUP, "g", READ)) == [("NONE", "")]

        def fail(_store: SecurityStore, _draft: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(SecurityStore, "write", fail)
        refused = ("KAFKA_STORAGE_ERROR", "the ACLs cannot be written: No space left on device")
        assert await create(client, creation(GROUP, "", READ), creation(GROUP, "h", READ)) == [
            ("INVALID_REQUEST", "Invalid empty resource name"),
            refused,
        ]
        answer: Any = await client.ask("delete_acls", filters=[filter_of()])
        [result] = answer["filter_results"]
        assert (result["error_code"], result["error_message"], result["matching_acls"]) == (*refused, [])
        assert [name for name, *_ in await shown(client)] == ["g"]


@async_test
async def test_changes_of_acls_are_in_the_audit_trail(tmp_path: Path) -> None:
    async with open_to_all(tmp_path, audit="file") as (_, client):
        await create(client, creation(GROUP, "g", READ), creation(GROUP, "", READ))
        await create(client, creation(GROUP, "g", READ))  # it is there already
        await client.ask("delete_acls", filters=[filter_of(), filter_of(resource_name_filter="g")])
    acl = {"pattern": "LITERAL", "principal": ANONYMOUS, "host": "*", "operation": "READ", "permission": "DENY"}
    lines = audit_lines(tmp_path)
    changes = [(line["operation"], line["resource"], line.get("before"), line.get("after")) for line in lines]
    assert changes == [("create acl", "Group:g", None, acl), ("delete acl", "Group:g", acl, None)]


@async_test
async def test_acl_that_several_requests_create_or_delete_is_audited_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share a write: of each kind the first one changes something."""
    async with open_to_all(tmp_path, audit="file") as (harness, client):
        clients = [client, *[await harness.connect() for _ in range(2)]]
        for ask in (
            lambda each: create(each, creation(GROUP, "g", READ)),
            lambda each: each.ask("delete_acls", filters=[filter_of()]),
        ):
            with monkeypatch.context() as patch:
                held = HeldWrites(patch, SecurityStore)
                asking = []
                for number, each in enumerate(clients, 1):
                    asking.append(asyncio.create_task(ask(each)))
                    await held.wait_for(number)
                held.release()
                await asyncio.gather(*asking)
    assert [line["operation"] for line in audit_lines(tmp_path)] == ["create acl", "delete acl"]


# Rights --------------------------------------------------------------------------------------------------------------


@async_test
async def test_nothing_is_allowed_without_acls_but_to_super_users(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"authorizer_class_name": STANDARD_AUTHORIZER}
    async with running_node(tmp_path / "closed", **settings) as harness:
        client = await harness.connect()
        answer = await client.ask("offset_commit", 8, **commit_values("g"))
        assert answer["topics"][0]["partitions"][0]["error_code"] == DENIED_GROUP
    async with running_node(tmp_path / "super", **settings, super_users=f"User:admin;{ANONYMOUS}") as harness:
        client = await harness.connect()
        await create(client, creation(GROUP, "g", ALL), creation(TOPIC, "t", ALL))
        answer = await client.ask("offset_commit", 8, **commit_values("g"))
        assert answer["topics"][0]["partitions"][0]["error_code"] == "NONE"


@async_test
async def test_connection_is_closed_while_the_acls_of_the_cluster_are_not_known(tmp_path: Path) -> None:
    """A denial would be final for consumers."""
    async with open_to_all(tmp_path) as (harness, client):
        security = harness.node.data.security
        security.share(lambda _change, _done: None)
        for name, values in (("heartbeat", heartbeat_values("g", Member("m", 1))), ("metadata", metadata_of("t"))):
            with pytest.raises(Hangup):
                await client.ask(name, 4, **values)
            client = await harness.connect()
        assert await outcome_of(partial(security.adopt, None)) is None
        assert (await client.ask("metadata", 4, **metadata_of("t")))["topics"][0]["error_code"] == "NONE"


def metadata_of(name: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "topic_id": None}], "allow_auto_topic_creation": False}


@async_test
async def test_right_that_is_withdrawn_or_given_back_takes_effect_at_the_next_request(tmp_path: Path) -> None:
    async with open_to_all(tmp_path) as (harness, client):
        administrator = await harness.connect()
        member = await join_and_sync(client, "g")
        for error in ("NONE", DENIED_GROUP, "NONE"):
            if error != "NONE":
                await create(administrator, creation(GROUP, "g", READ))
            else:
                await administrator.ask("delete_acls", filters=[filter_of()])
            for _ in range(2):
                assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == error
                answer = await client.ask("offset_commit", 8, **commit_values("g", member))
                assert answer["topics"][0]["partitions"][0]["error_code"] == error


@async_test
async def test_rights_are_those_of_the_user_who_has_authenticated(tmp_path: Path) -> None:
    settings: Any = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:admin"}
    async with running_sasl_node(tmp_path, **settings) as harness:
        clients = {}
        for user in ("alice", "bob", "admin"):
            await add_user(harness.node.services.security, user)
            clients[user] = await harness.connect()
            assert (await log_in(clients[user], user))["error_code"] == "NONE"
        rights = [creation(kind, "g", READ, ALLOW, principal="User:alice") for kind in (GROUP, TOPIC)]
        assert await create(clients["bob"], *rights) == [(DENIED_CLUSTER, "Cluster authorization failed.")] * 2
        assert await create(clients["admin"], *rights) == [("NONE", "")] * 2
        member = await join_and_sync(clients["alice"], "g")
        for user, error in (("alice", "NONE"), ("bob", DENIED_GROUP), ("admin", "NONE")):
            answer = await clients[user].ask("heartbeat", **heartbeat_values("g", member))
            assert answer["error_code"] == error, user
        await clients["admin"].ask("delete_acls", filters=[filter_of(principal_filter="User:alice")])
        assert (await clients["alice"].ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == DENIED_GROUP


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the resources about which was decided."""
    names: list[str] = []
    decide = AclRules.decide

    def decide_and_note(rules: AclRules, requester: Any, operation: Any, resource_type: Any, name: str) -> Any:
        names.append(name)
        return decide(rules, requester, operation, resource_type, name)

    monkeypatch.setattr(AclRules, "decide", decide_and_note)
    return names


@async_test
async def test_frequent_requests_are_decided_once_for_each_connection(tmp_path: Path, decisions: list[str]) -> None:
    async with open_to_all(tmp_path) as (harness, client):
        member = await join_and_sync(client, "g")
        await client.ask("offset_commit", 8, **commit_values("g", member))
        decisions.clear()
        for _ in range(3):
            assert (await client.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"
            for version, topic in ((8, {}), (10, {"topic_id": topic_id(harness, "t")})):
                values = commit_values("g", member)
                values["topics"][0].update(topic)
                answer = await client.ask("offset_commit", version, **values)
                assert answer["topics"][0]["partitions"][0]["error_code"] == "NONE"
        assert decisions == []
        other = await harness.connect()
        assert (await other.ask("heartbeat", **heartbeat_values("g", member)))["error_code"] == "NONE"
        assert decisions == ["g"]


@async_test
async def test_denials_are_decided_each_time(tmp_path: Path, decisions: list[str]) -> None:
    async with open_to_all(tmp_path) as (_, client):
        await create(client, creation(GROUP, "g", READ))
        decisions.clear()
        for _ in range(3):
            answer = await client.ask("offset_commit", 8, **commit_values("g"))
            assert answer["topics"][0]["partitions"][0]["error_code"] == DENIED_GROUP
        assert decisions == ["g"] * 3


@async_test
async def test_few_permissions_are_remembered_of_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Connection] = []
    init = Connection.__init__

    def init_and_note(connection: Connection, *arguments: Any) -> None:
        init(connection, *arguments)
        made.append(connection)

    monkeypatch.setattr(Connection, "__init__", init_and_note)
    async with open_to_all(tmp_path) as (_, client):
        for number in range(GRANTS_MAX + 10):
            values: Any = {"groups": [f"g{number}"], "include_authorized_operations": False}
            client.write(frame("describe_groups", **values))
        for _ in range(GRANTS_MAX + 10):
            await client.receive("describe_groups")
        [connection] = made
        assert connection.grants is not None
        assert 0 < len(connection.grants.allowed) <= 10
        await client.ask("describe_groups", groups=[f"g{n}" for n in range(200)], include_authorized_operations=False)
        assert len(connection.grants.allowed) <= 10  # many names of one request are not remembered


@async_test
async def test_rights_to_resources_with_long_names_are_not_remembered(tmp_path: Path) -> None:
    """A group may have a name of 32 kB, so a thousand of them would be 32 MB for each connection."""
    async with open_to_all(tmp_path) as (harness, client):
        names = ["g" * NAME_CHARS_MAX, "h" * (NAME_CHARS_MAX + 1)]
        await client.ask("describe_groups", groups=names, include_authorized_operations=False)
        [connection] = harness.node.connections
        assert connection.grants is not None
        assert [name for _, _, name in connection.grants.allowed] == names[:1]


# At the start --------------------------------------------------------------------------------------------------------


@async_test
async def test_acls_that_cannot_be_read_prevent_the_start(tmp_path: Path) -> None:
    async with open_to_all(tmp_path) as (_, client):
        await create(client, creation(GROUP, "g", READ))
    store = SecurityStore(tmp_path, Disk(), lambda: b"")
    store.load()
    store.change(ACLS, lambda _section: {ROWS: [["ALLOW", "READ"]]}, lambda failure: None)
    with pytest.raises(StartError, match="the stored ACLs are invalid"):
        async with open_to_all(tmp_path):
            pass


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("authorizer_class_name", "kafka.security.MyAuthorizer", "StandardAuthorizer"),
        ("super_users", "alice", "TYPE:NAME;TYPE:NAME"),
        ("super_users", "User:", "TYPE:NAME;TYPE:NAME"),
    ],
)
def test_setting_that_names_no_authorizer_or_principal_is_refused(name: str, value: str, expected: str) -> None:
    with pytest.raises(StartError, match=expected):
        load_settings({name: value})
