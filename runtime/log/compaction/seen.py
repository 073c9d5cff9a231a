"""Which keys were met in newer chunks: in memory up to a bound, and on disk (``runs``) beyond it.

The answers are the same with any bound, and with numpy or without. With numpy, records whose keys were met are found
together (``known_keys``), and only the keys of the others are cut out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..reading.columns import Column, RecordSpans
from .runs import HashRuns

if TYPE_CHECKING:
    from ..reading.known_keys import KnownKeys

KEYS_BYTES_MAX = 128 * 1024 * 1024
"""Kafka's ``log.cleaner.dedupe.buffer.size``. It holds some 700,000 of our keys, where Kafka, which keeps hashes alone,
has room for 5,000,000; a partition of more than either is rare, and we go on where Kafka takes several rounds."""

KEY_BYTES = 100
"""What a key in a set takes besides its bytes: the head of the object, and a place in a table that is half empty."""

KNOWN_BYTES = 200
"""What ``known_keys`` takes for a key: up to twelve words, hash and size, and their places in a sparse table."""

KNOWN_SHARE = 0.25
"""Of the bound, at most so much is for ``known_keys``: those that it learns first are met most often."""


class SeenKeys:
    """Grows with the keys that it learns, up to ``bytes_max``; beyond that it writes ``runs``."""

    def __init__(self, runs: HashRuns, bytes_max: int = KEYS_BYTES_MAX) -> None:
        self._runs = runs
        self._bytes_max = bytes_max
        self._keys: set[bytes] = set()
        self._keys_bytes = self._known_bytes = 0
        self._known: KnownKeys | None = None
        self._has_asked = False

    def perhaps_new(self, data: bytes, spans: RecordSpans) -> Column:
        """The indexes of the records of a chunk whose keys may be new, in order: all, where ``spans`` are lists."""
        self._has_asked = not isinstance(spans.key_at, list)
        if not self._has_asked:
            return list(range(len(spans)))
        if self._known is None:
            from ..reading.known_keys import KnownKeys  # which needs numpy

            self._known = KnownKeys()
        return self._known.find_unknown(data, spans.key_at, spans.key_size)

    def add(self, newest: Mapping[bytes, int]) -> list[int]:
        """Learn the keys of the chunk that was asked about last; the indexes of those that are new, in order. OSError.

        ``newest``: the index of the newest record of each key that may be new.
        """
        keys = self._keys
        fresh = [key for key in newest if key not in keys]
        if self._runs:
            fresh = self._runs.missing(fresh)
        kept = sorted(map(newest.__getitem__, fresh))
        self._remember(fresh, kept)
        return kept

    def _remember(self, fresh: Iterable[bytes], kept: Sequence[int]) -> None:
        self._keys.update(fresh)
        self._keys_bytes += sum(map(len, fresh)) + KEY_BYTES * len(kept)
        if self._known is not None and self._has_asked and self._known_bytes < self._bytes_max * KNOWN_SHARE:
            self._known.add(kept)
            self._known_bytes += KNOWN_BYTES * len(kept)
        if self._keys_bytes + self._known_bytes > self._bytes_max:
            self._runs.add(self._keys)
            self._keys_bytes = 0
