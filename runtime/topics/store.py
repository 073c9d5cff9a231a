"""``topics.json``: names, ids, partition counts and settings of the topics, and which producer ids are allocated.

The file is small and replaced as a whole: temporary file, sync, rename, sync of the folder. Its first line has a
checksum of the rest. Files of format 1, without a checksum, are read, and replaced at the next change.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from ...actors.errors import CoordinatorError
from ..common.errors import StartError
from ..common.json_files import parse_json
from ..disk.crc import crc32c
from ..disk.disk import Disk, read_file, replace_file
from ..settings.table import PARTITIONS_MAX
from .names import check_name
from .setting_values import NO_OVERRIDES, Overrides, check_overrides

VERSION = 2
CHECKED_SINCE = 2
_CHECKSUM = re.compile(rb'"checksum": "([0-9a-f]{8})",\n')
START_WITHOUT = "put {} into topics.json to start without topics"


class TopicRow(NamedTuple):
    """A stored topic. ``first_slot``: the slot of its first partition in ``topics.ends``."""

    name: str
    topic_id: UUID
    partitions: int
    first_slot: int
    settings: Overrides = NO_OVERRIDES


class NewTopic(NamedTuple):
    """A topic that is to be created, with valid settings."""

    name: str
    partitions: int
    settings: Overrides = NO_OVERRIDES


class TopicsFile(NamedTuple):
    """The content of the file. Producer ids below ``next_producer_id`` may be allocated."""

    offsets_topic_id: UUID
    next_producer_id: int
    topics: tuple[TopicRow, ...]


class LoadedTopicsFile(NamedTuple):
    """A file as read. ``table`` is None for ``{}``, the request for a start without topics."""

    table: TopicsFile | None
    is_current: bool
    """Whether it has the current format."""


def load_table(path: Path, disk: Disk) -> LoadedTopicsFile | None:
    """Read the file; None if it does not exist. Raises StartError if it is damaged or of a later version."""
    try:
        data = read_file(disk, path)
        fields = parse_json(data)
        if fields == {}:
            return LoadedTopicsFile(None, False)
        version = _checked_int(fields["version"], 1)
        if version > VERSION:
            raise StartError(
                f"'{path}' has version {version}: expected at most {VERSION}; a later Callboard wrote it, use that one"
            )
        if version >= CHECKED_SINCE or "checksum" in fields:
            _verify_table_checksum(data)
        return LoadedTopicsFile(_parse_table(fields), version == VERSION)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartError(f"cannot read the topics '{path}': {error.strerror}") from error
    except (ValueError, KeyError, TypeError, CoordinatorError) as error:
        raise StartError(
            f"the topics '{path}' are damaged: {error!r}; restore the file from a copy, or {START_WITHOUT}"
        ) from error


def _verify_table_checksum(data: bytes) -> None:
    match = _CHECKSUM.search(data)
    if match is None:
        raise ValueError("no checksum of 8 hexadecimal digits in the first line")
    checksum = f"{crc32c(data[match.end() :]):08x}"
    if match[1].decode() != checksum:
        raise ValueError(f"checksum {match[1].decode()}, expected {checksum}")


def save_table(path: Path, table: TopicsFile, disk: Disk) -> None:
    """Replace the file durably. After an OSError the old content or, not durably, the new one is there."""
    replace_file(disk, path, encode_table(table))


def encode_table(table: TopicsFile) -> bytes:
    return TableEncoder().encode(table)


class TableEncoder:
    """Encodes a table again and again. Only the rows that are new since the last time are encoded."""

    def __init__(self) -> None:
        self._texts: dict[UUID, tuple[TopicRow, str]] = {}

    def encode(self, table: TopicsFile) -> bytes:
        """The content of the file."""
        self._texts = {row.topic_id: self._with_text(row) for row in table.topics}
        body = "".join(
            (
                f' "offsets_topic_id": "{id_text(table.offsets_topic_id)}",\n',
                f' "next_producer_id": {table.next_producer_id},\n',
                ' "topics": [\n  ' if table.topics else ' "topics": [',
                ",\n  ".join(text for _, text in self._texts.values()),
                "\n ]\n}\n" if table.topics else "]\n}\n",
            )
        ).encode()
        return f'{{"version": {VERSION}, "checksum": "{crc32c(body):08x}",\n'.encode() + body

    def _with_text(self, row: TopicRow) -> tuple[TopicRow, str]:
        known = self._texts.get(row.topic_id)
        return known if known is not None and known[0] is row else (row, _row_text(row))


def _row_text(row: TopicRow) -> str:
    fields: dict[str, Any] = {"name": row.name, "id": id_text(row.topic_id)}
    fields |= {"partitions": row.partitions, "first_slot": row.first_slot}
    if row.settings:
        fields["settings"] = dict(row.settings)
    return json.dumps(fields)


def id_text(topic_id: UUID) -> str:
    """An id as Kafka writes it: 22 characters of base64url."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _parse_id(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def _checked_int(value: object, low: int, high: int = 2**63 - 1) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{value!r}: expected a whole number from {low} to {high}")
    return value


def _parse_table(fields: Mapping[str, Any]) -> TopicsFile:
    rows = tuple(_parse_row(row) for row in fields["topics"])
    if len({row.name for row in rows}) < len(rows):
        raise ValueError("a topic is listed twice")
    spans = sorted((row.first_slot, row.first_slot + row.partitions) for row in rows)
    if any(end > start for (_, end), (start, _) in pairwise(spans)):
        raise ValueError("two topics have the same slots")
    return TopicsFile(_parse_id(fields["offsets_topic_id"]), _checked_int(fields["next_producer_id"], 0), rows)


def _parse_row(fields: Mapping[str, Any]) -> TopicRow:
    check_name(fields["name"])
    partitions = _checked_int(fields["partitions"], 1, PARTITIONS_MAX)
    first_slot = _checked_int(fields["first_slot"], 1)
    settings = check_overrides(fields["settings"]) if "settings" in fields else NO_OVERRIDES
    return TopicRow(fields["name"], _parse_id(fields["id"]), partitions, first_slot, settings)
