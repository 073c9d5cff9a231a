"""Tests of the program in real processes: output, signals and exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from program_helpers import DEADLINE_S, PROGRAM, STAND_IN, refusal, run, serving

from callboard import __version__
from callboard.runtime.cli import serve
from callboard.runtime.cli.main import main
from callboard.runtime.common.errors import StartError
from callboard.runtime.common.stop_request import SAME_REQUEST_S
from callboard.runtime.log.folder import FORMAT, INFO_NAME, DataFolder
from callboard.runtime.node.listening import bind
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listener_settings import LISTENER_SETTINGS
from callboard.runtime.settings.listeners import Listener
from callboard.runtime.settings.table import SETTINGS

NAMES = [*(setting.name for setting in SETTINGS), *(setting.name for setting in LISTENER_SETTINGS)]

SLOW_TO_IMPORT = ("asyncio", "kio", "pydantic", "rich", "structlog", "uvloop")


def test_help_lists_the_commands(tmp_path: Path) -> None:
    completed = run("--help", folder=tmp_path)
    assert (completed.returncode, completed.stderr) == (0, "")
    for command in ("serve", "settings", "bench"):
        assert re.search(rf"^  {command} +\S", completed.stdout, re.MULTILINE)


def test_help_imports_no_slow_library(tmp_path: Path) -> None:
    """``--help`` imports no command. The test checks imports, since durations depend on the machine."""
    completed = run("--help", folder=tmp_path, program=(sys.executable, "-X", "importtime", "-m", "callboard"))
    loaded = {line.rpartition("|")[2].strip() for line in completed.stderr.splitlines()}
    assert "callboard.runtime.cli.main" in loaded
    assert loaded.isdisjoint(SLOW_TO_IMPORT)


def test_no_command_prints_help(tmp_path: Path) -> None:
    completed = run(folder=tmp_path)
    assert "Commands:" in completed.stdout + completed.stderr


def test_version_option_prints_version(tmp_path: Path) -> None:
    completed = run("--version", folder=tmp_path)
    assert (completed.returncode, completed.stdout) == (0, f"callboard {__version__}\n")


def test_unknown_command_is_refused(tmp_path: Path) -> None:
    completed = run("sever", folder=tmp_path)
    assert completed.returncode == 2
    assert "No such command 'sever'" in completed.stderr


def test_unknown_option_is_refused(tmp_path: Path) -> None:
    completed = run("serve", "--lisen", "h:1", folder=tmp_path)
    assert completed.returncode == 2
    assert "No such option" in completed.stderr and "--listen" in completed.stderr


def test_serve_help_lists_options(tmp_path: Path) -> None:
    completed = run("serve", "--help", folder=tmp_path)
    assert (completed.returncode, completed.stderr) == (0, "")
    for option in ("--listen", "--advertised", "--data", "--sync", "--topic", "--set", "--config"):
        assert option in completed.stdout


def test_bench_runs_as_command_and_as_module(tmp_path: Path) -> None:
    by_command = run("bench", folder=tmp_path)
    by_module = run(folder=tmp_path, program=(sys.executable, "-m", "callboard.bench"))
    assert by_command.returncode == by_module.returncode == 0
    assert by_command.stdout == by_module.stdout
    assert "server" in by_command.stdout


def test_bench_passes_options_to_benchmark(tmp_path: Path) -> None:
    assert run("bench", "no-such-bench", "--help", folder=tmp_path).returncode == 2


def test_settings_prints_columns(tmp_path: Path) -> None:
    lines = run("settings", folder=tmp_path).stdout.splitlines()
    assert lines[0].split() == ["name", "default", "range", "use"]
    assert [line.split()[0] for line in lines[1:]] == NAMES


def test_settings_json_lists_all_settings(tmp_path: Path) -> None:
    rows = json.loads(run("settings", "--json", folder=tmp_path).stdout)
    assert [row["name"] for row in rows] == NAMES
    by_name = {row["name"]: row for row in rows}
    assert by_name["group_min_session_timeout_ms"]["default"] == 6000
    assert by_name["auto_create_topics_enable"]["type"] == "bool"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "9092"], "bad listen '9092': expected HOST:PORT"),
        (["--listen", "::1:9092"], "IPv6 in brackets"),
        (["--listen", "no such host:1"], "bad listen 'no such host:1'"),
        (["--insecure", "--listen", "host.invalid:0"], "cannot find the host of --listen host.invalid:0"),
        (["--insecure", "--listen", "192.0.2.1:0"], "cannot listen on 192.0.2.1:0"),
        (["--insecure", "--listen", "0.0.0.0:0"], "give it with --advertised HOST:PORT"),
        (["--insecure", "--listen", "[::]:0"], "give it with --advertised HOST:PORT"),
        (["--insecure", "--listen", ":0"], "give it with --advertised HOST:PORT"),
        (["--insecure", "--listen", "0:0"], "give it with --advertised HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "other machines can reach the listener PLAINTEXT on 0.0.0.0:0"),
        (
            ["--listen", "localhost:0,B://host.invalid:0", "--listener-security-protocol-map", "B:PLAINTEXT"],
            "B on host",
        ),
        (["--advertised", "host"], "bad advertised 'host': expected HOST:PORT"),
        (["--sync", "sometimes"], "bad sync 'sometimes': expected one of always, interval, none"),
        (["--file-mode", "0755"], "bad file mode '0755': expected octal permissions"),
        (["--file-mode", "private"], "bad file mode 'private': expected octal permissions"),
        (["--topic", "orders"], "bad topic 'orders': expected NAME:PARTITIONS"),
        (["--set", "group_min_sesion_timeout_ms=1"], "did you mean 'group_min_session_timeout_ms'?"),
        (["--set", "group_max_size=many"], "expected a whole number from 1 to 2147483647"),
        (["--config", "missing.toml"], "cannot read the config file 'missing.toml'"),
        (["--config", "."], "cannot read the config file '.'"),
    ],
)
def test_serve_with_invalid_argument_prints_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    """In this process, before anything of it is changed. Further tests run the program and look at its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["callboard", "serve", *arguments])
    monkeypatch.setattr(serve, "run_node", lambda *_arguments, **_options: pytest.fail("the server has started"))
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capfd.readouterr()
    assert (end.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("callboard: ") and message in err
    assert list(tmp_path.iterdir()) == []


def test_config_file_with_invalid_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text("listen: 127.0.0.1:9092\n")
    message = refusal("serve", "--config", "callboard.toml", folder=tmp_path)
    assert message.startswith("the config file 'callboard.toml' is not TOML:")


def test_serve_on_port_in_use_is_refused_before_data_folder_is_created(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as socket_in_use:
        port = socket_in_use.getsockname()[1]
        message = refusal("serve", "--listen", f"127.0.0.1:{port}", "--data", "new", folder=tmp_path)
    assert message.startswith(f"port {port} of 127.0.0.1 is in use by another program")


def test_invalid_settings_are_refused_before_port_is_bound(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as socket_in_use:
        address = f"127.0.0.1:{socket_in_use.getsockname()[1]}"
        assert "group_max_size" in refusal("serve", "--listen", address, "--set", "group_max_size=0", folder=tmp_path)


def test_empty_data_folder_name_is_refused(tmp_path: Path) -> None:
    """An unset variable in a script must not make the current folder a data folder."""
    message = "bad data '': expected the path of a folder; leave it out for ./data, or give . for this one"
    assert refusal("serve", "--data", "", folder=tmp_path) == message
    (tmp_path / "own.toml").write_text('data = ""')
    assert refusal("serve", "--config", "own.toml", folder=tmp_path) == message
    assert [path.name for path in tmp_path.iterdir()] == ["own.toml"]


def test_path_with_nul_in_configuration_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('data = "a\\u0000b"')
    message = r"bad data 'a\x00b': found a NUL character, expected a path; remove the character"
    assert refusal("serve", "--config", "own.toml", folder=tmp_path) == message


def test_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "file/data" in refusal("serve", "--listen", "127.0.0.1:0", "--data", "file/data", folder=tmp_path)
    with pytest.raises(StartError, match="/file: found a file, expected a folder"):
        DataFolder(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_data_folder_of_newer_format_is_refused(tmp_path: Path) -> None:
    info = tmp_path / "data" / INFO_NAME
    info.parent.mkdir()
    info.write_text(json.dumps({"format": FORMAT + 1, "written_by": "a version to come"}))
    content_before = info.read_bytes()
    message = refusal("serve", "--listen", "127.0.0.1:0", folder=tmp_path)
    assert f"format {FORMAT + 1}" in message and "newer version" in message
    assert info.read_bytes() == content_before


def test_data_folder_is_locked_until_server_stops(tmp_path: Path) -> None:
    with serving(tmp_path, program=PROGRAM) as first:
        message = refusal("serve", "--listen", "127.0.0.1:0", folder=tmp_path)
        assert f"in use by process {first.process.pid}" in message
        assert first.end(signal.SIGTERM) == 0
    with serving(tmp_path, program=PROGRAM) as second:
        assert second.end(signal.SIGINT) == 0


def test_port_can_be_bound_immediately_after_stop() -> None:
    """A restart need not wait for connections in TIME_WAIT."""
    with (
        bind(Listener(listen=Address("127.0.0.1", 0))) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        port = listening.getsockname()[1]
        accepted, _ = listening.accept()
        accepted.close()  # the server's side goes first, so the connection lingers on the server's port
        assert client.recv(1) == b""
    with bind(Listener(listen=Address("127.0.0.1", port))) as second_socket:
        assert second_socket.getsockname()[1] == port


def test_listen_on_all_addresses_with_advertised_address_binds() -> None:
    with bind(Listener(listen=Address("0.0.0.0", 0), advertised=Address("host", 1))) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("end_it", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_stop_signal_stops_server_cleanly(tmp_path: Path, end_it: signal.Signals) -> None:
    with serving(tmp_path) as server:
        assert server.end(end_it) == 0
        assert server.read_until("stopped") == "stopped"
        assert server.log() == ""


def test_ready_line_has_bound_port(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        host, _, port = server.ready.rpartition(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port))).close()


def test_ready_line_has_ipv6_address_in_brackets(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving(tmp_path, listen="[::1]:0") as server:
        assert re.fullmatch(r"\[::1\]:[0-9]+", server.ready)


def test_second_signal_exits_at_once(tmp_path: Path) -> None:
    """For example a second Ctrl-C because the clean stop takes too long."""
    with serving(tmp_path, behaviour="hangs") as server:
        server.process.send_signal(signal.SIGINT)
        server.read_until("stopping")
        time.sleep(SAME_REQUEST_S)
        assert server.end(signal.SIGINT) == 1
        assert server.log() == "callboard: received a second SIGINT: exiting at once\n"


def test_stop_after_disk_failure_exits_with_3(tmp_path: Path) -> None:
    """A supervisor must be able to distinguish this from a clean stop."""
    with serving(tmp_path, behaviour="fails") as server:
        assert server.end(signal.SIGTERM) == 3
        assert server.log() == "callboard: stopped, after its log had failed: Input/output error\n"


def test_serve_passes_arguments_to_node(tmp_path: Path) -> None:
    with serving(tmp_path, "--set", "group_max_size=7", "--sync", "none") as server:
        assert server.said[0] == "made with group_max_size=7 sync=none"


def test_server_imports_no_unneeded_library(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert "started, of the slow libraries loaded: []" in server.said


def test_start_error_of_node_prints_one_line(tmp_path: Path) -> None:
    completed = subprocess.run(
        [*STAND_IN, "serve", "--listen", "127.0.0.1:0"],
        env={**os.environ, "CALLBOARD_STAND_IN": "refuses"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert completed.returncode == 2
    assert completed.stderr == "callboard: the folder belongs to somebody else: choose another with --data\n"
    assert "ready" not in completed.stdout


def test_logs_to_pipe_are_json_lines(tmp_path: Path) -> None:
    """Log lines of libraries have the same format, and a traceback is part of its line."""
    with serving(tmp_path, behaviour="speaks") as server:
        server.end(signal.SIGTERM)
        own_event, library_event, failed = map(json.loads, server.log().splitlines())
    assert (own_event["event"], own_event["level"], own_event["partition"]) == ("spoken", "info", 3)
    assert (library_event["event"], library_event["level"]) == ("heard from a library", "warning")
    assert (failed["event"], failed["level"]) == ("failed", "error")
    assert "ValueError: shown" in failed["exception"]
    assert all(line["timestamp"].endswith("Z") for line in (own_event, library_event, failed))


def test_file_mode_option_sets_permissions_of_new_files(tmp_path: Path) -> None:
    previous_umask = os.umask(0o077)
    try:
        with serving(tmp_path, "--file-mode", "0640", program=PROGRAM) as server:
            server.end(signal.SIGTERM)
    finally:
        os.umask(previous_umask)
    data = tmp_path / "data"
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in (data, *data.iterdir())}
    assert modes == {True: 0o750, False: 0o640}


def test_logs_to_terminal_are_readable_lines(tmp_path: Path) -> None:
    master_fd, terminal_fd = pty.openpty()
    try:
        with serving(tmp_path, behaviour="speaks", stderr=terminal_fd) as server:
            server.end(signal.SIGTERM)
        output = os.read(master_fd, 65536).decode()
    finally:
        os.close(master_fd)
        os.close(terminal_fd)
    assert "spoken" in output and "heard from a library" in output
    assert '"event"' not in output


def test_sigusr1_prints_actor_statistics(tmp_path: Path) -> None:
    with serving(tmp_path, program=PROGRAM) as server:
        server.process.send_signal(signal.SIGUSR1)
        assert server.process.stderr is not None
        lines = iter(server.process.stderr.readline, "")
        assert next(line for line in lines if "CoordinatorActor" in line).split()[1] == "1", (
            "there is one CoordinatorActor"
        )
        assert server.end(signal.SIGTERM) == 0
