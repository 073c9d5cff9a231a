"""What loading reports of a partition besides its groups: the amount read, and what could not be read."""

from __future__ import annotations

from ....actors.messages import QuarantinedGroup
from ..format.errors import Damage
from .chunk_columns import ChunkColumns
from .group_records import group_type_of


class LoadReport:
    """The attributes have the meaning of those of ``newest.LoadedPartition``."""

    def __init__(self) -> None:
        self.quarantined: dict[str, QuarantinedGroup] = {}
        self.records = self.log_bytes = self.unknown_keys = 0
        self.damages: list[Damage] = []
        self.problems: list[str] = []

    def add_damaged_record(self, columns: ChunkColumns, index: int, group_id: str | None, error: ValueError) -> None:
        """Report the newest record of a key as unreadable."""
        offset, path, key = columns.offset(index), columns.chunk.path, columns.key(index)
        message = f"{path}: the record at offset {offset}, key {key!r}, cannot be read: {error}"
        if group_id is None:
            self.problems.append(f"{message}; its group is unknown")
        else:
            self.quarantined.setdefault(group_id, QuarantinedGroup(message, group_type_of(key)))
