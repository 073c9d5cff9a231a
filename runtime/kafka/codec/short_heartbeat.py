"""The usual ConsumerGroupHeartbeat, in which all but group, member, epoch and instance id is null.

kio takes several times as long to read it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final

from .validation import Reader

NAME: Final = "consumer_group_heartbeat"
REGEX_FROM = 1

_LONG = 0x80  # the first byte of a length of several bytes


@dataclass(slots=True)
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

    def read_short(buffer: Any, position: int) -> tuple[Any, int]:
        """Each text has its length + 1 before it, which is 0 for null."""
        try:
            member_at = position + buffer[position]
            epoch_at = member_at + buffer[member_at]
            instance_at = epoch_at + 4
            rest_at = instance_at + (buffer[instance_at] or 1)
        except IndexError:
            return read(buffer, position)
        end = rest_at + rest_size
        is_long = buffer[position] >= _LONG or buffer[member_at] >= _LONG or buffer[instance_at] >= _LONG
        if buffer[rest_at:end] != rest or is_long or not (buffer[position] and buffer[member_at]):
            return read(buffer, position)
        request = ShortHeartbeat(
            str(buffer[position + 1 : member_at], "utf-8"),
            str(buffer[member_at + 1 : epoch_at], "utf-8"),
            read_epoch(buffer, epoch_at)[0],
            str(buffer[instance_at + 1 : rest_at], "utf-8") if buffer[instance_at] else None,
        )
        return request, end - position

    return read_short
