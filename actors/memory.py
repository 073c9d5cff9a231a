"""The memory that a coordinator holds for its clients: bytes by kind, and the soft limit of all of them together.

The bytes are counted, not measured: each kind has a counter that its owner keeps up to date, and constants for the
objects of Python. They were fitted to the memory of the process with ``callboard bench memory``. The limit is soft:
above it new groups, members, topics and transactional ids are refused, while those that exist go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

log = logging.getLogger("callboard.actors")

FREE_AGAIN = 0.95
"""After the limit was reached, new things are admitted again below this part of it, so that it does not flap."""

ACTIVE_GROUP_BYTES = 6_500
"""A group with an actor, without members and offsets."""

PACKED_GROUP_BYTES = 250
"""A passivated group, in addition to its name and its packed data."""

MEMBER_BYTES = 2_500
"""A member of a group, in addition to the bytes that it has sent and its assignment."""

PENDING_MEMBER_BYTES = 550
"""A member id that was assigned and not used yet, with its alarm."""

OFFSET_BYTES = 420
"""A committed offset of an active group, in addition to its metadata."""

TOPIC_OFFSETS_BYTES = 300
"""A topic that has offsets in an active group, in addition to its name."""

TRANSACTIONAL_ID_BYTES = 1_500
"""A transactional id without partitions, in addition to its name."""

TRANSACTION_PARTITION_BYTES = 220
"""A partition of an open transaction."""

WAITING_APPEND_BYTES = 1_150
"""A request whose records are not durable yet, without its records."""

WAITING_RECORD_BYTES = 480
"""A record that is not durable yet, with its part of the request, in addition to its metadata."""


class GroupMemory:
    """The bytes of active groups by group, and of all packed groups together."""

    __slots__ = ("_active", "active_bytes", "packed_bytes")

    def __init__(self) -> None:
        self._active: dict[str, int] = {}
        self.active_bytes = 0
        self.packed_bytes = 0

    def add_active(self, group_id: str) -> None:
        """A group has an actor now."""
        self.remove_active(group_id)
        self._active[group_id] = size_bytes = ACTIVE_GROUP_BYTES + len(group_id)
        self.active_bytes += size_bytes

    def set_content(self, group_id: str, content_bytes: int) -> None:
        """Set the bytes of the members and offsets of an active group. Ignored if it is not active any more."""
        previous = self._active.get(group_id)
        if previous is not None:
            self._active[group_id] = size_bytes = ACTIVE_GROUP_BYTES + len(group_id) + content_bytes
            self.active_bytes += size_bytes - previous

    def remove_active(self, group_id: str) -> None:
        """A group has no actor any more."""
        self.active_bytes -= self._active.pop(group_id, 0)


class PackedGroups(dict[str, bytes]):
    """Passivated groups: results of ``GroupData.pack`` by group id. Only these methods change it."""

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__()
        self._memory = memory

    def put(self, group_id: str, packed: bytes) -> None:
        self._memory.packed_bytes += _packed_size(group_id, packed)
        replaced = self.get(group_id)
        if replaced is not None:
            self._memory.packed_bytes -= _packed_size(group_id, replaced)
        self[group_id] = packed

    def put_all(self, groups: Mapping[str, bytes]) -> None:
        """As ``put``, in a tenth of the time for many groups: a takeover brings hundreds of thousands."""
        self._memory.packed_bytes += _size_of_all(groups)
        if not self.keys().isdisjoint(groups):
            self._memory.packed_bytes -= _size_of_all({name: self[name] for name in groups if name in self})
        self.update(groups)

    def take(self, group_id: str) -> bytes:
        """Remove and return a group."""
        packed = self.pop(group_id)
        self._memory.packed_bytes -= _packed_size(group_id, packed)
        return packed

    def take_all(self) -> None:
        """Remove all groups."""
        self._memory.packed_bytes -= _size_of_all(self)
        self.clear()


def _packed_size(group_id: str, packed: bytes) -> int:
    return PACKED_GROUP_BYTES + len(group_id) + len(packed)


def _size_of_all(groups: Mapping[str, bytes]) -> int:
    return PACKED_GROUP_BYTES * len(groups) + sum(map(len, groups)) + sum(map(len, groups.values()))


class MemorySample(NamedTuple):
    """The figures of a ``MemoryLimit`` at one moment."""

    bytes_by_kind: Mapping[str, int]
    limit_bytes: int
    refusals: int


class MemoryLimit:
    """The soft limit. ``limit_bytes`` returns ``memory_limit_bytes``; ``sources``: bytes by kind.

    ``refusals``: how often something new was refused.
    """

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self.sources: dict[str, Callable[[], int]] = {}
        self.refusals = 0
        self._limit_bytes = limit_bytes
        self._is_reached = False

    def bytes_by_kind(self) -> dict[str, int]:
        return {kind: count() for kind, count in self.sources.items()}

    def sample(self) -> MemorySample:
        return MemorySample(self.bytes_by_kind(), self._limit_bytes(), self.refusals)

    def refuses_new(self, waiting_bytes: int = 0) -> bool:
        """Whether something new must be refused, which is counted. Asks each source.

        ``waiting_bytes``: of what was admitted and is not in a source yet.
        """
        used_bytes = waiting_bytes + sum(count() for count in self.sources.values())
        limit_bytes = self._limit_bytes()
        was_reached = self._is_reached
        self._is_reached = used_bytes > (limit_bytes * FREE_AGAIN if was_reached else limit_bytes)
        if self._is_reached:
            self.refusals += 1
        if self._is_reached and not was_reached:
            log.error(
                "memory_limit_bytes is reached: new groups, members, topics and transactional ids are refused until"
                " 5 %% are free; %d of %d bytes are used: %s",
                used_bytes,
                limit_bytes,
                ", ".join(f"{kind} {size_bytes}" for kind, size_bytes in self.bytes_by_kind().items()),
            )
        elif was_reached and not self._is_reached:
            log.warning("memory_limit_bytes is not reached any more: %d of %d bytes are used", used_bytes, limit_bytes)
        return self._is_reached
