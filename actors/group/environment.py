"""GroupEnvironment: dependencies of GroupActor and FailedGroup."""

from __future__ import annotations

from typing import NamedTuple

from ..base import ActorRef
from ..consumer_group.environment import ConsumerGroupPorts
from ..engine_ports import Clock
from ..memory import GroupMemory, MemoryLimit
from ..ports import GroupSettings, Random, TopicsView
from .effects import GroupCounters
from .event_log import EventLog


class GroupEnvironment(NamedTuple):
    """Settings, clock, source of member ids, topics, and the actors that a group sends messages to."""

    settings: GroupSettings
    clock: Clock
    random: Random
    coordinator: ActorRef
    timer: ActorRef
    writer: ActorRef
    counters: GroupCounters
    event_log: EventLog
    topics: TopicsView
    memory: GroupMemory
    memory_limit: MemoryLimit
    consumer_groups: ConsumerGroupPorts
