"""The usual ConsumerGroupHeartbeat, in which all but group, member, epoch and instance id is null.

kio takes several times as long to read it. A member repeats it byte by byte until its epoch changes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, ClassVar, Final

from .validation import Reader

NAME: Final = "consumer_group_heartbeat"
REGEX_FROM = 1

CACHED = 8192
"""Heartbeats that are not decoded again. One has less than 400 bytes, and takes about 1 kB here."""

_LONG = 0x80  # the first byte of a length of several bytes


@dataclass(frozen=True, slots=True, eq=False)
class ShortHeartbeat:
    """Has the attributes of kio's entity of the request."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None

    rack_id: ClassVar[None] = None
    rebalance_timeout: ClassVar[timedelta] = timedelta(milliseconds=-1)
    subscribed_topic_names: ClassVar[None] = None
    subscribed_topic_regex: ClassVar[None] = None
    server_assignor: ClassVar[None] = None
    topic_partitions: ClassVar[None] = None


def short_heartbeat_reader(version: int, read: Reader) -> Reader:
    """Return a reader of the request that reads other forms with ``read``."""
    nulls_after_timeout = 4 if version >= REGEX_FROM else 3
    no_tags = 1
    rest = b"\0" + b"\xff\xff\xff\xff" + bytes(nulls_after_timeout + no_tags)
    rest_size, read_epoch = len(rest), struct.Struct(">i").unpack_from

    @lru_cache(CACHED)
    def parse(body: bytes) -> ShortHeartbeat | None:
        """Each text has its length + 1 before it, which is 0 for null."""
        member_at = body[0]
        epoch_at = member_at + body[member_at]
        instance_at = epoch_at + 4
        rest_at = instance_at + (body[instance_at] or 1)
        is_long = max(body[0], body[member_at], body[instance_at]) >= _LONG
        if body[rest_at:] != rest or is_long or not (body[0] and body[member_at]):
            return None
        return ShortHeartbeat(
            str(body[1:member_at], "utf-8"),
            str(body[member_at + 1 : epoch_at], "utf-8"),
            read_epoch(body, epoch_at)[0],
            str(body[instance_at + 1 : rest_at], "utf-8") if body[instance_at] else None,
        )

    def read_short(buffer: Any, position: int) -> tuple[Any, int]:
        """Look up the bytes up to the end of a short request; only those that were not read before are decoded."""
        try:
            member_at = position + buffer[position]
            instance_at = member_at + buffer[member_at] + 4
            end = instance_at + (buffer[instance_at] or 1) + rest_size
        except IndexError:
            return read(buffer, position)
        request = parse(buffer[position:end])
        return read(buffer, position) if request is None else (request, end - position)

    return read_short
