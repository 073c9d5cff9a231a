"""FailedGroup: the placeholder of a group whose actor had too many bugs. It refuses requests for 60 s.

Clients get COORDINATOR_NOT_AVAILABLE and retry. Records in flight are still applied and their requests get replies.
The first request after 60 s passivates the placeholder. The next one activates the group again, behind the same
reference, with its durable state.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..base import ResilientActor
from ..error_reply import error_reply
from ..errors import ErrorCode
from ..messages import DeleteTopicOffsets, ExpireOffsets, FinishLoad, GroupRequest, Shutdown, Unload, Unpack, Written
from ..records import MarkerRecord
from ..timer.messages import Expired
from .in_flight import GroupSnapshot, InFlight
from .offsets import GroupData
from .requests import REQUESTS

if TYPE_CHECKING:
    from .environment import GroupEnvironment

log = logging.getLogger("callboard.actors")

FAILED_FOR_MS = 60_000
"""How long a group with too many bugs stays unavailable. Its clients retry about every second."""


class FailedGroup(ResilientActor):
    """Has the same constructor arguments as the GroupActor that it replaces."""

    may_passivate = True
    handlers = {
        ExpireOffsets: "ignore",
        DeleteTopicOffsets: "ignore",
        Written: "handle_written",
        MarkerRecord: "apply_marker",
        Expired: "ignore",
        Shutdown: "ignore",  # no requests are parked
        Unload: "unload",
        FinishLoad: "ignore",  # the next actor of the group gets another one
        Unpack: "ignore",  # the same
    }

    def __init__(self, group_id: str, partition: int, data: GroupData, environment: GroupEnvironment) -> None:
        super().__init__()
        self._data = data
        self._clock = environment.clock
        self._until_ms = self._clock.monotonic_ms() + FAILED_FOR_MS
        self._snapshot = GroupSnapshot(group_id, data, InFlight(), None)  # until ``restore_state``

    def restore_state(self, snapshot: GroupSnapshot) -> None:
        self._snapshot = snapshot
        log.error(
            "group %r is unavailable for %d s after too many bugs: %r",
            snapshot.group_id,
            FAILED_FOR_MS // 1000,
            snapshot.bug,
        )
        snapshot.in_flight.fail_pending(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def save_state(self, error: Exception | None) -> GroupSnapshot:
        return self._snapshot

    def on_receive(self, message: Any) -> Any:
        return self.refuse(message) if type(message) in REQUESTS else super().on_receive(message)

    def refuse(self, request: GroupRequest) -> Any:
        if self._clock.monotonic_ms() >= self._until_ms and self._snapshot.in_flight.is_idle:
            self.passivate()
        return error_reply(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def handle_written(self, message: Written) -> None:
        """The outcome of an append by the group that failed."""
        self._snapshot.in_flight.appends_done += 1
        if message.outcome.error is ErrorCode.NONE:
            for record in message.records:
                self._data.replay(record)
        send_reply = getattr(message.context, "answer", None)
        if send_reply is not None:
            send_reply(message.outcome.error)

    def apply_marker(self, marker: MarkerRecord) -> None:
        self._data.replay(marker)

    def unload(self, _message: Unload) -> None:
        """Its partition was lost."""
        self._stop()

    def ignore(self, _message: Any) -> None:
        """Deadlines of the failed instance, scans and shutdown need no action."""
