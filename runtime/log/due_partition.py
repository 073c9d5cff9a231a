"""DuePartition: what a compaction would read."""

from __future__ import annotations

from typing import NamedTuple


class DuePartition(NamedTuple):
    """A partition that can be compacted, and the bytes of its closed segments: compacted ones, and the others."""

    name: str
    clean_bytes: int
    dirty_bytes: int
