"""How the segment that is appended to ends: what may be cut of it, what is damage, and where the log goes on.

A crash leaves the end of the file unfinished, in one of two ways:

* A *torn tail*: nothing good lies behind it. It is cut.
* In *the journal's zone*, that is from offset ``journal_from`` on, the file was not synced, and the system writes an
  unsynced file in any order it likes: good batches may lie behind a hole. All of it is cut from the first flaw on,
  because the journal will lay it in anew. Good batches there that the journal has lost are ``salvaged`` first.

Everything else is damage: it stays, and what follows it counts. The zone begins at the end of a batch, and all that
lies below it was durable; so a file that does not reach it, or that has a hole across it, was damaged, and the log goes
on with a new segment there.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ...disk.disk import Disk, file_size
from ..format.batch import Batch
from ..format.errors import Damage
from ..reading.damage_scan import scan_past_damage


class Tail(NamedTuple):
    """How a segment ends: the next offset, and of how many bytes.

    ``torn``: what is wrong with the bytes behind these, which are to be cut; empty when there are none. ``salvaged``:
    the position and size of the good batches among them. ``damages`` stay. ``go_on_at``: the base offset of a new
    segment that must be made; None when this one goes on.
    """

    end_offset: int
    good_bytes: int
    torn: str
    salvaged: list[tuple[int, int]]
    damages: list[Damage]
    go_on_at: int | None


def read_tail(disk: Disk, path: Path, base_offset: int, journal_from: int | None) -> Tail:
    """Examine a segment and change nothing. ``journal_from`` is None without a journal, or if it does not know."""
    reader = _Reader(path, base_offset, journal_from)
    pieces = scan_past_damage(disk, path, base_offset)
    for piece in pieces:
        torn = reader.why_cut(piece)
        if torn:
            rest = [piece, *pieces] if reader.is_behind_damage else pieces  # a jump without cause is a damaged offset
            salvaged = [(batch.position, batch.size) for batch in rest if isinstance(batch, Batch)]
            return reader.cut(piece.position, torn, salvaged)
        reader.take(piece)
    return reader.finish(file_size(disk, path))


class _Reader:
    def __init__(self, path: Path, base_offset: int, journal_from: int | None) -> None:
        self._path = path
        self._base_offset = base_offset
        self._journal_from = journal_from
        self._end = base_offset
        self._damages: list[Damage] = []
        self._last: list[Damage] = []  # those behind the last good batch

    @property
    def is_behind_damage(self) -> bool:
        return bool(self._last)

    def take(self, piece: Batch | Damage) -> None:
        if isinstance(piece, Damage):
            self._last.append(piece)
        else:
            self._end = piece.last_offset + 1
            self._damages += self._last
            self._last = []

    def why_cut(self, piece: Batch | Damage) -> str:
        """Why the file is cut before this piece, because the journal has what belongs there; else nothing."""
        zone = self._journal_from
        if zone is None or (self._end < zone and (isinstance(piece, Damage) or piece.base_offset <= zone)):
            return ""
        if isinstance(piece, Damage):
            return piece.reason
        if piece.base_offset > self._end:
            return f"offset {piece.base_offset}, expected {max(self._end, zone)}"
        return ""

    def cut(self, position: int, torn: str, salvaged: list[tuple[int, int]]) -> Tail:
        """Cut in the zone; with a hole across its beginning the log goes on there."""
        zone = self._journal_from
        if zone is None or self._end >= zone:
            return Tail(self._end, position, torn, salvaged, self._damages, None)
        return Tail(zone, position, torn, salvaged, self._lost_to(zone, position), zone)

    def finish(self, size: int) -> Tail:
        zone, last = self._journal_from, self._last
        if zone is not None and self._end < zone:
            return Tail(zone, size, "", [], self._lost_to(zone, size), zone)
        if not all(damage.is_certain for damage in last):
            beyond = max(self._end, self._base_offset + 1)  # behind such damage nobody would look for what is appended
            return Tail(beyond, size, "", [], self._damages + last, beyond)
        if last:
            return Tail(self._end, last[0].position, last[0].reason, [], self._damages, None)
        return Tail(self._end, size, "", [], self._damages, None)

    def _lost_to(self, zone: int, position: int) -> list[Damage]:
        """All damages; among them must be one that says why the zone is not reached."""
        reason = f"it ends at offset {self._end}, and the journal says that it went on to {zone}"
        last = self._last or [Damage(self._path, position, 0, reason, self._end, zone)]
        return self._damages + [damage._replace(offset_after=zone) for damage in last]
