"""The properties of a request that faults and the timeline use, for requests from a socket and from this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any, NamedTuple

from ...kafka.api import APIS

MESSAGE_APIS = {"DescribeGroup": "DescribeGroups", "DeleteGroup": "DeleteGroups"}
"""Messages in this process whose name differs from that of Kafka's request."""

PARTITIONS_SHOWN = 3  # of one commit
GROUP_KEYS = 0  # FindCoordinator's key type


class RequestFacts(NamedTuple):
    """``api``: Kafka's name. ``version`` is None for requests in this process. ``members``, ``instances``: ids."""

    api: str
    version: int | None
    client_id: str
    groups: tuple[str, ...]
    members: tuple[str, ...]
    instances: tuple[str, ...] = ()


def api_name(name: str) -> str:
    """Convert kio's name of an API to Kafka's: "join_group" to "JoinGroup"."""
    return "".join(word.capitalize() for word in name.split("_"))


@cache
def api_names() -> tuple[str, ...]:
    return tuple(api_name(api.name) for api in APIS)


def facts_of(api: str, version: int | None, client_id: str, request: Any) -> RequestFacts:
    """The facts of a request: an entity of kio, or a message of the actors."""
    members, instances = tuple(_ids(request, "member_id")), tuple(_ids(request, "group_instance_id"))
    return RequestFacts(api, version, client_id, tuple(_groups(request)), members, instances)


def message_api(message: Any) -> str:
    name = type(message).__name__
    return MESSAGE_APIS.get(name, name)


def _groups(request: Any) -> Iterator[str]:
    if (group_id := getattr(request, "group_id", None)) is not None:
        yield group_id
    for entry in (*getattr(request, "groups", ()), *getattr(request, "groups_names", ())):
        yield entry if isinstance(entry, str) else entry.group_id
    if getattr(request, "key_type", GROUP_KEYS) == GROUP_KEYS:
        yield from getattr(request, "coordinator_keys", ())
        if isinstance(key := getattr(request, "key", None), str):
            yield key


def _ids(request: Any, name: str) -> Iterator[str]:
    for entry in (request, *_entities(getattr(request, "members", ())), *_entities(getattr(request, "groups", ()))):
        if value := getattr(entry, name, None):
            yield value


def _entities(items: Iterable[Any]) -> list[Any]:
    return [entry for entry in items if is_dataclass(entry) or isinstance(entry, tuple)]


def describe_request(request: Any) -> str:
    """The timeline's text for a request, after its name: "generation 3", "orders-0@42"."""
    generation = getattr(request, "generation_id", getattr(request, "generation_id_or_member_epoch", -1))
    parts = [f"generation {generation}"] if generation >= 0 else []
    offsets = list(_committed_offsets(request))
    parts += offsets[:PARTITIONS_SHOWN]
    if len(offsets) > PARTITIONS_SHOWN:
        parts.append(f"and {len(offsets) - PARTITIONS_SHOWN} more")
    assignments = getattr(request, "assignments", ())
    if assignments:
        parts.append(f"assigns {len(assignments)}")
    return ", ".join(parts)


def _committed_offsets(request: Any) -> Iterator[str]:
    """The offsets of a commit, as "orders-0@42"."""
    for commit in getattr(request, "commits", ()):
        yield f"{commit.topic}-{commit.partition}@{commit.offset}"
    for topic in getattr(request, "topics", None) or ():
        for entry in getattr(topic, "partitions", ()):
            committed = getattr(entry, "committed_offset", None)
            if committed is not None:
                name = getattr(topic, "name", None) or getattr(topic, "topic_id", "?")
                yield f"{name}-{entry.partition_index}@{committed}"


def describe_answer(answer: Any) -> str:
    """The timeline's text for an answer without an error: "generation 3, leads 2"."""
    parts = []
    if getattr(answer, "generation_id", -1) >= 0:
        parts.append(f"generation {answer.generation_id}")
        if answer.leader == answer.member_id and answer.member_id:
            parts.append(f"leads {len(answer.members)}")
    assignment = getattr(answer, "assignment", None)
    if assignment is not None:
        parts.append(f"{len(assignment)} bytes of assignment")
    return ", ".join(parts)
