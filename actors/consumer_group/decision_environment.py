"""GroupDecisions: the environment of the decisions of one group, read when a decision needs it."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from ..assignors.server.base import ServerAssignor
from ..group.environment import GroupEnvironment
from ..ports import GroupConfigs, GroupSettings, Random, TopicsView
from ..steps import Steps
from .messages import RegexesResolved, TopicFilter
from .plan import RegexMatcher
from .policy import MigrationPolicy
from .records import RegexValue

log = logging.getLogger("callboard.actors")


class OwnSettings:
    """The settings of all groups, with those of this one in their place (KIP-848, resource type GROUP)."""

    __slots__ = ("_configs", "_group_id", "_settings")

    def __init__(self, group_id: str, settings: GroupSettings, configs: GroupConfigs) -> None:
        self._group_id = group_id
        self._settings = settings
        self._configs = configs

    @property
    def max_size(self) -> int:
        return self._settings.group_consumer_max_size

    @property
    def session_timeout_ms(self) -> int:
        own, default = self._configs.get(self._group_id), self._settings.group_consumer_session_timeout_ms
        return default if own is None else own.get("consumer.session.timeout.ms", default)

    @property
    def heartbeat_interval_ms(self) -> int:
        own, default = self._configs.get(self._group_id), self._settings.group_consumer_heartbeat_interval_ms
        return default if own is None else own.get("consumer.heartbeat.interval.ms", default)

    @property
    def assignment_interval_ms(self) -> int:
        own, default = self._configs.get(self._group_id), self._settings.group_consumer_assignment_interval_ms
        return default if own is None else own.get("consumer.assignment.interval.ms", default)

    @property
    def regex_refresh_interval_ms(self) -> int:
        return self._settings.group_consumer_regex_refresh_interval_ms

    @property
    def migration_policy(self) -> MigrationPolicy:
        return MigrationPolicy(self._settings.group_consumer_migration_policy)

    @property
    def classic_max_size(self) -> int:
        return self._settings.group_max_size


class GroupDecisions:
    """``DecisionEnvironment`` of one group."""

    __slots__ = ("_environment", "_group_id", "is_resolving", "settings", "topics")

    def __init__(self, group_id: str, environment: GroupEnvironment) -> None:
        self.settings = OwnSettings(group_id, environment.settings, environment.consumer_groups.configs)
        self.topics: TopicsView = environment.topics
        self.is_resolving = False
        self._environment = environment
        self._group_id = group_id

    @property
    def regexes(self) -> RegexMatcher:
        return self._environment.consumer_groups.regexes

    def resolution(
        self, regexes: Collection[str], describable: TopicFilter | None = None
    ) -> Callable[[], RegexesResolved]:
        """The work of matching all topics that exist now. None begins before the result of this one."""
        self.is_resolving = True
        names, version, now_ms = tuple(self.topics.names()), self.topics.version, self.wall_ms
        result = RegexesResolved(self._group_id, {}, describable)
        return partial(resolve, result, self.regexes, tuple(regexes), names, RegexValue((), version, now_ms))

    @property
    def assignors(self) -> Mapping[str, ServerAssignor]:
        return self._environment.consumer_groups.assignors

    def metadata_hash(self, names: Iterable[str]) -> Steps[int]:
        return self._environment.consumer_groups.metadata_hash(self.topics, names)

    def new_member_id(self) -> str:
        return new_member_id(self._environment.random)

    def refuses_new_members(self) -> bool:
        """Whether the limit of memory is reached."""
        return self._environment.memory_limit.refuses_new()

    @property
    def metadata_max(self) -> int:
        return self._environment.settings.offset_metadata_max_bytes

    @property
    def wall_ms(self) -> int:
        return self._environment.clock.wall_ms()


def resolve(
    result: RegexesResolved, matcher: RegexMatcher, regexes: Collection[str], names: Collection[str], value: RegexValue
) -> RegexesResolved:
    """Runs in the background. ``result``: without topics. ``value``: the version of the topics, and the time."""
    try:
        found = matcher.find(regexes, names)
    except Exception:
        log.exception("the regular expressions of group %r could not be resolved", result.group_id)
        return result
    return result._replace(resolved={regex: value._replace(topics=topics) for regex, topics in found.items()})


def new_member_id(random: Random) -> str:
    """A UUID as Kafka writes it: 22 characters of base64url that do not begin with "-"."""
    while True:
        text = urlsafe_b64encode(bytes.fromhex(random.uuid().replace("-", ""))).decode().rstrip("=")
        if not text.startswith("-"):
            return text
