"""A numpy table of known keys that looks up many keys at once. It may miss a key, but never reports an unknown one.

Nearly every record of a long log is superseded: its key was seen before. Cutting each key out and looking it up in a
set takes most of the time of loading. This table compares keys by eight-byte words: a hash of the words selects one
slot, and the key in that slot is compared word by word. A key whose slot is already used by another key is not stored,
nor is a very long key. Such keys count as unknown, so the caller must also look them up in its set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray, whose own type does not tell the element type either

WORD_BYTES = 8
WORDS_MAX = 12  # 96 bytes: a longer group plus topic name is rare
INITIAL_TABLE_BITS = 16
TABLE_SLOTS_PER_KEY = 8  # at least, so at most an eighth of the slots are used
MERGE_FRACTION = 8  # new keys are buffered until they are 1/8 of the stored keys

_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, from the golden ratio: spreads every bit to the upper bits
_FOLD = np.uint64(29)


class KnownKeys:
    """Uses some hundred bytes for each stored key."""

    def __init__(self) -> None:
        self._bits = INITIAL_TABLE_BITS
        self._table: Array = np.full(1 << self._bits, -1, dtype=np.int32)
        self._words: list[Array] = []  # the n-th words of all keys, for each n
        self._sizes: Array = np.empty(0, dtype=np.int64)
        self._hashes: Array = np.empty(0, dtype=np.uint64)
        self._new: list[list[Array]] = []
        self._new_count = 0
        self._last_lookup: tuple[Array, list[Array], Array, Array] | None = None

    def find_unknown(self, data: bytes, key_at: Array, key_size: Array) -> Array:
        """The indexes of the keys that are not in the table, in order."""
        if not self._words:
            word_count = min(WORDS_MAX, -(-int(key_size.max(initial=WORD_BYTES)) // WORD_BYTES))
            self._words = [np.empty(0, dtype=np.uint64) for _ in range(word_count)]
        fits = (key_size >= WORD_BYTES) & (key_size <= WORD_BYTES * len(self._words))
        if len(data) < WORD_BYTES or not np.any(fits):
            self._last_lookup = None
            return np.arange(len(key_at))
        words, hashes = self._read(data, key_at, np.where(fits, key_size, WORD_BYTES))
        candidates = self._table[hashes >> np.uint64(64 - self._bits)]
        is_known = fits & (candidates >= 0)
        if len(self._sizes):
            is_known &= self._sizes[candidates] == key_size
            for key_word, known_word in zip(words, self._words, strict=True):
                is_known &= known_word[candidates] == key_word
        self._last_lookup = fits, words, hashes, key_size
        return np.flatnonzero(~is_known)

    def add(self, indexes: Sequence[int]) -> None:
        """Add keys of the last ``find_unknown`` call, by index: all that are new, each once."""
        if self._last_lookup is None:
            return
        fits, words, hashes, key_size = self._last_lookup
        chosen = np.asarray(indexes, dtype=np.int64)
        chosen = chosen[fits[chosen]]
        self._new.append([key_size[chosen], hashes[chosen], *(word[chosen] for word in words)])
        self._new_count += len(chosen)
        if self._new_count * MERGE_FRACTION >= len(self._sizes):
            self._merge_new_keys()

    def _merge_new_keys(self) -> None:
        """Move the buffered keys into the table. This copies all columns, so it is not done for every chunk."""
        columns = [self._sizes, self._hashes, *self._words]
        first_new = len(self._sizes)
        columns = [np.concatenate((old, *new)) for old, *new in zip(columns, *self._new, strict=True)]
        self._sizes, self._hashes, *self._words = columns
        self._new, self._new_count = [], 0
        if len(self._sizes) * TABLE_SLOTS_PER_KEY > len(self._table):
            self._bits = (len(self._sizes) * TABLE_SLOTS_PER_KEY * 2).bit_length()
            self._table, first_new = np.full(1 << self._bits, -1, dtype=np.int32), 0
        slots = self._hashes[first_new:] >> np.uint64(64 - self._bits)
        free = self._table[slots] < 0
        self._table[slots[free]] = np.arange(first_new, len(self._sizes))[free]

    def _read(self, data: bytes, key_at: Array, key_size: Array) -> tuple[list[Array], Array]:
        """The words of keys, and the hashes of the keys. The last words overlap, so each byte of a key is in a word."""
        words_at = np.ndarray((len(data) - WORD_BYTES + 1,), "<u8", data, 0, (1,))
        last = key_at + key_size - WORD_BYTES
        limit = len(words_at) - 1
        words = []
        hashes = key_size.astype(np.uint64)
        for index in range(len(self._words)):
            word = words_at[np.minimum(np.minimum(key_at + index * WORD_BYTES, last), limit)]
            words.append(word)
            hashes = (hashes ^ word) * _MIX
            hashes ^= hashes >> _FOLD
        return words, hashes * _MIX
