"""A heartbeat that changes nothing is answered without a decision, because it is the most frequent request."""

from __future__ import annotations

from ..errors import NO_ERROR
from .messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from .plan import DecisionEnvironment
from .records import MemberState
from .regexes import due_regexes
from .state import GroupState, UnchangedHeartbeat

STABLE = MemberState.STABLE  # in Python 3.11 reading an attribute of an enum costs as much as a function call

UNCHANGED = ConsumerHeartbeat("", "", 0)[4:10]
"""What a heartbeat says of the member and its partitions, after the instance id, if all is as before."""


def unchanged_reply(
    state: GroupState, request: ConsumerHeartbeat, environment: DecisionEnvironment
) -> ConsumerHeartbeatReply | None:
    """The reply of ``handle_heartbeat``, if it would write nothing; None if the heartbeat has to be decided."""
    last = state.unchanged.get(request.member_id)
    if (
        last is None
        or last.request is not request
        or last.reply.heartbeat_interval_ms != environment.settings.heartbeat_interval_ms
    ):
        return _checked_reply(state, request, environment)
    return last.reply if state.seen.topics_version == environment.topics.version else None


def _checked_reply(
    state: GroupState, request: ConsumerHeartbeat, environment: DecisionEnvironment
) -> ConsumerHeartbeatReply | None:
    member, epoch, instance_id = state.members.get(request.member_id), request.member_epoch, request.instance_id
    if member is None or epoch <= 0 or request[4:10] != UNCHANGED:
        return None
    about, current = member.about, member.current
    if epoch != current.member_epoch or current.state is not STABLE:
        return None
    if (
        epoch != state.epoch.epoch
        or epoch != state.target.epoch
        or state.seen.topics_version != environment.topics.version
    ):
        return None
    if request.client_id != about.client_id or request.client_host != about.client_host or about.classic is not None:
        return None
    if instance_id is not None and state.static_members.get(instance_id) != request.member_id:
        return None
    if state.regex_members and due_regexes(state, about.regex, about.regex, environment):
        return None
    interval_ms = environment.settings.heartbeat_interval_ms
    reply = ConsumerHeartbeatReply(NO_ERROR, None, request.member_id, epoch, interval_ms)
    if not state.regex_members:
        state.unchanged[request.member_id] = UnchangedHeartbeat(request, reply)
    return reply
