"""The segments of a partition as the files of a folder, which the code of the local log reads and compacts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...log.manifest import CompactedSegment, Manifest, encode_manifest, manifest_folder, manifest_name, segments_folder
from ...log.reading.segment import segment_name
from ..manifest import Segment

HERE = Path()
GENERATION = 1


def segment_path(segment: Segment) -> Path:
    """The file of a segment, in the partition's folder."""
    name = segment_name(segment.base)
    return segments_folder(HERE) / name if segment.is_compacted else HERE / name


def manifest_file(segments: Sequence[Segment]) -> tuple[Path, bytes] | None:
    """The path and content of the manifest that names the compacted segments; None if there are none."""
    compacted = tuple(
        CompactedSegment(segment_name(each.base), each.base, each.end, each.size, each.crc, 0, each.horizon_ms)
        for each in segments
        if each.is_compacted
    )
    if not compacted:
        return None
    manifest = Manifest(GENERATION, 0, "", 0, compacted[-1].end, compacted, ())
    return manifest_folder(HERE) / manifest_name(GENERATION), encode_manifest(manifest)
