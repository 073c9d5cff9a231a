"""Settings and options: accepted values, and errors that name the range or the most similar known name."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.common.errors import StartError
from callboard.runtime.settings.address import Address, parse_address
from callboard.runtime.settings.consumer_groups import ORDERED
from callboard.runtime.settings.listeners import Listener
from callboard.runtime.settings.load import load
from callboard.runtime.settings.metric_options import MetricOptions
from callboard.runtime.settings.rows import INT_MAX, Setting
from callboard.runtime.settings.table import BY_NAME, SETTINGS, Options, Settings, load_settings

each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
each_number = pytest.mark.parametrize(
    "setting", [setting for setting in SETTINGS if setting.type is int], ids=lambda setting: setting.name
)


LIMITED = {name for pair in ORDERED for name in pair}
WIDEST: dict[str, object] = {
    **{name: BY_NAME[name].minimum for name in LIMITED if "_min_" in name},
    **{name: BY_NAME[name].maximum for name in LIMITED if "_max_" in name},
    "group_consumer_session_timeout_ms": INT_MAX,
    "group_consumer_heartbeat_interval_ms": 1,
}
"""Settings that limit others, so that each of those may have any value of its own range."""


def refusal(*overrides: str) -> str:
    with pytest.raises(StartError) as raised:
        load_settings({}, overrides)
    return str(raised.value)


def write_config(folder: Path, text: str) -> Path:
    path = folder / "callboard.toml"
    path.write_text(text)
    return path


def test_defaults_equal_kafka_defaults() -> None:
    """Without any setting the server behaves like a Kafka broker with its defaults."""
    settings = Settings()
    assert settings.group_initial_rebalance_delay_ms == 3000
    assert settings.group_min_session_timeout_ms == 6000
    assert settings.group_max_session_timeout_ms == 1_800_000
    assert settings.group_max_size == 2**31 - 1
    assert settings.group_consumer_session_timeout_ms == 45_000
    assert settings.group_consumer_heartbeat_interval_ms == 5000
    assert settings.group_consumer_assignment_interval_ms == 1000
    assert settings.group_consumer_assignors == "uniform,range"
    assert settings.group_consumer_migration_policy == "bidirectional"
    assert settings.offset_metadata_max_bytes == 4096
    assert settings.offsets_topic_num_partitions == 50
    assert settings.offsets_topic_segment_bytes == 104_857_600
    assert settings.message_max_bytes == 1_048_588
    assert settings.auto_create_topics_enable is True
    assert settings.num_partitions == 1
    assert settings.socket_request_max_bytes == 104_857_600


@each_setting
def test_every_setting_has_documentation(setting: Setting) -> None:
    assert setting.doc.endswith(".")
    assert setting.type in (int, float, bool, str)
    assert (setting.minimum is None) == (setting.maximum is None) == (setting.type in (bool, str))


def test_table_rows_match_settings_attributes() -> None:
    assert [setting.name for setting in SETTINGS] == [field.name for field in dataclasses.fields(Settings)]


@each_number
def test_number_at_limit_of_range_is_accepted(setting: Setting) -> None:
    for value in (setting.minimum, setting.maximum):
        table = {**_others_for(setting, value), setting.name: value}
        assert getattr(load_settings(table), setting.name) == value


def _others_for(setting: Setting, value: float | None) -> dict[str, object]:
    """Values of the settings that limit this one."""
    assert value is not None
    own = BY_NAME.get(setting.name.replace("_min_", "_").replace("_max_", "_"))
    if own is None or own is setting or own.minimum is None or own.maximum is None:
        return WIDEST
    return {**WIDEST, own.name: min(max(value, own.minimum), own.maximum)}


@each_number
def test_number_out_of_range_is_refused_with_range(setting: Setting) -> None:
    assert setting.minimum is not None and setting.maximum is not None
    for value in (setting.minimum - 1, setting.maximum + 1):
        message = refusal(f"{setting.name}={value}")
        assert f"bad value {value} for setting '{setting.name}'" in message
        assert f"from {setting.minimum} to {setting.maximum}" in message


@pytest.mark.parametrize("value", ["", "x", "1.5", "1e3", "0x10", "1_000", pytest.param("9" * 5000, id="5000 digits")])
def test_invalid_integer_is_refused(value: str) -> None:
    assert f"bad value '{value}' for setting 'group_max_size'" in refusal(f"group_max_size={value}")


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1", 1.0), ("0.25", 0.25)])
def test_ratio_accepts_integer_and_decimal(text: str, value: float) -> None:
    assert load_settings({}, [f"log_cleaner_min_cleanable_ratio={text}"]).log_cleaner_min_cleanable_ratio == value
    assert load_settings({"log_cleaner_min_cleanable_ratio": 1}).log_cleaner_min_cleanable_ratio == 1


@pytest.mark.parametrize("text", ["1.1", "-0.1", "half", "nan", "1e-3", "0,5", "true"])
def test_invalid_ratio_is_refused(text: str) -> None:
    message = refusal(f"log_cleaner_min_cleanable_ratio={text}")
    assert "setting 'log_cleaner_min_cleanable_ratio': expected a number from 0 to 1" in message


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("False", False), ("TRUE", True)])
def test_booleans_are_parsed_like_in_kafka(text: str, value: bool) -> None:
    assert load_settings({}, [f"auto_create_topics_enable={text}"]).auto_create_topics_enable is value


def test_invalid_boolean_is_refused() -> None:
    assert refusal("auto_create_topics_enable=yes") == (
        "bad value 'yes' for setting 'auto_create_topics_enable': expected true or false"
    )


def test_unknown_name_is_refused_with_similar_name() -> None:
    assert refusal("group_min_sesion_timeout_ms=1") == (
        "unknown setting 'group_min_sesion_timeout_ms': did you mean 'group_min_session_timeout_ms'? "
        "`callboard settings` lists all"
    )


def test_unknown_name_without_similar_name_is_refused() -> None:
    assert refusal("zzz=1") == "unknown setting 'zzz': `callboard settings` lists all"


def test_unknown_name_with_dots_suggests_underscores() -> None:
    assert "did you mean 'group_max_size'?" in refusal("group.max.size=5")


def test_setting_without_value_is_refused() -> None:
    assert "expected name=value" in refusal("group_max_size")


def test_contradicting_session_timeouts_are_refused() -> None:
    message = refusal("group_min_session_timeout_ms=20", "group_max_session_timeout_ms=10")
    assert "group_min_session_timeout_ms=20 is above group_max_session_timeout_ms=10" in message


@pytest.mark.parametrize(("low", "high"), ORDERED)
def test_settings_out_of_order_are_refused(low: str, high: str) -> None:
    assert f"{low}=9 is above {high}=8: lower the first or raise the second" in refusal(
        *(f"{name}={value}" for name, value in WIDEST.items()), f"{low}=9", f"{high}=8"
    )


def test_heartbeat_interval_has_to_be_below_session_timeout() -> None:
    message = refusal("group_consumer_min_session_timeout_ms=5000", "group_consumer_session_timeout_ms=5000")
    assert "group_consumer_heartbeat_interval_ms=5000 is not below group_consumer_session_timeout_ms=5000" in message


def test_text_settings_take_their_choices_and_lists_of_names() -> None:
    overrides = ["group_consumer_migration_policy=Disabled", "group_consumer_assignors=range, by-rack"]
    settings = load_settings({}, overrides)
    assert settings.group_consumer_migration_policy == "disabled"
    assert settings.group_consumer_assignors == "range, by-rack"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("group_consumer_migration_policy=both", "expected one of bidirectional, downgrade, upgrade, disabled"),
        ("group_consumer_assignors= , ", "expected names, each once, separated by commas"),
        ("group_consumer_assignors=range,range", "expected names, each once, separated by commas"),
    ],
)
def test_invalid_text_setting_is_refused(override: str, expected: str) -> None:
    name, _, value = override.partition("=")
    assert refusal(override) == f"bad value '{value.strip()}' for setting '{name}': {expected}"


def test_last_of_two_values_is_used() -> None:
    assert load_settings({}, ["group_max_size=1", "group_max_size=2"]).group_max_size == 2


@pytest.mark.parametrize("value", [True, "5", 5.0, [5], {}])
def test_number_of_wrong_type_in_file_is_refused(value: object) -> None:
    with pytest.raises(StartError, match="setting 'group_max_size': expected a whole number"):
        load_settings({"group_max_size": value})


@given(
    host=st.one_of(st.ip_addresses().map(str), st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)),
    port=st.integers(0, 65535),
)
def test_address_is_parsed(host: str, port: int) -> None:
    address = Address(host, port)
    assert parse_address("listen", str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "9092", "host", "host:", "host:x", "::1:9092", "[::1]", "[::1:9092", "a b:1", "host:-1", "host:1:2", "[]:1"],
)
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="expected HOST:PORT"):
        parse_address("listen", text)


def test_port_above_65535_is_refused() -> None:
    with pytest.raises(StartError, match="bad listen 'h:65536': expected a port from 0 to 65535, not 65536"):
        parse_address("listen", "h:65536")


@pytest.mark.parametrize("text", [":9092", "host:0"])
def test_advertised_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(StartError, match=f"bad advertised '{text}'"):
        load(advertised=[text])


@pytest.mark.parametrize("text", ["orders", "orders:", ":3", "orders:x", "orders:1.0"])
def test_invalid_topic_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="expected NAME:PARTITIONS"):
        load(topics=[text])


@pytest.mark.parametrize("text", ["orders:0", "orders:-1", "orders:10001"])
def test_invalid_partition_count_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="bad topic 'orders': expected 1 to 10000 partitions"):
        load(topics=[text])


@pytest.mark.parametrize("again", ["orders:3", "orders:6"])
def test_topic_given_twice_is_refused(again: str) -> None:
    with pytest.raises(StartError, match=r"topic 'orders' is given twice, with 6 and with \d partitions: expected one"):
        load(topics=["orders:6", "payments:1", again])


@pytest.mark.parametrize("name", [".", "..", "a/b", "a b", "ä", "a" * 250, "__consumer_offsets", "__transaction_state"])
def test_topic_names_follow_kafka_rules(name: str) -> None:
    with pytest.raises(StartError, match="bad topic name"):
        load(topics=[f"{name}:1"])


def test_load_without_options_returns_defaults() -> None:
    assert load() == (Settings(), Options())
    listener = Listener("PLAINTEXT", "PLAINTEXT", Address("127.0.0.1", 9092), advertised=None, is_advertised=True)
    assert Options() == Options((listener,), "PLAINTEXT", Path("data"), "always", ())


def test_config_file_sets_all_options(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        """
        listen = "[::1]:19092"
        advertised = "kafka.example.com:9092"
        data = "elsewhere"
        sync = "interval"
        topics = { orders = 6, payments = 3 }
        [settings]
        group_initial_rebalance_delay_ms = 0
        auto_create_topics_enable = false
        """,
    )
    settings, options = load(config=path)
    assert settings == Settings(group_initial_rebalance_delay_ms=0, auto_create_topics_enable=False)
    assert options == Options(
        (Listener(listen=Address("::1", 19092), advertised=Address("kafka.example.com", 9092)),),
        data=Path("elsewhere"),
        sync="interval",
        topics=(("orders", 6), ("payments", 3)),
    )


def test_config_file_sets_flags_and_lists(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        'metrics_lag = ["etl", "mail", "etl"]\n'
        "group_metrics = true\nrequest_metrics = true\nunsafe_settings = true\nignore_saved_settings = true",
    )
    _, options = load(config=path)
    assert options == Options(
        metric_options=MetricOptions(("etl", "mail"), True, True), unsafe_settings=True, ignore_saved_settings=True
    )
    assert load(config=path, shown=MetricOptions(("other",)))[1].metric_options == MetricOptions(("other",), True, True)


def test_unsafe_setting_in_config_file_that_allows_them_is_accepted(tmp_path: Path) -> None:
    unsafe = "[settings]\noffsets_retention_check_interval_ms = 1"
    with pytest.raises(StartError, match="offsets_retention_check_interval_ms"):
        load(config=write_config(tmp_path, unsafe))
    settings, _ = load(config=write_config(tmp_path, "unsafe_settings = true\n" + unsafe))
    assert settings.offsets_retention_check_interval_ms == 1


def test_configuration_file_may_allow_insecure_listeners(tmp_path: Path) -> None:
    allowing = write_config(tmp_path, "insecure = true")
    for config, is_allowed in ((None, False), (allowing, True)):
        with nullcontext() if is_allowed else pytest.raises(StartError, match="other machines can reach the listener"):
            load(["192.0.2.1:9092"], config=config, insecure=False)


def test_command_line_overrides_config_file(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        """
        listen = "0.0.0.0:1"
        advertised = "file:1"
        data = "file"
        sync = "none"
        topics = { orders = 6, payments = 3 }
        settings = { group_max_size = 1, num_partitions = 4 }
        """,
    )
    settings, options = load(["h:2"], ["line:2"], Path("line"), "always", ["orders:7"], ["group_max_size=2"], path)
    listener = Listener(listen=Address("h", 2), advertised=Address("line", 2))
    topics = (("orders", 7), ("payments", 3))
    assert options == Options((listener,), data=Path("line"), sync="always", topics=topics)
    assert settings == Settings(group_max_size=2, num_partitions=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen = ", "is not TOML"),
        (f"listen = {'[' * 20_000}", "nested too deeply"),
        ('liste = "h:1"', "unknown key 'liste' in .* did you mean 'listen'?"),
        ("group_max_size = 1", "unknown key 'group_max_size' in .* settings belong under .settings."),
        ("listen = 9092", "bad value 9092 for 'listen' in .* expected a text"),
        ('topics = ["orders"]', "for 'topics' in .* expected a table"),
        ('metrics_lag = "etl"', "bad value 'etl' for 'metrics_lag' in .* expected a list of texts"),
        ("metrics_lag = [1]", "for 'metrics_lag' in .* expected a list of texts"),
        ('unsafe_settings = "yes"', "for 'unsafe_settings' in .* expected true or false"),
        (
            'topics = { orders = "6" }',
            "^.topics. in '.*toml': bad topic 'orders': expected 1 to 10000 .*, not '6'",
        ),
        ("topics = { orders = true }", "expected 1 to 10000 partitions, not true"),
        ('sync = "sometimes"', "bad sync 'sometimes': expected one of always, interval, none"),
        ("[settings]\ngroup_max_siz = 1", "unknown setting 'group_max_siz': did you mean 'group_max_size'?"),
        ("[settings]\ngroup_max_size = true", "bad value true for setting 'group_max_size'"),
    ],
)
def test_invalid_config_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        load(config=write_config(tmp_path, text))


def test_binary_config_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "callboard.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match="is not TOML"):
        load(config=path)


def test_missing_config_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot read the config file '.*nothing.toml': No such file"):
        load(config=tmp_path / "nothing.toml")
