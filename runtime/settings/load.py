"""Settings and options of one server. The command line overrides the file, and the file overrides the default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from stat import S_IMODE, S_IROTH
from typing import Any, TypeVar

from ...actors.text import did_you_mean
from ..common.errors import StartError
from ..common.logs import Format, Level
from ..disk.disk import FILE_MODE
from .address import DEFAULT_LISTEN
from .cluster import parse_cluster
from .file_mode import parse_file_mode
from .http_options import GivenWeb, http_options
from .listener_settings import find_listener_setting, split_settings
from .listeners import Listener, check_exposed, parse_inter_broker_listener, parse_listeners, with_settings
from .metric_options import MetricOptions, check_lag_groups
from .paths import parse_path
from .table import (
    BY_NAME,
    DEFAULT_DATA,
    DynamicPeers,
    Options,
    Settings,
    check_safe,
    check_topic,
    format_value,
    load_settings,
    parse_choice,
    parse_sync,
    parse_topic,
)

Parsed = TypeVar("Parsed")


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


TEXT = (str, "a text")
TEXTS = (list, "a list of texts")
TEXT_OR_TEXTS = ((str, list), "a text or a list of texts")
OCTAL_TEXT = (str, 'a text with octal permissions, as in "0640"')
NUMBER = (int, "a whole number")
BOOLEAN = (bool, "true or false")
TABLE = (dict, "a table")
KEYS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "listen": TEXT_OR_TEXTS,
    "advertised": TEXT_OR_TEXTS,
    "listener_security_protocol_map": TEXT,
    "inter_broker_listener_name": TEXT,
    "data": TEXT,
    "sync": TEXT,
    "metrics": TEXT,
    "metrics_lag": TEXTS,
    "group_metrics": BOOLEAN,
    "request_metrics": BOOLEAN,
    "web": TEXT,
    "web_trust": TEXT,
    "dynamic_settings": TEXT,
    "unsafe_settings": BOOLEAN,
    "ignore_saved_settings": BOOLEAN,
    "insecure": BOOLEAN,
    "file_mode": OCTAL_TEXT,
    "log_level": TEXT,
    "log_format": TEXT,
    "cluster": TEXT,
    "node_name": TEXT,
    "workers": NUMBER,
    "worker_ports": TEXT,
    "topics": TABLE,
    "settings": TABLE,
}
"""The keys of a configuration file: the type of each value, with its name for the operator."""


def read_file(path: Path) -> dict[str, Any]:
    """Read a TOML file. StartError if it is unreadable, or has a key or a type of value that is not in ``KEYS``."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StartError(f"cannot read the config file '{path}': {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise StartError(f"the config file '{path}' is not TOML: {error}") from error
    except RecursionError:
        raise StartError(f"the config file '{path}' has arrays or tables that are nested too deeply") from None
    for key, value in table.items():
        check_key(path, key, value)
    check_secrets(path, table.get("settings", {}))
    return table


def check_secrets(path: Path, settings: Mapping[str, object]) -> None:
    """Raise StartError if a file has a secret and every user of the machine may read it."""
    secrets = [name for name in settings if (row := find_listener_setting(name)) is not None and row.is_secret]
    mode = S_IMODE(path.stat().st_mode)
    if secrets and mode & S_IROTH:
        raise StartError(
            f"'{path}' has the secret {secrets[0]} and the permissions {mode:04o}, so every user of this machine may"
            f" read it: expected at most 0640, as after chmod o-r '{path}'"
        )


def check_key(path: Path, key: str, value: object) -> None:
    if key not in KEYS:
        hint = " settings belong under [settings];" if key in BY_NAME else did_you_mean(key, KEYS)
        raise StartError(f"unknown key '{key}' in '{path}':{hint} known are {', '.join(KEYS)}")
    expected, word = KEYS[key]
    if (
        not isinstance(value, expected)
        or (expected is int and isinstance(value, bool))
        or (isinstance(value, list) and not all(isinstance(item, str) for item in value))
    ):
        raise StartError(f"bad value {format_value(value)} for '{key}' in '{path}': expected {word}")


def load(
    listen: Sequence[str] | None = None,
    advertised: Sequence[str] | None = None,
    data: str | Path | None = None,
    sync: str | None = None,
    topics: Sequence[str] = (),
    overrides: Sequence[str] = (),
    config: Path | None = None,
    metrics: str | None = None,
    dynamic_settings: str | None = None,
    unsafe_settings: bool = False,
    ignore_saved_settings: bool = False,
    insecure: bool = True,
    file_mode: str | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
    shown: MetricOptions | None = None,
    web: GivenWeb | None = None,
    cluster: str | None = None,
    node_name: str | None = None,
    workers: int | None = None,
    worker_ports: str | None = None,
    listener_security_protocol_map: str | None = None,
    inter_broker_listener_name: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Settings, Options]:
    """The settings and options of ``serve``, checked. The command line overrides the file, topics and settings by name.
    ``environment``: variables, for secrets. ``insecure``: see ``check_exposed``. ``shown``: in the metrics.
    Raises StartError for the first error.
    """
    file = {} if config is None else read_file(config)

    def value(key: str, option: str | None, default: str | None = None) -> Any:
        return file.get(key, default) if option is None else option

    given = split_settings(file.get("settings", {}), overrides)
    protocols = value("listener_security_protocol_map", listener_security_protocol_map, "")
    listeners = with_settings(given_listeners(file, listen, advertised, protocols), given.listeners, environment)
    check_exposed(listeners, insecure or file.get("insecure", False))
    inter_broker_listener = value("inter_broker_listener_name", inter_broker_listener_name, "")
    options = Options(
        listeners=listeners,
        inter_broker_listener=parse_inter_broker_listener(inter_broker_listener, listeners),
        data=parse_data(value("data", None if data is None else str(data))),
        sync=parse_sync(value("sync", sync, "always")),
        topics=tuple((file_topics(file.get("topics", {}), config) | option_topics(topics)).items()),
        http=http_options(file, metrics, web or GivenWeb()),
        metric_options=metric_options(file, shown or MetricOptions()),
        dynamic_settings=parse_dynamic_peers(value("dynamic_settings", dynamic_settings, "local")),
        unsafe_settings=unsafe_settings or file.get("unsafe_settings", False),
        ignore_saved_settings=ignore_saved_settings or file.get("ignore_saved_settings", False),
        given=setting_sources(given.table, given.overrides, config),
        file_mode=parse_file_mode(value("file_mode", file_mode, f"{FILE_MODE:o}")),
        log_level=parse_choice("log level", value("log_level", log_level, "info"), Level),
        log_format=optional(lambda text: parse_choice("log format", text, Format), value("log_format", log_format)),
        cluster=parse_cluster(
            value("cluster", cluster, ""),
            value("node_name", node_name, ""),
            file.get("workers", 1) if workers is None else workers,
            value("worker_ports", worker_ports),
            len(listeners),
        ),
    )
    return checked_settings(given.table, given.overrides, options), options


def metric_options(file: Mapping[str, Any], shown: MetricOptions) -> MetricOptions:
    """``shown``: those of the command line, which override the file. Raises StartError."""
    return MetricOptions(
        check_lag_groups(shown.lag_groups or file.get("metrics_lag", ())),
        shown.has_groups or file.get("group_metrics", False),
        shown.has_requests or file.get("request_metrics", False),
    )


def checked_settings(table: Mapping[str, object], overrides: Sequence[str], options: Options) -> Settings:
    """Raises StartError, also for a value below its safe minimum, and if clients could pass by the ACLs."""
    settings = load_settings(table, overrides)
    if not options.unsafe_settings:
        check_safe(settings)
    web = options.http.web
    if web is not None and web.trusted_header is None and settings.authorizer_class_name:
        raise StartError(
            f"bad web '{web.address}': authorizer_class_name is set, and the HTTP API applies no ACLs: expected "
            "--web-trust HEADER, the header in which an authenticating proxy in front of it names the user"
        )
    return settings


def parse_dynamic_peers(text: str) -> DynamicPeers:
    peers: DynamicPeers = parse_choice("dynamic settings", text, DynamicPeers)
    return peers


def parse_data(text: str | None) -> Path:
    if text == "":
        raise StartError("bad data '': expected the path of a folder; leave it out for ./data, or give . for this one")
    return DEFAULT_DATA if text is None else parse_path("data", text)


def given_listeners(
    file: Mapping[str, Any], listen: Sequence[str] | None, advertised: Sequence[str] | None, protocols: str
) -> tuple[Listener, ...]:
    """The listeners of the command line, else those of the file, else the default."""
    return parse_listeners(
        listen or as_list(file.get("listen", str(DEFAULT_LISTEN))),
        advertised or optional(as_list, file.get("advertised")),
        protocols,
    )


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def optional(parse: Callable[[str], Parsed], text: str | None) -> Parsed | None:
    """None without a text."""
    return None if text is None else parse(text)


def setting_sources(table: Mapping[str, object], overrides: Sequence[str], path: Path | None) -> dict[str, str]:
    """The given settings by name, each with its source: the configuration file or ``--set``."""
    from_file = dict.fromkeys(table, f"the configuration file '{path}'")
    return from_file | {text.partition("=")[0].strip(): "--set" for text in overrides}
