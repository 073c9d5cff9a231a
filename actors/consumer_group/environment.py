"""What groups of the consumer protocol get from outside, besides the environment of all groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ..assignors.server.base import ServerAssignor
from ..assignors.server.table import SERVER_ASSIGNORS
from ..ports import NO_CONFIGS, BackgroundWork, GroupConfigs, InlineWork, TopicsView
from ..steps import Steps
from .metadata_hash import metadata_hash
from .plan import NoRegexes, RegexMatcher

TopicsHash = Callable[[TopicsView, Iterable[str]], Steps[int]]


class ConsumerGroupPorts(NamedTuple):
    """``assignors``: by name; the first is the default. ``metadata_hash``: of those of these topics that exist.

    ``configs``: settings of single groups. ``regexes``: matches topics, in the ``background``.
    """

    assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS
    metadata_hash: TopicsHash = metadata_hash
    configs: GroupConfigs = NO_CONFIGS
    regexes: RegexMatcher = NoRegexes()
    background: BackgroundWork = InlineWork()
