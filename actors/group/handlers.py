"""The functions that handle requests to an active group. ``requests.REQUESTS`` names the one of each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..consumer_group.messages import JOIN_EPOCH, ConsumerHeartbeat
from ..consumer_group.records import CONSUMER
from ..consumer_group.requests import invalid_heartbeat
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import DescribedEvents, DescribeEvents, GroupRequest
from .active_group import ActiveGroup
from .applied import applied
from .change_of_kind import append_creation, handle_as, upgrade
from .classic import ClassicGroup
from .deletion import delete_group
from .describing_commits import describe_commits
from .explaining import explain
from .kind import Group
from .offset_requests import commit, commit_in_transaction, delete_offsets, fetch
from .requests import REQUESTS
from .reset_requests import describe_reset, reset_offsets


def handle_request(active: ActiveGroup, request: GroupRequest, reply: ReplyTo | None) -> object:
    """A request that the group handles by itself."""
    return applied(active, active.group.handle(request, reply, active.effects))


def create_or_handle(active: ActiveGroup, request: GroupRequest, reply: ReplyTo | None) -> object:
    """The same for a request that may create the group, or turn an empty group of another kind into one of its own."""
    group = active.group
    row = REQUESTS[type(request)]
    if group.is_empty and group.type != row.creates:
        if (refusal := row.absent(request)) is not None:  # it is for a member of the earlier group
            return refusal
        return applied(active, handle_as(active, row.creates, request, reply))
    effects = active.effects
    answer = group.handle(request, reply, effects)
    if active.data.is_empty() and active.in_flight.is_all_appended and not effects.records:
        append_creation(group, request, effects)
    return applied(active, answer)


def beat(active: ActiveGroup, request: ConsumerHeartbeat, reply: ReplyTo | None) -> object:
    """A heartbeat that may change something; see ``answer_heartbeat`` for the others."""
    group = active.group
    if group.type != CONSUMER:
        return _beat_other_kind(active, request, reply)
    return applied(active, group.handle(request, reply, active.effects))


def _beat_other_kind(active: ActiveGroup, request: ConsumerHeartbeat, reply: ReplyTo | None) -> object:
    invalid = invalid_heartbeat(request, active.environment.consumer_groups.assignors)
    if invalid is not None:
        return invalid
    if request.member_epoch == JOIN_EPOCH and _is_classic_with_members(active.group):
        return applied(active, upgrade(active, request, reply))
    if request.member_epoch == JOIN_EPOCH:
        return create_or_handle(active, request, reply)
    return applied(active, active.group.handle(request, reply, active.effects))


def _is_classic_with_members(group: Group) -> bool:
    return isinstance(group, ClassicGroup) and group.state.may_have_members


def describe_events(active: ActiveGroup, _request: DescribeEvents, _reply: ReplyTo | None) -> DescribedEvents:
    return DescribedEvents(ErrorCode.NONE, active.effects.kept_events)


Handler = Callable[[ActiveGroup, Any, ReplyTo | None], object]

HANDLERS: Mapping[str, Handler] = {
    function.__name__: function
    for function in (
        handle_request,
        create_or_handle,
        beat,
        describe_commits,
        describe_events,
        explain,
        commit,
        commit_in_transaction,
        fetch,
        delete_offsets,
        reset_offsets,
        describe_reset,
        delete_group,
    )
}
"""By name. Each returns the reply, or ``DEFERRED`` if ``reply`` is set later."""
