"""A peer seen from the test: a client of a real library in a process of its own, told by lines, heard by events.

The process reads commands as JSON lines from its standard input and prints events as JSON lines into a file. A file,
and not a pipe, so that nobody has to read in time, a kill loses nothing that was said, and a failing test can show it.
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

from .waiting import wait_until

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


class Speaker:
    """A process that prints its events as JSON lines. ``kind_field`` is where an event says what it is."""

    kind_field = "event"

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self.name = name
        self._events_file = folder / f"{name}.jsonl"
        self._stderr_file = folder / f"{name}.stderr.txt"
        self._events: list[Event] = []
        self._read_to = 0
        with self._events_file.open("wb") as stdout, self._stderr_file.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=client_environment()
            )

    def events(self, kind: str | None = None) -> list[Event]:
        """What it said so far, all or of one kind. A last line that is not complete yet is left for the next look."""
        with self._events_file.open("rb") as file:
            file.seek(self._read_to)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read_to += len(whole)
        self._events += [json.loads(line) for line in whole.splitlines()]
        return [event for event in self._events if kind is None or event[self.kind_field] == kind]

    def kill(self) -> None:
        """End it as a crash does: no LeaveGroup, its sockets closed by the system."""
        self._process.kill()
        self._process.wait()
        self._release()

    def finish(self) -> None:
        """After a test, however it went: show what was said (pytest prints it only on failure) and be gone."""
        if self._process.poll() is None:
            self.kill()
        self._release()
        shown = "\n".join(str(event)[:300] for event in self.events()[-SHOWN_EVENTS:])
        print(f"--- {self.name} said last ---\n{shown}\n{self._words()}")

    def check_alive(self) -> None:
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}\n{self._words()}"

    def _end(self, *expected: int) -> None:
        """Wait until it has ended by itself, with one of these exit codes."""
        try:
            code = self._process.wait(CLOSE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not close within {CLOSE_DEADLINE_S} s") from None
        assert code in expected, f"{self.name} ended with {code}\n{self._words()}"

    def _words(self) -> str:
        return self._stderr_file.read_text(errors="replace")[-SHOWN_CHARS:]

    def _release(self) -> None:
        # What it did not read any more before it ended is nobody's loss.
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()


class Peer(Speaker):
    """One client process. ``ask`` runs a method of the library's side (see ``script.py``) and returns its result."""

    def __init__(self, library: str, role: str, name: str, folder: Path, **options: Any) -> None:
        self._numbers = count(1)
        command = [sys.executable, "-m", f"{__package__}.{library}_peer", role, json.dumps(options)]
        super().__init__(name, folder, command)

    def ask(self, do: str, **arguments: Any) -> Any:
        """Run a command there; return its result; raise AssertionError with the library's words where it failed."""
        answer = self.try_ask(do, **arguments)
        assert "error" not in answer, f"{self.name}: {do}({arguments}) failed: {answer['error']}"
        return answer["result"]

    def try_ask(self, do: str, **arguments: Any) -> Event:
        """Run a command there and return its answer: ``{"result": ...}`` or ``{"error": words}``."""
        number = next(self._numbers)
        self._tell(json.dumps({"id": number, "do": do, "arguments": arguments}))
        answers = wait_until(lambda: self._answers(number), bool, f"{self.name}'s answer to {do}")
        return answers[0]

    def close(self) -> None:
        """Let it say goodbye and end, as a program does that stops in order."""
        self._release()
        self._end(0)

    def _answers(self, number: int) -> list[Event]:
        found = [event for event in self.events("answer") if event["id"] == number]
        if not found:
            self.check_alive()
        return found

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()
            self.check_alive()
            raise


class Member(Peer):
    """A consumer that is subscribed to one topic in one group and polls without end."""

    @property
    def assignment(self) -> frozenset[int]:
        """The partitions that the library holds now."""
        self.check_alive()
        said = self.events("assignment")
        return frozenset(said[-1]["partitions"]) if said else frozenset()

    @property
    def rebalances(self) -> int:
        """How often the library told its listener of an assignment."""
        return len(self.events("assigned"))

    @property
    def positions(self) -> dict[int, int]:
        """The offset after the last record that was received, by partition."""
        return {event["partition"]: event["offset"] + 1 for event in self.events("record")}

    def received(self) -> list[tuple[int, Record]]:
        """Every record that the application saw, with its offset, in order of arrival."""
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
