"""Whatever the ACLs, answers tell nothing about what a client may not describe: no name, no id, not that it exists.

Two rights to Kafka's cluster tell names without a right to each: DESCRIBE lists all groups and ACLs, and DELETE deletes
topics by their ids, with their names in the answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from acl_helpers import change_acls
from harness import NodeHarness, async_test, commit_values, join_and_sync, running_node, topic_id
from peers.wire import message_type
from property_examples import examples
from request_helpers import encode_body, encode_request
from request_samples import GROUP as GROUP_CONFIGS
from request_samples import VALUES, sample

from callboard.runtime.kafka.api import APIS, Api
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.log.format.batch import Producer, encode_batch, frame_record
from callboard.runtime.security.acl_store import AclStore
from callboard.runtime.security.acls import Acl, PatternType, Permission, Requester
from callboard.runtime.security.resources import CLUSTER_NAME, Operation, ResourceType
from callboard.runtime.settings.authorization import STANDARD_AUTHORIZER

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
ANONYMOUS = "User:ANONYMOUS"
REQUESTER = Requester(ANONYMOUS, "127.0.0.1")
TRANSACTIONAL_BATCH = encode_batch(0, 0, 0, [frame_record(0, 0, b"k", b"v")], Producer(1, 0))

TOPICS = ("sales-1x", "sales-2x", "stock-1x")
GROUPS = ("billing-1x", "billing-2x", "budget-1x")
TRANSACTIONS = ("payment-1x", "payment-2x", "pension-1x")
INTERNAL = ("__consumer_offsets", "__transaction_state")
NAMES: Mapping[ResourceType, tuple[str, ...]] = {
    TOPIC: (*TOPICS, *INTERNAL),
    GROUP: GROUPS,
    TRANSACTIONAL_ID: TRANSACTIONS,
    CLUSTER: (CLUSTER_NAME,),
}


def everything(permission: Permission = Permission.ALLOW) -> list[Acl]:
    """ACLs that allow the clients of the tests everything, or nothing."""
    names = {TOPIC: "*", GROUP: "*", TRANSACTIONAL_ID: "*", CLUSTER: CLUSTER_NAME}
    return [acl(kind, name, Operation.ALL, permission=permission) for kind, name in names.items()]


def acl(
    resource_type: ResourceType,
    name: str,
    operation: Operation,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(resource_type, name, pattern, ANONYMOUS, "*", operation, permission)


async def set_acls(acls: AclStore, wanted: Iterable[Acl]) -> None:
    """Replace all ACLs."""
    await change_acls(acls.delete, list(acls.table.acls))
    await change_acls(acls.create, list(wanted))


@asynccontextmanager
async def node_with_acls(folder: Path, topics: Iterable[str]) -> AsyncIterator[tuple[NodeHarness, AclStore]]:
    """A node with these topics, whose clients may do everything at first."""
    options = {"topics": tuple((name, 1) for name in topics)}
    async with running_node(folder, options, authorizer_class_name=STANDARD_AUTHORIZER) as harness:
        acls = harness.node.services.acls
        assert acls is not None
        await set_acls(acls, everything())
        yield harness, acls


async def fill(harness: NodeHarness, topic: str, groups: Iterable[str], transactions: Iterable[str]) -> None:
    """Groups with a member and an offset, and transactional ids."""
    client = await harness.connect()
    for name in groups:
        member = await join_and_sync(client, name, protocols=[{"name": "range", "metadata": secret_of(name)}])
        topics = [{"name": topic, "partitions": [{**OFFSET}]}]
        answer = await client.ask("offset_commit", 9, **commit_values(name, member, topics=topics))
        assert answer["topics"][0]["partitions"][0]["error_code"] == "NONE"
    for name in transactions:
        values = {"transactional_id": name, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
        assert (await client.ask("init_producer_id", 4, **values))["error_code"] == "NONE"


OFFSET = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}


def secret_of(group: str) -> bytes:
    """What only members of a group send: it is shown to who may describe the group."""
    return b"member of " + group.encode()


# Requests ------------------------------------------------------------------------------------------------------------

VARIANTS: tuple[Mapping[str, Any], ...] = (
    {},
    {"key_type": 1},
    {"resource_type": GROUP_CONFIGS},
    {"records": TRANSACTIONAL_BATCH},
    {"allow_auto_topic_creation": True},
    {"include_authorized_operations": True},
)
WITHOUT_TRANSACTION: Mapping[str, Any] = {"transactional_id": None}
ALL_TOPICS: Mapping[str, Any] = {"topics": None}
NAMES_ARE_NULLABLE_FROM = {"metadata": 1, "offset_fetch": 2}
NAMED_BY_ID = {"produce": 13, "fetch": 13, "offset_commit": 10, "offset_fetch": 10}
"""The first version in which topics are requested by id only."""


def variants_of(api: Api) -> tuple[Mapping[str, Any], ...]:
    return (*VARIANTS, WITHOUT_TRANSACTION) if api.name in ("init_producer_id", "produce") else VARIANTS


BY_NAME_OR_ID = {"metadata": 12, "delete_topics": 6}
"""The first version in which topics may be requested by id, without their names."""


def request_of(api: Api, version: int, values: Mapping[str, Any]) -> bytes:
    fields = {**VALUES, "max_wait": timedelta(0), "include_topic_authorized_operations": True, **values}
    entity = sample(message_type(api.name, version, "request"), fields)
    return encode_request(api.key, version, encode_body(entity), schema(api.name, version).flexible)


# Existence -----------------------------------------------------------------------------------------------------------

HIDDEN = "hidden"
OPEN = "open"
OPEN_GROUP: Mapping[str, Any] = {"group_id": OPEN, "transactional_id": OPEN}
"""The client may do everything with this group and this transactional id, but the topic is hidden."""
ANSWERED_WITH_NEW_IDS = {"join_group", "sync_group", "init_producer_id"}


def requests_that_name(name: str) -> Iterator[tuple[str, bytes]]:
    """Requests of every API and version in which all texts are a name."""
    for api in APIS:
        for version in range(api.min_version, min(api.max_version, NAMED_BY_ID.get(api.name, 99) - 1) + 1):
            requests: dict[bytes, None] = {}
            of_open_group = () if api.name in ANSWERED_WITH_NEW_IDS else (OPEN_GROUP,)
            for variant in (*VARIANTS, *of_open_group):
                requests[request_of(api, version, {"text": name, **variant})] = None
            for request in requests:
                if name.encode() in request:
                    yield f"{api.name} v{version}, {request!r}", request


def acls_without_rights_to_hidden(random: Random) -> list[Acl]:
    """Rights to other names, and prohibitions that concern the hidden one or not."""
    kinds = (TOPIC, GROUP, TRANSACTIONAL_ID)
    others = [acl(random.choice(kinds), "hid", Operation.ALL), acl(random.choice(kinds), "hidden.x", Operation.READ)]
    denied = [
        acl(random.choice(kinds), "hid", Operation.READ, PatternType.PREFIXED, Permission.DENY),
        acl(random.choice(kinds), "*", Operation.DESCRIBE, PatternType.LITERAL, Permission.DENY),
        acl(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
    ]
    rights = [acl(kind, OPEN, Operation.ALL) for kind in (GROUP, TRANSACTIONAL_ID)]
    return [*rights, *others, *random.sample(denied, random.randrange(len(denied) + 1))]


def comparable(harness: NodeHarness, answer: bytes) -> bytes:
    """An answer without what tells two servers apart."""
    cluster_id = harness.node.data.folder.cluster_id.encode()
    return answer.replace(harness.port.to_bytes(4, "big"), b"port").replace(cluster_id, b"cluster id")


@pytest.mark.parametrize("seed", range(examples(2)))
@async_test
async def test_answer_about_name_without_rights_is_the_same_whether_it_exists(seed: int, tmp_path: Path) -> None:
    acls = acls_without_rights_to_hidden(Random(seed))
    async with (
        node_with_acls(tmp_path / "has", ["t", HIDDEN]) as (has, has_acls),
        node_with_acls(tmp_path / "has-not", ["t"]) as (has_not, has_not_acls),
    ):
        await fill(has, HIDDEN, [HIDDEN], [HIDDEN])
        for store in (has_acls, has_not_acls):
            await set_acls(store, acls)
        first, second = await has.connect(), await has_not.connect()
        for description, request in requests_that_name(HIDDEN):
            first.write(request)
            second.write(request)
            answers = comparable(has, await first.receive_frame()), comparable(has_not, await second.receive_frame())
            assert answers[0] == answers[1], (description, acls)


# Names and ids -------------------------------------------------------------------------------------------------------


def random_acls(random: Random) -> list[Acl]:
    """Some rights to names, to prefixes of them and to all, and some prohibitions."""
    acls = []
    for _ in range(random.randrange(12)):
        kind = random.choice(list(NAMES))
        name = random.choice(NAMES[kind])
        pattern = PatternType.LITERAL
        if kind is not CLUSTER and random.random() < 0.6:
            name, pattern = random.choice([("*", pattern), (name[: random.randrange(1, 9)], PatternType.PREFIXED)])
        permission = random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))
        operations = [each for each in Operation if each >= Operation.ALL]
        acls.append(acl(kind, name, random.choice(operations), pattern, permission))
    return acls


def secrets_of(harness: NodeHarness) -> dict[bytes, tuple[ResourceType, str]]:
    """What an answer may contain only if the client may describe the resource."""
    secrets = {name.encode(): (kind, name) for kind, names in NAMES.items() if kind is not CLUSTER for name in names}
    secrets |= {secret_of(name): (GROUP, name) for name in GROUPS}
    return secrets | {topic_id(harness, name).bytes: (TOPIC, name) for name in TOPICS}


class Rights:
    """What the client may know."""

    def __init__(self, acls: AclStore) -> None:
        self._table = acls.table

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        decision = self._table.decide(REQUESTER, operation, kind, name)
        return decision is not None and decision.is_allowed

    def may_know(self, kind: ResourceType, name: str) -> bool:
        of_all = {GROUP: Operation.DESCRIBE, TOPIC: Operation.DELETE}.get(kind)
        return self.may(Operation.DESCRIBE, kind, name) or (
            of_all is not None and self.may(of_all, CLUSTER, CLUSTER_NAME)
        )


def random_requests(random: Random, ids: Sequence[UUID], rights: Rights) -> Iterator[tuple[str, bytes]]:
    """Requests of every API. One that would wait for other members is left out."""
    names = [*chain.from_iterable(NAMES.values()), "missing"]
    for api in APIS:
        for variant in (random.choice(variants_of(api)), ALL_TOPICS):
            version = random.randint(api.min_version, api.max_version)
            if variant is ALL_TOPICS and version < NAMES_ARE_NULLABLE_FROM.get(api.name, 99):
                continue
            name = random.choice(names)
            if api.name in ("join_group", "sync_group") and rights.may(Operation.READ, GROUP, name):
                continue
            by_either = version >= BY_NAME_OR_ID.get(api.name, 99) and random.random() < 0.5
            has_ids = by_either or version >= NAMED_BY_ID.get(api.name, 99)
            by_id = {"by_id": random.choice(ids), "topic_id": None} if has_ids else {}
            values = {"text": name, **by_id, **variant}
            if by_either:
                values["name"] = None
            yield f"{api.name} v{version} {variant}", request_of(api, version, values)


@pytest.mark.parametrize("seed", range(examples(8)))
@async_test
async def test_answers_contain_only_what_was_requested_or_may_be_described(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    async with node_with_acls(tmp_path, TOPICS) as (harness, acls):
        await fill(harness, TOPICS[0], GROUPS, TRANSACTIONS)
        await set_acls(acls, random_acls(random))
        rights, secrets = Rights(acls), secrets_of(harness)
        client = await harness.connect()
        ids = [topic_id(harness, name) for name in TOPICS]
        for description, request in random_requests(random, ids, rights):
            client.write(request)
            answer = await client.receive_frame()
            told = [
                resource
                for secret, resource in secrets.items()
                if secret in answer and secret not in request and not rights.may_know(*resource)
            ]
            assert told == [], (description, list(acls.table.acls))
