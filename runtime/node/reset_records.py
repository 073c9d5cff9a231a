"""The records of resets, by which they are undone: a file each in the folder ``resets`` of a data folder.

A file is named by the time of the reset in milliseconds since 1970, a checksum of the group id, and the change's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from ..disk.disk import Disk, read_file, replace_file
from ..disk.file_work import FileWork
from ..disk.group_commit import outcome_of
from ..disk.json_parts import json_parts
from ..disk.named_files import NamedFile, named_files
from ..kafka.node_subjects import RESETS_BYTES_MAX, ReadResets, ResetsRead

FOLDER: Final = "resets"
NAME = re.compile(r"([0-9]{20})-([0-9a-f]{8})-([0-9a-f-]{36})\.json")

RECORDS_MAX: Final = 100
"""Of all groups. The oldest is deleted for the next."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all records but the newest. A reset of 8,000 partitions has about 400 kB."""


Wanted = Callable[[str, str], bool]
"""Whether a record is wanted, by the checksum of its group id and the id of the change."""

ENCODER = json.JSONEncoder(separators=(",", ":"))


class ResetPartition(NamedTuple):
    """The committed offset of a partition before and after a reset; None: there is none."""

    topic: str
    partition: int
    before: int | None
    after: int | None


class RemovedMember(NamedTuple):
    """A member that a reset has removed. Texts are those of the client."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class ResetRecord(NamedTuple):
    """A reset. ``by``: the principal. ``undoes``: the id of the change that it undoes; "" for none.

    ``topic_ids``: by name, in hexadecimal digits. A deleted topic that was created again has another one.
    """

    change_id: str
    group: str
    made_ms: int
    by: str
    reason: str
    partitions: tuple[ResetPartition, ...]
    members: tuple[RemovedMember, ...]
    topic_ids: dict[str, str]
    undoes: str = ""


class ResetRecords:
    """The records in one data folder. The methods do not hold up the event loop."""

    def __init__(self, disk: Disk, data: Path, files: FileWork) -> None:
        """``data``: the data folder."""
        self._disk = disk
        self._folder = data / FOLDER
        self._files = files

    async def keep(self, record: ResetRecord) -> None:
        """Store a record durably. Raises OSError."""
        error = await outcome_of(partial(self._files.submit, partial(self._write, record)))
        if error is not None:
            raise error

    async def find(self, change_id: str) -> ResetRecord | None:
        """None if there is none, or it is damaged. Raises OSError."""
        records = await self._read(lambda _crc, each: each == change_id)
        return records[0] if records else None

    async def of_group(self, group: str) -> list[ResetRecord]:
        """The newest first. Damaged ones are left out. Raises OSError."""
        records = await self._read(lambda crc, _id: crc == _checksum(group))
        return [record for record in records if record.group == group]

    def read(self, message: ReadResets, done: Callable[[ResetsRead | OSError], None]) -> None:
        """The same for another node, by id or of a group. ``done`` is called on the event loop."""
        found: list[bytes] = []

        def read() -> None:
            found.extend(self._read_contents(message))

        self._files.submit(read, lambda error: done(ResetsRead(tuple(found)) if error is None else error))

    async def _read(self, wanted: Wanted) -> list[ResetRecord]:
        found: list[ResetRecord] = []
        error = await outcome_of(partial(self._files.submit, lambda: found.extend(self._read_files(wanted))))
        if error is not None:
            raise error
        return found

    # On the thread for files -----------------------------------------------------------------------------------------

    def _write(self, record: ResetRecord) -> None:
        self._disk.make_folder(self._folder)
        name = f"{record.made_ms:020}-{_checksum(record.group)}-{record.change_id}.json"
        self._delete_oldest()
        fields = {**record._asdict(), "partitions": list(record.partitions), "members": list(record.members)}
        replace_file(self._disk, self._folder / name, "".join(json_parts(fields, ENCODER)).encode())

    def _delete_oldest(self) -> None:
        sizes = {each.match[0]: each.size for each in self._newest_first()}
        names, size = list(sizes), sum(sizes.values())
        while names and (len(names) >= RECORDS_MAX or size > BYTES_MAX):
            oldest = names.pop()
            self._disk.remove(self._folder / oldest)
            size -= sizes[oldest]

    def _newest_first(self) -> list[NamedFile]:
        return list(named_files(self._disk, self._folder, NAME))[::-1]

    def _read_files(self, wanted: Wanted) -> Iterator[ResetRecord]:
        return filter(None, map(parse_record, self._contents(wanted)))

    def _contents(self, wanted: Wanted) -> Iterator[bytes]:
        for match, _size in self._newest_first():
            if wanted(match[2], match[3]):
                yield read_file(self._disk, self._folder / match[0])

    def _read_contents(self, message: ReadResets) -> Iterator[bytes]:
        group, change_id, size = message.group_id, message.change_id, 0
        for content in self._contents(lambda crc, each: each == change_id if change_id else crc == _checksum(group)):
            record = parse_record(content)
            size += len(content)
            if size > RESETS_BYTES_MAX:
                return
            if record is not None and (change_id or record.group == group):
                yield content


def _checksum(group: str) -> str:
    return f"{crc32(group.encode('utf-8', 'surrogatepass')):08x}"


def parse_record(data: bytes) -> ResetRecord | None:
    """None for bytes that are no record."""
    try:
        fields: Any = json.loads(data)
        rows: Sequence[Any] = fields.pop("partitions")
        members = tuple(RemovedMember(*row) for row in fields.pop("members"))
        return ResetRecord(**fields, partitions=tuple(ResetPartition(*row) for row in rows), members=members)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
