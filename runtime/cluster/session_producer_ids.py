"""Producer ids of a node in a cluster: unique in the whole cluster, without asking anybody."""

from __future__ import annotations

from collections.abc import Callable

from ...actors.errors import CoordinatorError, ErrorCode

IDS_PER_SESSION = 1 << 32


class SessionProducerIds:
    """``ProducerIdSource``. The high 31 bits of an id are the version of the register by which the session has joined.

    No two sessions join by the same version.
    """

    def __init__(self) -> None:
        self._next_id = self._end = 0
        self._waiting: list[Callable[[], None]] = []

    def start_session(self, register_version: int) -> None:
        self._next_id = register_version * IDS_PER_SESSION
        self._end = self._next_id + IDS_PER_SESSION
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def allocate(self) -> int:
        """Raises CoordinatorError before the node has joined the cluster."""
        if self._next_id == self._end:
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "this node has not joined the cluster yet")
        self._next_id += 1
        return self._next_id - 1

    def call_when_available(self, callback: Callable[[], None]) -> None:
        """Call at once if an id is available, else when the node has joined."""
        if self._next_id < self._end:
            callback()
        else:
            self._waiting.append(callback)

    def mark_used_up_to(self, producer_id: int) -> None:
        """Nothing to do: ids that were loaded are those of other sessions."""
