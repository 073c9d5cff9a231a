"""The resources of a member: numbered partitions of a topic, or names, each of which is a topic of its own.

A name's topic is ``<resource>.<escaped name>`` and has one partition, so its offset is stored under the name,
whatever its index in the list. Every byte that is not a letter, a digit or "-" is escaped as "." and two hexadecimal
digits. That is reversible, and no two topic names collide in Kafka, which treats "." and "_" alike. Names reach the
leader as a list in the subscription's user data, in front of the assignor's, because as topics they would be many times
as long.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import NamedTuple

from ..common.json_files import parse_json
from ..settings.table import PARTITIONS_MAX, TOPIC_NAME_MAX

Amount = int | Iterable[str]
"""A number of partitions, or names."""

Resource = Amount | Callable[[], Amount | Awaitable[Amount]]
"""An amount, or a function that returns one and is called periodically; it may be a coroutine function."""

PROTOCOL_PREFIX = "callboard-"
"""Prefix of protocol names in groups with named resources, so that no Kafka client leads such a group."""

NAMES_BYTES_MAX = 64 * 1024 * 1024
"""Limit of a member's names after decompression, so that a small message cannot fill the memory."""

STRING_BYTES_MAX = 32_767
"""Limit of a string in Kafka's records and requests."""

_PLAIN = re.compile(r"[A-Za-z0-9-]+")
_ESCAPED = re.compile(r"\.([0-9a-f]{2})")
_NUMBERED = re.compile(r"[A-Za-z0-9._-]+")
_HEAD = struct.Struct(">4sHI")  # the mark, a version, the size of the names; the assignor's user data follow
_MARK = b"cbnm"
_VERSION = 0

ResourceNames = Mapping[str, tuple[str, ...]]


class ResourceSet(NamedTuple):
    """The resources that a member wants at one moment."""

    numbers: Mapping[str, int]
    names: ResourceNames

    def topics(self) -> dict[str, int]:
        """The topics of all resources, with their partition counts."""
        return {**{name: number for name, number in self.numbers.items() if number}, **named_topics(self.names)}

    def named_shards(self) -> dict[str, tuple[str, str]]:
        """The resource and the name of each named shard, by topic."""
        return {
            topic_for_name(resource, name): (resource, name) for resource, names in self.names.items() for name in names
        }


def named_topics(names: ResourceNames) -> dict[str, int]:
    return {topic_for_name(resource, name): 1 for resource, listed in names.items() for name in listed}


def topic_for_name(resource: str, name: str) -> str:
    return f"{resource}.{escape(name)}"


def escape(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    return "".join(chr(byte) if _PLAIN.match(chr(byte)) else f".{byte:02x}" for byte in name.encode())


def unescape(escaped: str) -> str:
    """The inverse of ``escape``. Raises ValueError for a string that ``escape`` never returns."""
    data = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), escaped).encode("latin-1")
    name = data.decode()
    if escape(name) != escaped:
        raise ValueError(f"{escaped!r} is no escaped name; expected letters, digits, '-' and '.xx' for other bytes")
    return name


def shard_name(resource: str, topic_partition: tuple[str, int]) -> int | str | None:
    """The number or name of a partition as a shard of ``resource``; None if it belongs to another resource."""
    topic, partition = topic_partition
    if topic == resource:
        return partition
    beginning, separator, escaped = topic.partition(".")
    if beginning != resource or not separator or partition:
        return None
    try:
        return unescape(escaped)
    except ValueError:
        return None


async def evaluate_resources(resources: Mapping[str, Resource]) -> ResourceSet:
    """Call the functions among the resources and check the results. Raises ValueError, and what a function raises."""
    numbers: dict[str, int] = {}
    names: dict[str, tuple[str, ...]] = {}
    for resource, amount in resources.items():
        value = amount() if callable(amount) else amount
        if isawaitable(value):
            value = await value
        if isinstance(value, int):
            numbers[resource] = check_number(resource, value)
        else:
            names[resource] = check_names(resource, value)
    return ResourceSet(numbers, names)


def check_resources(resources: object) -> dict[str, Resource]:
    """The checks that need no call of a function. Raises ValueError.

    Returns the resources, with a tuple for an iterator of names: it can be read only once, and names are read again at
    the join and at each refresh.
    """
    if not isinstance(resources, Mapping) or not resources:
        raise ValueError(
            f"resources={resources!r}: expected a mapping with at least one entry, as in "
            f"{{'jobs': 12}} or {{'tenants': ['acme', 'zenith']}}"
        )
    checked: dict[str, Resource] = {}
    for resource, amount in resources.items():
        checked[resource] = amount
        if isinstance(amount, int):
            check_number(resource, amount)
        elif not callable(amount):
            checked[resource] = names = tuple(amount) if isinstance(amount, Iterator) else amount
            check_names(resource, names)
    return checked


def check_number(resource: str, number: int) -> int:
    if not isinstance(resource, str) or not _NUMBERED.fullmatch(resource) or len(resource) > TOPIC_NAME_MAX:
        raise ValueError(
            f"resource {resource!r}: expected a topic's name, 1 to {TOPIC_NAME_MAX} of the characters a-z A-Z 0-9 . _ -"
        )
    if isinstance(number, bool) or not 0 <= number <= PARTITIONS_MAX:
        raise ValueError(f"resource {resource!r}: {number!r} partitions; expected 0 to {PARTITIONS_MAX}")
    return number


def check_names(resource: str, names: object) -> tuple[str, ...]:
    if not isinstance(resource, str) or not _PLAIN.fullmatch(resource):
        raise ValueError(
            f"resource {resource!r} with names: expected letters, digits and '-' only, since it is the first part "
            f"of topic names; call it {re.sub('[^A-Za-z0-9]+', '-', str(resource)) or 'work'!r}, for example"
        )
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise ValueError(
            f"resource {resource!r}: {names!r}; expected a number of partitions, a list of names, or a function of one"
        )
    listed = tuple(names)
    for name in listed:
        check_name(resource, name)
    return tuple(sorted(set(listed)))  # sorted: the same names in another order are no change


def check_text(label: str, text: object) -> None:
    """Raises ValueError for text that the protocol cannot encode as a string."""
    if not isinstance(text, str):
        raise ValueError(f"{label} {text!r}: expected a string")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{label} {text!r}: expected text; half of a surrogate pair cannot be encoded") from error
    if size > STRING_BYTES_MAX:
        raise ValueError(f"{label} {text[:40]!r}... has {size} bytes; expected at most {STRING_BYTES_MAX}")


def check_name(resource: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"resource {resource!r} has the name {name!r}; expected a string that is not empty")
    if not name.isascii():
        check_text(f"resource {resource!r}: the name", name)
    size = len(topic_for_name(resource, name))
    if size > TOPIC_NAME_MAX:
        raise ValueError(
            f"resource {resource!r}: the name {name[:40]!r}... makes a topic name of {size} characters; expected at "
            f"most {TOPIC_NAME_MAX} (bytes other than letters, digits and '-' count three); use a shorter id"
        )


def pack_names(names: ResourceNames, user_data: bytes | None) -> bytes | None:
    """The names, if any, followed by the assignor's user data."""
    if not names:
        return user_data
    packed = zlib.compress(json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode())
    return _HEAD.pack(_MARK, _VERSION, len(packed)) + packed + (user_data or b"")


def unpack_names(data: bytes | None) -> tuple[ResourceNames, bytes]:
    """The names and the assignor's user data. No names if there are none or they cannot be decoded."""
    data = data or b""
    if len(data) < _HEAD.size or not data.startswith(_MARK):
        return {}, data
    _, _, size = _HEAD.unpack_from(data)
    end = _HEAD.size + size
    return _read_names(data[_HEAD.size : end]), data[end:]


def _read_names(packed: bytes) -> ResourceNames:
    try:
        names_by_resource = parse_json(zlib.decompressobj().decompress(packed, NAMES_BYTES_MAX))
        return {resource: check_names(resource, names) for resource, names in names_by_resource.items()}
    except (zlib.error, ValueError, AttributeError):
        return {}
