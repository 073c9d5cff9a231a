"""How many partitions a data folder has: which partition something lies in depends on it.

``callboard.json`` holds both numbers. A second file that holds them is a witness: they must agree before anything is
served or written. Without a witness all records are checked first, see ``misplaced``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import StartError

COUNTS = ("offsets_partitions", "transactions_partitions")
"""The names of the two numbers in ``callboard.json`` and in the note of a clean stop."""


class Counts(NamedTuple):
    """How many partitions ``__consumer_offsets`` and ``__transaction_state`` have."""

    offsets: int
    transactions: int

    def __str__(self) -> str:
        return f"{self.offsets} and {self.transactions} partitions"

    def as_fields(self) -> dict[str, int]:
        return dict(zip(COUNTS, self, strict=True))


def counts_in(fields: Mapping[str, Any]) -> Counts:
    """KeyError when they are not there, ValueError or TypeError when they make no sense."""
    counts = Counts(*(fields[name] for name in COUNTS))
    if any(type(count) is not int or count < 0 for count in counts):
        raise ValueError(f"{counts!r}, expected two numbers")
    return counts


def repair_command(root: Path, offsets: int | None = None, transactions: int | None = None) -> str:
    """The command that writes a new ``callboard.json``; ``N`` and ``M`` stand for what is not known."""
    partitions, transaction_partitions = offsets or "N", transactions or "M"
    return (
        f"callboard log repair {root} --partitions {partitions} --transaction-partitions {transaction_partitions} --yes"
    )


def refuse_other_counts(root: Path, counts: Counts, path: Path, found: Counts) -> None:
    """StartError when a witness contradicts."""
    if found != counts:
        raise StartError(
            f"{path}: found {found}, expected {counts} by {root / 'callboard.json'}; put back the file that is"
            f" wrong, or write a new callboard.json with {repair_command(root, *found)}"
        )
