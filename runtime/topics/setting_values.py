"""Values of topic settings from text, parsed and checked as Kafka's LogConfig does, with its messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ...actors.errors import CoordinatorError, ErrorCode
from ..settings.dynamic import ConfigType
from ..settings.rows import list_items
from .settings import BY_NAME, TopicSetting

Overrides = Mapping[str, str]
"""The settings that a topic was given, by Kafka's name, as text."""

NO_OVERRIDES: Overrides = MappingProxyType({})

VALUE_CHARS_MAX = 4096
"""The longest text of one value. Kafka has no limit; here ``topics.json`` and the memory have one."""

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_REPLICAS = re.compile(r"\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*|")
_BITS = {ConfigType.INT: 31, ConfigType.LONG: 63}


def check_overrides(given: Overrides) -> dict[str, str]:
    """The settings as a topic keeps them: without blanks. Raises CoordinatorError (INVALID_CONFIG)."""
    for name in sorted(given):
        if name not in BY_NAME:
            raise _invalid(f"Unknown topic config name: {name}")
    overrides = {name: _check(BY_NAME[name], text.strip()) for name, text in given.items()}
    _check_together(overrides)
    return overrides


def _check(setting: TopicSetting, text: str) -> str:
    """The text in its usual form."""
    if len(text) > VALUE_CHARS_MAX:
        raise _invalid_value(setting, f"{text[:20]}...", f"Value must have at most {VALUE_CHARS_MAX} characters")
    if setting.type in _BITS or setting.type is ConfigType.DOUBLE:
        return _check_number(setting, text)
    if setting.type is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _invalid_value(setting, text, "Expected value to be either true or false")
        return text.lower()
    return _check_list(setting, text) if setting.type is ConfigType.LIST else _check_choice(setting, text)


def _check_number(setting: TopicSetting, text: str) -> str:
    number = _parse_number(setting.type, text)
    if number is None:
        raise _invalid_value(setting, text, f"Not a number of type {setting.type.name}")
    if setting.name == "compression.gzip.level" and number != -1 and not 1 <= number <= 9:
        raise _invalid_value(setting, text, "Value must be between 1 and 9 or equal to -1")
    if setting.minimum is not None and number < setting.minimum:
        raise _invalid_value(setting, text, f"Value must be at least {setting.minimum}")
    if setting.maximum is not None and number > setting.maximum:
        raise _invalid_value(setting, text, f"Value must be no more than {setting.maximum}")
    return str(number)


def _parse_number(config_type: ConfigType, text: str) -> float | None:
    """The number; None if the text is not one, or one that is too large for its type."""
    if config_type is ConfigType.DOUBLE:
        return float(text) if _DECIMAL.fullmatch(text) else None
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
    limit = 2 ** _BITS[config_type]
    return number if number is not None and -limit <= number < limit else None


def _check_choice(setting: TopicSetting, text: str) -> str:
    if setting.choices and text not in setting.choices:
        raise _invalid_value(setting, text, f"String must be one of: {', '.join(setting.choices)}")
    return text


def _check_list(setting: TopicSetting, text: str) -> str:
    items = list_items(text)
    if setting.choices:
        for item in items:
            _check_choice(setting, item)
    elif not _REPLICAS.fullmatch(",".join(items)):
        raise _invalid_value(
            setting,
            f"[{', '.join(items)}]",
            f"{setting.name} must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )
    return ",".join(items)


def _check_together(overrides: Overrides) -> None:
    if overrides.get("remote.storage.enable") == "true":
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker."
            " Topic cannot be configured with remote log storage."
        )
    lags = [
        int(overrides.get(name, BY_NAME[name].default)) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    ]
    if lags[0] > lags[1]:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({lags[0]}) > max.compaction.lag.ms ({lags[1]})"
        )


def _invalid_value(setting: TopicSetting, text: str, reason: str) -> CoordinatorError:
    return _invalid(f"Invalid value {text} for configuration {setting.name}: {reason}")


def _invalid(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_CONFIG, message)
