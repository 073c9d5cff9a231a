"""All kinds of random scripts, with the settings of their servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..random_scripts import Author
from ..scenarios import CONSUMER, PLAIN, Settings
from .bursts import Bursts, TwoGroups
from .consumers import SESSION_MS, Consumers, ConsumerSessions
from .instance_ids import InstanceIds
from .offsets import Committers
from .producers import Abandoned, Producers
from .timed import INITIAL_DELAY_MS, Delayed, Expiries, FullGroups
from .topics import Movers
from .unusual_values import UnusualValues


class Kind(NamedTuple):
    """Scripts of one author on a server with these settings. ``seeds``: the number of scripts; some are dropped."""

    settings: Settings
    author: type[Author]
    seeds: int


KINDS: Mapping[str, Kind] = {
    "clients": Kind(PLAIN, Author, 420),
    "offsets": Kind(PLAIN, Committers, 50),
    "instance-ids": Kind(PLAIN, InstanceIds, 60),
    "bursts": Kind(PLAIN, Bursts, 50),
    "two-groups": Kind(PLAIN, TwoGroups, 40),
    "producers": Kind(PLAIN, Producers, 60),
    "unusual-values": Kind(PLAIN, UnusualValues, 60),
    "abandoned": Kind(PLAIN, Abandoned, 25),
    "topics": Kind(PLAIN, Movers, 25),
    "full-groups": Kind({**PLAIN, "group.max.size": 3}, FullGroups, 40),
    "delayed": Kind({**PLAIN, "group.initial.rebalance.delay.ms": INITIAL_DELAY_MS}, Delayed, 40),
    "expiries": Kind({**PLAIN, "offsets.retention.check.interval.ms": 1000}, Expiries, 25),
    "consumers": Kind(CONSUMER, Consumers, 320),
    "consumer-sessions": Kind(
        {
            **CONSUMER,
            "group.consumer.min.session.timeout.ms": SESSION_MS,
            "group.consumer.session.timeout.ms": SESSION_MS,
        },
        ConsumerSessions,
        60,
    ),
}
