"""The table of all settings and options, and their values as text.

Names are Kafka's with underscores, and so are defaults and ranges, so that knowledge of ``server.properties`` applies
here. A wrong name or value stops the program before it touches any file: a coordinator that silently ignores a setting
is worse than one that does not start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ...actors.text import did_you_mean
from ..common.errors import StartError
from ..common.logs import Format, Level
from ..disk.disk import FILE_MODE
from .audit import AuditRows, check_audit
from .authorization import AuthorizationRows
from .connections import ConnectionRows
from .consumer_groups import BELOW, ORDERED, ConsumerGroupRows
from .group_limits import GroupLimitRows
from .http_options import HttpOptions
from .listeners import PLAINTEXT, Listener
from .metric_options import MetricOptions
from .recorder import RecorderRows
from .rows import INT_MAX, LONG_MAX, Setting, SettingValue, row

LISTEN_BACKLOG = 1024  # after a restart all members reconnect at the same time
PARTITIONS_MAX = 10_000  # Kafka's limit for one request (ReplicationControlManager)
TOPIC_NAME_MAX = 249  # "NAME-PARTITION" must be a file name of at most 255 (org.apache.kafka.common.internals.Topic)
TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_MAX}}}")
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
DECIMAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")
NUMBER = re.compile(r"-?[0-9]{1,20}")  # at most 20 digits, since int() raises ValueError from 4300 digits on

Sync = Literal["always", "interval", "none"]
DynamicPeers = Literal["local", "all", "none"]
"""Clients that may change settings of the broker: those on this machine, all, or none."""


@dataclass(frozen=True, slots=True)
class Settings(ConsumerGroupRows, ConnectionRows, GroupLimitRows, RecorderRows, AuditRows, AuthorizationRows):
    """The settings for ``--set`` and ``[settings]``. The table: these rows, and those of the base classes."""

    group_initial_rebalance_delay_ms: int = row(
        3000, "An empty group waits this long for more members before its first rebalance.", 0, INT_MAX
    )
    group_min_session_timeout_ms: int = row(
        6000, "The shortest session timeout that a classic member may request.", 1, INT_MAX
    )
    group_max_session_timeout_ms: int = row(
        1_800_000, "The longest session timeout that a classic member may request.", 1, INT_MAX
    )
    group_max_size: int = row(INT_MAX, "The maximum number of members of a group.", 1, INT_MAX)
    group_max_pending_members: int = row(
        50_000,
        "Member ids of a group that were assigned and not used yet; above it new members are refused until some are"
        " used or have expired. Not in Kafka.",
        1,
        INT_MAX,
    )
    group_max_member_protocols: int = row(
        1000,
        "The maximum number of protocols (assignors) that a member may offer; a JoinGroup with more is answered"
        " INVALID_REQUEST. Not in Kafka.",
        1,
        INT_MAX,
    )
    group_generation_from_clock: bool = row(
        False,
        "A new group starts its generations at the wall clock (seconds), so that fencing tokens keep growing when a"
        " group is deleted and created again; Kafka starts at 0.",
    )
    offset_metadata_max_bytes: int = row(
        4096, "The maximum length of an offset's metadata, in characters as in Kafka.", 0, INT_MAX
    )
    offsets_topic_num_partitions: int = row(
        50, "Partitions of the offsets log; fixed when the data folder is created.", 1, PARTITIONS_MAX
    )
    offsets_retention_minutes: int = row(
        10_080, "Unused offsets are deleted after this time (KIP-211): 7 days by default.", 1, INT_MAX, 60
    )
    offsets_retention_check_interval_ms: int = row(
        600_000, "Interval of the check for expired offsets and groups.", 1, LONG_MAX, 1000
    )
    offsets_commit_timeout_ms: int = row(
        5000,
        "In a cluster: a commit, or another change, that the store has not made durable after this time is answered"
        " with COORDINATOR_NOT_AVAILABLE. It may still become durable.",
        1,
        INT_MAX,
    )
    offsets_topic_segment_bytes: int = row(
        104_857_600, "A partition of the offsets log starts a new segment at this size.", 1, INT_MAX
    )
    log_roll_ms: int = row(
        604_800_000, "A partition of either log starts a new segment after this time: 7 days by default.", 1, LONG_MAX
    )
    transaction_state_log_num_partitions: int = row(
        50, "Partitions of the transactions log; fixed when the data folder is created.", 1, PARTITIONS_MAX
    )
    transaction_max_timeout_ms: int = row(
        900_000, "The longest transaction timeout that a producer may request.", 1, INT_MAX
    )
    transactional_id_expiration_ms: int = row(
        604_800_000, "An unused transactional id is removed after this time: 7 days by default.", 1, INT_MAX
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = row(
        3_600_000, "Interval of the check for unused transactional ids.", 1, INT_MAX
    )
    max_transactional_ids: int = row(
        1_000_000, "The maximum number of transactional ids; new ones are refused above it. Not in Kafka.", 1, INT_MAX
    )
    memory_limit_bytes: int = row(
        4_294_967_296,
        "Memory for what clients store and wait for, counted and not measured; above it new groups, members, topics and"
        " transactional ids are refused until 5 % are free again. Not in Kafka.",
        1,
        LONG_MAX,
    )
    message_max_bytes: int = row(1_048_588, "The largest record batch that is accepted.", 0, INT_MAX)
    log_flush_interval_ms: int = row(
        1000, "Interval of syncs with --sync interval. Kafka has no default for it.", 1, INT_MAX
    )
    log_cleaner_enable: bool = row(True, "The log is compacted while the server runs, by a child process.")
    log_cleaner_min_cleanable_ratio: float = row(
        0.5, "A partition is compacted when more than this fraction of its bytes was never compacted.", 0, 1
    )
    log_cleaner_delete_retention_ms: int = row(
        86_400_000, "Time for which a tombstone stays in the log after its first compaction.", 0, LONG_MAX
    )
    log_cleaner_dedupe_buffer_size: int = row(
        134_217_728,
        "Memory for the keys of the partition that is compacted; more keys go to disk.",
        1_048_576,
        LONG_MAX,
    )
    log_cleaner_backoff_ms: int = row(15_000, "Interval of the check for partitions to compact.", 1, LONG_MAX, 1000)
    log_retention_check_interval_ms: int = row(
        300_000, "Interval of the check for records of topics that are older than retention.ms.", 1, LONG_MAX
    )
    auto_create_topics_enable: bool = row(True, "A Metadata request may create the topics that it names.")
    num_partitions: int = row(1, "Partitions of a topic that is created without a number.", 1, PARTITIONS_MAX)
    max_partitions: int = row(
        20_000,
        "The maximum number of partitions of all topics together; a folder with more still starts. Named as in KIP-578,"
        " which Kafka has not adopted: it has no such limit.",
        1,
        INT_MAX,
    )
    topic_retention_bytes: int = row(
        67_108_864, "Record bytes that one topic may hold in memory; the oldest are dropped. Not in Kafka.", 1, LONG_MAX
    )
    total_retention_bytes: int = row(
        1_073_741_824,
        "Record bytes that all topics together may hold in memory; large topics drop their oldest. Not in Kafka.",
        1,
        LONG_MAX,
    )
    socket_request_max_bytes: int = row(
        104_857_600, "The largest request; a connection that announces a larger one is closed.", 1, INT_MAX
    )
    socket_receive_buffer_bytes: int = row(
        32_768,
        "The system's buffer for requests that are not read yet, of each connection; -1 leaves it to the system. They"
        " are answered before new ones, so a large buffer makes an overload last longer. Kafka's default is 102400.",
        -1,
        INT_MAX,
    )
    queued_max_request_bytes: int = row(
        268_435_456,
        "Bytes of requests of all connections that are incomplete or wait for their turn; above it the connection that"
        " has waited longest is closed. As many bytes of Fetches that wait for records; above it the one that has"
        " waited longest is answered. Kafka has no limit by default, and reads nothing above it.",
        1,
        LONG_MAX,
    )
    queued_max_response_bytes: int = row(
        268_435_456,
        "Bytes of responses that clients have not read; above it the connection that has read nothing for longest is"
        " closed. Not in Kafka.",
        1,
        LONG_MAX,
    )
    max_request_items: int = row(
        50_000,
        "Items of all arrays of one request together: partitions, groups, members, topics. Not in Kafka.",
        10_000,
        INT_MAX,
    )
    max_request_config_items: int = row(
        10_000,
        "The same for requests that describe or change settings, of which each item costs more. Not in Kafka.",
        10_000,
        INT_MAX,
    )
    max_sliced_requests: int = row(
        4,
        "Long requests of all clients that are handled at the same time, in slices; others wait. Not in Kafka.",
        1,
        INT_MAX,
    )
    handshakes_max_open: int = row(
        2000,
        "TLS handshakes that are open at the same time; above it the one whose client has been silent for longest is"
        " ended. Not in Kafka.",
        1,
        INT_MAX,
    )
    handshake_timeout_ms: int = row(
        10_000,
        "A connection whose TLS handshake takes longer is closed. In Kafka connections.max.idle.ms is the only limit.",
        1,
        INT_MAX,
    )
    cluster_session_timeout_ms: int = row(
        1500,
        "In a cluster: a node that shows no sign of life for this time loses its partitions to the others. Fixed when"
        " the cluster is created; all nodes must have the same. Not in Kafka.",
        100,
        INT_MAX,
    )

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            check_range(setting, getattr(self, setting.name))
        check_audit(self)
        for low, high in ORDERED:
            if getattr(self, low) > getattr(self, high):
                raise self._contradiction(low, "is above", high)
        if getattr(self, BELOW[0]) >= getattr(self, BELOW[1]):
            raise self._contradiction(BELOW[0], "is not below", BELOW[1])

    def _contradiction(self, low: str, relation: str, high: str) -> StartError:
        return StartError(
            f"{low}={getattr(self, low)} {relation} {high}={getattr(self, high)}: lower the first or raise the second"
        )


def rows_of(settings: type[Settings]) -> tuple[Setting, ...]:
    rows = []
    for each in fields(settings):
        default: Any = each.default
        rows.append(Setting(each.name, type(default), default, **each.metadata))
    return tuple(rows)


SETTINGS = rows_of(Settings)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def check_range(setting: Setting, value: object) -> None:
    """Raise StartError for a value of another type or out of range."""
    if not setting.fits(value):
        raise StartError(f"bad value {format_value(value)} for setting '{setting.name}': expected {setting.expected}")


def is_unsafe(setting: Setting, value: SettingValue) -> bool:
    """Whether a value is in the setting's range, but below its safe minimum."""
    return setting.safe_minimum is not None and not isinstance(value, str) and value < setting.safe_minimum


def check_safe(settings: Settings) -> None:
    """Raise StartError for a value below its safe minimum."""
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        if is_unsafe(setting, value):
            raise StartError(
                f"{setting.name}={format_value(value)} is dangerous: expected at least {setting.safe_minimum}, or the"
                f" option --unsafe-settings"
            )


def format_value(value: object) -> str:
    """A value as users write it: TOML and Kafka write Booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def find_setting(name: str) -> Setting:
    if name not in BY_NAME:
        raise StartError(f"unknown setting '{name}':{did_you_mean(name, BY_NAME)} `callboard settings` lists all")
    return BY_NAME[name]


def parse_setting(text: str) -> tuple[str, object]:
    """Parse ``name=value`` from the command line. A value of a wrong type is left to the range check."""
    name, equals, value = text.partition("=")
    if not equals:
        raise StartError(f"bad setting '{text}': expected name=value, as in group_max_size=100")
    setting = find_setting(name.strip())
    word = value.strip()
    parsed = parse_value(setting, word)
    return setting.name, word if parsed is None else parsed


def parse_value(setting: Setting, word: str) -> SettingValue | None:
    """A setting's value from text; None if it does not have the setting's type. Does not check the range.

    The only parser of values, so that ``--set`` and IncrementalAlterConfigs accept the same values.
    """
    if setting.type is bool:
        return {"true": True, "false": False}.get(word.lower())
    if setting.type is str:
        return word.lower() if setting.choices else word
    if setting.type is float:
        return float(word) if DECIMAL.fullmatch(word) else None
    return int(word) if NUMBER.fullmatch(word) else None


def load_settings(table: Mapping[str, object], overrides: Sequence[str] = ()) -> Settings:
    """Settings from a file's ``[settings]``, overridden by ``name=value`` of the command line.

    Raises StartError for an unknown name, a value of the wrong type or out of range, and contradicting settings.
    """
    values: dict[str, Any] = {find_setting(name).name: value for name, value in table.items()}
    values.update(parse_setting(text) for text in overrides)
    return Settings(**values)


DEFAULT_DATA = Path("data")


class ClusterOptions(NamedTuple):
    """The cluster that a server belongs to. ``url``: its store; "" for none. ``node_name``: "" for one made of host
    and port. ``workers``: how many processes serve. ``worker_ports``: the first and last port of their own; None for
    free ones. ``is_exclusive``: a lock keeps other processes from having the node's name.
    """

    url: str = ""
    node_name: str = ""
    workers: int = 1
    worker_ports: tuple[int, int] | None = None
    is_exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one server: addresses, data folder and others.

    ``inter_broker_listener``: by which the nodes of a cluster connect to each other. ``http``: what is
    served over HTTP. ``metric_options``: what is among the metrics.
    ``dynamic_settings``: clients that may change settings of the broker. ``unsafe_settings``: dynamic changes may go
    below a safe minimum. ``ignore_saved_settings``: start without the changes that are saved in the data folder.
    ``given``: the settings that were given at the start, by name, with their source ("--set"). ``file_mode``:
    permissions of new files in the data folder; users who may read the files may also search the folders.
    ``log_format``: None for text on a terminal, else JSON.
    """

    listeners: tuple[Listener, ...] = (Listener(),)
    inter_broker_listener: str = PLAINTEXT
    data: Path = DEFAULT_DATA
    sync: Sync = "always"
    topics: tuple[tuple[str, int], ...] = ()
    http: HttpOptions = field(default_factory=HttpOptions)
    metric_options: MetricOptions = field(default_factory=MetricOptions)
    dynamic_settings: DynamicPeers = "local"
    unsafe_settings: bool = False
    ignore_saved_settings: bool = False
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    file_mode: int = FILE_MODE
    log_level: Level = "info"
    log_format: Format | None = None
    cluster: ClusterOptions = field(default_factory=ClusterOptions)


def check_topic(name: str, partitions: object) -> tuple[str, int]:
    """Check a topic against Kafka's rules for names and the range of partitions. Raises StartError."""
    if name in (".", "..") or not TOPIC_NAME.fullmatch(name):
        raise StartError(
            f"bad topic name '{name}': expected 1 to {TOPIC_NAME_MAX} of the characters a-z A-Z 0-9 . _ - (not . or ..)"
        )
    if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        raise StartError(f"bad topic name '{name}': it is an internal topic of the coordinator; expected another name")
    if type(partitions) is not int or not 1 <= partitions <= PARTITIONS_MAX:
        raise StartError(
            f"bad topic '{name}': expected 1 to {PARTITIONS_MAX} partitions, not {format_value(partitions)}"
        )
    return name, partitions


def parse_topic(text: str) -> tuple[str, int]:
    """Parse NAME:PARTITIONS from the command line."""
    name, _, partitions = text.rpartition(":")
    if not name or not NUMBER.fullmatch(partitions):
        raise StartError(f"bad topic '{text}': expected NAME:PARTITIONS, as in orders:6")
    return check_topic(name, int(partitions))


def parse_sync(value: str) -> Sync:
    checked: Sync = parse_choice("sync", value, Sync)
    return checked


def parse_choice(option: str, value: str, choices: Any) -> Any:
    """One of the values of a Literal. ``option`` is the name of the option in the error."""
    if value in get_args(choices):
        return value
    known = get_args(choices)
    raise StartError(f"bad {option} '{value}':{did_you_mean(value, known)} expected one of {', '.join(known)}")
