"""Examines the end of the open segment: which bytes to cut, which are damage, and where the next append goes.

A crash leaves the end of the file incomplete, in one of two ways:

* A *torn tail*: no valid batch follows it. It is cut.
* In *the journal's zone*, that is from offset ``journal_from`` on, the file was not synced. The operating system writes
  an unsynced file in any order, so valid batches may follow a gap. All is cut from the first flaw on, because replaying
  the journal writes it again. Valid batches there that the journal lacks are ``salvageable``: they are copied first.

Everything else is damage: it stays, and readers skip it. The zone begins at the end of a batch, and all bytes below it
were durable. So a file that ends before the zone, or has a gap across its beginning, was damaged; the log then goes on
with a new segment at the zone's first offset.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk, file_size
from ..format.batch import Batch
from ..format.errors import Damage
from ..reading.damage_scan import scan_past_damage


class Tail(NamedTuple):
    """The end of a segment: the next offset, and the size in bytes of its valid part.

    ``torn_reason``: why the bytes after these must be cut; empty when there are none. ``salvageable``: position and
    size of the valid batches among them. ``damages`` stay. ``new_segment_base``: the base offset of a new
    segment that must be created; None when appends go to this one.
    """

    end_offset: int
    valid_bytes: int
    torn_reason: str
    salvageable: list[tuple[int, int]]
    damages: list[Damage]
    new_segment_base: int | None


def read_tail(disk: Disk, path: Path, base_offset: int, journal_from: int | None) -> Tail:
    """Examine a segment without changing it. ``journal_from``: the first offset of the journal; None if unknown."""
    reader = _TailReader(path, base_offset, journal_from)
    pieces = scan_past_damage(disk, path, base_offset)
    for piece in pieces:
        torn_reason = reader.cut_reason(piece)
        if torn_reason:
            # a jump in the offsets without damage before it means that the batch's own offset is damaged
            rest = [piece, *pieces] if reader.follows_damage else pieces
            salvageable = [(batch.position, batch.size) for batch in rest if isinstance(batch, Batch)]
            return reader.cut(piece.position, torn_reason, salvageable)
        reader.add(piece)
    return reader.finish(file_size(disk, path))


class _TailReader:
    def __init__(self, path: Path, base_offset: int, journal_from: int | None) -> None:
        self._path = path
        self._base_offset = base_offset
        self._journal_from = journal_from
        self._end = base_offset
        self._damages: list[Damage] = []
        self._last: list[Damage] = []  # damage after the last valid batch

    @property
    def follows_damage(self) -> bool:
        return bool(self._last)

    def add(self, piece: Batch | Damage) -> None:
        if isinstance(piece, Damage):
            self._last.append(piece)
        else:
            self._end = piece.last_offset + 1
            self._damages += self._last
            self._last = []

    def cut_reason(self, piece: Batch | Damage) -> str:
        """Why the file is cut before this piece, which the journal replaces; empty if it is not cut."""
        zone = self._journal_from
        if zone is None or (self._end < zone and (isinstance(piece, Damage) or piece.base_offset <= zone)):
            return ""
        if isinstance(piece, Damage):
            return piece.reason
        if piece.base_offset > self._end:
            return f"offset {piece.base_offset}, expected {max(self._end, zone)}"
        return ""

    def cut(self, position: int, torn_reason: str, salvageable: list[tuple[int, int]]) -> Tail:
        """The result of a cut in the zone. A gap across the zone's beginning requires a new segment."""
        zone = self._journal_from
        if zone is None or self._end >= zone:
            return Tail(self._end, position, torn_reason, salvageable, self._damages, None)
        return Tail(zone, position, torn_reason, salvageable, self._lost_to(zone, position), zone)

    def finish(self, size: int) -> Tail:
        zone, last = self._journal_from, self._last
        if zone is not None and self._end < zone:
            return Tail(zone, size, "", [], self._lost_to(zone, size), zone)
        if not all(damage.is_certain for damage in last):
            beyond = max(self._end, self._base_offset + 1)  # readers might not find appends after such damage
            return Tail(beyond, size, "", [], self._damages + last, beyond)
        if last:
            return Tail(self._end, last[0].position, last[0].reason, [], self._damages, None)
        return Tail(self._end, size, "", [], self._damages, None)

    def _lost_to(self, zone: int, position: int) -> list[Damage]:
        """All damages, including one that explains why the zone is not reached."""
        reason = f"it ends at offset {self._end}, but the journal states an end offset of at least {zone}"
        last = self._last or [Damage(self._path, position, 0, reason, self._end, zone)]
        return self._damages + [damage._replace(offset_after=zone) for damage in last]
