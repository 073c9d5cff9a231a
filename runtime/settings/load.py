"""Settings and options of one server. The command line overrides the file, and the file overrides the default."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...actors.text import did_you_mean
from ..common.errors import StartError
from ..common.logs import Format, Level
from ..disk.disk import FILE_MODE
from .file_mode import parse_file_mode
from .lag_groups import check_lag_groups
from .table import (
    BY_NAME,
    DEFAULT_DATA,
    DEFAULT_LISTEN,
    DynamicPeers,
    Options,
    Settings,
    check_safe,
    check_topic,
    format_value,
    load_settings,
    parse_address,
    parse_advertised,
    parse_choice,
    parse_sync,
    parse_topic,
)


def file_topics(table: Mapping[str, object], path: Path | None) -> dict[str, int]:
    """The partitions of each topic under ``[topics]``."""
    try:
        return dict(check_topic(name, partitions) for name, partitions in table.items())
    except StartError as error:
        raise StartError(f"[topics] in '{path}': {error}") from None


def option_topics(texts: Sequence[str]) -> dict[str, int]:
    """The partitions of each ``--topic`` of the command line. Raises StartError if a topic is given twice."""
    counts: dict[str, int] = {}
    for text in texts:
        name, partitions = parse_topic(text)
        if name in counts:
            raise StartError(
                f"topic '{name}' is given twice, with {counts[name]} and with {partitions} partitions: expected one "
                f"--topic {name}:PARTITIONS"
            )
        counts[name] = partitions
    return counts


class ConfigFile(NamedTuple):
    """A configuration file with known keys of the right type. The values are not checked yet."""

    listen: str | None = None
    advertised: str | None = None
    data: str | None = None
    sync: str | None = None
    metrics: str | None = None
    metrics_lag: Sequence[str] = ()
    dynamic_settings: str | None = None
    unsafe_settings: bool = False
    ignore_saved_settings: bool = False
    file_mode: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    topics: Mapping[str, object] = {}
    settings: Mapping[str, object] = {}


VALUES: dict[str, tuple[type, str]] = {
    "metrics_lag": (list, "a list of texts"),
    "unsafe_settings": (bool, "true or false"),
    "ignore_saved_settings": (bool, "true or false"),
    "topics": (dict, "a table"),
    "settings": (dict, "a table"),
}
"""The type of the value of each key, with its name for the operator. Other keys have a text."""


def read_file(path: Path) -> ConfigFile:
    """Read a TOML file with the keys of ConfigFile. StartError if it is unreadable or has other keys or types."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"cannot read the config file '{path}': {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise StartError(f"the config file '{path}' is not TOML: {error}") from error
    for key, value in table.items():
        check_key(path, key, value)
    return ConfigFile(**table)


def check_key(path: Path, key: str, value: object) -> None:
    if key not in ConfigFile._fields:
        hint = " settings belong under [settings];" if key in BY_NAME else did_you_mean(key, ConfigFile._fields)
        raise StartError(f"unknown key '{key}' in '{path}':{hint} known are {', '.join(ConfigFile._fields)}")
    expected, word = VALUES.get(key, (str, "a text"))
    if not isinstance(value, expected) or (
        isinstance(value, list) and not all(isinstance(item, str) for item in value)
    ):
        raise StartError(f"bad value {format_value(value)} for '{key}' in '{path}': expected {word}")


def load(
    listen: str | None = None,
    advertised: str | None = None,
    data: str | Path | None = None,
    sync: str | None = None,
    topics: Sequence[str] = (),
    overrides: Sequence[str] = (),
    config: Path | None = None,
    metrics: str | None = None,
    dynamic_settings: str | None = None,
    unsafe_settings: bool = False,
    ignore_saved_settings: bool = False,
    file_mode: str | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
    metrics_lag: Sequence[str] = (),
) -> tuple[Settings, Options]:
    """The settings and options of ``serve``, checked. Options of the command line override those of the file, topics
    and settings by name. Raises StartError for the first error.
    """
    file = ConfigFile() if config is None else read_file(config)
    listen = file.listen if listen is None else listen
    advertised = file.advertised if advertised is None else advertised
    sync = file.sync if sync is None else sync
    metrics = file.metrics if metrics is None else metrics
    file_mode = file.file_mode if file_mode is None else file_mode
    log_level = file.log_level if log_level is None else log_level
    log_format = file.log_format if log_format is None else log_format
    data = file.data if data is None else data
    dynamic_settings = file.dynamic_settings if dynamic_settings is None else dynamic_settings
    metrics_lag = metrics_lag or file.metrics_lag
    unsafe_settings = unsafe_settings or file.unsafe_settings
    ignore_saved_settings = ignore_saved_settings or file.ignore_saved_settings
    if data == "":
        raise StartError("bad data '': expected the path of a folder; leave it out for ./data, or give . for this one")
    address = DEFAULT_LISTEN if listen is None else parse_address("listen", listen)
    options = Options(
        listen_host=address.host,
        listen_port=address.port,
        advertised=None if advertised is None else parse_advertised(advertised),
        data=DEFAULT_DATA if data is None else Path(data),
        sync="always" if sync is None else parse_sync(sync),
        topics=tuple((file_topics(file.topics, config) | option_topics(topics)).items()),
        metrics=None if metrics is None else parse_address("metrics", metrics),
        metrics_lag=check_lag_groups(metrics_lag),
        dynamic_settings=parse_choice("dynamic settings", dynamic_settings or "local", DynamicPeers),
        unsafe_settings=unsafe_settings,
        ignore_saved_settings=ignore_saved_settings,
        given=setting_sources(file.settings, overrides, config),
        file_mode=FILE_MODE if file_mode is None else parse_file_mode(file_mode),
        log_level=parse_choice("log level", log_level or "info", Level),
        log_format=None if log_format is None else parse_choice("log format", log_format, Format),
    )
    settings = load_settings(file.settings, overrides)
    if not unsafe_settings:
        check_safe(settings)
    return settings, options


def setting_sources(table: Mapping[str, object], overrides: Sequence[str], path: Path | None) -> dict[str, str]:
    """The given settings by name, each with its source: the configuration file or ``--set``."""
    from_file = dict.fromkeys(table, f"the configuration file '{path}'")
    return from_file | {text.partition("=")[0].strip(): "--set" for text in overrides}
