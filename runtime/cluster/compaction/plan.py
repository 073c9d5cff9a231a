"""Decides by a manifest what to compact in a partition, without reading segments.

Only closed segments are compacted: a checkpoint may still replace the last one. All from the first one on are read, so
a tombstone is never removed while an older record of its key stays.
"""

from __future__ import annotations

from typing import NamedTuple

from ...log.compaction.plan import any_expired, dirty_ratio
from ..manifest import Manifest, Segment

SEGMENT_BYTES_MAX = 8 * 1024 * 1024
"""Of a compacted segment. A value of the store has at most 16 MiB."""


class CompactionPlan(NamedTuple):
    """``segments``: the closed ones, in their order."""

    manifest: Manifest
    segments: tuple[Segment, ...]

    @property
    def clean_bytes(self) -> int:
        return sum(segment.size for segment in self.segments if segment.is_compacted)

    @property
    def dirty_bytes(self) -> int:
        return sum(segment.size for segment in self.segments if not segment.is_compacted)

    @property
    def open_bytes(self) -> int:
        return sum(segment.size for segment in self.manifest.segments[len(self.segments) :])

    @property
    def dirty_ratio(self) -> float:
        return dirty_ratio(self.clean_bytes, self.dirty_bytes)

    def is_due(self, now_ms: int, min_ratio: float) -> bool:
        """Whether a run is worth it, as in the local log."""
        is_dirty = self.dirty_bytes > 0 and self.dirty_ratio > min_ratio
        return is_dirty or any_expired((segment.horizon_ms for segment in self.segments), now_ms)


def make_plan(manifest: Manifest) -> CompactionPlan:
    segments = manifest.segments
    if segments and segments[-1].may_grow:
        segments = segments[:-1]
    return CompactionPlan(manifest, segments)
