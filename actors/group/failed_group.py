"""FailedGroup: stands in for a group whose actor had too many bugs. It refuses, keeps its records, and ends by itself.

Clients hear COORDINATOR_NOT_AVAILABLE, which makes them come again. What was on its way to the log still arrives and is
answered. After a minute the first request lets the group have its next chance: the stand-in falls asleep, and who comes
back behind the same reference is the group, from what is durable.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, get_args

from ..base import SteadfastActor
from ..errors import ErrorCode
from ..messages import ExpireOffsets, ForgetTopics, GroupRequest, Shutdown, Written
from ..records import MarkerRecord
from ..refusal import refusal
from ..timer.messages import Expired
from .in_flight import Kept
from .offsets import GroupData

if TYPE_CHECKING:
    from .environment import GroupEnvironment

log = logging.getLogger("callboard.actors")

FAILED_FOR_MS = 60_000
"""How long a group with too many bugs is left alone: its clients come again every second or so, and wait that long."""


class FailedGroup(SteadfastActor):
    """Made with the arguments of the GroupActor in whose place it stands."""

    may_sleep = True
    handlers = {
        **dict.fromkeys(get_args(GroupRequest), "refuse"),
        ExpireOffsets: "ignore",
        ForgetTopics: "ignore",
        Written: "written",
        MarkerRecord: "transaction_ended",
        Expired: "ignore",
        Shutdown: "ignore",
    }

    def __init__(self, group_id: str, partition: int, data: GroupData, environment: GroupEnvironment) -> None:
        super().__init__()
        self._data = data
        self._clock = environment.clock
        self._until_ms = self._clock.monotonic_ms() + FAILED_FOR_MS
        self._kept: Kept

    def on_return(self, kept: Kept) -> None:
        self._kept = kept
        log.error("group %r is left alone for %d s: too many bugs, %r", kept.group_id, FAILED_FOR_MS // 1000, kept.bug)
        kept.underway.give_up(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def on_leave(self, error: Exception | None) -> Kept:
        return self._kept

    def refuse(self, request: GroupRequest) -> Any:
        if self._clock.monotonic_ms() >= self._until_ms and self._kept.underway.is_quiet:
            self.sleep()
        return refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def written(self, message: Written) -> None:
        """A record of the group that failed has reached the log, or not."""
        self._kept.underway.appends_done += 1
        if message.outcome.error is ErrorCode.NONE:
            for record in message.records:
                self._data.replay(record)
        answer = getattr(message.context, "answer", None)
        if answer is not None:
            answer(message.outcome.error)

    def transaction_ended(self, marker: MarkerRecord) -> None:
        self._data.replay(marker)

    def ignore(self, _message: Any) -> None:
        """Alarms of members that are not here, the sweep, and the end: nobody is parked."""
