"""``callboard serve`` in its own process, which can be stopped, killed and restarted on the same port and data."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from .waiting import DEADLINE_S, wait_until

READY = re.compile(r"^callboard ready on (?P<host>\S+):(?P<port>\d+)$", re.MULTILINE)
STOP_DEADLINE_S = 30.0
LOG_TAIL_CHARS = 6000

# No initial rebalance delay, and short sessions: Kafka's defaults (3 s, 6 s) would make the tests slow.
TEST_SETTINGS: Mapping[str, object] = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 500,
}


class ServerProcess:
    """A server in ``folder``, which has its data, its output (``stdout.txt``) and its log (``stderr.txt``).

    ``listener``: the name of its only one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, object] = TEST_SETTINGS,
        options: Sequence[str] = (),
        listener: str = "PLAINTEXT",
    ) -> None:
        self.data = folder / "data"
        self.host = "127.0.0.1"
        self.port = 0
        self._settings = settings
        self._options = options
        self._listener = listener
        self._stdout = folder / "stdout.txt"
        self._stderr = folder / "stderr.txt"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start on a free port, later on the same port again; return when the server prints that it is ready."""
        self.launch()
        ready = wait_until(self._ready_line, lambda line: line is not None, "the server's ready line")
        assert ready is not None
        self.host, self.port = ready["host"], int(ready["port"])

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        assert self._process is None, "the server is already running"
        with self._stdout.open("wb") as stdout, self._stderr.open("ab") as stderr:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def stop(self) -> int:
        """Ask it to stop (SIGTERM) and return its exit code."""
        return self._signal_and_wait(signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it ends; return its exit code."""
        assert self._process is not None, "the server is not running"
        process, self._process = self._process, None
        return process.wait(DEADLINE_S)

    def kill(self) -> None:
        """Kill it with SIGKILL: no shutdown, no sync."""
        self._signal_and_wait(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal that does not end it."""
        assert self._process is not None, "the server is not running"
        self._process.send_signal(number)

    def restart(self) -> None:
        """Stop it with SIGTERM and start it again on the same port and data."""
        code = self.stop()
        assert code == 0, f"the server ended with {code} on SIGTERM\n{self.log()}"
        self.start()

    def log(self) -> str:
        """The end of its log since the first start."""
        return self._stderr.read_text(errors="replace")[-LOG_TAIL_CHARS:] if self._stderr.exists() else ""

    def log_size(self) -> int:
        """The length of the log in characters, for ``log_since``."""
        return len(self._stderr.read_text(errors="replace"))

    def log_since(self, start: int) -> str:
        return self._stderr.read_text(errors="replace")[start:]

    def __enter__(self) -> ServerProcess:
        try:
            self.start()
        except BaseException:
            self._show_and_kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show_and_kill()

    def _show_and_kill(self) -> None:
        # pytest shows this output only if the test failed.
        print(f"--- the log of the server on {self.bootstrap} ---\n{self.log()}")
        if self._process is not None:
            self.kill()

    def _command(self) -> list[str]:
        command = [
            sys.executable,
            "-m",
            "callboard",
            "serve",
            "--listen",
            f"{self._listener}://{self.host}:{self.port}",
        ]
        command += ["--data", str(self.data), "--unsafe-settings"]  # tests use short intervals
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        return [*command, *self._options]

    def _ready_line(self) -> re.Match[str] | None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self._process = None
            raise AssertionError(f"the server ended with {code} before it was ready\n{self.log()}")
        return READY.search(self._stdout.read_text(errors="replace"))

    def _signal_and_wait(self, number: signal.Signals) -> int:
        assert self._process is not None, "the server is not running"
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            return process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(
                f"the server did not end within {STOP_DEADLINE_S} s of {number.name}\n{self.log()}"
            ) from None
