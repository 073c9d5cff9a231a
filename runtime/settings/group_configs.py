"""Settings of single groups (Kafka's resource type GROUP): names, valid values, and the values in effect.

Source: ``GroupConfig`` and ``GroupConfigManager`` of Kafka 4.3.1. A group may have settings before it exists, and keeps
them when it is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ..common.logs import get_logger
from .rows import INT_MAX
from .table import Settings

GROUPS_MAX = 1000
"""Groups with settings of their own. Kafka has no limit; here each change writes all of them."""

GROUP_ID_CHARS_MAX = 1000

WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")

log = get_logger("callboard.runtime")

Overrides = Mapping[str, int]
"""The settings of a group, by Kafka's name."""

AllOverrides = Mapping[str, Overrides]
"""By group id."""

ChangeTexts = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From the settings of a group, as texts, to the wanted ones. Raises CoordinatorError."""


class GroupSetting(NamedTuple):
    """``default``, ``low`` and ``high``: the settings of the server that are its default and its bounds."""

    name: str
    minimum: int
    doc: str

    @property
    def default(self) -> str:
        return f"group_{self.name.replace('.', '_')}"

    @property
    def low(self) -> str:
        return self.default.replace("group_consumer_", "group_consumer_min_")

    @property
    def high(self) -> str:
        return self.default.replace("group_consumer_", "group_consumer_max_")


HEARTBEAT_INTERVAL = GroupSetting(
    "consumer.heartbeat.interval.ms", 1, "Members of the group are told to send a heartbeat so often."
)
SESSION_TIMEOUT = GroupSetting(
    "consumer.session.timeout.ms", 1, "A member of the group is removed after this time without a heartbeat."
)
ASSIGNMENT_INTERVAL = GroupSetting(
    "consumer.assignment.interval.ms", 0, "The group gets a new target assignment at most once in this time."
)
GROUP_SETTINGS = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT, ASSIGNMENT_INTERVAL)
"""In the order in which Kafka checks them."""

BY_NAME = {setting.name: setting for setting in GROUP_SETTINGS}


class GroupConfigs:
    """``given``: the settings that groups were given. ``effective``: the same within the bounds of the server.

    Groups read ``effective`` at each use.
    """

    def __init__(self, bounds: Settings) -> None:
        self.given: dict[str, Overrides] = {}
        self.effective: dict[str, Overrides] = {}
        self._bounds = bounds

    def check_alter(self, group_id: str, change: ChangeTexts) -> None:
        """Raise CoordinatorError, with Kafka's error code, unless the settings of a group can change so."""
        self.alter(dict(self.given), group_id, change)

    def alter(self, draft: dict[str, Overrides], group_id: str, change: ChangeTexts) -> bool:
        """Change the settings of a group in a copy of ``given``. Returns whether that makes a difference."""
        own = draft.get(group_id, {})
        wanted = check_texts(change({name: str(value) for name, value in own.items()}), self._bounds)
        if wanted == own:
            return False
        if wanted:
            check_room(draft, group_id)
            draft[group_id] = wanted
        else:
            del draft[group_id]
        return True

    def load(self, given: AllOverrides) -> None:
        """These are the settings of all groups at the start."""
        for group_id, own in given.items():
            self._replace_one(group_id, own)

    def replace(self, given: AllOverrides) -> None:
        """These are the settings of all groups now."""
        for group_id in self.given.keys() | given.keys():
            old, new = self.given.get(group_id, {}), given.get(group_id, {})
            if old != new:
                log.info("the settings of a group were changed", group=group_id, old=dict(old), new=dict(new))
                self._replace_one(group_id, new)

    def _replace_one(self, group_id: str, own: Overrides) -> None:
        if own:
            self.given[group_id], self.effective[group_id] = own, within_bounds(own, self._bounds)
        else:
            del self.given[group_id], self.effective[group_id]


def check_texts(given: Mapping[str, str], bounds: Settings) -> dict[str, int]:
    """The values of settings. Raises CoordinatorError (INVALID_CONFIG), with Kafka's texts."""
    for name in sorted(given):
        if name not in BY_NAME:
            raise _invalid(f"Unknown group config name: {name}")
    values = {name: _parse(BY_NAME[name], given[name].strip()) for name in given}
    for setting in GROUP_SETTINGS:
        if setting.name in values:
            _check_bounds(setting, values[setting.name], bounds)
    heartbeat, session = (
        values.get(setting.name, getattr(bounds, setting.default)) for setting in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
    )
    if session <= heartbeat:
        raise _invalid(f"{SESSION_TIMEOUT.name} must be greater than {HEARTBEAT_INTERVAL.name}")
    return values


def _parse(setting: GroupSetting, text: str) -> int:
    number = int(text) if WHOLE_NUMBER.fullmatch(text) else None
    start = f"Invalid value {text[:80]} for configuration {setting.name}"
    if number is None or not -INT_MAX - 1 <= number <= INT_MAX:
        raise _invalid(f"{start}: Not a number of type INT")
    if number < setting.minimum:
        raise _invalid(f"{start}: Value must be at least {setting.minimum}")
    return number


def _check_bounds(setting: GroupSetting, value: int, bounds: Settings) -> None:
    if value < getattr(bounds, setting.low):
        raise _invalid(f"{setting.name} must be greater than or equal to {setting.low.replace('_', '.')}")
    if value > getattr(bounds, setting.high):
        raise _invalid(f"{setting.name} must be less than or equal to {setting.high.replace('_', '.')}")


def check_room(groups: AllOverrides, group_id: str) -> None:
    if len(group_id) > GROUP_ID_CHARS_MAX:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION,
            f"the group id has {len(group_id)} characters: expected at most {GROUP_ID_CHARS_MAX} of a group with"
            " settings of its own",
        )
    if group_id not in groups and len(groups) >= GROUPS_MAX:
        raise CoordinatorError(
            ErrorCode.POLICY_VIOLATION,
            f"{GROUPS_MAX} groups have settings of their own, which is the limit: delete those of a group first",
        )


def within_bounds(own: Overrides, bounds: Settings) -> dict[str, int]:
    """The values, as far as the bounds of the server allow, which may be others than when the values were set."""
    values = {}
    for name, value in own.items():
        low, high = getattr(bounds, BY_NAME[name].low), getattr(bounds, BY_NAME[name].high)
        values[name] = min(max(value, low), high)
        if values[name] != value:
            log.warning("a setting of a group is limited", setting=name, given=value, in_effect=values[name])
    return values


def _invalid(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_CONFIG, message)
