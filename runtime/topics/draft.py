"""Changes to the topics that share one write: the table as it will be, and what to do when that is durable, or not."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from .ends import FreeSlots
from .store import TopicRow, TopicsFile
from .table import TopicTable

Step = Callable[[], None]


class TopicsDraft:
    """Begun from the visible table, which stays as it is."""

    def __init__(self, visible: TopicTable, offsets_topic_id: UUID) -> None:
        self.table = visible.copy()
        self.to_publish: list[Step] = []
        self.to_discard: list[Step] = []
        self._visible = visible
        self._offsets_topic_id = offsets_topic_id
        self._free_slots: FreeSlots | None = None

    def allocate_slots(self, count: int) -> int:
        """The first of ``count`` free slots. Those of a topic that this draft deletes are in use until it is gone."""
        if self._free_slots is None:
            self._free_slots = FreeSlots((row.first_slot, row.partitions) for row in self._visible.rows.values())
        return self._free_slots.allocate(count)

    def add(self, row: TopicRow, publish: Step) -> None:
        self.table.add(row)
        self.to_publish.append(publish)

    def remove(self, name: str, publish: Step) -> None:
        self.table.remove(name)
        self.to_publish.append(publish)

    def replace(self, row: TopicRow, publish: Step, discard: Step) -> None:
        self.table.replace(row)
        self.to_publish.append(publish)
        self.to_discard.append(discard)

    def content(self) -> TopicsFile:
        """What is written to ``topics.json``."""
        return TopicsFile(self._offsets_topic_id, self.table.next_producer_id, tuple(self.table.rows.values()))
