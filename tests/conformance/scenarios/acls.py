"""Access control lists: what a denied client is told by each API in each version, and the lists themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..acl_steps import (
    ALL,
    ALLOW,
    ALTER_CONFIGS,
    APPLIED_MS,
    BROKER_CONFIG,
    CLUSTER,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EVERYBODY,
    GROUP,
    GROUP_CONFIG,
    IDEMPOTENT_WRITE,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    acl,
    create,
    deny,
    filter_of,
    remove,
    show,
)
from ..consumer_steps import beat, create_topic, describe_consumers, enter, list_groups
from ..script import Script, Step
from ..steps import (
    NOWHERE,
    commit,
    delete,
    delete_offsets,
    describe,
    fetch,
    heartbeat,
    join,
    leave,
    member,
    offsets,
    part,
    sync,
    wait,
)
from .transactions import TX, add, end, init, txn

X, Y = "$group.x", "$group.y"
TWO_TOPICS = [create_topic(X, 1), create_topic(Y, 1), wait(APPLIED_MS)]
TIMEOUT_MS = 5000


def versions(first: int, last: int) -> range:
    return range(first, last + 1)


# Requests of clients -------------------------------------------------------------------------------------------------


def find(line: str, key: str, key_type: int, v: int) -> Step:
    return [line, "find_coordinator", v, {"key": key, "key_type": key_type, "coordinator_keys": [key]}]


def describe_with_operations(line: str, v: int = 6) -> Step:
    return [line, "describe_groups", v, {"groups": ["$group"], "include_authorized_operations": True}]


def metadata(line: str, *topics: dict[str, Any], v: int = 12, is_all: bool = False) -> Step:
    flags = (
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    )
    values = {"topics": None if is_all else list(topics), **dict.fromkeys(flags, True)}
    return [line, "metadata", v, {**values, "allow_auto_topic_creation": False}]


def named(name: str) -> dict[str, Any]:
    return {"name": name, "topic_id": "$uuid 0"}


def by_id(name: str) -> dict[str, Any]:
    return {"name": None, "topic_id": f"$topic {name}"}


def commit_of(v: int, *names: str) -> Step:
    return commit("A", "", -1, *(offsets(name, part(0)) for name in names), v=v)


def fetch_of(v: int, *names: str) -> Step:
    return fetch("A", {name: [0] for name in names}, v=v)


def produce(v: int, *names: str) -> Step:
    topics = [
        {"name": name, "topic_id": f"$topic {name}", "partition_data": [{"index": 0, "records": None}]}
        for name in names
    ]
    return ["A", "produce", v, {"transactional_id": None, "acks": 1, "timeout": TIMEOUT_MS, "topic_data": topics}]


def read(v: int, *names: str) -> Step:
    """A Fetch without a session."""
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    ids = {"never-made": "$uuid 7"}
    topics = [{"topic": name, "topic_id": ids.get(name, f"$topic {name}"), "partitions": [partition]} for name in names]
    values = {
        "cluster_id": None,
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 10_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": topics,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return ["A", "fetch", v, values]


def list_offsets(v: int, *names: str) -> Step:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": name, "partitions": [partition]} for name in names]
    return ["A", "list_offsets", v, {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": TIMEOUT_MS}]


def delete_records(v: int, *names: str) -> Step:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in names]
    return ["A", "delete_records", v, {"topics": topics, "timeout": TIMEOUT_MS}]


def grow(v: int, *names: str) -> Step:
    topics = [{"name": name, "count": 2, "assignments": None} for name in names]
    return ["A", "create_partitions", v, {"topics": topics, "timeout": TIMEOUT_MS, "validate_only": True}]


def create_topics(v: int, *names: str) -> Step:
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} for name in names
    ]
    return ["A", "create_topics", v, {"topics": topics, "timeout": TIMEOUT_MS, "validate_only": True}]


def delete_topics(v: int, topic: dict[str, Any]) -> Step:
    return ["A", "delete_topics", v, {"topics": [topic], "topic_names": [topic["name"]], "timeout": TIMEOUT_MS}]


def describe_configs(v: int, resource_type: int, name: str) -> Step:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": ["x"]}
    flags = {"include_synonyms": False, "include_documentation": False}
    return ["A", "describe_configs", v, {"resources": [resource], **flags}]


def alter_configs(v: int, resource_type: int, name: str) -> Step:
    resource = {"resource_type": resource_type, "resource_name": name, "configs": []}
    return ["A", "alter_configs", v, {"resources": [resource], "validate_only": True}]


def change_configs(v: int, resource_type: int, name: str) -> Step:
    resource = {"resource_type": resource_type, "resource_name": name, "configs": []}
    return ["A", "incremental_alter_configs", v, {"resources": [resource], "validate_only": True}]


def configs(resource_type: int, name: str) -> Iterator[Step]:
    yield from (describe_configs(v, resource_type, name) for v in versions(1, 4))
    yield from (alter_configs(v, resource_type, name) for v in versions(0, 2))
    yield from (change_configs(v, resource_type, name) for v in versions(0, 1))


def describe_cluster(v: int) -> Step:
    values = {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
    return ["A", "describe_cluster", v, values]


def describe_quotas(v: int) -> Step:
    return ["A", "describe_client_quotas", v, {"components": [], "strict": False}]


def alter_quotas(v: int) -> Step:
    quota = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
    entry = {"entity": [{"entity_type": "user", "entity_name": "alice"}], "ops": [quota]}
    return ["A", "alter_client_quotas", v, {"entries": [entry], "validate_only": True}]


def add_partitions(v: int, *names: str) -> Step:
    values = {
        "v3_and_below_transactional_id": TX,
        "v3_and_below_producer_id": "$pid1",
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in names],
    }
    return ["A", "add_partitions_to_txn", v, values]


def describe_transactions() -> Step:
    return ["A", "describe_transactions", 0, {"transactional_ids": [TX]}]


def list_transactions(v: int) -> Step:
    values = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    return ["A", "list_transactions", v, values]


# Scenarios -----------------------------------------------------------------------------------------------------------


def requests_of_members() -> Iterator[Step]:
    yield from (join("A", v=v) for v in versions(0, 9))
    yield from (sync("A", "m", v=v) for v in versions(0, 5))
    yield sync("A", "m", protocol_type=None, protocol_name=None)
    yield from (heartbeat("A", "m", v=v) for v in versions(0, 4))
    yield from (leave("A", "m", v=v) for v in versions(0, 5))
    yield from (commit("A", v=v) for v in versions(2, 10))
    yield from (fetch("A", {"t": [0]}, v=v) for v in versions(1, 10))
    yield from (enter("A", "t", v=v) for v in versions(0, 1))


def requests_of_administrators() -> Iterator[Step]:
    yield from (describe("A", v=v) for v in versions(0, 6))
    yield describe_with_operations("A")
    yield from (describe_consumers("A", v=v) for v in versions(0, 1))
    yield from (delete("A", v=v) for v in versions(0, 2))
    yield delete("A", "$group", "$group-free")
    yield describe("A", "$group-free", "$group")
    yield delete_offsets("A", {"t": [0]})
    yield from (find("A", "$group", 0, v) for v in versions(0, 6))
    yield from configs(GROUP_CONFIG, "$group")


def requests_of_transactions() -> Iterator[Step]:
    yield from (add("A", v=v) for v in versions(0, 4))
    yield from (txn("A", v=v) for v in versions(0, 5))


ACLS: dict[str, Script] = {
    "denied-group": [
        init("A"),
        *deny(GROUP, "$group", ALL),
        *requests_of_members(),
        *requests_of_administrators(),
        *requests_of_transactions(),
    ],
    "group-of-another-principal": [
        *create(acl(GROUP, "$group", READ, ALLOW, principal="User:alice")),
        join("A"),
        describe("A"),
        commit("A"),
        fetch("A"),
    ],
    "permission-to-read-includes-description": [
        commit("A"),
        *create(acl(GROUP, "$group", READ, ALLOW)),
        describe_with_operations("A"),
        fetch("A"),
        heartbeat("A", "m"),
        delete("A"),
    ],
    "operations-of-group": [
        commit("A"),
        *create(acl(GROUP, "$group", DESCRIBE, ALLOW, principal=EVERYBODY), acl(GROUP, "$group", ALTER_CONFIGS, ALLOW)),
        *(describe_with_operations("A", v) for v in versions(3, 6)),
        describe_with_operations("A", 2),
    ],
    "prohibition-to-read-is-none-to-describe": [
        commit("A"),
        *create(acl(GROUP, "$group", ALL, ALLOW, principal=EVERYBODY), acl(GROUP, "$group", READ, DENY)),
        describe_with_operations("A"),
        fetch("A"),
        commit("A"),
    ],
    "prefix-and-name": [
        *create(acl(GROUP, "$group", ALL, ALLOW, resource_pattern_type=PREFIXED), acl(GROUP, "$group-1", READ, DENY)),
        commit("A"),
        commit("A", group_id="$group-1"),
        commit("A", group_id="$group-2"),
        delete("A", "$group-1", "$group-2", "$group"),
    ],
    "withdrawn-right": [
        *member("A"),
        heartbeat("A", "$A1"),
        *deny(GROUP, "$group", READ),
        heartbeat("A", "$A1"),
        commit("A", "$A1", 1),
        *remove(filter_of(resource_name_filter="$group")),
        heartbeat("A", "$A1"),
        commit("A", "$A1", 1),
    ],
    "denied-topic": [
        *TWO_TOPICS,
        *deny(TOPIC, X, ALL),
        *(produce(v, X) for v in versions(3, 13)),
        *(read(v, X) for v in versions(4, 17)),
        *(read(v, "never-made") for v in versions(4, 17)),
        *(list_offsets(v, X) for v in versions(1, 10)),
        *(metadata("A", named(X), v=v) for v in versions(0, 13)),
        *(metadata("A", by_id(X), v=v) for v in versions(12, 13)),
        *(commit_of(v, X, Y) for v in versions(2, 10)),
        *(commit("A", "", -1, NOWHERE, offsets(X, part(0)), v=v) for v in versions(8, 9)),
        *(fetch_of(v, X, Y) for v in versions(1, 10)),
        *(delete_records(v, X) for v in versions(0, 2)),
        *(grow(v, X, Y) for v in versions(0, 3)),
        *configs(TOPIC, X),
        *(enter("B", X, v=v) for v in versions(0, 1)),
    ],
    "denied-topic-among-all-offsets": [
        *TWO_TOPICS,
        commit_of(9, X, Y),
        *deny(TOPIC, X, DESCRIBE),
        *(fetch("A", v=v) for v in versions(2, 10)),
    ],
    "topic-that-may-only-be-described": [
        *TWO_TOPICS,
        commit_of(9, X, Y),
        *create(acl(TOPIC, X, DESCRIBE, ALLOW)),
        *(metadata("A", named(X), v=v) for v in versions(8, 12)),
        *(commit_of(v, X, Y) for v in versions(9, 10)),
        *(fetch_of(v, X, Y) for v in versions(9, 10)),
        delete_offsets("A", {X: [0], Y: [0]}),
    ],
    "denied-topic-of-transaction": [
        *TWO_TOPICS,
        init("A"),
        *deny(TOPIC, X, READ, WRITE),
        *(add_partitions(v, X, Y) for v in versions(0, 3)),
        *(txn("A", "", -1, offsets(X, part(0)), offsets(Y, part(0)), v=v) for v in versions(0, 4)),
    ],
    "denied-transactional-id": [
        *TWO_TOPICS,
        init("A"),
        *deny(TRANSACTIONAL_ID, TX, ALL),
        *(init("A", v) for v in versions(0, 5)),
        *(add_partitions(v, X, Y) for v in versions(0, 3)),
        *(add("A", v=v) for v in versions(0, 4)),
        *(txn("A", v=v) for v in versions(0, 5)),
        *(end("A", True, v=v) for v in versions(0, 5)),
        *(find("A", TX, 1, v) for v in versions(1, 6)),
        *(list_transactions(v) for v in versions(0, 1)),
    ],
    "description-of-denied-transaction": [*deny(TRANSACTIONAL_ID, TX, ALL), describe_transactions()],
    "topic-of-consumer-group": [
        *TWO_TOPICS,
        enter("A", X, Y),
        *deny(TOPIC, X, DESCRIBE),
        *(describe_consumers("B", v=v) for v in versions(0, 1)),
        beat("A", 1),
        enter("B", Y),
    ],
    "denied-consumer-group": [
        enter("A", "t"),
        *deny(GROUP, "$group", READ),
        beat("A", 1),
        *(describe_consumers("B", v=v) for v in versions(0, 1)),
    ],
    "lists": [
        *create(
            acl(GROUP, "$group", READ, ALLOW),
            acl(GROUP, "$group", READ, ALLOW),
            acl(GROUP, "$group", ALL, DENY, principal="User:bob", host="10.0.0.1"),
            acl(TOPIC, "$group", WRITE, ALLOW, resource_pattern_type=PREFIXED),
            acl(TOPIC, "$group", CREATE, ALLOW, principal="Group:sally"),
        ),
        *(show(v, resource_name_filter="$group") for v in versions(1, 3)),
        show(resource_name_filter="$group", pattern_type_filter=3),
        show(resource_name_filter="$group", pattern_type_filter=4),
        show(resource_name_filter="$group.x", pattern_type_filter=2),
        show(resource_name_filter="$group", principal_filter="User:bob"),
        show(resource_name_filter="$group", host_filter="10.0.0.1"),
        show(resource_name_filter="$group", host_filter="10.0.0.2"),
        show(resource_name_filter="$group", operation=ALL),
        show(resource_name_filter="$group", permission_type=ALLOW),
        show(resource_name_filter="$group", resource_type_filter=TOPIC),
        *remove(
            filter_of(resource_name_filter="$group", resource_type_filter=TOPIC),
            filter_of(resource_name_filter="$group", operation=WRITE),
            filter_of(resource_name_filter="$group-none"),
            v=1,
        ),
        show(resource_name_filter="$group"),
        *remove(filter_of(resource_name_filter="$group"), v=3),
        show(resource_name_filter="$group"),
        *remove(filter_of(resource_name_filter="$group"), v=2),
    ],
    "invalid-lists": [
        *create(
            acl(GROUP, "", READ, ALLOW),
            acl(CLUSTER, "$group", READ, ALLOW),
            acl(GROUP, "$group", READ, ALLOW, principal="nobody"),
            acl(GROUP, "$group", READ, ALLOW, principal=""),
            acl(GROUP, "$group", CREATE, ALLOW),
            acl(GROUP, "$group", READ, ALLOW, host="10.0.0.0/8"),
        ),
        show(resource_name_filter="$group"),
        *remove(filter_of(resource_name_filter="$group")),
    ],
}

CLUSTER_ACLS: dict[str, Script] = {
    "denied-cluster": [
        *TWO_TOPICS,
        commit("A", group_id="$group-1"),
        commit("A", group_id="$group-2"),
        *create(
            acl(CLUSTER, "kafka-cluster", ALL, ALLOW),
            *(
                acl(CLUSTER, "kafka-cluster", operation)
                for operation in (CREATE, DELETE, DESCRIBE, IDEMPOTENT_WRITE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
            ),
            acl(TOPIC, X, ALL),
            acl(TOPIC, "$group.new", CREATE),
            acl(TOPIC, "*", WRITE),
            acl(TOPIC, "*", DESCRIBE, ALLOW),
            acl(GROUP, "$group-1", DESCRIBE),
        ),
        *(create_topics(v, "$group.new") for v in versions(2, 7)),
        *(delete_topics(v, named(X)) for v in versions(1, 6)),
        delete_topics(6, by_id(X)),
        *(delete_topics(v, named(Y)) for v in versions(5, 6)),
        delete_topics(6, by_id(Y)),
        *(metadata("A", v=v) for v in versions(8, 10)),
        *(init("A", v, None) for v in versions(0, 5)),
        *(list_groups("A", v=v) for v in versions(0, 5)),
        *configs(BROKER_CONFIG, "1"),
        *(describe_cluster(v) for v in versions(0, 2)),
        *(["A", "list_config_resources", v, {"resource_types": []}] for v in versions(0, 1)),
        *(show(v) for v in versions(1, 3)),
        *(describe_quotas(v) for v in versions(0, 1)),
        *(alter_quotas(v) for v in versions(0, 1)),
        ["A", "describe_user_scram_credentials", 0, {"users": [{"name": "alice"}]}],
        *remove(filter_of(), v=3),
    ],
}
