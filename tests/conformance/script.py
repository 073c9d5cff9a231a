"""A script: the steps of clients, with names that are independent of the server.

A step is a list, so that a script has the same form in Python and in JSON:

- ``["A", "join_group", 9, {...}]``: connection A sends a request. Its client id is the connection's letters, so A and
  A2 are two connections of one client.
- ``["A", "heartbeat", 4, {...}, "more"]``: the same, but sent in one write with the connection's next request.
- ``["wait", 5000]``: nothing is sent for 5000 milliseconds.
- ``["hang up", "A"]``: connection A is closed.

In the values, a string that begins with ``$`` stands for a value that differs between runs or that JSON cannot hold:

- ``$group``, ``$group-2``: a group that only this run uses.
- ``$A1``, ``$seat2``: a member id that begins with "A-" (a client id) or "seat-" (an instance id); the number counts
  these ids in the order of the responses that contain them.
- ``$new1``: the first member id of the consumer protocol that the server has made.
- ``$pid1``: the first producer id in a response.
- ``$topic t``: the id of a topic; ``$topic $group.x`` for a topic that the script creates, ``$topic $group.x#2`` after
  it was created for the second time. ``$uuid 7``: an id that no topic has.
- ``$reads t u``: the subscription of a consumer to these topics. ``$owns t 0 1``: that to one topic, with partitions
  that it owns. ``$assigns t 0 1``: an assignment. ``$bytes abc``, ``$hex 00ff``: these bytes.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

Step = list[Any]
Script = Sequence[Step]
Plain = Any

WAIT = "wait"
DISCONNECT = "hang up"
MORE = "more"
LEFT_OUT = frozenset({"throttle_time", "configs", "brokers", "cluster_id", "controller_id"})
NOT_AUTHORIZED = re.compile(r"Request Request\(.*\) (is not authorized|needs [A-Z_]+ permission)\.", re.DOTALL)
"""Kafka's text shows its own objects."""
SHORT_ID = re.compile(r"[A-Za-z0-9_-]{22}")  # Kafka's own form of a UUID
MEMBER_ID = re.compile(r"(?P<prefix>.*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

# Lists that Kafka takes from a hash map, by API. The order of all other lists is compared.
UNORDERED: Mapping[str, frozenset[str]] = {
    "join_group": frozenset({"members"}),
    "describe_groups": frozenset({"members"}),
    "list_groups": frozenset({"groups"}),
    "delete_groups": frozenset({"results"}),
    "add_partitions_to_txn": frozenset({"results_by_topic_v3_and_below"}),
    "describe_acls": frozenset({"resources", "acls"}),
    "delete_acls": frozenset({"matching_acls"}),
    "consumer_group_heartbeat": frozenset({"topic_partitions", "partitions"}),
    "consumer_group_describe": frozenset({"members", "topic_partitions", "partitions", "subscribed_topic_names"}),
}
UNORDERED_IN_ALL_OFFSETS = frozenset({"topics", "partitions"})


def client_of(line: str) -> str:
    """The client id of a connection: A of A2."""
    return line.rstrip("0123456789")


def subscription(topics: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription version 0, without user data."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def partitions(words: Sequence[str]) -> bytes:
    """A list of one topic and its numbers, such as ["t", "0", "1"]; without numbers an empty list."""
    name, numbers = words[0].encode(), [int(number) for number in words[1:]]
    if not numbers:
        return struct.pack(">i", 0)
    return struct.pack(f">ih{len(name)}si{len(numbers)}i", 1, len(name), name, len(numbers), *numbers)


def owning_subscription(words: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription version 1: a topic, and the partitions of it that the member owns."""
    return b"\0\1" + subscription(words[:1])[2:] + partitions(words)


def assignment(words: Sequence[str]) -> bytes:
    """ConsumerProtocolAssignment version 0, without user data."""
    return b"\0\0" + partitions(words) + struct.pack(">i", -1)


ENCODERS: Mapping[str, Callable[[Sequence[str]], bytes]] = {
    "$reads": subscription,
    "$owns": owning_subscription,
    "$assigns": assignment,
}


class Names:
    """Translates between the ids of one run and their names in scripts."""

    def __init__(self, group: str, topics: Mapping[str, UUID]) -> None:
        self._group = group
        self._topics = dict(topics)
        self._topic_names = {topic_id: f"$topic {name}" for name, topic_id in topics.items()}
        self._ids: dict[str, str | int] = {}
        self._names: dict[str, str] = {}
        self._short_names: dict[str, str] = {}
        self._bytes: dict[bytes, str] = {}
        self._producers: dict[int, str] = {}

    def is_ours(self, group: str) -> bool:
        return group.startswith(self._group)

    # From scripts to servers -----------------------------------------------------------------------------------------

    def to_request(self, value: Plain) -> Plain:
        """Replace the names in a request's values. Raises KeyError for a name that no response has defined yet."""
        if isinstance(value, dict):
            return {name: self.to_request(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.to_request(item) for item in value]
        if isinstance(value, str) and value.startswith("$"):
            return self._value_of(value)
        return value

    def _value_of(self, text: str) -> Plain:
        kind, _, rest = text.partition(" ")
        if kind.startswith("$group"):
            return text.replace("$group", self._group)
        if kind == "$topic":
            return self._topics[rest]
        if kind == "$uuid":
            return UUID(int=int(rest))
        if kind in ("$bytes", "$hex", *ENCODERS):
            return self._as_bytes(kind, rest, text)
        return self._ids[text]

    def _as_bytes(self, kind: str, rest: str, text: str) -> bytes:
        plain = rest.replace("$group", self._group)
        if kind == "$hex":
            data = bytes.fromhex(rest)
        else:
            data = plain.encode() if kind == "$bytes" else ENCODERS[kind](plain.split())
        self._bytes[data] = text
        return data

    # From servers to scripts -----------------------------------------------------------------------------------------

    def learn(self, response: Mapping[str, Plain]) -> None:
        """Name the ids in a response. The member's own id is first: the order of listed members is random."""
        member_id = str(response.get("member_id") or "")
        self._member(member_id)
        self._short_member(member_id)
        producer_id = response.get("producer_id", -1)
        if producer_id >= 0 and producer_id not in self._producers:
            name = self._producers[producer_id] = f"$pid{len(self._producers) + 1}"
            self._ids[name] = producer_id
        for topic in response.get("topics") or ():
            if topic.get("topic_id") and topic.get("name") and topic.get("error_code") == "NONE":
                self._topic(topic["name"].replace(self._group, "$group"), topic["topic_id"])

    def _topic(self, name: str, topic_id: UUID) -> None:
        """Name a topic that the script has created, for the first time or again."""
        if topic_id in self._topic_names:
            return
        count = sum(topic.partition("#")[0] == name for topic in self._topics)
        self._topics[name if not count else f"{name}#{count + 1}"] = topic_id
        self._topic_names[topic_id] = f"$topic {name}" if not count else f"$topic {name}#{count + 1}"

    def to_script(self, response: Plain, unordered: frozenset[str]) -> Plain:
        """Translate a response for scripts, without throttle times and topic settings."""
        if isinstance(response, dict):
            return {
                name: self._common_field(name, item, unordered)
                for name, item in response.items()
                if name not in LEFT_OUT
            }
        if isinstance(response, list):
            return [self.to_script(item, unordered) for item in response]
        return self._common_value(response)

    def _common_field(self, name: str, items: Plain, unordered: frozenset[str]) -> Plain:
        if name == "producer_id":
            return self._producers.get(items, items)
        if name not in unordered or not isinstance(items, list):
            return self.to_script(items, unordered)
        return sorted(
            (self.to_script(item, unordered) for item in items), key=lambda item: json.dumps(item, default=str)
        )

    def _common_value(self, value: Plain) -> Plain:
        if isinstance(value, str):
            text = NOT_AUTHORIZED.sub("Cluster authorization failed.", value)
            return self._without_short_ids(self._member(text)).replace(self._group, "$group")
        if isinstance(value, datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, bytes):
            return self._bytes.get(value) or _text_of(value)
        if isinstance(value, UUID):
            return self._topic_names.get(value) or f"$uuid {value.int}"
        return value

    def _member(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        match = MEMBER_ID.fullmatch(text)
        if match is None:
            return text
        prefix = match["prefix"]
        count = sum(MEMBER_ID.fullmatch(name)["prefix"] == prefix for name in self._names)  # type: ignore[index]
        name = self._names[text] = f"${prefix}{count + 1}"
        self._ids[name] = text
        return name

    def _without_short_ids(self, text: str) -> str:
        for short_id, name in self._short_names.items():
            text = text.replace(short_id, name)
        return text

    def _short_member(self, text: str) -> None:
        if text not in self._short_names and SHORT_ID.fullmatch(text):
            name = self._short_names[text] = f"$new{len(self._short_names) + 1}"
            self._ids[name] = text


def _text_of(data: bytes) -> str:
    text = data.decode("ascii", "replace")
    return f"$bytes {text}" if text.isprintable() and text.isascii() else f"$hex {data.hex()}"
