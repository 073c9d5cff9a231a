"""Groups of the consumer protocol are described, listed, deleted and configured, and their topics change."""

from __future__ import annotations

from typing import Any

from ..consumer_steps import (
    beat,
    create_topic,
    delete_topic,
    describe_consumers,
    enter,
    exit_group,
    grow_topic,
    list_groups,
)
from ..script import Script, Step
from ..steps import commit, delete, describe, fetch, heartbeat, join, leave, member, offsets, part, sync, wait

SEEN_MS = 2000  # until the coordinator has seen a change of topics
STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead", "stable", "nonsense")
TYPES = ("consumer", "Consumer", "CONSUMER", "classic", "share", "nonsense", "")
SET, REMOVE, APPEND = 0, 1, 2
GROUP = 32

CONSUMER_GROUPS: dict[str, Script] = {
    "the states of a group": [
        describe_consumers("C"),
        enter("A", "t"),
        describe_consumers("C"),
        *(list_groups("C", [state]) for state in STATES),
        enter("B", "t"),
        describe_consumers("C"),
        *(list_groups("C", [state]) for state in STATES),
        exit_group("A"),
        exit_group("B"),
        describe_consumers("C"),
        *(list_groups("C", [state]) for state in STATES),
        delete("C"),
        list_groups("C"),
        describe_consumers("C"),
    ],
    "a group is listed by type": [
        enter("A", "t"),
        *member("D", group_id="$group-2")[:2],
        commit("C", group_id="$group-3"),
        *(list_groups("C", types=[name]) for name in TYPES),
        list_groups("C", types=["consumer", "classic"]),
        list_groups("C", ["Stable", "Empty"], ["consumer"]),
        list_groups("C", ["Empty"], ["classic"]),
        *(list_groups("C", v=v) for v in (3, 4)),
        list_groups("C", ["Stable"], v=4),
    ],
    **{
        f"groups of several kinds are described v{v}": [
            enter("A", "t"),
            *member("D", group_id="$group-2")[:2],
            commit("C", group_id="$group-3"),
            describe_consumers("C", "$group", "$group-2", "$group-3", "$group-absent", "$group", "", v=v),
        ]
        for v in (0, 1)
    },
    **{
        f"a consumer group is described as a classic one v{v}": [
            enter("A", "t"),
            describe("C", v=v),
            exit_group("A"),
            describe("C", v=v),
        ]
        for v in (0, 5, 6)
    },
    "a group is deleted": [
        enter("A", "t"),
        commit("A", "A", 2),
        delete("C"),
        beat("A", 2),
        exit_group("A"),
        delete("C", "$group", "$group-absent"),
        fetch("C"),
        delete("C"),
        beat("A", 2),
        enter("A", "t"),
        describe_consumers("C"),
        fetch("C"),
    ],
    "a classic member of an empty consumer group": [
        enter("A", "t"),
        commit("A", "A", 2),
        exit_group("A"),
        join("B"),
        join("B", "$B1"),
        sync("B", "$B1", 1, {"$B1": "all"}),
        heartbeat("B", "$B1"),
        describe_consumers("C"),
        describe("C"),
        list_groups("C"),
        fetch("C"),
        leave("B", "$B1"),
        enter("A", "t"),
        describe_consumers("C"),
        fetch("C"),
    ],
    "a classic member with an unknown id in an empty consumer group": [
        enter("A", "t"),
        exit_group("A"),
        join("B", "nobody"),
        join("B", protocols=[]),
        join("B", protocol_type="connect", protocols=[{"name": "range", "metadata": "$bytes worker"}], v=3),
        describe("C"),
        describe_consumers("C"),
    ],
    "a consumer of a group that has only offsets": [
        commit("A"),
        describe("A"),
        describe_consumers("A"),
        beat("B", 1),
        enter("B", "t"),
        describe_consumers("A"),
        fetch("A"),
        list_groups("A"),
        commit("A"),
        exit_group("B"),
        commit("A"),
    ],
    "a consumer of a classic group with another protocol type": [
        *member("A", protocol_type="connect", protocols=[{"name": "range", "metadata": "$bytes worker"}]),
        beat("B", 1),
        leave("A", "$A1"),
        enter("B", "t"),
        describe_consumers("A"),
    ],
}

X, Y = "$group.x", "$group.y"

CONSUMER_TOPICS: dict[str, Script] = {
    "a topic is created": [
        enter("A", X),
        beat("A", 2, {}),
        create_topic(X, 2),
        wait(SEEN_MS),
        beat("A", 2, {}),
        beat("A", 3, {X: [0, 1]}),
        describe_consumers("A"),
    ],
    "a topic gets more partitions": [
        create_topic(X, 1),
        wait(SEEN_MS),
        enter("A", X),
        enter("B", X),
        beat("A", 2, {X: [0]}),
        grow_topic(X, 3),
        wait(SEEN_MS),
        beat("B", 3, {}),
        beat("A", 3, {X: [0]}),
        describe_consumers("A"),
    ],
    "a topic that nobody reads changes": [
        create_topic(X, 1),
        wait(SEEN_MS),
        enter("A", X),
        create_topic(Y, 1),
        wait(SEEN_MS),
        beat("A", 2, {X: [0]}),
        grow_topic(Y, 2),
        wait(SEEN_MS),
        beat("A", 2, {X: [0]}),
        describe_consumers("A"),
    ],
    "a topic is deleted": [
        create_topic(X, 2),
        wait(SEEN_MS),
        enter("A", X, "u", server_assignor="range"),
        commit("A", "A", 2, {"name": X, "topic_id": f"$topic {X}", "partitions": [part(0)]}, offsets("u", part(0))),
        delete_topic(X),
        wait(SEEN_MS),
        describe_consumers("A"),
        beat("A", 2, {X: [0, 1], "u": [0]}),
        beat("A", 2, {"u": [0]}),
        beat("A", 3, {"u": [0]}),
        describe_consumers("A"),
        fetch("A"),
    ],
    "a topic is deleted and created again": [
        create_topic(X, 2),
        wait(SEEN_MS),
        enter("A", X),
        delete_topic(X),
        wait(SEEN_MS),
        create_topic(X, 1),
        wait(SEEN_MS),
        describe_consumers("A"),
        beat("A", 2, {X: [0, 1]}),
        beat("A", 2, {X: [0]}),
        beat("A", 2, {}),
        beat("A", 3, {f"{X}#2": [0]}),
        describe_consumers("A"),
    ],
    "a topic is deleted while its partitions are given back": [
        create_topic(X, 2),
        wait(SEEN_MS),
        enter("A", X),
        enter("B", X),
        beat("A", 2, {X: [0, 1]}),
        delete_topic(X),
        wait(SEEN_MS),
        describe_consumers("C"),
        beat("A", 2, {X: [0, 1]}),
        beat("B", 3, {}),
        beat("A", 2, {}),
        beat("A", 4, {}),
        beat("B", 4, {}),
        describe_consumers("C"),
    ],
    "the only topic is deleted, members come and go": [
        create_topic(X, 2),
        wait(SEEN_MS),
        enter("A", X),
        delete_topic(X),
        wait(SEEN_MS),
        enter("B", X),
        beat("A", 2, {X: [0, 1]}),
        beat("A", 2, {}),
        exit_group("B"),
        beat("A", 3, {}),
        describe_consumers("C"),
    ],
}


def alter(line: str, *changes: tuple[str, int, str | None], group: str = "$group", **fields: Any) -> Step:
    """Change settings of a group. ``changes``: name, operation and value."""
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resources = [{"resource_type": GROUP, "resource_name": group, "configs": configs}]
    return [line, "incremental_alter_configs", 1, {"resources": resources, "validate_only": False, **fields}]


HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
INTERVAL = "consumer.assignment.interval.ms"

CONSUMER_CONFIGS: dict[str, Script] = {
    "the heartbeat interval of a group": [
        alter("C", (HEARTBEAT, SET, "7000")),
        wait(SEEN_MS),
        enter("A", "t"),
        beat("A", 2),
        alter("C", (HEARTBEAT, SET, "9000"), validate_only=True),
        wait(SEEN_MS),
        beat("A", 2),
        alter("C", (HEARTBEAT, SET, "9000")),
        wait(SEEN_MS),
        beat("A", 2),
        alter("C", (HEARTBEAT, REMOVE, None)),
        wait(SEEN_MS),
        beat("A", 2),
    ],
    "the assignment interval of a group": [
        alter("C", (INTERVAL, SET, "15000")),
        wait(SEEN_MS),
        enter("A", "t"),
        enter("B", "t"),
        beat("A", 2, {"t": [0, 1, 2]}),
        beat("B", 2, {}),
        describe_consumers("C"),
        alter("C", (INTERVAL, SET, "0")),
        wait(SEEN_MS),
        beat("B", 2, {}),
        describe_consumers("C"),
    ],
    "settings of a group that are refused": [
        alter("C", (HEARTBEAT, SET, "1")),
        alter("C", (HEARTBEAT, SET, "16000")),
        alter("C", (SESSION, SET, "1000")),
        alter("C", (SESSION, SET, "70000")),
        alter("C", (SESSION, SET, "45000"), (HEARTBEAT, SET, "15000")),
        alter("C", (INTERVAL, SET, "16000")),
        alter("C", (INTERVAL, SET, "-1")),
        alter("C", (HEARTBEAT, SET, "soon")),
        alter("C", ("consumer.nonsense", SET, "1")),
        alter("C", (HEARTBEAT, SET, None)),
        alter("C", (HEARTBEAT, SET, "6000"), group=""),
        enter("A", "t"),
    ],
}
