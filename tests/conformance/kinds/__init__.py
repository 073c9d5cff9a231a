"""All kinds of random scripts, with the settings of their servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..random_scripts import Author
from ..scenarios import PLAIN, Settings
from .bursts import Divided, Hurried
from .instance_ids import Sitters
from .offsets import Committers
from .producers import Abandoned, Producers
from .timed import INITIAL_DELAY_MS, Crowd, Delayed, Fading
from .topics import Movers
from .unusual_values import Strangers


class Kind(NamedTuple):
    """Scripts of one author on a server with these settings. ``seeds``: the number of scripts; some are dropped."""

    settings: Settings
    author: type[Author]
    seeds: int


KINDS: Mapping[str, Kind] = {
    "clients": Kind(PLAIN, Author, 420),
    "offsets": Kind(PLAIN, Committers, 50),
    "seats": Kind(PLAIN, Sitters, 60),
    "bursts": Kind(PLAIN, Hurried, 50),
    "divided": Kind(PLAIN, Divided, 40),
    "producers": Kind(PLAIN, Producers, 60),
    "strangers": Kind(PLAIN, Strangers, 60),
    "abandoned": Kind(PLAIN, Abandoned, 25),
    "topics": Kind(PLAIN, Movers, 25),
    "crowd": Kind({**PLAIN, "group.max.size": 3}, Crowd, 40),
    "delayed": Kind({**PLAIN, "group.initial.rebalance.delay.ms": INITIAL_DELAY_MS}, Delayed, 40),
    "fading": Kind({**PLAIN, "offsets.retention.check.interval.ms": 1000}, Fading, 25),
}
