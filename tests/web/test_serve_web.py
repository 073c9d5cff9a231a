"""``callboard serve --web``: what it serves, what it refuses, and that nothing of it is imported without the option."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from program_helpers import refusal

from callboard.runtime.cli import serve_web
from callboard.runtime.cli.workers_folder import STORE
from callboard.runtime.common.errors import StartError
from callboard.runtime.node.connection_limit import WEB_CONNECTIONS_MAX
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.http_options import GivenWeb, WebOptions
from callboard.runtime.settings.load import load

URL = re.compile(r"http://[^\s\"]+/api/v1")
STOP_S = 60


class Served:
    """A running ``callboard serve``. ``url``: that of the API."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        assert "callboard ready on" in process.stdout.readline()
        found = next(match for line in process.stderr if (match := URL.search(line)))
        self.url = found[0]

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}/{path}", headers=headers, timeout=30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("web")
    command = [sys.executable, "-m", "callboard", "serve", "--listen", "127.0.0.1:0", "--data", str(folder)]
    command += ["--web", "127.0.0.1:0", "--topic", "jobs:3", "--set", "audit=file"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Served(process)
        finally:
            process.terminate()
            process.communicate(timeout=STOP_S)
        assert process.returncode == 0


def test_api_is_served_beside_the_node(served: Served) -> None:
    assert served.get("groups").json()["items"] == []
    rows = {row["name"]: row for row in served.get("settings").json()["items"]}
    assert rows["audit"] | {"doc": ""} == {
        "name": "audit",
        "value": "file",
        "default": "none",
        "source": "--set",
        "is_dynamic": False,
        "doc": "",
    }
    refused = httpx.request("DELETE", f"{served.url}/groups/none", json={"reason": "done"}, timeout=30)
    assert (refused.status_code, refused.json()["error"]) == (404, "GROUP_ID_NOT_FOUND")


def test_name_of_another_site_is_refused(served: Served) -> None:
    assert served.get("groups", host="evil.example").status_code == 421
    assert served.get("groups", host="localhost:1").status_code == 200


def test_connections_beyond_the_limit_are_closed_at_once(served: Served) -> None:
    url = httpx.URL(served.url)
    address = (str(url.host), int(url.port or 0))
    silent = [socket.create_connection(address, timeout=30) for _ in range(WEB_CONNECTIONS_MAX)]
    try:
        with socket.create_connection(address, timeout=30) as one_more:
            try:
                assert one_more.recv(1) == b""
            except ConnectionResetError:
                """It was closed, too."""
    finally:
        for each in silent:
            each.close()
    while True:
        try:
            assert served.get("groups").status_code == 200
            break
        except httpx.TransportError:
            """The connections are not closed yet."""


def loaded(
    *overrides: str, web: str | None = None, web_trust: str | None = None, config: Path | None = None
) -> WebOptions | None:
    _, options = load(overrides=overrides, web=GivenWeb(web, web_trust), config=config)
    return options.http.web


def test_options_of_command_line_and_file(tmp_path: Path) -> None:
    assert loaded() is None
    assert loaded(web="127.0.0.1:9095") == WebOptions(Address("127.0.0.1", 9095))
    assert loaded(web="localhost:0") == WebOptions(Address("localhost", 0))
    assert loaded(web="[::1]:1", web_trust="X-User") == WebOptions(Address("::1", 1), "X-User")
    config = tmp_path / "callboard.toml"
    config.write_text('web = "0.0.0.0:9095"\nweb_trust = "X-Forwarded-User"\n')
    assert loaded(config=config) == WebOptions(Address("0.0.0.0", 9095), "X-Forwarded-User")


AUTHORIZER = "authorizer_class_name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize(
    ("options", "overrides", "text"),
    [
        ({"web": "0.0.0.0:9095"}, (), "bad web '0.0.0.0:9095': other machines can reach"),
        ({"web": ":9095"}, (), "other machines can reach"),
        ({"web": "example.org:9095"}, (), "expected an address such as 127.0.0.1:9095, or --web-trust HEADER"),
        ({"web": "9095"}, (), "bad web '9095': expected HOST:PORT"),
        ({"web": "127.0.0.1:1", "web_trust": "a b"}, (), "bad --web-trust 'a b'"),
        ({"web": "127.0.0.1:1", "web_trust": "Host"}, (), "bad --web-trust 'Host'"),
        ({"web": "127.0.0.1:1", "web_trust": "Authorization"}, (), "bad --web-trust 'Authorization'"),
        ({"web_trust": "X-User"}, (), "--web-trust needs --web"),
        ({"web": "127.0.0.1:1"}, (AUTHORIZER,), "applies no ACLs"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], overrides: tuple[str, ...], text: str) -> None:
    with pytest.raises(StartError) as caught:
        loaded(*overrides, **options)
    assert text in str(caught.value)


def test_proxy_decides_if_there_are_acls() -> None:
    assert loaded(AUTHORIZER, web="127.0.0.1:1", web_trust="X-User") is not None


def test_workers_and_the_api_are_refused(tmp_path: Path) -> None:
    text = refusal("serve", "--data", "d", "--web", "127.0.0.1:0", "--workers", "2", folder=tmp_path)
    assert "bad web '127.0.0.1:0': expected it without workers" in text


def test_folder_of_workers_and_the_api_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d" / STORE).mkdir(parents=True)
    text = refusal("serve", "--data", "d", "--web", "127.0.0.1:0", folder=tmp_path)
    assert "expected it without workers" in text


def test_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_web, "find_spec", lambda name: None if name == "starlette" else name)
    with pytest.raises(StartError, match=r"--web needs starlette: install it with pip install 'callboard\[web\]'"):
        serve_web.bind_web(WebOptions(Address("127.0.0.1", 0)))


def test_server_without_the_option_imports_nothing_of_it() -> None:
    program = "import sys, callboard.runtime.cli.serve, callboard.runtime.node.node; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert not names & {"jinja2", "starlette", "uvicorn"}
    assert "callboard.runtime.web" not in done.stdout.split()
