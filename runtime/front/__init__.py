"""Callboard: Kafka's group coordinator, built from actors.

This folder is the package ``callboard`` itself. An import of any part of the package runs this file first, so it
imports nothing else: the public names of other folders are imported on first use (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from callboard.actors.assignors.base import Assignor as Assignor
    from callboard.actors.assignors.base import MemberState as MemberState
    from callboard.actors.assignors.base import MemberSubscription as MemberSubscription
    from callboard.actors.assignors.custom import FunctionAssignor as FunctionAssignor
    from callboard.actors.assignors.custom import InvalidAssignment as InvalidAssignment
    from callboard.actors.callboard_error import CallboardError as CallboardError
    from callboard.actors.errors import CoordinatorError as CoordinatorError
    from callboard.actors.errors import ErrorCode as ErrorCode
    from callboard.runtime.common.errors import StartError as StartError
    from callboard.runtime.embed.coordinator import Coordinator as Coordinator
    from callboard.runtime.embed.results import CommittedOffset as CommittedOffset
    from callboard.runtime.embed.results import CoordinatorStats as CoordinatorStats
    from callboard.runtime.embed.results import GroupDescription as GroupDescription
    from callboard.runtime.embed.results import GroupExplanation as GroupExplanation
    from callboard.runtime.embed.results import GroupMember as GroupMember
    from callboard.runtime.embed.results import GroupPage as GroupPage
    from callboard.runtime.embed.results import GroupReset as GroupReset
    from callboard.runtime.embed.results import Health as Health
    from callboard.runtime.embed.results import ListedGroup as ListedGroup
    from callboard.runtime.embed.results import OffsetsOf as OffsetsOf
    from callboard.runtime.embed.results import PartitionRange as PartitionRange
    from callboard.runtime.embed.results import RebalanceRecord as RebalanceRecord
    from callboard.runtime.embed.results import ResetChange as ResetChange
    from callboard.runtime.embed.results import ResetProgress as ResetProgress
    from callboard.runtime.embed.results import ShiftBy as ShiftBy
    from callboard.runtime.embed.results import TopicDescription as TopicDescription
    from callboard.runtime.embed.thread import ThreadCoordinator as ThreadCoordinator
    from callboard.runtime.member.blocking import BlockingAssignment as BlockingAssignment
    from callboard.runtime.member.blocking import BlockingMember as BlockingMember
    from callboard.runtime.member.blocking import BlockingShard as BlockingShard
    from callboard.runtime.member.channel import ChannelLost as ChannelLost
    from callboard.runtime.member.connect import connect as connect
    from callboard.runtime.member.connect import connect_in_thread as connect_in_thread
    from callboard.runtime.member.errors import CommitRefused as CommitRefused
    from callboard.runtime.member.errors import Fenced as Fenced
    from callboard.runtime.member.errors import HasLeft as HasLeft
    from callboard.runtime.member.errors import MemberError as MemberError
    from callboard.runtime.member.errors import ShardLost as ShardLost
    from callboard.runtime.member.member import Member as Member
    from callboard.runtime.member.options import MemberOptions as MemberOptions
    from callboard.runtime.member.shards import Assignment as Assignment
    from callboard.runtime.member.shards import CommitResult as CommitResult
    from callboard.runtime.member.shards import Shard as Shard
    from callboard.runtime.member.signals import leave_on_signals as leave_on_signals

_HOMES = {
    "Assignment": "callboard.runtime.member.shards",
    "Assignor": "callboard.actors.assignors.base",
    "BlockingAssignment": "callboard.runtime.member.blocking",
    "BlockingMember": "callboard.runtime.member.blocking",
    "BlockingShard": "callboard.runtime.member.blocking",
    "CallboardError": "callboard.actors.callboard_error",
    "ChannelLost": "callboard.runtime.member.channel",
    "CommitRefused": "callboard.runtime.member.errors",
    "CommitResult": "callboard.runtime.member.shards",
    "CommittedOffset": "callboard.runtime.embed.results",
    "Coordinator": "callboard.runtime.embed.coordinator",
    "CoordinatorError": "callboard.actors.errors",
    "CoordinatorStats": "callboard.runtime.embed.results",
    "ErrorCode": "callboard.actors.errors",
    "Fenced": "callboard.runtime.member.errors",
    "FunctionAssignor": "callboard.actors.assignors.custom",
    "GroupDescription": "callboard.runtime.embed.results",
    "GroupExplanation": "callboard.runtime.embed.results",
    "GroupMember": "callboard.runtime.embed.results",
    "GroupPage": "callboard.runtime.embed.results",
    "GroupReset": "callboard.runtime.embed.results",
    "HasLeft": "callboard.runtime.member.errors",
    "Health": "callboard.runtime.embed.results",
    "InvalidAssignment": "callboard.actors.assignors.custom",
    "ListedGroup": "callboard.runtime.embed.results",
    "Member": "callboard.runtime.member.member",
    "MemberError": "callboard.runtime.member.errors",
    "MemberOptions": "callboard.runtime.member.options",
    "MemberState": "callboard.actors.assignors.base",
    "MemberSubscription": "callboard.actors.assignors.base",
    "OffsetsOf": "callboard.runtime.embed.results",
    "PartitionRange": "callboard.runtime.embed.results",
    "RebalanceRecord": "callboard.runtime.embed.results",
    "ResetChange": "callboard.runtime.embed.results",
    "ResetProgress": "callboard.runtime.embed.results",
    "Shard": "callboard.runtime.member.shards",
    "ShardLost": "callboard.runtime.member.errors",
    "ShiftBy": "callboard.runtime.embed.results",
    "StartError": "callboard.runtime.common.errors",
    "ThreadCoordinator": "callboard.runtime.embed.thread",
    "TopicDescription": "callboard.runtime.embed.results",
    "connect": "callboard.runtime.member.connect",
    "connect_in_thread": "callboard.runtime.member.connect",
    "leave_on_signals": "callboard.runtime.member.signals",
}
"""The module of each public name. ``callboard.testing`` is a module of this folder."""


if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'callboard' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value  # so that the next access does not call this function
        return value


def __dir__() -> list[str]:
    return sorted((*_HOMES, "__doc__", "__version__"))
