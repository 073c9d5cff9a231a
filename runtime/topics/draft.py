"""A draft of the topic table: changes that share one write, with callbacks for when it is durable or has failed."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ...actors.steps import Steps, pieces
from .ends import FreeSlots
from .store import TopicRow, TopicsFile
from .table import TopicTable

Callback = Callable[[], None]


class TopicsDraft:
    """Starts as a copy of the current table, which it does not change."""

    def __init__(self, visible: TopicTable, offsets_topic_id: UUID) -> None:
        self.table = visible.copy()
        self.to_publish: list[Callback] = []
        self.to_discard: list[Callback] = []
        self._current = visible
        self._offsets_topic_id = offsets_topic_id
        self._free_slots: FreeSlots | None = None

    def allocate_slots(self, count: int) -> Steps[int]:
        """The first of ``count`` adjacent free slots. Slots of a topic that this draft deletes are still in use."""
        if self._free_slots is None:
            spans: list[tuple[int, int]] = []
            for rows in pieces(self._current.rows.values()):
                spans += [(row.first_slot, row.partitions) for row in rows]
                yield
            self._free_slots = FreeSlots(spans)
        return self._free_slots.allocate(count)

    def add(self, row: TopicRow, publish: Callback) -> None:
        self.table.add(row)
        self.to_publish.append(publish)

    def remove(self, name: str, publish: Callback) -> None:
        self.table.remove(name)
        self.to_publish.append(publish)

    def replace(self, row: TopicRow, publish: Callback, discard: Callback) -> None:
        self.table.replace(row)
        self.to_publish.append(publish)
        self.to_discard.append(discard)

    def change_settings(self, row: TopicRow, publish: Callback) -> None:
        self.table.change_settings(row)
        self.to_publish.append(publish)

    def content(self) -> TopicsFile:
        """The content for ``topics.json``."""
        return TopicsFile(self._offsets_topic_id, self.table.next_producer_id, tuple(self.table.rows.values()))
