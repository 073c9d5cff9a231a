"""Offsets that transactions are about to commit: durable, and not valid until a marker says so. Pure.

A marker concerns all that its producer has committed in a partition of the log. Where a transaction and others commit
the same partition of a topic, what lies later in the log counts, whenever the marker comes (Kafka's
OffsetMetadataManager). So what came later overtakes: it is noted here, and a COMMIT does not go back behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import ErrorCode
from ..messages import Fetched, FetchedOffset
from ..records import OffsetValue, PendingOffsetRecord

Place = tuple[str, int]

NO_OFFSET = -1


class PendingOffsets:
    """Of one group. ``places`` is empty most of the time; for each place the producers in the order of the log."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[Place, dict[int, OffsetValue | None]] = {}  # None: overtaken

    def __bool__(self) -> bool:
        return bool(self.places)

    def producers(self) -> set[int]:
        """Whose transactions are open."""
        return {producer_id for producers in self.places.values() for producer_id in producers}

    def add(self, record: PendingOffsetRecord) -> None:
        producers = self.places.setdefault((record.topic, record.partition), {})
        producers.pop(record.producer_id, None)  # the newest goes to the end
        producers[record.producer_id] = record.value

    def overtake(self, topic: str, partition: int) -> None:
        """A commit outside of a transaction came later than all that is pending for this place."""
        producers = self.places.get((topic, partition), {})
        for producer_id in producers:
            producers[producer_id] = None

    def forget(self, topic: str, partition: int) -> None:
        """The offset was deleted, and what was about to replace it goes with it."""
        self.places.pop((topic, partition), None)

    def end(self, producer_id: int, committed: bool) -> list[tuple[Place, OffsetValue]]:
        """A transaction has ended: what it leaves, where nobody has overtaken it."""
        kept = []
        for place in [place for place, producers in self.places.items() if producer_id in producers]:
            value = self._end_at(place, producer_id, committed)
            if committed and value is not None:
                kept.append((place, value))
        return kept

    def _end_at(self, place: Place, producer_id: int, committed: bool) -> OffsetValue | None:
        producers = self.places[place]
        if committed and producers[producer_id] is not None:
            for earlier in producers:
                if earlier == producer_id:
                    break
                producers[earlier] = None
        value = producers.pop(producer_id)
        if not producers:
            del self.places[place]
        return value

    def hide(self, fetched: Fetched) -> Fetched:
        """What a fetch that wants stable offsets hears instead: come again, where a transaction is open (KIP-447)."""
        return Fetched(
            fetched.error, tuple((topic, tuple(self._hide(topic, found))) for topic, found in fetched.topics)
        )

    def _hide(self, topic: str, found: Iterable[FetchedOffset]) -> Iterator[FetchedOffset]:
        for one in found:
            if (topic, one.partition) in self.places:
                yield FetchedOffset(one.partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            else:
                yield one
