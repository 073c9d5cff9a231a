"""Peers, from the side of the test: clients of real libraries, each in its own process.

The process reads commands as JSON lines from its standard input and prints events as JSON lines into a file. With a
file, unlike a pipe, the process never blocks, no event is lost by a kill, and a failing test can show the events.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from .waiting import DEADLINE_S, wait_until

LIBRARIES = ("confluent", "aiokafka", "kafka_python")
TESTS = Path(__file__).parent.parent
CLOSE_DEADLINE_S = 30.0
SHOWN_EVENTS = 40
SHOWN_CHARS = 4000

Event = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """A record as a producer sends it to a partition, or as a consumer received it at an offset."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    def to_json(self) -> Event:
        headers = [[name, value.hex()] for name, value in self.headers]
        return {"partition": self.partition, "key": _hex(self.key), "value": _hex(self.value), "headers": headers}

    @classmethod
    def from_json(cls, event: Event) -> Record:
        headers = tuple((name, bytes.fromhex(value)) for name, value in event["headers"])
        return cls(event["partition"], _unhex(event["key"]), _unhex(event["value"]), headers)


class EventProcess:
    """A process that prints its events as JSON lines. ``kind_field``: the field with the kind of an event."""

    kind_field = "event"

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self.name = name
        self._events_file = folder / f"{name}.jsonl"
        self._stderr_file = folder / f"{name}.stderr.txt"
        self._events: list[Event] = []
        self._read_offset = 0
        with self._events_file.open("wb") as stdout, self._stderr_file.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=client_environment()
            )

    def events(self, kind: str | None = None) -> list[Event]:
        """The events so far, all or of one kind. An incomplete last line is left for the next call."""
        with self._events_file.open("rb") as file:
            file.seek(self._read_offset)
            data = file.read()
        lines = data[: data.rfind(b"\n") + 1]
        self._read_offset += len(lines)
        self._events += [json.loads(line) for line in lines.splitlines()]
        return [event for event in self._events if kind is None or event[self.kind_field] == kind]

    def kill(self) -> None:
        """Kill it, as in a crash: no LeaveGroup; the system closes its sockets."""
        self._process.kill()
        self._process.wait()
        self._close_stdin()

    def finish(self) -> None:
        """End it after a test and print its last events, which pytest shows only if the test failed."""
        if self._process.poll() is None:
            self.kill()
        self._close_stdin()
        shown = "\n".join(str(event)[:300] for event in self.events()[-SHOWN_EVENTS:])
        print(f"--- {self.name} last events ---\n{shown}\n{self._stderr_tail()}")

    def check_alive(self) -> None:
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}\n{self._stderr_tail()}"

    def _wait_for_exit(self, *expected: int) -> None:
        """Wait until it ends, with one of these exit codes."""
        try:
            code = self._process.wait(CLOSE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not close within {CLOSE_DEADLINE_S} s") from None
        assert code in expected, f"{self.name} ended with {code}\n{self._stderr_tail()}"

    def _stderr_tail(self) -> str:
        return self._stderr_file.read_text(errors="replace")[-SHOWN_CHARS:]

    def _close_stdin(self) -> None:
        # It may have ended without reading all of its input.
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()


class CommandProcess(EventProcess):
    """A process that obeys commands. ``ask`` runs one there and returns its result."""

    answer_deadline_s = DEADLINE_S

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self._numbers = count(1)
        super().__init__(name, folder, command)

    def ask(self, command: str, **arguments: Any) -> Any:
        """Run a command there and return its result. Raises AssertionError with the library's error."""
        answer = self.try_ask(command, **arguments)
        assert "error" not in answer, f"{self.name}: {command}({arguments}) failed: {answer['error']}"
        return answer["result"]

    def try_ask(self, command: str, **arguments: Any) -> Event:
        """Run a command there and return its answer: ``{"result": ...}`` or ``{"error": text}``."""
        number = next(self._numbers)
        self._send(json.dumps({"id": number, "do": command, "arguments": arguments}))
        description = f"{self.name}'s answer to {command}"
        answers = wait_until(lambda: self._answers(number), bool, description, self.answer_deadline_s)
        return answers[0]

    def close(self) -> None:
        """End its input, so that it closes its client and ends."""
        self._close_stdin()
        self._wait_for_exit(0)

    def _answers(self, number: int) -> list[Event]:
        answers = [event for event in self.events("answer") if event["id"] == number]
        if not answers:
            self.check_alive()
        return answers

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()
            self.check_alive()
            raise


class Peer(CommandProcess):
    """One client process. Its commands are the methods of its client, see ``peer_main.py``."""

    def __init__(self, library: str, role: str, name: str, folder: Path, **options: Any) -> None:
        super().__init__(
            name, folder, [sys.executable, "-m", f"{__package__}.{library}_peer", role, json.dumps(options)]
        )


class ConsumerPeer(Peer):
    """A consumer that is subscribed to one topic in one group and polls continuously."""

    @property
    def assignment(self) -> frozenset[int]:
        """The current assignment of the library's consumer."""
        self.check_alive()
        assignments = self.events("assignment")
        return frozenset(assignments[-1]["partitions"]) if assignments else frozenset()

    @property
    def rebalances(self) -> int:
        """How often the library called its listener with an assignment."""
        return len(self.events("assigned"))

    @property
    def positions(self) -> dict[int, int]:
        """The offset after the last record that was received, by partition."""
        return {event["partition"]: event["offset"] + 1 for event in self.events("record")}

    def received(self) -> list[tuple[int, Record]]:
        """All received records with their offsets, in order of arrival."""
        return [(event["offset"], Record.from_json(event)) for event in self.events("record")]

    def errors(self) -> list[Event]:
        return self.events("error")

    def commit(self, positions: dict[int, int]) -> None:
        self.ask("commit", offsets=sorted(positions.items()))


def client_environment() -> dict[str, str]:
    """The environment in which ``python -m`` finds the modules of ``tests/``, wherever pytest was started."""
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), inherited]))}


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
