"""The bystander of ``callboard bench members``: beats for a member of another group, and describes the crowd.

A process of its own, with a connection for each of the two and one request in flight on it, so that it waits for
nothing but the server. It notes when each wait began and how long it was. The clock is the machine's, so whoever
started it can say what went on meanwhile.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

from callboard.bench.enrolment import Member, enrol
from callboard.bench.harness import BenchError, Child
from callboard.bench.wire import Client, api

BYSTANDERS = "bystanders"
BEAT_PAUSE_S = 0.002
DESCRIBE_PAUSE_S = 0.25
ANSWER_TIMEOUT_S = 120.0  # it joins a group first
RECEIVE_BYTES = 1 << 20


class Wait(NamedTuple):
    """One request: when it was sent, by ``time.perf_counter``, and how long its answer took."""

    began_s: float
    took_s: float


class Span(NamedTuple):
    """When something went on, by the same clock."""

    began_s: float
    ended_s: float


class Seen(NamedTuple):
    """What a bystander has met."""

    beats: tuple[Wait, ...]
    describes: tuple[Wait, ...]


def longest_s(waits: Sequence[Wait], spans: Sequence[Span]) -> float:
    """The longest of the waits that lay in one of these spans of time, or reached into one; 0 if there was none."""
    return max(
        (
            wait.took_s
            for wait in waits
            for span in spans
            if wait.began_s < span.ended_s and wait.began_s + wait.took_s > span.began_s
        ),
        default=0.0,
    )


class Watcher(Child):
    """The process, from the side of who has started it: it watches until it is told to stop."""

    def __init__(self, address: str, crowd: str) -> None:
        super().__init__(["-m", "callboard.bench.members_watch", address, crowd], "the watcher")
        try:
            self.read_line(ANSWER_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def stop_watching(self) -> Seen:
        self.write_line("stop")
        seen = json.loads(self.read_line(ANSWER_TIMEOUT_S))
        return Seen(tuple(Wait(*wait) for wait in seen["beats"]), tuple(Wait(*wait) for wait in seen["describes"]))


class Asker:
    """One request, sent again and again on a connection of its own: ``pause_s`` after its answer, or at once.

    Its frame is prepared, and of its answer only the bytes are looked at, or what takes long to read would delay
    the requests of the other.
    """

    def __init__(self, client: Client, frame: bytes, pause_s: float) -> None:
        self.client = client
        self.waits: list[Wait] = []
        self.answer = b""  # the last one, without its size
        self.next_s = time.perf_counter()
        self._frame = frame
        self._pause_s = pause_s
        self._began_s: float | None = None
        self._parts: list[bytes] = []
        self._missing = 0

    def fileno(self) -> int:
        return self.client.socket.fileno()

    def is_due(self) -> bool:
        return self._began_s is None and time.perf_counter() >= self.next_s

    def ask(self) -> None:
        self._began_s = time.perf_counter()
        self._parts, self._missing = [], 0
        self.client.socket.sendall(self._frame)

    def take(self) -> None:
        """Some bytes of the answer. Raises BenchError when the server has hung up."""
        data = self.client.socket.recv(RECEIVE_BYTES)
        if not data:
            raise BenchError("the server closed the connection of the bystander")
        if not self._parts:
            self._missing = 4 + int.from_bytes(data[:4], "big")
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing or self._began_s is None:
            return
        now = time.perf_counter()
        self.waits.append(Wait(self._began_s, now - self._began_s))
        self._began_s, self.next_s = None, now + self._pause_s
        self.answer = b"".join(self._parts)[4:]


def watch(address: str, crowd: str) -> None:
    """Beat for a member of another group and describe the crowd until a line comes; tell all waits."""
    with Client(address) as beating, Client(address) as describing:
        [member] = enrol([beating], [BYSTANDERS], "crowd")
        beats, describes = _beats(beating, member), _describes(describing, crowd)
        print("watching", flush=True)
        askers = (beats, describes)
        while not select.select([sys.stdin], [], [], 0)[0] or not all(asker.waits for asker in askers):
            _turn(askers)
            _check(beats)
        print(json.dumps({"beats": beats.waits, "describes": describes.waits}), flush=True)


def _turn(askers: Sequence[Asker]) -> None:
    for asker in askers:
        if asker.is_due():
            asker.ask()
    left_s = min(asker.next_s for asker in askers) - time.perf_counter()
    ready, _, _ = select.select([*askers, sys.stdin], [], [], min(max(left_s, 0), BEAT_PAUSE_S))
    for asker in askers:
        if asker in ready:
            asker.take()


def _beats(client: Client, member: Member) -> Asker:
    fields = {"group_id": member.group_id, "generation_id": member.generation, "member_id": member.member_id}
    return Asker(client, api("heartbeat", 4).request(1, **fields), BEAT_PAUSE_S)


def _check(beats: Asker) -> None:
    if beats.answer:
        error = int(api("heartbeat", 4).read_answer(beats.answer, 1).error_code)
        beats.answer = b""
        if error:
            raise BenchError(f"the bystander's heartbeat was answered with error code {error}")


def _describes(client: Client, crowd: str) -> Asker:
    fields = {"groups": (crowd,), "include_authorized_operations": False}
    return Asker(client, api("describe_groups", 5).request(1, **fields), DESCRIBE_PAUSE_S)


if __name__ == "__main__":
    watch(*sys.argv[1:])
