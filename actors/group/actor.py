"""GroupActor: the actor of one group. Its mailbox serializes all messages, so nothing here needs a lock.

In a turn the group or ``GroupData`` decides, and ``ActiveGroup`` applies the effects: it sends records to the writer,
alarms to the timer, and replies. Records take effect when they are durable, by the same ``replay`` as at loading.
"""

from __future__ import annotations

from typing import Any

from ..base import Actor, Overflow, Supervision, requeue_first
from ..consumer_group.messages import ConsumerHeartbeat
from ..engine_ports import NOT_HANDLED
from ..errors import NO_ERROR, ErrorCode
from ..messages import (
    DeleteTopicOffsets,
    ExpireOffsets,
    FinishLoad,
    Heartbeat,
    OffsetCommit,
    Shutdown,
    Unload,
    Unpack,
    Written,
)
from ..records import MarkerRecord
from ..steps import SHORT_WORK_ITEMS, Steps
from ..timer.messages import Expired
from .active_group import ActiveGroup
from .alarms import expire
from .appended import complete_append, replay_in_steps, work_and_resume
from .deletion import delete_topic_offsets, expire_offsets, wait_for_deletion
from .environment import GroupEnvironment
from .events import Reason
from .failed_group import FailedGroup
from .handlers import HANDLERS
from .heartbeats import answer_heartbeat
from .in_flight import GroupSnapshot
from .kind import Group
from .offset_requests import commit
from .offsets import GroupData
from .requests import REQUESTS
from .restart import reply_to_all, start


class GroupActor(Actor):
    """One group: members, generation, offsets.

    After a bug it restarts from its durable state; after too many bugs a ``FailedGroup`` replaces it for a while.
    Without members and requests it is passivated; the coordinator keeps its packed data.
    """

    supervision = Supervision(restarts=3, within_ms=10_000)
    placeholder = FailedGroup
    may_pause = True
    may_passivate = True
    high_water = 10_000
    overflow = Overflow.PAUSE
    handlers = {
        Heartbeat: "heartbeat",
        ConsumerHeartbeat: "heartbeat",
        OffsetCommit: "commit",
        Written: "handle_written",
        MarkerRecord: "apply_marker",
        Expired: "handle_expired",
        ExpireOffsets: "delete_offsets",
        DeleteTopicOffsets: "delete_offsets",
        Shutdown: "shut_down",
        Unload: "unload",
        FinishLoad: "finish_load",
        Unpack: "unpack",
    }

    immediate_handlers = {Heartbeat: answer_heartbeat, ConsumerHeartbeat: answer_heartbeat}

    def __init__(self, group_id: str, partition: int, data: GroupData, environment: GroupEnvironment) -> None:
        super().__init__()
        self.group_id = group_id
        self.data = data
        self.active = ActiveGroup(self._actor_ref, group_id, partition, data, environment)

    def __str__(self) -> str:
        return f"group {self.group_id!r}"

    @property
    def group(self) -> Group:
        return self.active.group

    def on_start(self) -> None:
        start(self.active)

    def finish_load(self, _message: FinishLoad) -> Steps[None]:
        return work_and_resume(self.active)

    # Requests --------------------------------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> Any:
        """Requests are handled by their row. Those in ``handlers`` take a shorter path, since they are frequent."""
        row = REQUESTS.get(type(message))  # nosec B113 # not the library
        if row is None:
            return super().on_receive(message)
        if row.waits_for_deletion and self.active.in_flight.deletion is not None:
            return wait_for_deletion(self.active, message, self.reply_to)
        return HANDLERS[row.handler](self.active, message, self.reply_to)

    def heartbeat(self, request: Heartbeat | ConsumerHeartbeat) -> object:
        """A heartbeat that may change something is handled by its row."""
        answer = answer_heartbeat(self, request)
        return self.on_receive(request) if answer is NOT_HANDLED else answer

    def commit(self, request: OffsetCommit) -> object:
        return commit(self.active, request, self.reply_to)

    # From the coordinator and the writer of markers ------------------------------------------------------------------

    def unpack(self, _message: Unpack) -> Steps[None]:
        yield from self.data.unpack_in_steps()
        self.active.count_memory()

    def apply_marker(self, marker: MarkerRecord) -> None:
        """A marker of a transaction is durable, and so are the transaction's offsets of this group."""
        self.data.replay(marker)
        self.active.apply_effects()

    def delete_offsets(self, message: ExpireOffsets | DeleteTopicOffsets) -> object:
        if isinstance(message, ExpireOffsets):
            return expire_offsets(self.active, message, self.reply_to)
        return delete_topic_offsets(self.active, message, self.reply_to)

    def shut_down(self, _message: Shutdown) -> Steps[None]:
        """NOT_COORDINATOR makes clients look up the coordinator again, and find it after the restart."""
        return self.active.close_in_steps(ErrorCode.NOT_COORDINATOR, Reason.SERVER_STOPS)

    def unload(self, _message: Unload) -> Steps[None]:
        """Stop. The writer replies to requests whose records are in flight."""
        yield from self.active.close_in_steps(ErrorCode.NOT_COORDINATOR, Reason.PARTITION_LOST)
        self.active.in_flight.fail_pending(ErrorCode.NOT_COORDINATOR)
        self._stop()

    # From the timer and the writer -----------------------------------------------------------------------------------

    def handle_expired(self, message: Expired) -> Steps[None]:
        if (yield from expire(self.active, message.names)):
            self.passivate()

    def handle_written(self, message: Written) -> Steps[None] | None:
        records = message.records if message.outcome.error is NO_ERROR else ()
        self.active.in_flight.appends_done += 1
        if len(records) > SHORT_WORK_ITEMS:
            return replay_in_steps(self.active, message)
        for record in records:
            self.data.replay(record)
        return complete_append(self.active, message)

    # Passivation and restart -----------------------------------------------------------------------------------------

    def save_state(self, error: Exception | None) -> GroupSnapshot:
        active = self.active
        if error is not None:
            reply_to_all(active, self.reply_to, error)
        active.effects.forget_events()
        return GroupSnapshot(self.group_id, self.data, active.in_flight, error)

    def restore_state(self, snapshot: GroupSnapshot) -> None:
        if self.data.packed_chunks:
            requeue_first(self.actor_inbox, [(Unpack(), None)])
        self.active.in_flight = snapshot.in_flight
        snapshot.in_flight.stale_appends = snapshot.in_flight.appends_sent
