"""The life cycle of a partition of ``__consumer_offsets`` or ``__transaction_state``, as two tables.

Source: ``CoordinatorState`` and the checks of ``CoordinatorRuntime`` in Kafka. One difference: Kafka forgets a closed
partition, and a partition that comes back is a new one; here it is loaded again with a higher epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ..errors import ErrorCode
from ..ports import NO_EPOCH


class PartitionState(Enum):
    """The state of a partition on this node."""

    INITIAL = "initial"  # not owned since the start
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"  # lost to another node, or fenced
    FAILED = "failed"  # could not be read, or not be served any more


class PartitionEvent(Enum):
    """What happens to a partition."""

    LOAD = "load"  # it was gained with a higher epoch
    LOADED = "loaded"
    FAIL = "fail"
    UNLOAD = "unload"


INITIAL, LOADING, ACTIVE, CLOSED, FAILED = PartitionState

TRANSITIONS: Mapping[tuple[PartitionState, PartitionEvent], PartitionState] = {
    (INITIAL, PartitionEvent.LOAD): LOADING,
    (CLOSED, PartitionEvent.LOAD): LOADING,
    (FAILED, PartitionEvent.LOAD): LOADING,
    (LOADING, PartitionEvent.LOADED): ACTIVE,
    (LOADING, PartitionEvent.FAIL): FAILED,
    (ACTIVE, PartitionEvent.FAIL): FAILED,
    (LOADING, PartitionEvent.UNLOAD): CLOSED,
    (ACTIVE, PartitionEvent.UNLOAD): CLOSED,
    (FAILED, PartitionEvent.UNLOAD): CLOSED,
}
"""The state after an event. An event that is not listed for a state is ignored."""


class Answers(NamedTuple):
    """The error codes of requests while a partition is in some state. NONE for ``request``: it is handled.

    Requests to a group have a code of their own for LOADING in ``group.requests``: a heartbeat gets NONE.
    ``listing``: the error of the whole list of groups or transactional ids; NONE: the partition is left out.
    ``marker``: the error of a marker of a transaction. NONE: it is appended to the log. A partition that failed needs
    it too; one that is loading may have been read without it.
    """

    request: ErrorCode
    listing: ErrorCode
    marker: ErrorCode


_NONE, _LOADING, _ELSEWHERE = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR

ANSWERS: Mapping[PartitionState, Answers] = {
    INITIAL: Answers(_ELSEWHERE, _NONE, _ELSEWHERE),
    LOADING: Answers(_LOADING, _LOADING, _LOADING),
    ACTIVE: Answers(_NONE, _NONE, _NONE),
    CLOSED: Answers(_ELSEWHERE, _NONE, _ELSEWHERE),
    FAILED: Answers(_ELSEWHERE, _NONE, _NONE),
}


class PartitionLife:
    """State and epoch of one partition. An epoch belongs to one period of ownership, and never decreases.

    ``failure``: why the partition is FAILED; empty in other states.
    """

    __slots__ = ("epoch", "failure", "state")

    def __init__(self) -> None:
        self.state = INITIAL
        self.epoch = NO_EPOCH
        self.failure = ""

    def apply(self, event: PartitionEvent, epoch: int, failure: str = "") -> bool:
        """Change the state. False if the event is ignored: it is late, or not possible in this state.

        LOAD needs a higher epoch than any before, every other event the epoch of the last LOAD.
        """
        is_current = epoch > self.epoch if event is PartitionEvent.LOAD else epoch == self.epoch
        state = TRANSITIONS.get((self.state, event))
        if state is None or not is_current:
            return False
        self.state, self.epoch, self.failure = state, epoch, failure
        return True

    @property
    def answers(self) -> Answers:
        return ANSWERS[self.state]

    @property
    def is_active(self) -> bool:
        return self.state is ACTIVE

    @property
    def is_loading(self) -> bool:
        return self.state is LOADING

    @property
    def is_failed(self) -> bool:
        return self.state is FAILED
