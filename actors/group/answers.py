"""Requests that change nothing but a session: heartbeats, descriptions, and the consent to changes of offsets. Pure.

For commits and deletions the group returns only an error code; for NONE its actor does the rest.
"""

from __future__ import annotations

from ..engine_ports import ReplyTo
from ..errors import NO_ERROR, ErrorCode
from ..messages import Described, DescribedMember, DescribeGroup, Heartbeat, OffsetCommit, OffsetDelete, TxnOffsetCommit
from ..steps import SHORT_WORK_ITEMS, Steps, pieces, run_steps
from .core import GroupCore
from .effects import Effects
from .subscription import CONSUMER_PROTOCOL_TYPE


def renew_session(
    group: GroupCore, request: Heartbeat | OffsetCommit, _reply: ReplyTo | None, effects: Effects
) -> ErrorCode:
    """Hot path: the sender is a member, since its identity was checked."""
    member = group.members.by_id[request.member_id]
    member.session.set(group.clock.monotonic_ms() + member.session_timeout_ms, effects)
    return NO_ERROR


def ask_to_rejoin(group: GroupCore, request: Heartbeat, _reply: ReplyTo | None, effects: Effects) -> ErrorCode:
    """A heartbeat keeps the session during a rebalance too."""
    group.renew_session(group.members.by_id[request.member_id], effects)
    return ErrorCode.REBALANCE_IN_PROGRESS


def accept_without_generation(
    _group: GroupCore, request: OffsetCommit | TxnOffsetCommit, _reply: ReplyTo | None, _effects: Effects
) -> ErrorCode:
    """In a group without members only simple consumers and producers may commit; they have no generation."""
    return NO_ERROR if request.generation_id < 0 else ErrorCode.UNKNOWN_MEMBER_ID


def accept_of_consumers(
    group: GroupCore, _request: OffsetDelete, _reply: ReplyTo | None, _effects: Effects
) -> ErrorCode:
    """With members, offsets may be deleted only if the subscriptions can be parsed."""
    return NO_ERROR if group.protocol_type == CONSUMER_PROTOCOL_TYPE else ErrorCode.NON_EMPTY_GROUP


def describe(group: GroupCore, _request: DescribeGroup, _reply: ReplyTo | None, _effects: Effects) -> object:
    """Without a protocol and the members' subscriptions: there is no generation, or its assignment is not durable."""
    return _described(group, None)


def describe_protocol(group: GroupCore, _request: DescribeGroup, _reply: ReplyTo | None, _effects: Effects) -> object:
    return _described(group, group.protocol_name)


def _described(group: GroupCore, protocol: str | None) -> object:
    """The description, or the work that makes it."""
    steps = _describe_in_steps(group, protocol)
    return steps if len(group.members) > SHORT_WORK_ITEMS else run_steps(steps)


def _describe_in_steps(group: GroupCore, protocol: str | None) -> Steps[Described]:
    described: list[DescribedMember] = []
    for members in pieces(group.members):
        described += [member.described(protocol) for member in members]
        yield
    return Described(
        ErrorCode.NONE,
        group.group_id,
        group.state.value,
        group.protocol_type or "",
        protocol or "",
        tuple(described),
    )


def describe_closed(group: GroupCore, _request: DescribeGroup, _reply: ReplyTo | None, _effects: Effects) -> Described:
    return Described(ErrorCode.NONE, group.group_id, group.state.value)
