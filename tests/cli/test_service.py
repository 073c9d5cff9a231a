"""The server as a service: environment variables, log options, the service manager, and docs/running.md."""

from __future__ import annotations

import json
import platform
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_walk import walk_commands
from peers.waiting import wait_until
from program_helpers import DEADLINE_S, PROGRAM, refusal, run, serving
from tls_helpers import TlsFolder

from callboard.runtime.cli import compact
from callboard.runtime.cli.serve_command import main
from callboard.runtime.cli.service_manager import notify
from callboard.runtime.cli.worker import worker_command
from callboard.runtime.common.errors import StartError
from callboard.runtime.node.listening import bind
from callboard.runtime.settings.load import KEYS, load

SERVICES = ("serve", "worker", "compact")
"""The commands that may run until a signal."""

RUNNING = Path(__file__).parents[2] / "docs" / "running.md"


def block(language: str) -> str:
    """The code block of a language in docs/running.md."""
    [text] = re.findall(rf"^```{language}\n(.*?)^```", RUNNING.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return str(text)


def options_of(command: str) -> dict[str, Any]:
    """The options of a command by their names with underscores."""
    [line] = [line for line in walk_commands() if line.words == (command,)]
    options = [each for each in line.parameters if each.param_type_name == "option"]
    return {max(each.opts, key=len).removeprefix("--").replace("-", "_"): each for each in options}


@pytest.mark.parametrize("command", SERVICES)
def test_option_of_a_service_has_an_environment_variable(command: str) -> None:
    variables = {f"CALLBOARD_{name.upper()}" for name in options_of(command)}
    command_help = re.sub(r"\s+", "", run(command, "--help", folder=Path.cwd()).stdout)
    assert set(re.findall(r"envvar:(\w+)", command_help)) == variables


def test_option_of_serve_has_a_config_key() -> None:
    options = options_of("serve")
    keys = {{"topic": "topics", "set": "settings"}.get(name, name) for name in options} - {"config"}
    assert keys == set(KEYS)
    assert [key for key in keys if not re.search(rf"\b{key}\b", options["config"].help)] == []


def test_environment_variables_are_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_DATA", "from-variable")
    monkeypatch.setenv("CALLBOARD_TOPIC", "jobs:2 audit:1")
    monkeypatch.setenv("CALLBOARD_SET", "group_max_size=7")
    with serving(tmp_path, program=PROGRAM) as server:
        monkeypatch.setenv("CALLBOARD_BOOTSTRAP_SERVER", server.ready)
        listed = json.loads(run("topics", "list", "--json", folder=tmp_path).stdout)
        assert server.end(signal.SIGTERM) == 0
    assert listed == [{"topic": "audit", "partitions": 1}, {"topic": "jobs", "partitions": 2}]
    assert (tmp_path / "from-variable" / "callboard.json").exists()


def test_command_line_overrides_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_SYNC", "often")
    assert "bad sync 'often'" in refusal("serve", folder=tmp_path)
    with serving(tmp_path, "--sync", "none", program=PROGRAM) as server:
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(("form", "is_json"), [("json", True), ("text", False)])
def test_log_format_and_level(tmp_path: Path, form: str, is_json: bool) -> None:
    arguments = ("--log-level", "debug", "--log-format", form)
    with serving(tmp_path, *arguments, program=PROGRAM) as server:
        host, port = server.ready.rsplit(":", 1)
        with socket.create_connection((host, int(port)), DEADLINE_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b""
        server.end(signal.SIGTERM)
        lines = server.log().splitlines()
        [line] = [line for line in lines if "an HTTP request" in line]
    assert platform.python_version() in next(line for line in lines if "starting" in line and "PGO" in line)
    assert line.startswith("{") is is_json
    assert "\x1b" not in line
    if is_json:
        assert (json.loads(line)["logger"], json.loads(line)["level"]) == ("callboard.kafka", "warning")


def test_log_level_error_omits_warnings(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "error", program=PROGRAM) as server:
        host, port = server.ready.rsplit(":", 1)
        with socket.create_connection((host, int(port)), DEADLINE_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b""
        server.end(signal.SIGTERM)
        assert server.log() == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--log-level", "loud"), "bad log level 'loud': expected one of debug, info, warning, error"),
        (("--log-format", "xml"), "bad log format 'xml': expected one of text, json"),
    ],
)
def test_invalid_log_option_is_refused(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    assert text in refusal("serve", *arguments, folder=tmp_path)


def test_service_manager_is_told_ready_and_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(DEADLINE_S)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with serving(tmp_path, program=PROGRAM) as server:
            assert manager.recv(100) == b"READY=1"
            assert server.end(signal.SIGTERM) == 0
        assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "relative", "/missing/notify"])
def test_no_service_manager_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is in Debian's package systemd")
def test_systemd_unit_of_the_docs_is_valid(tmp_path: Path) -> None:
    """The program has to exist for the check, so its path is replaced."""
    unit = tmp_path / "callboard.service"
    unit.write_text(block("ini").replace("/opt/callboard/bin/callboard", str(shutil.which("true"))))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert [line for line in checked.stderr.splitlines() if "callboard" in line] == []


def test_options_and_variables_of_the_docs_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Every CALLBOARD_ variable in the units, the container file and the text."""
    for command_main in (main, worker_command.main, compact.main):
        with pytest.raises(SystemExit):
            command_main(["--help"])
    help_text = re.sub(r"\s+", "", capsys.readouterr().out)
    text = RUNNING.read_text(encoding="utf-8")
    variables = set(re.findall(r"CALLBOARD_[A-Z_]+", text))
    assert len(variables) >= 6
    assert [name for name in variables if not re.search(rf"envvar:{name}[;\]]", help_text)] == []


def test_container_file_of_the_docs_starts_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variables and entry point. tests/project/test_packaging.py installs the package."""
    lines = "\n".join(re.findall(r"^ENV (.*)$", block("dockerfile"), re.MULTILINE))
    settings = dict(re.findall(r"(CALLBOARD_\w+)=(\S+)", lines))
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", block("dockerfile"), re.MULTILINE)[0]) == ["callboard", "serve"]
    assert settings["CALLBOARD_DATA"].startswith("/data/")
    settings |= {"CALLBOARD_DATA": str(tmp_path / "data"), "CALLBOARD_METRICS": "127.0.0.1:0"}
    settings["CALLBOARD_SET"] = settings["CALLBOARD_SET"].replace("/run/secrets", str(TlsFolder(tmp_path).folder))
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    protocol = settings["CALLBOARD_LISTEN"].partition("://")[0]
    with serving(tmp_path, program=PROGRAM, listen=f"{protocol}://127.0.0.1:0") as server:
        wait_until(lambda: (tmp_path / "data" / "callboard.json").exists(), bool, "the data folder")
        assert server.end(signal.SIGTERM) == 0


def test_config_file_has_the_log_options(tmp_path: Path) -> None:
    config = tmp_path / "callboard.toml"
    config.write_text('log_level = "error"\nlog_format = "json"\n')
    _, options = load(config=config)
    assert (options.log_level, options.log_format) == ("error", "json")
    _, options = load(config=config, log_level="debug", log_format="text")
    assert (options.log_level, options.log_format) == ("debug", "text")
    config.write_text('log_level = "loud"\n')
    with pytest.raises(StartError, match="bad log level 'loud': expected one of debug, info, warning, error"):
        load(config=config)
    assert "bad log format 'xml': expected one of text, json" in refusal(
        "serve", "--log-format", "xml", folder=tmp_path
    )


def test_systemd_unit_of_the_docs_advertises_an_address(tmp_path: Path) -> None:
    """A server that listens on all addresses does not start without one."""
    assignments = " ".join(re.findall(r"^Environment=(.*)$", block("ini"), re.MULTILINE)).split()
    values = dict(each.removeprefix("CALLBOARD_").split("=", 1) for each in assignments)
    keystore = values["SET"].replace("%d", str(TlsFolder(tmp_path).folder))
    listen, advertised = values["LISTEN"].replace(":9093", ":0"), values["ADVERTISED"]
    _, options = load([listen], [advertised], overrides=[keystore], insecure=False, environment={})
    [listener] = options.listeners
    assert listener.listen.host == "0.0.0.0"
    bind(listener).close()
