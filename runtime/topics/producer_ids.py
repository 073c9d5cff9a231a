"""Allocates producer ids in order, from blocks that are durably reserved first, so no id is allocated twice.

As in Kafka, the next block is reserved when a tenth of the last one is left. If no block is durable yet, the error is
COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...actors.errors import CoordinatorError, ErrorCode
from ..disk.group_commit import GroupCommit
from .draft import TopicsDraft
from .failures import to_coordinator_error

PRODUCER_ID_BLOCK = 1000  # as Kafka's controller does for its brokers
RESERVE_AT = 100  # Kafka's ProducerIdManager prefetches when 90 % of a block are used


class ProducerIdAllocator(Protocol):
    """The ids of new producers, with the methods of ``ProducerIds``."""

    def allocate(self) -> int: ...

    def call_when_available(self, callback: Callable[[], None]) -> None: ...

    def mark_used_up_to(self, producer_id: int) -> None: ...


class ProducerIds:
    """All methods must be called on the event loop's thread."""

    def __init__(self, next_id: int, changes: GroupCommit[TopicsDraft]) -> None:
        """``next_id``: ids below it may have been allocated."""
        self._next_id = self._reserved_to = self._requested_to = next_id
        self._changes = changes
        self._is_reserving = False
        self._failure: CoordinatorError | None = None
        self._waiting: list[Callable[[], None]] = []

    def allocate(self) -> int:
        """Allocate an unused id. Raises CoordinatorError if none is available now."""
        if self._next_id == self._reserved_to:
            self._reserve_block()
        if self._next_id == self._reserved_to:
            raise self._failure or CoordinatorError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the next block of producer ids is being written; try again"
            )
        producer_id, self._next_id = self._next_id, self._next_id + 1
        if self._reserved_to - self._next_id <= RESERVE_AT:
            self._reserve_block()
        return producer_id

    def call_when_available(self, callback: Callable[[], None]) -> None:
        """Call at once if an id is available, else when the next block has been written or has failed."""
        if self._next_id < self._reserved_to:
            callback()
        else:
            self._waiting.append(callback)
            self._reserve_block()

    def mark_used_up_to(self, producer_id: int) -> None:
        """At start: mark ids up to this one as used, whatever ``topics.json`` says (it may be new)."""
        self._next_id = max(self._next_id, producer_id + 1)
        self._reserved_to = max(self._reserved_to, self._next_id)

    def _reserve_block(self) -> None:
        if not self._is_reserving:
            self._is_reserving = True
            self._changes.submit(self._add_block, self._block_written)

    def _add_block(self, draft: TopicsDraft) -> bool:
        table = draft.table
        self._requested_to = table.next_producer_id = max(table.next_producer_id, self._reserved_to) + PRODUCER_ID_BLOCK
        return True

    def _block_written(self, failure: Exception | None) -> None:
        self._is_reserving = False
        self._failure = None if failure is None else to_coordinator_error(failure)
        if failure is None:
            self._reserved_to = max(self._reserved_to, self._requested_to)
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
