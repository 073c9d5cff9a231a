"""Client quotas: APIs 48 and 49, and how clients above a quota are throttled (KIP-219)."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from audit_helpers import HeldWrites, audit_lines
from authorizers import DenyingAuthorizer, Rule
from client_quota_helpers import ANONYMOUS, CLIENT_ID, IP, USER, alter, alteration
from harness import Client, async_test, running_node
from peers.wire import Plain

from callboard.runtime.security.resources import Operation, ResourceType
from callboard.runtime.security.store import SecurityStore

EXACT, DEFAULT, ANY = 0, 1, 2


async def describe(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """The values by entity; or the error."""
    conditions: Plain = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer: Any = await client.ask("describe_client_quotas", components=conditions, strict=strict)
    if answer["error_code"] != "NONE":
        assert answer["entries"] is None
        return answer["error_code"], answer["error_message"]
    return {
        tuple((name["entity_type"], name["entity_name"]) for name in entry["entity"]): {
            value["key"]: value["value"] for value in entry["values"]
        }
        for entry in answer["entries"]
    }


@async_test
async def test_quotas_are_stored_described_and_removed(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        assert await alter(
            client,
            alteration({USER: "a", CLIENT_ID: None}, request_percentage=50.5, producer_byte_rate=1024),
            alteration({IP: "::ffff:10.0.0.5"}, connection_creation_rate=7),
            alteration({USER: "b"}, request_percentage=-1),
        ) == [("NONE", None), ("NONE", None), ("INVALID_REQUEST", "Quota request_percentage must be greater than 0")]
        expected = {
            (("client-id", None), ("user", "a")): {"request_percentage": 50.5, "producer_byte_rate": 1024.0},
            (("ip", "10.0.0.5"),): {"connection_creation_rate": 7.0},
        }
        assert await describe(client) == expected
        await harness.restart()
        client = await harness.connect()
        assert await describe(client) == expected
        assert await describe(client, (USER, EXACT, "a")) == {key: expected[key] for key in list(expected)[:1]}
        assert await describe(client, (USER, ANY, None), strict=True) == {}
        removal = alteration({CLIENT_ID: None, USER: "a"}, request_percentage=None, consumer_byte_rate=None)
        assert await alter(client, removal, validate_only=True) == [("NONE", None)]
        assert await describe(client) == expected
        assert await alter(client, removal) == [("NONE", None)]
        assert (await describe(client))[(("client-id", None), ("user", "a"))] == {"producer_byte_rate": 1024.0}


@async_test
async def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        twice = alteration({USER: "a"}, request_percentage=1)
        both: Any = {"entity": [{"entity_type": USER, "entity_name": name} for name in ("a", "b")], "ops": []}
        many: Any = {"entity": 2 * both["entity"], "ops": []}
        removals = alteration({USER: "d"}, **{f"quota_{number}": None for number in range(101)})
        created = alteration({USER: "c"}, request_percentage=1)
        assert await alter(client, twice, created, twice, both, many, removals) == [
            ("INVALID_REQUEST", "the entity occurs twice in the request"),
            ("NONE", None),
            ("INVALID_REQUEST", "the entity occurs twice in the request"),
            ("INVALID_REQUEST", "an entity type occurs twice in the entity"),
            ("INVALID_REQUEST", "the entity has 4 components: expected one of each type (user, client-id, ip)"),
            ("INVALID_REQUEST", "the entity has 101 operations: expected at most 100"),
        ]
        assert await describe(client) == {(("user", "c"),): {"request_percentage": 1.0}}
        assert await describe(client, ("host", ANY, None)) == ("UNSUPPORTED_VERSION", "Unsupported entity type host")


@async_test
async def test_denied_clients_get_the_error_of_the_cluster(tmp_path: Path) -> None:
    denying = DenyingAuthorizer(
        Rule(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER), Rule(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
    )
    denial = ("CLUSTER_AUTHORIZATION_FAILED", "Cluster authorization failed.")
    async with running_node(tmp_path, authorizer=denying) as harness:
        client = await harness.connect()
        assert await alter(client, alteration(ANONYMOUS, request_percentage=1), alteration({})) == [denial, denial]
        assert await describe(client) == ("CLUSTER_AUTHORIZATION_FAILED", None)
        assert harness.node.data.security.get("quotas") == {}


@async_test
async def test_changes_of_quotas_are_audited(tmp_path: Path) -> None:
    async with running_node(tmp_path, audit="file") as harness:
        client = await harness.connect()
        for value in (5, 6, 6):
            await alter(client, alteration({USER: "a"}, request_percentage=value))
    lines = audit_lines(tmp_path)
    assert [(line["resource"], line.get("before"), line.get("after")) for line in lines] == [
        ('ClientQuota:{"user": "a"}', None, {"request_percentage": 5.0}),
        ('ClientQuota:{"user": "a"}', {"request_percentage": 5.0}, {"request_percentage": 6.0}),
    ]


@async_test
async def test_each_change_is_audited_as_its_own_if_several_share_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_node(tmp_path, audit="file") as harness:
        writes, altering = HeldWrites(monkeypatch, SecurityStore), []
        for number in (1, 2, 3):
            client = await harness.connect()
            entry = alteration({USER: "a"}, request_percentage=number)
            altering.append(asyncio.create_task(alter(client, entry)))
            await writes.wait_for(number)
        writes.release()
        assert await asyncio.gather(*altering) == 3 * [[("NONE", None)]]
    lines = audit_lines(tmp_path)
    values = [(line.get("before"), line["after"]) for line in lines]
    rates = [{"request_percentage": float(number)} for number in (1, 2, 3)]
    assert values == [(None, rates[0]), (rates[0], rates[1]), (rates[1], rates[2])]


@async_test
async def test_disk_error_is_answered_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_store: SecurityStore, _draft: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running_node(tmp_path) as harness:
        client = await harness.connect()
        monkeypatch.setattr(SecurityStore, "write", fail)
        refused = ("KAFKA_STORAGE_ERROR", "the quotas cannot be written: No space left on device")
        assert await alter(client, alteration({USER: "a"}, request_percentage=1)) == [refused]
        assert await describe(client) == {}
