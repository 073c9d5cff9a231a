"""docs/security.md: its commands make certificates with which its configurations start a server."""

from __future__ import annotations

import re
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from doc_pages import DOCS, dead_links
from program_helpers import PROGRAM

from callboard.runtime.client.security import load_security
from callboard.runtime.node.accepting import open_tls
from callboard.runtime.settings.client_settings import CLIENT_SETTINGS
from callboard.runtime.settings.load import load

PAGE = (DOCS / "security.md").read_text()
SECTION = re.compile(r"^## (?P<title>.+)$(?P<text>[\s\S]+?)(?=^## |\Z)", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n([\s\S]+?)^```$", re.MULTILINE)
SECTIONS = {match["title"]: BLOCK.findall(match["text"]) for match in SECTION.finditer(PAGE)}
ONE_SIDED, MUTUAL, OWN = "Ten minutes to TLS", "Ten minutes to mutual TLS", "Callboard's own clients"


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
