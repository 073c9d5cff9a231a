"""The ConsumerGroupHeartbeat of a member that reports no change: all but group, member, epoch and instance id is null.

kio takes several times as long to read it. A member repeats it byte by byte until its epoch changes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import ClassVar, Final

NAME: Final = "consumer_group_heartbeat"
REGEX_FROM = 1

CACHED = 8192
"""Heartbeats that are not decoded again. One takes about 1 kB here."""

EPOCH_BYTES = 4

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


def short_heartbeat_reader(version: int) -> Callable[[bytes], ShortHeartbeat | None]:
    """Return a function that reads the body of a request; None if it has another form, or is damaged."""
    nulls_after_timeout = 4 if version >= REGEX_FROM else 3
    no_tags = 1
    rest = b"\0" + b"\xff\xff\xff\xff" + bytes(nulls_after_timeout + no_tags)
    read_epoch = struct.Struct(">i").unpack_from

    @lru_cache(CACHED)
    def read(body: bytes) -> ShortHeartbeat | None:
        """Each text has its length + 1 before it, which is 0 for null."""
        try:
            member_at = body[0]
            epoch_at = member_at + body[member_at]
            instance_at = epoch_at + EPOCH_BYTES
            rest_at = instance_at + (body[instance_at] or 1)
        except IndexError:
            return None
        is_long = max(body[0], body[member_at], body[instance_at]) >= _LONG
        if body[rest_at:] != rest or is_long or not (body[0] and body[member_at]):
            return None
        return ShortHeartbeat(
            str(body[1:member_at], "utf-8"),
            str(body[member_at + 1 : epoch_at], "utf-8"),
            read_epoch(body, epoch_at)[0],
            str(body[instance_at + 1 : rest_at], "utf-8") if body[instance_at] else None,
        )

    return read
