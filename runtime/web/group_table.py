"""GroupTable: the rows of all groups at one moment, with columns that are sorted and filtered at once. Pure.

Columns are arrays, because numpy sorts and filters 100,000 rows in a few milliseconds, and without the interpreter's
lock: the event loop of the coordinator may run in the same process.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .group_rows import GroupRow, Pacer

Mask = NDArray[np.bool_]
Column = NDArray[np.int64]

UNKNOWN: Final = -1
LAST: Final = np.iinfo(np.int64).max
PIECE: Final = 512
"""Rows that are read without a look at the clock."""

COLUMNS: Final[dict[str, Callable[[GroupRow], Any]]] = {
    "group": lambda row: row.group,
    "state": lambda row: row.state,
    "type": lambda row: row.type,
    "protocol_type": lambda row: row.protocol_type,
    "members": lambda row: row.members,
    "topics": lambda row: None if row.topics is None else len(row.topics),
    "lag": lambda row: row.lag,
    "expires_at": lambda row: row.expires_ms,
}
"""The columns that the list can be sorted by. Rows with the same value are sorted by the name of the group."""

TEXT_COLUMNS: Final = ("group", "state", "type", "protocol_type")
GUARDED_UNTIL: Final = "guarded_until"


class Cursor(NamedTuple):
    """A place in the list: the value of the column and the name of the row before it."""

    value: Any
    group: str


class GroupTable:
    """``rows`` are sorted by name, and the columns are in their order. ``lags``: ``UNKNOWN`` where it is not known."""

    def __init__(self, rows: Iterable[GroupRow], pacer: Pacer) -> None:
        self.rows: list[GroupRow] = []
        self.names: list[str] = []
        self._lower_names: list[list[str]] = []  # in pieces
        self.words: dict[str, list[str]] = {}
        self._columns: dict[str, Column] = {}
        self._positions: dict[str, array[int]] = {}  # of the rows of each topic
        self._orders: dict[str, NDArray[np.intp]] = {}
        self._read(rows, pacer)

    def _read(self, rows: Iterable[GroupRow], pacer: Pacer) -> None:
        iterator = iter(rows)
        words: dict[str, dict[str, int]] = {name: {} for name in TEXT_COLUMNS if name != "group"}
        read = {name: value for name, value in COLUMNS.items() if name != "group"}
        read[GUARDED_UNTIL] = lambda row: row.guarded_until_ms
        parts: dict[str, list[Column]] = {name: [] for name in read}
        while piece := list(islice(iterator, PIECE)):
            self._add_topics(piece)
            self.rows += piece
            names = [row.group for row in piece]
            self.names += names
            self._lower_names.append(list(map(_lower, names)))
            for name, column in parts.items():
                values = map(read[name], piece)
                column.append(_codes(values, words[name]) if name in words else _numbers(values))
            pacer.pause()
        for name, column in parts.items():
            joined = np.concatenate(column) if column else np.empty(0, np.int64)
            self._columns[name] = self._ranks(name, list(words[name]), joined) if name in words else joined
        self._columns["group"] = np.arange(len(self.rows), dtype=np.int64)

    def _add_topics(self, piece: Sequence[GroupRow]) -> None:
        for position, row in enumerate(piece, len(self.rows)):
            for topic in row.topics or ():
                self._positions.setdefault(topic, array("q")).append(position)

    def _ranks(self, name: str, words: Sequence[str], codes: Column) -> Column:
        """The place of each row's word among the sorted words."""
        self.words[name] = sorted(words)
        return np.array([self.words[name].index(word) for word in words], np.int64)[codes] if words else codes

    @property
    def lags(self) -> Column:
        return self._columns["lag"]

    # Order -----------------------------------------------------------------------------------------------------------

    def order(self, sort: str) -> NDArray[np.intp]:
        """The positions of all rows in an order, which is a column, after "-" if it is descending."""
        order = self._orders.get(sort)
        if order is None:
            order = self._orders[sort] = np.argsort(
                _directed(self._columns[sort.removeprefix("-")], sort), kind="stable"
            )
        return order

    def is_after(self, sort: str, cursor: Cursor) -> Mask:
        """Whether a row is after a place in an order. Its row may be gone meanwhile."""
        name = sort.removeprefix("-")
        column = self._columns[name]
        if name == "group":
            return self._is_after_name(sort, cursor.group)
        words = self.words.get(name)
        if words is None:
            code = UNKNOWN if cursor.value is None else cursor.value
            is_there = True
        else:
            code = bisect_left(words, cursor.value)
            is_there = words[code : code + 1] == [cursor.value]
        if not is_there:
            return column < code if sort.startswith("-") else column >= code
        directed, place = _directed(column, sort), _directed(np.array([code], np.int64), sort)[0]
        mask: Mask = (directed > place) | ((directed == place) & self._is_after_name("group", cursor.group))
        return mask

    def _is_after_name(self, sort: str, group: str) -> Mask:
        if sort.startswith("-"):
            return self._columns["group"] < bisect_left(self.names, group)
        return self._columns["group"] >= bisect_right(self.names, group)

    def counts(self, column: str) -> dict[str, int]:
        """How many rows have each word of a column, sorted by the word."""
        counts = np.bincount(self._columns[column], minlength=len(self.words[column]))
        return dict(zip(self.words[column], counts.tolist(), strict=True))

    # Filters ---------------------------------------------------------------------------------------------------------

    def everything(self) -> Mask:
        return np.ones(len(self.rows), np.bool_)

    def has_word(self, column: str, lower_words: Set[str]) -> Mask:
        """Whether the word of a row is one of these, which are in lower case."""
        codes = [code for code, word in enumerate(self.words[column]) if word.lower() in lower_words]
        return np.isin(self._columns[column], codes)

    def has_prefix(self, prefix: str) -> Mask:
        mask = np.zeros(len(self.rows), np.bool_)
        first = bisect_left(self.names, prefix)
        mask[first : bisect_left(self.names, True, first, key=lambda name: not name.startswith(prefix))] = True
        return mask

    def contains(self, text: str, pacer: Pacer) -> Mask:
        """Whether the name of a row has a text somewhere, in lower or upper case."""
        lower, parts = text.lower(), [np.empty(0, np.bool_)]
        for names in self._lower_names:
            parts.append(np.array([lower in name for name in names], np.bool_))
            pacer.pause()
        return np.concatenate(parts)

    def is_guarded(self, now_ms: int) -> Mask:
        """Whether a reset of a row is guarded at this time."""
        mask: Mask = self._columns[GUARDED_UNTIL] > now_ms
        return mask

    def has_topic(self, topic: str) -> Mask:
        mask = np.zeros(len(self.rows), np.bool_)
        mask[np.array(self.positions(topic), np.int64)] = True
        return mask

    def topics(self) -> Sequence[str]:
        """The topics that rows have, in any order."""
        return tuple(self._positions)

    def positions(self, topic: str) -> Sequence[int]:
        """Of the rows that have a topic."""
        return self._positions.get(topic, ())


def _lower(name: str) -> str:
    """The same object, if it is in lower case: it takes no more memory."""
    lower = name.lower()
    return name if lower == name else lower


def _directed(column: Column, sort: str) -> Column:
    """Values that are ascending in an order. Unknown ones are last in both directions."""
    return -column if sort.startswith("-") else np.where(column == UNKNOWN, LAST, column)


def _numbers(values: Iterable[int | None]) -> Column:
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def _codes(values: Iterable[str], codes: dict[str, int]) -> Column:
    return np.array([codes.setdefault(value, len(codes)) for value in values], np.int64)
