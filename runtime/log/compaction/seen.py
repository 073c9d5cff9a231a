"""The set of keys seen in newer chunks: in memory up to a limit, beyond it on disk (``runs``).

The results do not depend on the limit or on numpy. With numpy, records with known keys are found in bulk
(``known_keys``), and only the keys of the other records are extracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..reading.columns import Column, RecordSpans
from .defaults import KEYS_BYTES_MAX
from .runs import HashRuns

if TYPE_CHECKING:
    from ..reading.known_keys import KnownKeys


KEY_OVERHEAD_BYTES = 100
"""Memory of a key in a set besides its bytes: the object header, and a slot of a half-empty hash table."""

KNOWN_KEY_BYTES = 200
"""Memory of a key in ``known_keys``: up to twelve words, hash and size, and slots of a sparse table."""

KNOWN_KEYS_SHARE = 0.25
"""The part of the limit for ``known_keys``. Keys found first, in the newest chunks, are repeated most often."""


class SeenKeys:
    """Uses up to ``bytes_max`` of memory; beyond that it moves keys to ``runs``."""

    def __init__(self, runs: HashRuns, bytes_max: int = KEYS_BYTES_MAX) -> None:
        self._runs = runs
        self._bytes_max = bytes_max
        self._keys: set[bytes] = set()
        self._keys_bytes = self._known_bytes = 0
        self._known: KnownKeys | None = None
        self._used_known_keys = False

    def find_possibly_new(self, data: bytes, spans: RecordSpans) -> Column:
        """The indexes of the records of a chunk whose keys may be new, in order: all records if ``spans`` are lists."""
        self._used_known_keys = not isinstance(spans.key_at, list)
        if not self._used_known_keys:
            return list(range(len(spans)))
        if self._known is None:
            from ..reading.known_keys import KnownKeys  # imports numpy

            self._known = KnownKeys()
        return self._known.find_unknown(data, spans.key_at, spans.key_size)

    def add(self, newest: Mapping[bytes, int]) -> list[int]:
        """Add keys of the chunk of the last ``find_possibly_new`` call; returns the indexes of the new ones, in order.

        ``newest``: the index of the newest record of each possibly new key. Raises OSError.
        """
        keys = self._keys
        new_keys = [key for key in newest if key not in keys]
        if self._runs:
            new_keys = self._runs.find_missing(new_keys)
        new_indexes = sorted(map(newest.__getitem__, new_keys))
        self._store(new_keys, new_indexes)
        return new_indexes

    def _store(self, new_keys: Iterable[bytes], new_indexes: Sequence[int]) -> None:
        self._keys.update(new_keys)
        self._keys_bytes += sum(map(len, new_keys)) + KEY_OVERHEAD_BYTES * len(new_indexes)
        if self._known is not None and self._used_known_keys and self._known_bytes < self._bytes_max * KNOWN_KEYS_SHARE:
            self._known.add(new_indexes)
            self._known_bytes += KNOWN_KEY_BYTES * len(new_indexes)
        if self._keys_bytes + self._known_bytes > self._bytes_max:
            self._runs.add(self._keys)
            self._keys_bytes = 0
