"""docs/security.md: its commands and configurations work in their order, and its table has all settings."""

from __future__ import annotations

import re
import shlex
import ssl
import subprocess
import sys
from contextlib import AbstractContextManager, suppress
from dataclasses import fields
from pathlib import Path

import pytest
from doc_pages import DOCS, dead_links
from program_helpers import PROGRAM, Server, run, serving

from callboard.runtime.client.security import load_security
from callboard.runtime.node.accepting import open_tls
from callboard.runtime.settings.audit import AuditRows
from callboard.runtime.settings.authorization import AuthorizationRows, parse_principals
from callboard.runtime.settings.client_settings import CLIENT_SETTINGS
from callboard.runtime.settings.listener_settings import LISTENER_SETTINGS
from callboard.runtime.settings.load import load
from callboard.runtime.settings.table import BY_NAME, format_value

PAGE = (DOCS / "security.md").read_text()
SECTION = re.compile(r"^## (?P<title>.+)$(?P<text>[\s\S]+?)(?=^## |\Z)", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n([\s\S]+?)^```$", re.MULTILINE)
SECTIONS = {match["title"]: BLOCK.findall(match["text"]) for match in SECTION.finditer(PAGE)}
ONE_SIDED, MUTUAL, OWN = "Ten minutes to TLS", "Ten minutes to mutual TLS", "Callboard's own clients"
SCRAM, OAUTH = "Ten minutes to SCRAM", "Ten minutes to OAuth"
SETTING_ROW = re.compile(r"^\| `(\w+)` \| (none|`[^`|]*`) \| [^|]+ \|$", re.MULTILINE)


def blocks(title: str, language: str) -> list[str]:
    return [text for kind, text in SECTIONS[title] if kind == language]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands of both sections have run."""
    folder = tmp_path_factory.mktemp("page")
    for title in (ONE_SIDED, MUTUAL):
        subprocess.run(["sh", "-ec", blocks(title, "sh")[0]], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("title", [ONE_SIDED, MUTUAL])
def test_configuration_opens_a_listener_with_the_certificates_that_were_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    monkeypatch.chdir(folder)
    [text] = blocks(title, "toml")
    config = folder / "callboard.toml"
    config.write_text(text)
    _, options = load(config=config, environment={})
    [tls] = open_tls(options).values()
    assert tls.context.verify_mode is (ssl.CERT_REQUIRED if title == MUTUAL else ssl.CERT_NONE)


def test_certificates_fit_each_other_and_the_rule_makes_the_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake in memory, with the file for clients that the page has."""
    monkeypatch.chdir(folder)
    config = folder / "callboard.toml"
    config.write_text(blocks(MUTUAL, "toml")[0])
    [tls] = open_tls(load(config=config, environment={})[1]).values()
    (folder / "client.properties").write_text(blocks(OWN, "properties")[0])
    context = load_security("client.properties", {}).tls_context()
    assert context is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="kafka.example.com")
    server = tls.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    peer = tls.peer(server)
    assert peer is not None
    assert peer.name == "billing"


def test_command_of_the_page_is_valid() -> None:
    """It has no server here, so it says that it cannot reach one."""
    [export, command] = blocks(OWN, "sh")[0].splitlines()
    variables = dict(part.split("=") for part in export.removeprefix("export ").split())
    assert {variable.removeprefix("CALLBOARD_").lower() for variable in variables} <= set(CLIENT_SETTINGS)
    result = subprocess.run(
        [*PROGRAM, *command.replace(":9093", ":1").split()[1:]], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    assert "cannot reach localhost:1" in result.stderr


def test_links_on_the_page_have_targets() -> None:
    assert dead_links(DOCS / "security.md") == []


def serving_page(folder: Path, title: str, *arguments: str) -> AbstractContextManager[Server]:
    """The configuration of a section, on a free port."""
    (folder / "callboard.toml").write_text(blocks(title, "toml")[0])
    listen = "SASL_SSL://127.0.0.1:0"
    return serving(folder, "--config", "callboard.toml", *arguments, program=PROGRAM, listen=listen)


def test_users_and_acls_are_added_as_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "password.txt").write_text("hunter2\n")
    (folder / "admin.properties").write_text(blocks(SCRAM, "properties")[0])

    def call(line: str) -> str:
        arguments = shlex.split(line)[1:]
        password = ["--password-file", "password.txt"] if arguments[:2] == ["users", "add"] else []
        result = run(*arguments, *password, folder=folder)
        assert (result.returncode, result.stderr) == (0, ""), line
        return result.stdout

    [first] = blocks(SCRAM, "console")
    call(first.removeprefix("$ "))
    with serving_page(folder, SCRAM, "--data", "data") as server:
        monkeypatch.setenv("CALLBOARD_COMMAND_CONFIG", "admin.properties")
        monkeypatch.setenv("CALLBOARD_BOOTSTRAP_SERVER", server.ready.replace("127.0.0.1", "localhost"))
        monkeypatch.setenv("CALLBOARD_SASL_PASSWORD", "hunter2")
        commands = [line for line in blocks(SCRAM, "bash")[0].splitlines() if line.startswith("callboard ")]
        *_, users, acls = map(call, commands)
        assert re.findall(r"^(\w+) +SCRAM-SHA-512", users, re.MULTILINE) == ["admin", "billing"]
        assert re.findall(r"^(\w+) +(\w+) .+ User:billing ", acls, re.MULTILINE) == [
            ("topic", "orders"),
            ("group", "billing"),
        ]
        (folder / "admin.properties").write_text(blocks(SCRAM, "properties")[0].replace("=admin", "=billing"))
        assert "CLUSTER_AUTHORIZATION_FAILED" in run("acls", "list", folder=folder).stderr


def test_token_of_the_page_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jwt")
    tokens, client = blocks(OAUTH, "python")
    make, serve = blocks(OAUTH, "sh")[0].splitlines()
    (folder / "tokens.py").write_text(tokens)
    subprocess.run([sys.executable, *make.split()[1:]], cwd=folder, check=True)
    setting = serve.split()[-1].replace("$PWD", str(folder))
    options = ("--set", setting, "--topic", "orders:1", "--data", "oauth")
    with serving_page(folder, OAUTH, *options) as server:
        (folder / "client.py").write_text(client.replace("localhost:9095", server.ready))
        done = subprocess.run([sys.executable, "client.py"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.stdout == "['orders']\n", done.stderr
        properties = blocks(OAUTH, "properties")[0].replace("/run/secrets", str(folder))
        (folder / "token.properties").write_text(properties.replace("/token\n", "/token.txt\n"))
        monkeypatch.setenv("CALLBOARD_COMMAND_CONFIG", "token.properties")
        listed = run("topics", "list", "-b", server.ready.replace("127.0.0.1", "localhost"), folder=folder)
        assert "orders" in listed.stdout, listed.stderr


def test_table_has_each_security_setting_with_its_default() -> None:
    of_server = [
        *(each.name for each in (*fields(AuthorizationRows), *fields(AuditRows))),
        "max_connections",
        "max_connection_creation_rate",
        "max_connections_per_ip",
        "max_connections_per_ip_overrides",
        "handshakes_max_open",
        "handshake_timeout_ms",
    ]
    expected = [(name, format_value(BY_NAME[name].default).strip("'")) for name in of_server]
    expected += [(setting.name, setting.default) for setting in LISTENER_SETTINGS]
    shown = SETTING_ROW.findall(PAGE.partition("## All security settings")[2].partition("\n## ")[0])
    assert shown == [(name, f"`{default}`" if default else "none") for name, default in expected]


def test_example_of_acls_is_a_valid_configuration(tmp_path: Path) -> None:
    config = tmp_path / "callboard.toml"
    config.write_text(blocks("ACLs", "toml")[0])
    settings, _ = load(config=config, environment={})
    assert parse_principals(settings.super_users) == {"User:admin", "User:CN=ops,O=Acme"}
