"""Producer ids: given out in order from blocks that were made durable before, and never given twice.

As in Kafka the next block is reserved when a tenth of the last one is left. Where an id is wanted and no block is
durable yet, the answer is COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
"""

from __future__ import annotations

from collections.abc import Callable

from ...actors.errors import CoordinatorError, ErrorCode
from ..disk.group_commit import GroupCommit
from .draft import TopicsDraft
from .failures import as_refusal

PRODUCER_ID_BLOCK = 1000  # Kafka's controller gives its brokers as many at a time
RESERVE_AT = 100  # Kafka's ProducerIdManager prefetches when 90 % of a block are used


class ProducerIds:
    """Belongs to the thread of the loop."""

    def __init__(self, next_id: int, changes: GroupCommit[TopicsDraft]) -> None:
        """``next_id``: ids below it may have been given away."""
        self._next_id = self._reserved_to = self._asked_to = next_id
        self._changes = changes
        self._is_reserving = False
        self._failure: CoordinatorError | None = None
        self._waiting: list[Callable[[], None]] = []

    def allocate(self) -> int:
        """An id that was never given before. Raises CoordinatorError when there is none now."""
        if self._next_id == self._reserved_to:
            self._reserve()
        if self._next_id == self._reserved_to:
            raise self._failure or CoordinatorError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next block of producer ids is being written; try again"
            )
        producer_id, self._next_id = self._next_id, self._next_id + 1
        if self._reserved_to - self._next_id <= RESERVE_AT:
            self._reserve()
        return producer_id

    def call_when_available(self, call: Callable[[], None]) -> None:
        """Call at once if there is an id to take, else when a block was written, or could not be."""
        if self._next_id < self._reserved_to:
            call()
        else:
            self._waiting.append(call)
            self._reserve()

    def mark_used_up_to(self, producer_id: int) -> None:
        """At start: ids up to this one are in use, whatever ``topics.json`` says (it may be new)."""
        self._next_id = max(self._next_id, producer_id + 1)
        self._reserved_to = max(self._reserved_to, self._next_id)

    def _reserve(self) -> None:
        if not self._is_reserving:
            self._is_reserving = True
            self._changes.submit(self._add_block, self._added)

    def _add_block(self, draft: TopicsDraft) -> bool:
        table = draft.table
        self._asked_to = table.next_producer_id = max(table.next_producer_id, self._reserved_to) + PRODUCER_ID_BLOCK
        return True

    def _added(self, failure: Exception | None) -> None:
        self._is_reserving = False
        self._failure = None if failure is None else as_refusal(failure)
        if failure is None:
            self._reserved_to = max(self._reserved_to, self._asked_to)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
