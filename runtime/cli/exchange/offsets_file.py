"""The offsets to import, by group, in a temporary file, since there may be very many.

Only the names of the groups and the offsets of one group at a time are in memory.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Mapping

from ...client.cluster import OffsetAndMetadata, TopicPartition

_CACHE_KIB = 16 * 1024
_SCHEMA = """
CREATE TABLE offsets (
    owner BLOB, topic TEXT, part INTEGER, line INTEGER, value INTEGER, epoch INTEGER, metadata BLOB,
    PRIMARY KEY (owner, topic, part)
) WITHOUT ROWID
"""


class WantedOffsets(Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]):
    """Offsets by group, then by topic and partition. OSError when there is no space for the temporary file."""

    def __init__(self) -> None:
        self._groups: dict[str, None] = {}
        # A file without a name. The garbage collector may close it in any thread.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute(_SCHEMA)

    def add(self, group: str, topic_partition: TopicPartition, offset: OffsetAndMetadata, line: int) -> int | None:
        """Store an offset. If an earlier line has the same key, store nothing and return that line's number."""
        key = group.encode(), *topic_partition
        values = line, offset.offset, offset.leader_epoch, offset.metadata.encode()
        try:
            self._database.execute("INSERT INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?)", (*key, *values))
        except sqlite3.IntegrityError:
            query = "SELECT line FROM offsets WHERE owner = ? AND topic = ? AND part = ?"
            [(previous_line,)] = self._database.execute(query, key)
            return int(previous_line)
        except sqlite3.OperationalError as error:
            raise OSError(f"a temporary file for the offsets: {error}") from error
        self._groups[group] = None
        return None

    def only(self, groups: Iterable[str]) -> WantedOffsets:
        """Drop the other groups. Returns this object."""
        self._groups = dict.fromkeys(groups)
        return self

    def __getitem__(self, group: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if group not in self._groups:
            raise KeyError(group)
        query = "SELECT topic, part, value, epoch, metadata FROM offsets WHERE owner = ? ORDER BY line"
        rows = self._database.execute(query, (group.encode(),))
        return {
            (topic, part): OffsetAndMetadata(value, epoch, metadata.decode())
            for topic, part, value, epoch, metadata in rows
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: object) -> bool:
        return group in self._groups
