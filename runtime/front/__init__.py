"""Callboard: Kafka's group coordinator, built from actors.

This folder is the import name ``callboard`` itself. It stays light, because importing any part of the package runs it
first; what it offers from other folders is imported by name when it is asked for (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from callboard.actors.errors import CoordinatorError as CoordinatorError
    from callboard.actors.errors import ErrorCode as ErrorCode
    from callboard.runtime.common.errors import StartError as StartError
    from callboard.runtime.embed.coordinator import Coordinator as Coordinator
    from callboard.runtime.embed.thread import ThreadCoordinator as ThreadCoordinator
    from callboard.runtime.member.assignors.base import Assignor as Assignor
    from callboard.runtime.member.assignors.custom import FunctionAssignor as FunctionAssignor
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
    "Assignor": "callboard.runtime.member.assignors.base",
    "BlockingMember": "callboard.runtime.member.blocking",
    "BlockingShard": "callboard.runtime.member.blocking",
    "BlockingAssignment": "callboard.runtime.member.blocking",
    "ChannelLost": "callboard.runtime.member.channel",
    "CommitRefused": "callboard.runtime.member.errors",
    "Coordinator": "callboard.runtime.embed.coordinator",
    "CoordinatorError": "callboard.actors.errors",
    "ErrorCode": "callboard.actors.errors",
    "Fenced": "callboard.runtime.member.errors",
    "FunctionAssignor": "callboard.runtime.member.assignors.custom",
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
"""Where the public names live. ``callboard.testing`` is a module of this folder."""


if not TYPE_CHECKING:  # a type checker would take any name for one that there is

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'callboard' has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found  # the next time it is there
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
