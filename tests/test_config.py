"""Settings and options: what is taken, and that what is refused is named with its range and the nearest known name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.common.errors import StartError
from callboard.runtime.settings import table as config
from callboard.runtime.settings.table import SETTINGS, Address, Options, Setting, Settings, load, load_settings

each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
each_number = pytest.mark.parametrize(
    "setting", [setting for setting in SETTINGS if setting.type is int], ids=lambda setting: setting.name
)


def refusal(*overrides: str) -> str:
    with pytest.raises(StartError) as caught:
        load_settings({}, overrides)
    return str(caught.value)


def file(folder: Path, text: str) -> Path:
    path = folder / "callboard.toml"
    path.write_text(text)
    return path


def test_defaults_are_kafkas() -> None:
    """A person who knows Kafka's broker finds its behaviour without setting anything."""
    settings = Settings()
    assert settings.group_initial_rebalance_delay_ms == 3000
    assert settings.group_min_session_timeout_ms == 6000
    assert settings.group_max_session_timeout_ms == 1_800_000
    assert settings.group_max_size == 2**31 - 1
    assert settings.offset_metadata_max_bytes == 4096
    assert settings.offsets_topic_num_partitions == 50
    assert settings.offsets_topic_segment_bytes == 104_857_600
    assert settings.message_max_bytes == 1_048_588
    assert settings.auto_create_topics_enable is True
    assert settings.num_partitions == 1
    assert settings.socket_request_max_bytes == 104_857_600


@each_setting
def test_every_setting_explains_itself(setting: Setting) -> None:
    assert setting.doc.endswith(".")
    assert setting.type in (int, float, bool)
    assert (setting.minimum is None) == (setting.maximum is None) == (setting.type is bool)


def test_the_table_has_the_attributes_and_no_others() -> None:
    assert [setting.name for setting in SETTINGS] == [field.name for field in dataclasses.fields(Settings)]


@each_number
def test_a_number_is_taken_at_both_ends_of_its_range(setting: Setting) -> None:
    # The two session timeouts bound each other, so the other one makes room.
    room = {"group_min_session_timeout_ms": 1, "group_max_session_timeout_ms": config.INT_MAX}
    for value in (setting.minimum, setting.maximum):
        table: dict[str, object] = {**room, setting.name: value}
        assert getattr(load_settings(table), setting.name) == value


@each_number
def test_a_number_out_of_range_is_refused_with_its_range(setting: Setting) -> None:
    assert setting.minimum is not None and setting.maximum is not None
    for value in (setting.minimum - 1, setting.maximum + 1):
        message = refusal(f"{setting.name}={value}")
        assert f"bad value {value} for setting '{setting.name}'" in message
        assert f"from {setting.minimum} to {setting.maximum}" in message


@pytest.mark.parametrize("value", ["", "x", "1.5", "1e3", "0x10", "1_000", pytest.param("9" * 5000, id="5000 digits")])
def test_what_is_no_whole_number_is_refused(value: str) -> None:
    assert f"bad value '{value}' for setting 'group_max_size'" in refusal(f"group_max_size={value}")


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1", 1.0), ("0.25", 0.25)])
def test_a_ratio_is_a_number_with_a_point_or_without(text: str, value: float) -> None:
    assert load_settings({}, [f"log_cleaner_min_cleanable_ratio={text}"]).log_cleaner_min_cleanable_ratio == value
    assert load_settings({"log_cleaner_min_cleanable_ratio": 1}).log_cleaner_min_cleanable_ratio == 1


@pytest.mark.parametrize("text", ["1.1", "-0.1", "half", "nan", "1e-3", "0,5", "true"])
def test_what_is_no_ratio_is_refused(text: str) -> None:
    message = refusal(f"log_cleaner_min_cleanable_ratio={text}")
    assert "setting 'log_cleaner_min_cleanable_ratio': expected a number from 0 to 1" in message


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("False", False), ("TRUE", True)])
def test_truth_values_are_read_as_kafka_reads_them(text: str, value: bool) -> None:
    assert load_settings({}, [f"auto_create_topics_enable={text}"]).auto_create_topics_enable is value


def test_a_bad_truth_value_is_refused() -> None:
    assert refusal("auto_create_topics_enable=yes") == (
        "bad value 'yes' for setting 'auto_create_topics_enable': expected true or false"
    )


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    assert refusal("group_min_sesion_timeout_ms=1") == (
        "unknown setting 'group_min_sesion_timeout_ms': did you mean 'group_min_session_timeout_ms'? "
        "`callboard settings` lists all"
    )


def test_an_unknown_name_like_none_of_ours_gets_no_guess() -> None:
    assert refusal("zzz=1") == "unknown setting 'zzz': `callboard settings` lists all"


def test_kafkas_own_spelling_finds_ours() -> None:
    assert "did you mean 'group_max_size'?" in refusal("group.max.size=5")


def test_a_setting_without_a_value_is_refused() -> None:
    assert "expected name=value" in refusal("group_max_size")


def test_session_timeouts_that_contradict_each_other_are_refused() -> None:
    message = refusal("group_min_session_timeout_ms=20", "group_max_session_timeout_ms=10")
    assert "group_min_session_timeout_ms=20 is above group_max_session_timeout_ms=10" in message


def test_the_later_of_two_values_wins() -> None:
    assert load_settings({}, ["group_max_size=1", "group_max_size=2"]).group_max_size == 2


@pytest.mark.parametrize("value", [True, "5", 5.0, [5], {}])
def test_a_file_cannot_give_another_type_for_a_number(value: object) -> None:
    with pytest.raises(StartError, match="setting 'group_max_size': expected a whole number"):
        load_settings({"group_max_size": value})


@given(
    host=st.one_of(st.ip_addresses().map(str), st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)),
    port=st.integers(0, 65535),
)
def test_an_address_is_read_as_it_is_written(host: str, port: int) -> None:
    address = Address(host, port)
    assert config.parse_address("listen", str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["", "9092", "host", "host:", "host:x", "::1:9092", "[::1]", "[::1:9092", "a b:1", "host:-1", "host:1:2", "[]:1"],
)
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="expected HOST:PORT"):
        config.parse_address("listen", text)


def test_a_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(StartError, match="bad listen 'h:65536': expected a port from 0 to 65535, not 65536"):
        config.parse_address("listen", "h:65536")


@pytest.mark.parametrize("text", [":9092", "host:0"])
def test_clients_cannot_be_sent_to_nowhere(text: str) -> None:
    with pytest.raises(StartError, match=f"bad advertised '{text}'"):
        load(advertised=text)


@pytest.mark.parametrize("text", ["orders", "orders:", ":3", "orders:x", "orders:1.0"])
def test_a_bad_topic_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="expected NAME:PARTITIONS"):
        load(topics=[text])


@pytest.mark.parametrize("text", ["orders:0", "orders:-1", "orders:10001"])
def test_a_bad_number_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="bad topic 'orders': expected 1 to 10000 partitions"):
        load(topics=[text])


@pytest.mark.parametrize("again", ["orders:3", "orders:6"])
def test_a_topic_that_is_given_twice_is_refused(again: str) -> None:
    with pytest.raises(StartError, match=r"topic 'orders' is given twice, with 6 and with \d partitions: expected one"):
        load(topics=["orders:6", "payments:1", again])


@pytest.mark.parametrize("name", [".", "..", "a/b", "a b", "ä", "a" * 250, "__consumer_offsets", "__transaction_state"])
def test_topic_names_follow_kafkas_rule(name: str) -> None:
    with pytest.raises(StartError, match="bad topic name"):
        load(topics=[f"{name}:1"])


def test_nothing_given_is_the_local_default() -> None:
    assert load() == (Settings(), Options())
    assert Options() == Options("127.0.0.1", 9092, None, Path("data"), "always", ())


def test_a_file_says_what_the_command_line_can_say(tmp_path: Path) -> None:
    path = file(
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
        "::1", 19092, ("kafka.example.com", 9092), Path("elsewhere"), "interval", (("orders", 6), ("payments", 3))
    )


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = file(
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
    settings, options = load("h:2", "line:2", Path("line"), "always", ["orders:7"], ["group_max_size=2"], path)
    assert options == Options("h", 2, ("line", 2), Path("line"), "always", (("orders", 7), ("payments", 3)))
    assert settings == Settings(group_max_size=2, num_partitions=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen = ", "is not TOML"),
        ('liste = "h:1"', "unknown key 'liste' in .* did you mean 'listen'?"),
        ("group_max_size = 1", "unknown key 'group_max_size' in .* settings belong under .settings."),
        ("listen = 9092", "bad value 9092 for 'listen' in .* expected a text"),
        ('topics = ["orders"]', "for 'topics' in .* expected a table"),
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
def test_a_bad_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        load(config=file(tmp_path, text))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "callboard.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match="is not TOML"):
        load(config=path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot read the config file '.*nothing.toml': No such file"):
        load(config=tmp_path / "nothing.toml")
