"""The properties of a request that faults and the timeline use, for requests from a socket and from this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from ...kafka.api import APIS

CONSUMER_HEARTBEAT = "ConsumerGroupHeartbeat"

MESSAGE_APIS = {
    "ConsumerHeartbeat": CONSUMER_HEARTBEAT,
    "DeleteGroup": "DeleteGroups",
    "DescribeConsumerGroup": "ConsumerGroupDescribe",
    "DescribeGroup": "DescribeGroups",
}
"""Messages in this process whose name differs from that of Kafka's request."""

PARTITIONS_SHOWN = 3  # of one commit
GROUP_KEYS = 0  # FindCoordinator's key type


class RequestFacts(NamedTuple):
    """``api``: Kafka's name. ``version`` is None for requests in this process. ``members``, ``instances``: ids.

    ``epoch``: that of the member in a ConsumerGroupHeartbeat that says nothing new; None in all other requests.
    """

    api: str
    version: int | None
    client_id: str
    groups: tuple[str, ...]
    members: tuple[str, ...]
    instances: tuple[str, ...] = ()
    epoch: int | None = None


def api_name(name: str) -> str:
    """Convert kio's name of an API to Kafka's: "join_group" to "JoinGroup"."""
    return "".join(word.capitalize() for word in name.split("_"))


@cache
def api_names() -> tuple[str, ...]:
    return tuple(api_name(api.name) for api in APIS)


def facts_of(api: str, version: int | None, client_id: str, request: Any) -> RequestFacts:
    """The facts of a request: an entity of kio, or a message of the actors."""
    members = tuple(_ids(request, "member_id"))
    instances = (*_ids(request, "group_instance_id"), *_ids(request, "instance_id"))
    epoch = _epoch_of_routine(request) if api == CONSUMER_HEARTBEAT else None
    return RequestFacts(api, version, client_id, tuple(_groups(request)), members, instances, epoch)


def _epoch_of_routine(request: Any) -> int | None:
    """See ``RequestFacts.epoch``."""
    epoch: int = request.member_epoch
    return epoch if epoch > 0 and _subscription(request) is None and _owned(request) is None else None


def _subscription(request: Any) -> Sequence[str] | None:
    """The topics in a ConsumerGroupHeartbeat; None if it has none, and no regular expression."""
    names: Sequence[str] | None = getattr(request, "subscribed_topic_names", getattr(request, "topics", None))
    regex: str | None = getattr(request, "subscribed_topic_regex", getattr(request, "regex", None))
    return (*(names or ()), regex) if regex else names


def _owned(request: Any) -> int | None:
    """The number of partitions that the sender of a ConsumerGroupHeartbeat has; None if it does not say."""
    owned = getattr(request, "owned", None)
    return _count(getattr(request, "topic_partitions", None)) if owned is None else len(owned)


def _count(topics: Iterable[Any] | None) -> int | None:
    return None if topics is None else sum(len(topic.partitions) for topic in topics)


def message_api(message: Any) -> str:
    name = type(message).__name__
    return MESSAGE_APIS.get(name, name)


GROUP_LISTS = ("groups", "groups_names", "group_ids")


def _groups(request: Any) -> Iterator[str]:
    if (group_id := getattr(request, "group_id", None)) is not None:
        yield group_id
    for entry in chain.from_iterable(getattr(request, name, ()) for name in GROUP_LISTS):
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
    if (epoch := getattr(request, "member_epoch", None)) is not None and hasattr(request, "server_assignor"):
        return _describe_heartbeat(request, epoch)
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


EPOCH_TEXTS = {0: "joins", -1: "leaves", -2: "leaves for a while"}
"""Of epochs in a ConsumerGroupHeartbeat."""


def _describe_heartbeat(request: Any, epoch: int) -> str:
    subscription, owned = _subscription(request), _owned(request)
    parts = [EPOCH_TEXTS.get(epoch, f"epoch {epoch}")]
    parts += [] if subscription is None else [f"subscribes to {', '.join(subscription) or 'nothing'}"]
    parts += [] if not owned else [f"has {owned}"]
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
    if hasattr(answer, "member_epoch"):
        return _describe_heartbeat_answer(answer)
    parts = []
    if getattr(answer, "generation_id", -1) >= 0:
        parts.append(f"generation {answer.generation_id}")
        if answer.leader == answer.member_id and answer.member_id:
            parts.append(f"leads {len(answer.members)}")
    assignment = getattr(answer, "assignment", None)
    if assignment is not None:
        parts.append(f"{len(assignment)} bytes of assignment")
    return ", ".join(parts)


def _describe_heartbeat_answer(answer: Any) -> str:
    assigned = getattr(answer, "assigned", None)
    assignment = getattr(answer, "assignment", None)
    count = len(assigned) if assigned is not None else _count(assignment and assignment.topic_partitions)
    return f"epoch {answer.member_epoch}" + ("" if count is None else f", gets {count}")
