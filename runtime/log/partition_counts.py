"""The numbers of partitions of a data folder. They decide which partition a group or transactional id belongs to.

``callboard.json`` has both numbers. Other files repeat them: the clean-stop note and the journal. All must agree before
anything is served or written. If no other file has the numbers, all records are checked first, see ``misplaced``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import StartError

COUNT_FIELDS = ("offsets_partitions", "transactions_partitions")
"""The names of the two numbers in ``callboard.json`` and in the clean-stop note."""


class PartitionCounts(NamedTuple):
    """The numbers of partitions of ``__consumer_offsets`` and ``__transaction_state``."""

    offsets: int
    transactions: int

    def __str__(self) -> str:
        return f"{self.offsets} and {self.transactions} partitions"

    def as_fields(self) -> dict[str, int]:
        return dict(zip(COUNT_FIELDS, self, strict=True))


def parse_counts(fields: Mapping[str, Any]) -> PartitionCounts:
    """Raises KeyError when they are missing, ValueError or TypeError when they are invalid."""
    counts = PartitionCounts(*(fields[name] for name in COUNT_FIELDS))
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError(f"{counts!r}, expected two numbers")
    return counts


def repair_command(root: Path, offsets: int | None = None, transactions: int | None = None) -> str:
    """The command that writes a new ``callboard.json``; ``N`` and ``M`` are placeholders for unknown numbers."""
    partitions, transaction_partitions = offsets or "N", transactions or "M"
    counts = f"--partitions {partitions} --transaction-partitions {transaction_partitions}"
    return f"callboard log repair --data {root} {counts} --execute"


def refuse_different_counts(root: Path, counts: PartitionCounts, path: Path, stored: PartitionCounts) -> None:
    """Raise StartError when the numbers ``stored`` in ``path`` differ from those of ``callboard.json``."""
    if stored != counts:
        raise StartError(
            f"{path}: found {stored}, expected {counts} by {root / 'callboard.json'}; put back the file that is"
            f" wrong, or write a new callboard.json with {repair_command(root, *stored)}"
        )
