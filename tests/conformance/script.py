"""A script: what clients send, step by step, in words that mean the same to every server.

A step is a list, so that scripts are data, in Python tables and in JSON alike:

- ``["A", "join_group", 9, {...}]``: connection A sends a request. Its client id is the connection's letters, so A and
  A2 are two connections of one client.
- ``["A", "heartbeat", 4, {...}, "more"]``: the same, but it is written together with the connection's next request.
- ``["wait", 5000]``: nothing is sent for so many milliseconds.
- ``["hang up", "A"]``: connection A is closed.

In the values a text that begins with ``$`` stands for what differs from run to run, or for what JSON cannot say:

- ``$group``, ``$group-2``: a group of this run's own.
- ``$A1``, ``$seat2``: the member id that began with "A-" (a client id) or "seat-" (an instance id); the number counts
  them in the order in which answers brought them.
- ``$pid1``: the first producer id that an answer brought.
- ``$topic t``: the id of a topic; of a script's own one ``$topic $group.x``, and ``$topic $group.x#2`` when it was made
  for the second time. ``$uuid 7``: an id that nothing has.
- ``$reads t u``: a subscription of these topics as consumers write it. ``$bytes abc``, ``$hex 00ff``: these bytes.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

Step = list[Any]
Script = Sequence[Step]
Plain = Any

WAIT = "wait"
DISCONNECT = "hang up"
MORE = "more"
LEFT_OUT = frozenset({"throttle_time", "configs"})
MEMBER_ID = re.compile(r"(?P<prefix>.*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

# Lists that Kafka takes from a hash map, by API; every other list has to come in the same order.
UNORDERED: Mapping[str, frozenset[str]] = {
    "join_group": frozenset({"members"}),
    "describe_groups": frozenset({"members"}),
    "list_groups": frozenset({"groups"}),
    "delete_groups": frozenset({"results"}),
}
UNORDERED_IN_ALL_OFFSETS = frozenset({"topics", "partitions"})


def client_of(line: str) -> str:
    """The client id of a connection: A of A2."""
    return line.rstrip("0123456789")


def subscription(topics: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription version 0, without user data."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Names:
    """What one run of a script calls things, and what they are called in scripts."""

    def __init__(self, group: str, topics: Mapping[str, UUID]) -> None:
        self._group = group
        self._topics = dict(topics)
        self._topic_names = {topic_id: f"$topic {name}" for name, topic_id in topics.items()}
        self._ids: dict[str, str | int] = {}
        self._names: dict[str, str] = {}
        self._bytes: dict[bytes, str] = {}
        self._producers: dict[int, str] = {}

    def is_ours(self, group: str) -> bool:
        return group.startswith(self._group)

    # From scripts to servers -----------------------------------------------------------------------------------------

    def to_request(self, value: Plain) -> Plain:
        """A request's values as this run sends them. Raises KeyError for a name that no answer has brought yet."""
        if isinstance(value, dict):
            return {name: self.to_request(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.to_request(item) for item in value]
        if isinstance(value, str) and value.startswith("$"):
            return self._meant(value)
        return value

    def _meant(self, text: str) -> Plain:
        kind, _, rest = text.partition(" ")
        if kind.startswith("$group"):
            return text.replace("$group", self._group)
        if kind == "$topic":
            return self._topics[rest]
        if kind == "$uuid":
            return UUID(int=int(rest))
        if kind in ("$bytes", "$reads", "$hex"):
            return self._as_bytes(kind, rest, text)
        return self._ids[text]

    def _as_bytes(self, kind: str, rest: str, text: str) -> bytes:
        plain = rest.replace("$group", self._group)
        if kind == "$hex":
            data = bytes.fromhex(rest)
        else:
            data = plain.encode() if kind == "$bytes" else subscription(plain.split())
        self._bytes[data] = text
        return data

    # From servers to scripts -----------------------------------------------------------------------------------------

    def learn(self, answer: Mapping[str, Plain]) -> None:
        """Name who is answered before those that are only listed: their order is chance."""
        self._member(str(answer.get("member_id") or ""))
        producer_id = answer.get("producer_id", -1)
        if producer_id >= 0 and producer_id not in self._producers:
            name = self._producers[producer_id] = f"$pid{len(self._producers) + 1}"
            self._ids[name] = producer_id
        for made in answer.get("topics") or ():
            if made.get("topic_id") and made.get("name") and made.get("error_code") == "NONE":
                self._topic(made["name"].replace(self._group, "$group"), made["topic_id"])

    def _topic(self, name: str, topic_id: UUID) -> None:
        """A topic that was made by the script, for the first time or again."""
        if topic_id in self._topic_names:
            return
        count = sum(known.partition("#")[0] == name for known in self._topics)
        self._topics[name if not count else f"{name}#{count + 1}"] = topic_id
        self._topic_names[topic_id] = f"$topic {name}" if not count else f"$topic {name}#{count + 1}"

    def to_script(self, answer: Plain, unordered: frozenset[str]) -> Plain:
        """An answer in the words of scripts; the load, and what a topic may be set to, are left out."""
        if isinstance(answer, dict):
            return {
                name: self._common_field(name, item, unordered) for name, item in answer.items() if name not in LEFT_OUT
            }
        if isinstance(answer, list):
            return [self.to_script(item, unordered) for item in answer]
        return self._common_value(answer)

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
            return self._member(value).replace(self._group, "$group")
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
        count = sum(MEMBER_ID.fullmatch(known)["prefix"] == prefix for known in self._names)  # type: ignore[index]
        name = self._names[text] = f"${prefix}{count + 1}"
        self._ids[name] = text
        return name


def _text_of(data: bytes) -> str:
    text = data.decode("ascii", "replace")
    return f"$bytes {text}" if text.isprintable() and text.isascii() else f"$hex {data.hex()}"
