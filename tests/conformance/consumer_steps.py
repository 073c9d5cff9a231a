"""Functions for the steps of scenarios of the consumer protocol (KIP-848).

A member has the id of its client: the member of the connections A and A2 is "A".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .script import Step, client_of
from .steps import LONG_MS

Owned = Mapping[str, Sequence[int]]
"""Partitions by topic."""


def beat(line: str, epoch: int, owned: Owned | None = None, v: int = 1, **changes: Any) -> Step:
    """A heartbeat that says nothing but ``changes`` and ``owned``."""
    values = {
        "group_id": "$group",
        "member_id": client_of(line),
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": partitions(owned),
    }
    return [line, "consumer_group_heartbeat", v, {**values, **changes}]


def partitions(owned: Owned | None) -> list[dict[str, Any]] | None:
    if owned is None:
        return None
    return [{"topic_id": f"$topic {topic}", "partitions": list(numbers)} for topic, numbers in owned.items()]


def enter(line: str, *topics: str, v: int = 1, **changes: Any) -> Step:
    """A heartbeat that joins the group."""
    return beat(line, 0, {}, v, **{"rebalance_timeout": LONG_MS, "subscribed_topic_names": list(topics), **changes})


def full(line: str, epoch: int, owned: Owned, *topics: str, **changes: Any) -> Step:
    """A heartbeat with all fields, which is answered with the whole assignment."""
    return beat(line, epoch, owned, **{"rebalance_timeout": LONG_MS, "subscribed_topic_names": list(topics), **changes})


def exit_group(line: str, **changes: Any) -> Step:
    return beat(line, -1, **changes)


def exit_for_a_while(line: str, instance_id: str, **changes: Any) -> Step:
    """A static member leaves, and may come back."""
    return beat(line, -2, **{"instance_id": instance_id, **changes})


def describe_consumers(line: str, *groups: str, v: int = 1) -> Step:
    values = {"group_ids": list(groups or ["$group"]), "include_authorized_operations": False}
    return [line, "consumer_group_describe", v, values]


def list_groups(line: str, states: Sequence[str] = (), types: Sequence[str] = (), v: int = 5) -> Step:
    return [line, "list_groups", v, {"states_filter": list(states), "types_filter": list(types)}]


def create_topic(name: str, count: int, line: str = "T") -> Step:
    topic = {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
    return [line, "create_topics", 7, {"topics": [topic], "timeout": 30_000, "validate_only": False}]


def grow_topic(name: str, count: int, line: str = "T") -> Step:
    topic = {"name": name, "count": count, "assignments": None}
    return [line, "create_partitions", 3, {"topics": [topic], "timeout": 30_000, "validate_only": False}]


def delete_topic(name: str, line: str = "T") -> Step:
    return [line, "delete_topics", 5, {"topic_names": [name], "timeout": 30_000}]


def two_members(**changes: Any) -> list[Step]:
    """A has the partitions 0 and 1 of t, B has 2, both in epoch 3. ``changes``: of their joins."""
    return [
        enter("A", "t", **changes),
        enter("B", "t", **changes),
        beat("A", 2, {"t": [0, 1, 2]}),
        beat("A", 2, {"t": [0, 1]}),
        beat("B", 3, {}),
        beat("B", 3, {"t": [2]}),
    ]
