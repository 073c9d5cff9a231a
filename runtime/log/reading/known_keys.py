"""Which keys were seen before, asked of many records at once, with numpy. Never a wrong yes.

Nearly every record of a long log is superseded: its key was seen before. To cut each key out and look it up in a set
takes most of the time of loading. Here a key is looked up by eight-byte words: a hash of them names one place of a
table, and what is remembered there is compared with them, word by word. A key whose place was taken by another one is
not remembered, and neither are very long ones; of those the answer is no, and the set has to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any  # numpy's; its own type says nothing of what is in it

WORD = 8
WORDS_MAX = 12  # 96 bytes: longer names of groups and topics together are rare
FIRST_BITS = 16  # of the table's size, which grows so that an eighth of it is taken at most
SPARSE = 8
PATIENCE = 8  # new keys wait until they are an eighth of those that are remembered

_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, of the golden ratio: it carries every bit to the upper ones
_FOLD = np.uint64(29)


class KnownKeys:
    """Grows with the keys that it learns: some hundred bytes each."""

    def __init__(self) -> None:
        self._bits = FIRST_BITS
        self._table: Array = np.full(1 << self._bits, -1, dtype=np.int32)
        self._words: list[Array] = []  # for each word of a key, of all keys
        self._sizes: Array = np.empty(0, dtype=np.int64)
        self._hashes: Array = np.empty(0, dtype=np.uint64)
        self._new: list[list[Array]] = []
        self._new_count = 0
        self._asked: tuple[Array, list[Array], Array, Array] | None = None

    def find_unknown(self, data: bytes, key_at: Array, key_size: Array) -> Array:
        """The indexes of the keys that are not known, in order."""
        if not self._words:
            width = min(WORDS_MAX, -(-int(key_size.max(initial=WORD)) // WORD))
            self._words = [np.empty(0, dtype=np.uint64) for _ in range(width)]
        fits = (key_size >= WORD) & (key_size <= WORD * len(self._words))
        if len(data) < WORD or not np.any(fits):
            self._asked = None
            return np.arange(len(key_at))
        words, hashes = self._read(data, key_at, np.where(fits, key_size, WORD))
        known = self._table[hashes >> np.uint64(64 - self._bits)]
        same = fits & (known >= 0)
        if len(self._sizes):
            same &= self._sizes[known] == key_size
            for mine, theirs in zip(words, self._words, strict=True):
                same &= theirs[known] == mine
        self._asked = fits, words, hashes, key_size
        return np.flatnonzero(~same)

    def add(self, indexes: Sequence[int]) -> None:
        """Remember these of the keys that were asked about last: all that are new, each once."""
        if self._asked is None:
            return
        fits, words, hashes, key_size = self._asked
        chosen = np.asarray(indexes, dtype=np.int64)
        chosen = chosen[fits[chosen]]
        self._new.append([key_size[chosen], hashes[chosen], *(word[chosen] for word in words)])
        self._new_count += len(chosen)
        if self._new_count * PATIENCE >= len(self._sizes):
            self._take_in()

    def _take_in(self) -> None:
        """What was learned takes its places. Not each time: all that is remembered is copied for it."""
        columns = [self._sizes, self._hashes, *self._words]
        first = len(self._sizes)
        columns = [np.concatenate((old, *new)) for old, *new in zip(columns, *self._new, strict=True)]
        self._sizes, self._hashes, *self._words = columns
        self._new, self._new_count = [], 0
        if len(self._sizes) * SPARSE > len(self._table):
            self._bits = (len(self._sizes) * SPARSE * 2).bit_length()
            self._table, first = np.full(1 << self._bits, -1, dtype=np.int32), 0
        places = self._hashes[first:] >> np.uint64(64 - self._bits)
        free = self._table[places] < 0
        self._table[places[free]] = np.arange(first, len(self._sizes))[free]

    def _read(self, data: bytes, key_at: Array, key_size: Array) -> tuple[list[Array], Array]:
        """The words of keys; the last ones overlap, so that every byte of a key is in one. And their hashes."""
        everywhere = np.ndarray((len(data) - WORD + 1,), "<u8", data, 0, (1,))
        last = key_at + key_size - WORD
        limit = len(everywhere) - 1
        words = []
        hashes = key_size.astype(np.uint64)
        for index in range(len(self._words)):
            word = everywhere[np.minimum(np.minimum(key_at + index * WORD, last), limit)]
            words.append(word)
            hashes = (hashes ^ word) * _MIX
            hashes ^= hashes >> _FOLD
        return words, hashes * _MIX
