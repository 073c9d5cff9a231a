"""Security settings of clients: from a file with Kafka's names, from values, and from environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callboard.runtime.client.security import load_security
from callboard.runtime.common.errors import StartError
from callboard.runtime.settings.client_settings import (
    ClientSettings,
    Login,
    load_client_settings,
    parse_client_settings,
)


def write(folder: Path, *lines: str) -> Path:
    path = folder / "client.properties"
    path.write_text("\n".join(lines))
    return path


def test_nothing_is_plaintext() -> None:
    assert load_client_settings(None, {}) == ClientSettings("PLAINTEXT", {})


def test_file_overrides_environment_variables(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "# a comment",
        "! another one",
        "",
        " security.protocol = SSL ",
        "ssl.truststore.location=/etc/ca=1.pem",
        "ssl.endpoint.identification.algorithm=",
        "client.id=for another program",
    )
    environment = {"CALLBOARD_SSL_TRUSTSTORE_LOCATION": "other.pem", "CALLBOARD_SSL_KEYSTORE_LOCATION": "own.pem"}
    settings = load_client_settings(path, environment)
    assert (settings.protocol, settings.has_tls, settings.checks_host) == ("SSL", True, False)
    assert settings.values["ssl_truststore_location"] == "/etc/ca=1.pem"
    assert settings.values["ssl_keystore_location"] == "own.pem"
    assert "client_id" not in settings.values


def test_texts_may_have_several_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "security.protocol=SSL", "ssl.truststore.certificates=-----BEGIN\\nx\\n\\", "END-----")
    assert load_client_settings(path, {}).values["ssl_truststore_certificates"] == "-----BEGIN\nx\nEND-----"


@pytest.mark.parametrize("separator", [":", " : ", " ", "\t"])
def test_no_separator_makes_a_secret_a_part_of_a_name(tmp_path: Path, separator: str) -> None:
    """A name that is not known is shown in the error."""
    path = write(tmp_path, f"sasl.password{separator}geheim", f"sasl.pasword{separator}geheim")
    with pytest.raises(StartError) as refused:
        load_client_settings(path, {})
    assert "'sasl.pasword'" in str(refused.value) and "geheim" not in str(refused.value)


@pytest.mark.parametrize("password", [b"geheim", ["geheim"], ("geheim",)])
def test_secret_of_another_type_is_not_shown(password: Any) -> None:
    with pytest.raises(StartError, match=r"bad value of type \w+ for setting 'sasl.password': expected a text$"):
        parse_client_settings({"sasl.password": password}, {})


@pytest.mark.parametrize(
    ("security", "text"),
    [
        (5, "bad security of type int: expected a path, or settings by name"),
        ([("sasl.password", "x")], "bad security of type list"),
        ({1: 2}, "bad name 1 of a setting of a client: expected a text"),
    ],
)
def test_what_is_neither_a_path_nor_settings_is_refused(security: Any, text: str) -> None:
    with pytest.raises(StartError, match=text):
        load_security(security, {})


def test_byte_order_mark_hides_no_setting(tmp_path: Path) -> None:
    """The protocol would be PLAINTEXT then, without a word."""
    path = write(tmp_path, "\ufeffsecurity.protocol=SSL")
    assert load_client_settings(path, {}).protocol == "SSL"


@pytest.mark.parametrize(
    "options",
    [
        'username="alice" password="a\\\\\\"b"',
        "username='alice' password='a\\\\\"b'",
        'username=alice password = "a\\\\\\"b"',
    ],
)
def test_user_and_password_may_be_those_of_a_login_module(tmp_path: Path, options: str) -> None:
    """With the quotation marks that Java accepts. Java's properties unescape once, its login configuration again."""
    protocol = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN")
    path = write(tmp_path, *protocol, f"sasl.jaas.config=x.PlainLoginModule required {options};")
    login = load_client_settings(path, {}).credentials
    assert isinstance(login, Login)
    assert (login.user, login.password) == ("alice", 'a"b')


def test_host_is_checked_by_default() -> None:
    assert parse_client_settings({"security.protocol": "ssl"}, {}).checks_host


def test_secret_is_not_shown() -> None:
    environment = {"CALLBOARD_SECURITY_PROTOCOL": "SSL", "CALLBOARD_SSL_KEY_PASSWORD": "geheim"}
    settings = load_client_settings(None, environment)
    assert settings.values["ssl_key_password"] == "geheim"
    assert "geheim" not in repr(settings)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["security.protocol=TLS"], "bad value 'TLS' for setting 'security.protocol': expected one of plaintext, ssl"),
        (["ssl.truststore.locaton=x"], "unknown setting 'ssl.truststore.locaton' in '.*': did you mean 'ssl.trust"),
        (["ssl.keystore.type=JKS"], "bad value 'JKS' for setting 'ssl.keystore.type': expected one of pem"),
        (["ssl.truststore.location=x"], "ssl_truststore_location is given, but security_protocol is PLAINTEXT"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(StartError, match=message):
        load_client_settings(write(tmp_path, *lines), {})


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot read the client's settings '.*none': No such file"):
        load_client_settings(tmp_path / "none", {})
