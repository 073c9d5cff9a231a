"""Settings of TLS: for all listeners or for one, from a file, the command line and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.runtime.common.errors import StartError
from callboard.runtime.settings.listener_settings import Secret, number_of
from callboard.runtime.settings.load import load
from callboard.runtime.settings.table import Options

LISTEN = ("SSL://127.0.0.1:0", "MY-OWN://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0")
MAP = "MY-OWN:SSL"


def options_of(*overrides: str, config: Path | None = None, **environment: str) -> Options:
    return load(
        LISTEN, overrides=overrides, config=config, listener_security_protocol_map=MAP, environment=environment
    )[1]


def value_by_listener(name: str, options: Options) -> list[str | None]:
    return [listener.settings.get(name) for listener in options.listeners]


def test_setting_is_for_all_listeners_unless_one_has_its_own() -> None:
    options = options_of(
        "ssl_keystore_location=a.pem",
        "listener_name_my_own_ssl_keystore_location=b.pem",
        "listener.name.ssl.ssl.client.auth=REQUIRED",
        "group_max_size=7",
    )
    assert value_by_listener("ssl_keystore_location", options) == ["a.pem", "b.pem", "a.pem"]
    assert value_by_listener("ssl_client_auth", options) == ["required", None, None]
    assert options.given == {"group_max_size": "--set"}
    assert [listener.has_tls for listener in options.listeners] == [True, True, False]


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.touch(0o644)
    config.write_text(
        "[settings]\nssl_keystore_location = 'a.pem'\nssl_key_password = 'geheim'\nssl_allow_dn_changes = true\n"
    )
    with pytest.raises(StartError, match=r"has the secret ssl_key_password and the permissions 0644") as caught:
        options_of(config=config)
    assert "geheim" not in str(caught.value)
    config.chmod(0o640)
    options = options_of("ssl_keystore_location=b.pem", config=config)
    assert value_by_listener("ssl_keystore_location", options) == ["b.pem"] * 3
    assert value_by_listener("ssl_key_password", options) == ["geheim"] * 3
    assert value_by_listener("ssl_allow_dn_changes", options) == ["true"] * 3
    assert "geheim" not in repr(options)


def test_secrets_come_from_the_environment_but_not_from_a_command_line() -> None:
    options = options_of("ssl_keystore_location=a.pem", CALLBOARD_SSL_KEY_PASSWORD="geheim")
    assert value_by_listener("ssl_key_password", options) == [Secret("geheim")] * 3
    assert "geheim" not in repr(options)
    with pytest.raises(StartError, match=r"is a secret, .* environment variable CALLBOARD_SSL_KEY_PASSWORD") as caught:
        options_of("ssl_key_password=geheim")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ssl_keystore_locatio=a", "unknown setting 'ssl_keystore_locatio': did you mean 'ssl_keystore_location'"),
        ("ssl_client_auth=maybe", "bad value 'maybe' for setting 'ssl_client_auth': expected one of none, requested"),
        ("listener_name_ssl_x=1", "unknown setting 'listener_name_ssl_x': expected listener_name_NAME_SETTING"),
        (
            "listener_name_other_ssl_client_auth=none",
            "of a listener that does not exist: expected one of the prefixes listener_name_ssl_, listener_name_my_own_",
        ),
    ],
)
def test_wrong_settings_are_refused(override: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        options_of(override)


def test_setting_that_no_listener_uses_is_refused() -> None:
    with pytest.raises(StartError, match="'ssl_client_auth' is given, but no listener has TLS: expected one with the"):
        load(overrides=["ssl_client_auth=required"])


def test_value_in_a_file_must_be_a_text(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text("[settings]\nssl_client_auth = 1.5\n")
    with pytest.raises(StartError, match=r"bad value 1\.5 for setting 'ssl_client_auth': expected a text"):
        options_of(config=config)


@pytest.mark.parametrize("word", ["-1", "1.5", "ten", "\N{ARABIC-INDIC DIGIT THREE}", "2147483648", "9" * 5000])
def test_numbers_are_from_0_to_the_largest_int(word: str) -> None:
    name = "sasl_oauthbearer_clock_skew_seconds"
    with pytest.raises(StartError, match=rf"'{name}': expected a whole number from 0 to 2147483647"):
        number_of({name: word}, name)
    assert number_of({}, name) == 30
