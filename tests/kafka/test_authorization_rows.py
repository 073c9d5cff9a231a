"""Every check that the row of an API names is made, in every version, and its denial is answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from authorizers import DenyingAuthorizer, Rule
from harness import Client, async_test, commit_values, running_node
from peers.wire import message_type
from request_helpers import encode_body, encode_request
from request_samples import BROKER, BROKER_LOGGER, GROUP, VALUES, sample

from callboard.runtime.kafka.api import APIS, Api
from callboard.runtime.kafka.authorization import checks
from callboard.runtime.kafka.authorization.checks import Check, Denied
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.log.format.batch import Producer, encode_batch, frame_record
from callboard.runtime.security.resources import Operation, ResourceType


class Case(NamedTuple):
    """Values that a request needs so that a check concerns it; in these versions."""

    values: Mapping[str, Any] = {}
    first: int = 0
    last: int = 99


TRANSACTIONAL_BATCH = encode_batch(0, 0, 0, [frame_record(0, 0, b"k", b"v")], Producer(1, 0))

CASES: Mapping[tuple[str, Check], Case] = {
    ("produce", checks.WRITE_TRANSACTIONAL_ID): Case({"records": TRANSACTIONAL_BATCH}),
    ("find_coordinator", checks.DESCRIBE_TRANSACTIONAL_ID): Case({"key_type": 1}, first=1),
    ("init_producer_id", checks.WRITE_IDEMPOTENTLY): Case({"transactional_id": None}),
    ("add_partitions_to_txn", checks.WRITE_TRANSACTIONAL_ID): Case(last=3),
    ("add_partitions_to_txn", checks.WRITE_TOPIC): Case(last=3),
    ("add_partitions_to_txn", checks.ACT_AS_BROKER): Case(first=4),
    ("describe_configs", checks.DESCRIBE_BROKER_CONFIGS): Case({"resource_type": BROKER, "resource_name": "1"}),
    ("describe_configs", checks.DESCRIBE_GROUP_CONFIGS): Case({"resource_type": GROUP}),
    ("alter_configs", checks.ALTER_BROKER_CONFIGS): Case({"resource_type": BROKER, "resource_name": "1"}),
    ("alter_configs", checks.ALTER_GROUP_CONFIGS): Case({"resource_type": GROUP}),
    ("incremental_alter_configs", checks.ALTER_BROKER_CONFIGS): Case({"resource_type": BROKER, "resource_name": "1"}),
    ("incremental_alter_configs", checks.ALTER_GROUP_CONFIGS): Case({"resource_type": GROUP}),
    ("incremental_alter_configs", checks.ACT_AS_BROKER): Case({"resource_type": BROKER_LOGGER, "resource_name": "1"}),
    ("metadata", checks.CREATE_TOPIC): Case({"name": "missing-{version}", "allow_auto_topic_creation": True}),
    ("create_topics", checks.CREATE_TOPIC): Case({"name": "missing-{version}", "replication_factor": 1, "configs": ()}),
}

TESTED_ELSEWHERE = {
    ("create_topics", checks.DESCRIBE_NEW_TOPIC_CONFIGS),
    ("consumer_group_describe", checks.DESCRIBE_TOPIC),
    ("consumer_group_heartbeat", checks.LISTED_TOPIC),
}
"""Checks of which the denial is not an error of the whole request or of an item, or that need a group with members.

See ``test_authorization`` and ``test_api_consumer_groups``.
"""


NAMED_BY_ID = {"produce": 13, "fetch": 13, "offset_commit": 10, "offset_fetch": 10}
"""The first version in which topics are requested by id only."""


def rows() -> Iterator[tuple[Api, Check]]:
    for api in APIS:
        for check in (*api.whole, *api.items):
            if check.denied is Denied.ERROR and (api.name, check) not in TESTED_ELSEWHERE:
                yield api, check


def rules_of(check: Check) -> set[Rule]:
    other = set() if check.unless is None else {Rule(*check.unless)}
    return {Rule(check.operation, check.resource_type)} | other


async def ask(client: Client, api: Api, version: int, values: Mapping[str, Any]) -> str:
    """Send a sample request; return the response as text."""
    texts = {name: value.format(version=version) for name, value in values.items() if isinstance(value, str)}
    request = sample(message_type(api.name, version, "request"), {**VALUES, **values, **texts})
    client.write(encode_request(api.key, version, encode_body(request), schema(api.name, version).flexible))
    return repr(await client.receive(api.name, version))


@pytest.mark.parametrize(
    ("api", "check"),
    [pytest.param(*row, id=f"{row[0].name}-{row[1].operation.name}-{row[1].resource_type.name}") for row in rows()],
)
@async_test
async def test_denied_check_of_row_is_answered_in_every_version(api: Api, check: Check, tmp_path: Path) -> None:
    """And only then: the same request is not denied by an authorizer that allows it."""
    authorizer = DenyingAuthorizer()
    case = CASES.get((api.name, check), Case())
    async with running_node(tmp_path, authorizer=authorizer) as harness:
        client = await harness.connect()
        topic = harness.node.topics.get("t")
        assert topic is not None
        await client.ask("offset_commit", 8, **commit_values("t"))
        for version in range(max(api.min_version, case.first), min(api.max_version, case.last) + 1):
            by_id = {"by_id": topic.topic_id} if version >= NAMED_BY_ID.get(api.name, 99) else {}
            authorizer.denied = rules_of(check)
            assert check.denial.code.name in await ask(client, api, version, {**case.values, **by_id}), version
            authorizer.denied = set()
            assert "AUTHORIZATION_FAILED" not in await ask(client, api, version, {**case.values, **by_id}), version


def test_every_served_api_names_a_check_unless_it_is_part_of_connecting() -> None:
    without = [api.name for api in APIS if not (api.whole or api.items)]
    assert without == ["sasl_handshake", "api_versions", "sasl_authenticate"]


def test_whole_request_is_denied_with_error() -> None:
    """A whole request cannot be left out of its response."""
    assert {check.denied for api in APIS for check in api.whole} == {Denied.ERROR}


def test_operations_and_resource_types_have_numbers_of_kafka() -> None:
    assert (Operation.READ, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT) == (3, 8, 15)
    assert [each.name for each in ResourceType] == [
        "UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER",
    ]  # fmt: skip
