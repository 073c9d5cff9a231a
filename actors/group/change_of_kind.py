"""A group becomes a group of another kind: an empty one when a member of that kind joins, one of consumers at any time.

A new group decides about the request. If it has records, the tombstones of the old kind come before them in the same
entry. Until that is durable, ``data`` has the old kind: see ``restart.handle_group_record_written``. A consumer group
that becomes a classic one is replaced only then. Source: Kafka's ``maybeDeleteEmptyClassicGroup``,
``maybeDeleteEmptyConsumerGroup``, ``convertToConsumerGroup`` and ``convertToClassicGroup``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..consumer_group.conversion import check_upgrade, upgrade_records
from ..consumer_group.group import ConsumerGroup, Successor
from ..consumer_group.messages import ConsumerHeartbeat
from ..consumer_group.requests import refused
from ..engine_ports import ReplyTo
from ..errors import CoordinatorError, ErrorCode
from ..messages import GroupRequest
from ..records import GroupType, Record
from ..steps import Steps, pieces, run_steps
from .active_group import ActiveGroup
from .classic import ClassicGroup
from .contexts import NewGroupContext
from .effects import Effects
from .events import Cause, Reason
from .kind import Group
from .kinds import KINDS
from .replies import answer_parked
from .states import Event


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
        return _finish_in_steps(active, answer, lambda: _create(active, group, request))
    _create(active, group, request)
    return answer


def _finish_in_steps(active: ActiveGroup, answer: object, replace: Callable[[], None]) -> Steps[object]:
    """The decision takes long. Its records are there after its last step."""
    work = active.effects.work
    while work:
        yield from work.popleft()
    replace()
    return answer


def _create(active: ActiveGroup, group: Group, request: GroupRequest) -> None:
    effects = active.effects
    if not effects.records:
        append_creation(group, request, effects)
    if effects.records:
        run_steps(_replace(active, group, ()))


def upgrade(active: ActiveGroup, request: ConsumerHeartbeat, reply: ReplyTo | None) -> Steps[Any]:
    """A member of the consumer protocol joins a classic group with members, which becomes a consumer group.

    If it may not, or the heartbeat is refused, the group stays as it is. Returns the answer.
    """
    classic, effects = active.group, active.effects
    assert isinstance(classic, ClassicGroup)
    group = ConsumerGroup(active.group_id, active.environment)
    try:
        check_upgrade(classic, group.decisions.settings)
        yield from answer_parked(classic, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        records = yield from upgrade_records(classic, _stored_value(active), group.decisions)
    except CoordinatorError as error:
        return refused(error)
    yield from group.adopt(records)
    answer = group.handle(request, reply, effects)
    while effects.work:
        yield from effects.work.popleft()
    if effects.records:
        yield from _replace(active, group, records)
        yield from group.restore_timers(effects)
    return answer


def _stored_value(active: ActiveGroup) -> Any:
    """The durable value of the group. None if it is that of another kind: the change of its kind is in flight."""
    return active.data.value if active.data.type == active.group.type else None


def downgrade(active: ActiveGroup) -> bool:
    """The records are durable by which a consumer group becomes a classic one. False if there were none."""
    group, effects = active.group, active.effects
    if not isinstance(group, ConsumerGroup) or group.successor is None:
        return False
    group.hand_over(effects)
    effects.run(_begin_downgraded(active, group.successor), len(group.soft.members))
    return True


def _begin_downgraded(active: ActiveGroup, successor: Successor) -> Steps[None]:
    classic, effects = successor.group, active.effects
    yield from _take_place(active, classic)
    for members in pieces(classic.members):
        for member in members:
            classic.renew_session(member, effects)
        yield
    if successor.needs_rebalance:
        classic.apply(Event.MEMBERS_LEFT, Cause(Reason.DOWNGRADED), effects)


def _replace(active: ActiveGroup, group: Group, records: tuple[Record, ...]) -> Steps[None]:
    """The records of the decision follow those that delete the old group, and ``records``."""
    effects = active.effects
    effects.records = (*_tombstones(active), *records, *effects.records)
    return _take_place(active, group)


def _tombstones(active: ActiveGroup) -> Iterator[Record]:
    """If a change of kind is in flight, it may be the last record or fail: the records of both kinds are deleted.

    Those in flight come first: Kafka ignores tombstones of a group that does not exist, but not those of another kind.
    """
    data, kind = active.data, active.group.type
    if kind != data.type:
        yield from KINDS[kind].tombstones(active.group_id, None)
    yield from data.kind.tombstones(active.group_id, data.value)


def _take_place(active: ActiveGroup, group: Group) -> Steps[None]:
    """Put a group in the place of one of another kind, whose deadlines are cancelled.

    Both have deadlines of the same names: those of the old group are cancelled before those of the new one are set.
    """
    old, effects = active.group, active.effects
    active.appends_before_change = active.in_flight.appends_sent
    active.group = group
    own_alarms, effects.alarms = effects.alarms, {}
    cancelled = yield from _cancelled_in_steps(old)
    active.cancelled_names = cancelled.keys()
    for piece in pieces(cancelled.items()):
        effects.alarms.update(piece)
        yield
    effects.alarms.update(own_alarms)


def _cancelled_in_steps(group: Group) -> Steps[dict[Any, int | None]]:
    """What is left of the group: its deadlines, such as those of member ids that have not joined yet."""
    effects = Effects()
    group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, Reason.DELETED, effects)
    while effects.work:
        yield from effects.work.popleft()
    return effects.alarms
