"""An empty group of one kind becomes a group of another kind when a member of that kind joins.

A new group decides about the request. If it has records, the tombstones of the old kind come before them in the same
entry. Until that is durable, ``data`` has the old kind: see ``restart.handle_group_record_written``. Source: Kafka's
``maybeDeleteEmptyClassicGroup`` and ``maybeDeleteEmptyConsumerGroup``.
"""

from __future__ import annotations

from typing import Any

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import GroupRequest
from ..records import GroupType
from ..steps import Steps
from .active_group import ActiveGroup
from .contexts import NewGroupContext
from .effects import Effects
from .events import Reason
from .kind import Group
from .kinds import KINDS


def append_creation(group: Group, request: GroupRequest, effects: Effects) -> None:
    """Append the record of a group that the request has created, if it needs one."""
    record = group.creation_record(request)
    if record is not None:
        effects.append_record(record, NewGroupContext())


def handle_as(active: ActiveGroup, group_type: GroupType, request: GroupRequest, reply: ReplyTo | None) -> Any:
    """Let a new group of this kind handle the request. It takes the place of the empty group if it has records.

    Returns the answer, or the work that comes before it.
    """
    group, effects = KINDS[group_type].new_group(active.group_id, active.environment), active.effects
    answer = group.handle(request, reply, effects)
    if effects.work:
        return _finish_in_steps(active, group, request, answer)
    _replace(active, group, request)
    return answer


def _finish_in_steps(active: ActiveGroup, group: Group, request: GroupRequest, answer: object) -> Steps[object]:
    """The decision takes long. Its records are there after its last step."""
    work = active.effects.work
    while work:
        yield from work.popleft()
    _replace(active, group, request)
    return answer


def _replace(active: ActiveGroup, group: Group, request: GroupRequest) -> None:
    effects = active.effects
    if not effects.records:
        append_creation(group, request, effects)
    if effects.records:
        effects.records = (*active.data.kind.tombstones(active.group_id, active.data.value), *effects.records)
        effects.alarms = _cancelled_alarms(active.group) | effects.alarms
        active.group = group


def _cancelled_alarms(group: Group) -> dict[Any, int | None]:
    """An empty group may have deadlines of member ids that have not joined yet."""
    effects = Effects()
    group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, Reason.DELETED, effects)
    effects.finish_work()
    return effects.alarms
