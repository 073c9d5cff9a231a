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
    from callboard.actors.assignors.custom import FunctionAssignor as FunctionAssignor
    from callboard.actors.errors import CoordinatorError as CoordinatorError
    from callboard.actors.errors import ErrorCode as ErrorCode
    from callboard.runtime.common.errors import StartError as StartError
    from callboard.runtime.embed.coordinator import Coordinator as Coordinator
    from callboard.runtime.embed.thread import ThreadCoordinator as ThreadCoordinator
    from callboard.runtime.member.blocking import BlockingAssignment as BlockingAssignment
    from callboard.runtime.member.blocking import BlockingMember as BlockingMember
    from callboard.runtime.member.blocking import BlockingShard as BlockingShard
    from callboard.runtime.member.channel import ChannelLost as ChannelLost
    from callboard.runtime.member.connect import connect as connect
    from callboard.runtime.member.connect import connect_in_thread as connect_in_thread
    from callboard.runtime.member.errors import CommitRefused as CommitRefused
    from callboard.runtime.member.errors import Fenced as Fenced
    from callboard.runtime.member.errors import MemberError as MemberError
    from callboard.runtime.member.errors import ShardLost as ShardLost
    from callboard.runtime.member.member import Member as Member
    from callboard.runtime.member.shards import Assignment as Assignment
    from callboard.runtime.member.shards import CommitResult as CommitResult
    from callboard.runtime.member.shards import Shard as Shard

_HOMES = {
    "Assignor": "callboard.actors.assignors.base",
    "BlockingMember": "callboard.runtime.member.blocking",
    "BlockingShard": "callboard.runtime.member.blocking",
    "BlockingAssignment": "callboard.runtime.member.blocking",
    "ChannelLost": "callboard.runtime.member.channel",
    "CommitRefused": "callboard.runtime.member.errors",
    "Coordinator": "callboard.runtime.embed.coordinator",
    "CoordinatorError": "callboard.actors.errors",
    "ErrorCode": "callboard.actors.errors",
    "Fenced": "callboard.runtime.member.errors",
    "FunctionAssignor": "callboard.actors.assignors.custom",
    "Member": "callboard.runtime.member.member",
    "MemberError": "callboard.runtime.member.errors",
    "CommitResult": "callboard.runtime.member.shards",
    "Shard": "callboard.runtime.member.shards",
    "StartError": "callboard.runtime.common.errors",
    "ThreadCoordinator": "callboard.runtime.embed.thread",
    "Assignment": "callboard.runtime.member.shards",
    "ShardLost": "callboard.runtime.member.errors",
    "connect": "callboard.runtime.member.connect",
    "connect_in_thread": "callboard.runtime.member.connect",
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
    return sorted({*globals(), *_HOMES})
