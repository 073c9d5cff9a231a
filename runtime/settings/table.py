"""Every setting in one table, and where its value comes from: the command line, then the file, then the default.

Names are Kafka's with underscores, and so are the defaults and the ranges where Kafka has them, so that what a person
knows about ``server.properties`` holds here. A wrong name or value stops the program before it touches anything: a
coordinator that runs with a setting it silently ignored is worse than one that does not start.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from ..common.errors import StartError
from ..disk.disk import FILE_MODE
from .file_mode import parse_file_mode

INT_MAX = 2**31 - 1  # Kafka's INT settings
LONG_MAX = 2**63 - 1  # Kafka's LONG settings
PORT_MAX = 65535
LISTEN_BACKLOG = 1024  # after a restart all members come back at once
PARTITIONS_MAX = 10_000  # Kafka's controller creates no more in one request (ReplicationControlManager)
TOPIC_NAME_MAX = (
    249  # with "-" and the partition it must be a file name of 255 (org.apache.kafka.common.internals.Topic)
)
TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_MAX}}}")
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
DECIMAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")
NUMBER = re.compile(r"-?[0-9]{1,20}")  # more digits than any setting takes; int() itself refuses 4300

Sync = Literal["always", "interval", "none"]
DynamicPeers = Literal["local", "all", "none"]
"""Who may change settings of the broker over a connection: clients on this machine, all clients, nobody."""

Value = TypeVar("Value", int, float, bool)


DYNAMIC = frozenset(
    {
        "group_initial_rebalance_delay_ms",
        "group_min_session_timeout_ms",
        "group_max_session_timeout_ms",
        "group_max_size",
        "offset_metadata_max_bytes",
        "offsets_retention_minutes",
        "offsets_retention_check_interval_ms",
        "log_cleaner_backoff_ms",
        "log_cleaner_dedupe_buffer_size",
        "log_cleaner_delete_retention_ms",
        "log_cleaner_min_cleanable_ratio",
    }
)
"""What may change while the server runs (``dynamic.py``): groups and the cleaner look these up each time. The others
are looked at when the server starts, or, like Kafka's own, when nobody expects a change."""


class Setting(NamedTuple):
    """One row of the table. ``minimum`` and ``maximum`` belong to a number and are None for a truth value.

    ``safe_minimum``: values below it delete offsets early or keep the server busy, and need ``--unsafe-settings``.
    """

    name: str
    type: type
    default: int | float | bool
    minimum: float | None
    maximum: float | None
    doc: str
    safe_minimum: int | None = None

    @property
    def is_dynamic(self) -> bool:
        return self.name in DYNAMIC

    @property
    def expected(self) -> str:
        if self.type is bool:
            return "true or false"
        return f"{'a number' if self.type is float else 'a whole number'} from {self.minimum} to {self.maximum}"


def row(
    default: Value,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    safe_minimum: int | None = None,
) -> Value:
    """A field of Settings; typed as its value, because that is what a reader of the attribute gets."""
    limits = {"minimum": minimum, "maximum": maximum, "safe_minimum": safe_minimum}
    made: Any = field(default=default, metadata={**limits, "doc": doc})
    value: Value = made
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``--set`` and ``[settings]`` can change. The rows below are the whole table."""

    group_initial_rebalance_delay_ms: int = row(
        3000, "An empty group waits this long for more members before its first rebalance.", 0, INT_MAX
    )
    group_min_session_timeout_ms: int = row(
        6000, "The shortest session timeout that a classic member may ask for.", 1, INT_MAX
    )
    group_max_session_timeout_ms: int = row(
        1_800_000, "The longest session timeout that a classic member may ask for.", 1, INT_MAX
    )
    group_max_size: int = row(INT_MAX, "Members that one group may have.", 1, INT_MAX)
    group_generation_from_clock: bool = row(
        False,
        "A group that is made anew begins at the wall clock's seconds, so that its generations, which fence what its"
        " members write elsewhere, go on growing when it was deleted in between; Kafka begins at 0.",
    )
    offset_metadata_max_bytes: int = row(
        4096, "Longest metadata of one committed offset; Kafka counts characters, and so do we.", 0, INT_MAX
    )
    offsets_topic_num_partitions: int = row(
        50, "Partitions of the offsets log; fixed when the data folder is made.", 1, PARTITIONS_MAX
    )
    offsets_retention_minutes: int = row(
        10_080, "Offsets that nobody needs are deleted after so long (KIP-211): 7 days by default.", 1, INT_MAX, 60
    )
    offsets_retention_check_interval_ms: int = row(
        600_000, "Pause between two looks for offsets and empty groups that are to be deleted.", 1, LONG_MAX, 1000
    )
    offsets_topic_segment_bytes: int = row(
        104_857_600, "A partition of the offsets log starts a new segment at this size.", 1, INT_MAX
    )
    log_roll_ms: int = row(
        604_800_000, "A partition of either log starts a new segment after so long: 7 days by default.", 1, LONG_MAX
    )
    transaction_state_log_num_partitions: int = row(
        50, "Partitions of the transactions log; fixed when the data folder is made.", 1, PARTITIONS_MAX
    )
    transaction_max_timeout_ms: int = row(
        900_000, "The longest time that a producer may ask for each of its transactions.", 1, INT_MAX
    )
    transactional_id_expiration_ms: int = row(
        604_800_000, "A transactional id that nobody has used for so long is forgotten: 7 days by default.", 1, INT_MAX
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = row(
        3_600_000, "Pause between two looks for transactional ids that are to be forgotten.", 1, INT_MAX
    )
    message_max_bytes: int = row(1_048_588, "Largest record batch that is taken.", 0, INT_MAX)
    log_flush_interval_ms: int = row(
        1000, "Pause between two syncs with --sync interval. Ours: Kafka leaves it unset.", 1, INT_MAX
    )
    log_cleaner_enable: bool = row(True, "The log is compacted while the server runs, by a process beside it.")
    log_cleaner_min_cleanable_ratio: float = row(
        0.5, "A partition is compacted when more than this part of its bytes never was compacted.", 0, 1
    )
    log_cleaner_delete_retention_ms: int = row(
        86_400_000, "A tombstone stays in the log for so long after compaction first met it.", 0, LONG_MAX
    )
    log_cleaner_dedupe_buffer_size: int = row(
        134_217_728, "Memory for the keys of a partition that is compacted; more are kept on disk.", 1_048_576, LONG_MAX
    )
    log_cleaner_backoff_ms: int = row(15_000, "Pause between two looks for what is to be compacted.", 1, LONG_MAX, 1000)
    auto_create_topics_enable: bool = row(True, "A Metadata request may create the topics that it names.")
    num_partitions: int = row(1, "Partitions of a topic that is created without a number.", 1, PARTITIONS_MAX)
    max_partitions: int = row(
        20_000,
        "Partitions that all topics together may have; a folder that has more still starts. Named as in KIP-578, which"
        " Kafka has not adopted: it has no such bound.",
        1,
        INT_MAX,
    )
    topic_retention_bytes: int = row(
        67_108_864, "Record bytes that one topic may hold in memory; the oldest go first. Ours.", 1, LONG_MAX
    )
    socket_request_max_bytes: int = row(
        104_857_600, "Largest request; a connection that announces more is closed.", 1, INT_MAX
    )
    connections_max_idle_ms: int = row(
        600_000, "A connection that says nothing for so long, and waits for no answer, is closed.", 1, LONG_MAX
    )

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            check_range(setting, getattr(self, setting.name))
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise StartError(
                f"group_min_session_timeout_ms={self.group_min_session_timeout_ms} is above "
                f"group_max_session_timeout_ms={self.group_max_session_timeout_ms}: lower the first or raise the second"
            )


def table_of(settings: type[Settings]) -> tuple[Setting, ...]:
    rows = []
    for made in fields(settings):
        default: Any = made.default
        rows.append(Setting(made.name, type(default), default, **made.metadata))
    return tuple(rows)


SETTINGS = table_of(Settings)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def has_type(setting: Setting, value: object) -> bool:
    """Whether a value is of the setting's type: True is no number, but a whole number is a ratio."""
    return type(value) is setting.type or (setting.type is float and type(value) is int)


def check_range(setting: Setting, value: object) -> None:
    """Refuse a value of another type or out of the row's range."""
    fits = has_type(setting, value)
    if fits and isinstance(value, int | float) and setting.minimum is not None and setting.maximum is not None:
        fits = setting.minimum <= value <= setting.maximum
    if not fits:
        raise StartError(f"bad value {shown(value)} for setting '{setting.name}': expected {setting.expected}")


def is_unsafe(setting: Setting, value: float | bool) -> bool:
    """Whether a value is in the setting's range, but below its safe minimum."""
    return setting.safe_minimum is not None and value < setting.safe_minimum


def check_safe(settings: Settings) -> None:
    """Raise StartError for a value below its safe minimum."""
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        if is_unsafe(setting, value):
            raise StartError(
                f"{setting.name}={shown(value)} is dangerous: expected at least {setting.safe_minimum}, or the option"
                f" --unsafe-settings"
            )


def shown(value: object) -> str:
    """A value as its writer wrote it: TOML's and Kafka's truth values are in small letters."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """' did you mean ...?' or nothing, for the end of a message about a name that nobody knows."""
    close = get_close_matches(name, list(known), n=1)
    return f" did you mean '{close[0]}'?" if close else ""


def find_setting(name: str) -> Setting:
    if name not in BY_NAME:
        raise StartError(f"unknown setting '{name}':{nearest(name, BY_NAME)} `callboard settings` lists all")
    return BY_NAME[name]


def parse_setting(text: str) -> tuple[str, object]:
    """Read ``name=value`` from the command line; what is no number or truth value is left for the range check."""
    name, equals, value = text.partition("=")
    if not equals:
        raise StartError(f"bad setting '{text}': expected name=value, as in group_max_size=100")
    setting = find_setting(name.strip())
    word = value.strip()
    parsed = parse_value(setting, word)
    return setting.name, word if parsed is None else parsed


def parse_value(setting: Setting, word: str) -> int | float | bool | None:
    """A setting's value from text, whoever sends it; None if it is not of the setting's type. The range is not checked.

    ``--set`` and IncrementalAlterConfigs both read values by this, so that what one of them takes the other takes too.
    """
    if setting.type is bool:
        return {"true": True, "false": False}.get(word.lower())
    if setting.type is float:
        return float(word) if DECIMAL.fullmatch(word) else None
    return int(word) if NUMBER.fullmatch(word) else None


def load_settings(table: Mapping[str, object], overrides: Sequence[str] = ()) -> Settings:
    """Settings from a file's ``[settings]`` and from the command line's ``name=value``, which win.

    Raises StartError for an unknown name, a value of the wrong type or out of range, and settings that contradict
    each other.
    """
    values: dict[str, Any] = {find_setting(name).name: value for name, value in table.items()}
    values.update(parse_setting(text) for text in overrides)
    return Settings(**values)


class Address(NamedTuple):
    """A host as it was given (a name, an address, or empty for all addresses) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_LISTEN = Address("127.0.0.1", 9092)
DEFAULT_DATA = Path("data")


@dataclass(frozen=True, slots=True)
class Options:
    """Where one server listens and keeps its data.

    ``advertised`` is None when clients use the listening address, ``metrics`` when nobody watches.
    ``dynamic_settings``: who may change settings of the broker. ``unsafe_settings``: dynamic changes may go below a
    safe minimum. ``ignore_saved_settings``: start without the changes that the data folder keeps. ``given``: the
    settings that the server was started with, by name, and where each was given ("--set").
    ``file_mode``: permissions of the files that are made in the data folder; its folders may be searched by whoever may
    read the files.
    """

    listen_host: str = DEFAULT_LISTEN.host
    listen_port: int = DEFAULT_LISTEN.port
    advertised: tuple[str, int] | None = None
    data: Path = DEFAULT_DATA
    sync: Sync = "always"
    topics: tuple[tuple[str, int], ...] = ()
    metrics: Address | None = None
    dynamic_settings: DynamicPeers = "local"
    unsafe_settings: bool = False
    ignore_saved_settings: bool = False
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    file_mode: int = FILE_MODE


ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s:\[\]]*)):(?P<port>[0-9]{1,5})")


def parse_address(what: str, text: str, lowest_port: int = 0) -> Address:
    """Read HOST:PORT, with an IPv6 address in brackets. ``what`` names the option in the error."""
    match = ADDRESS.fullmatch(text)
    if match is None:
        raise StartError(
            f"bad {what} '{text}': expected HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092 (IPv6 in brackets)"
        )
    port = int(match["port"])
    if not lowest_port <= port <= PORT_MAX:
        raise StartError(f"bad {what} '{text}': expected a port from {lowest_port} to {PORT_MAX}, not {port}")
    return Address(match["v6"] or match["host"], port)


def parse_advertised(text: str) -> Address:
    """Read the address that clients are sent to; all addresses or a free port are nowhere to go."""
    address = parse_address("advertised", text, lowest_port=1)
    if not address.host:
        raise StartError(
            f"bad advertised '{text}': expected a host that clients can reach, as in kafka.example.com:9092"
        )
    return address


def check_topic(name: str, partitions: object) -> tuple[str, int]:
    """Hold a topic to Kafka's rules for names and to our range of partitions."""
    if name in (".", "..") or not TOPIC_NAME.fullmatch(name):
        raise StartError(
            f"bad topic name '{name}': expected 1 to {TOPIC_NAME_MAX} of the characters a-z A-Z 0-9 . _ - (not . or ..)"
        )
    if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        raise StartError(f"bad topic name '{name}': it is the coordinator's own; expected another name")
    if type(partitions) is not int or not 1 <= partitions <= PARTITIONS_MAX:
        raise StartError(f"bad topic '{name}': expected 1 to {PARTITIONS_MAX} partitions, not {shown(partitions)}")
    return name, partitions


def parse_topic(text: str) -> tuple[str, int]:
    """Read NAME:PARTITIONS from the command line."""
    name, _, partitions = text.rpartition(":")
    if not name or not NUMBER.fullmatch(partitions):
        raise StartError(f"bad topic '{text}': expected NAME:PARTITIONS, as in orders:6")
    return check_topic(name, int(partitions))


def file_topics(table: Mapping[str, object], path: Path | None) -> dict[str, int]:
    """The partitions of each topic under ``[topics]``."""
    try:
        return dict(check_topic(name, partitions) for name, partitions in table.items())
    except StartError as error:
        raise StartError(f"[topics] in '{path}': {error}") from None


def option_topics(texts: Sequence[str]) -> dict[str, int]:
    """The same from the command line, where a topic may be named once."""
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


def parse_sync(value: str) -> Sync:
    checked: Sync = parse_choice("sync", value, Sync)
    return checked


def parse_choice(what: str, value: str, choices: Any) -> Any:
    """One of the words of a Literal. ``what`` names the option in the error."""
    if value in get_args(choices):
        return value
    raise StartError(f"bad {what} '{value}': expected one of {', '.join(get_args(choices))}")


class File(NamedTuple):
    """A configuration file, its shape checked but not yet what its words mean."""

    listen: str | None = None
    advertised: str | None = None
    data: str | None = None
    sync: str | None = None
    metrics: str | None = None
    dynamic_settings: str | None = None
    file_mode: str | None = None
    topics: Mapping[str, object] = {}
    settings: Mapping[str, object] = {}


def read_file(path: Path) -> File:
    """Read a TOML file with the keys of File. Raises StartError when it cannot be read or has another shape."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"cannot read the config file '{path}': {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise StartError(f"the config file '{path}' is not TOML: {error}") from error
    for key, value in table.items():
        check_key(path, key, value)
    return File(**table)


def check_key(path: Path, key: str, value: object) -> None:
    if key not in File._fields:
        hint = " settings belong under [settings];" if key in BY_NAME else nearest(key, File._fields)
        raise StartError(f"unknown key '{key}' in '{path}':{hint} known are {', '.join(File._fields)}")
    expected, word = (dict, "a table") if key in ("topics", "settings") else (str, "a text")
    if not isinstance(value, expected):
        raise StartError(f"bad value {shown(value)} for '{key}' in '{path}': expected {word}")


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
) -> tuple[Settings, Options]:
    """Everything that ``serve`` is told, checked. An option of the command line wins over the file's, a topic or a
    setting by its name. Raises StartError for the first thing that is wrong.
    """
    file = File() if config is None else read_file(config)
    listen = file.listen if listen is None else listen
    advertised = file.advertised if advertised is None else advertised
    sync = file.sync if sync is None else sync
    metrics = file.metrics if metrics is None else metrics
    file_mode = file.file_mode if file_mode is None else file_mode
    data = file.data if data is None else data
    dynamic_settings = file.dynamic_settings if dynamic_settings is None else dynamic_settings
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
        dynamic_settings=parse_choice("dynamic settings", dynamic_settings or "local", DynamicPeers),
        unsafe_settings=unsafe_settings,
        ignore_saved_settings=ignore_saved_settings,
        given=given_by(file.settings, overrides, config),
        file_mode=FILE_MODE if file_mode is None else parse_file_mode(file_mode),
    )
    settings = load_settings(file.settings, overrides)
    if not unsafe_settings:
        check_safe(settings)
    return settings, options


def given_by(table: Mapping[str, object], overrides: Sequence[str], path: Path | None) -> dict[str, str]:
    """The settings of a file and of the command line by name, and which of the two gives each."""
    by_file = dict.fromkeys(table, f"the configuration file '{path}'")
    return by_file | {text.partition("=")[0].strip(): "--set" for text in overrides}
