"""The bystander of ``callboard bench members``: measures response times for another group, and for DescribeGroups.

It is a process of its own with one connection for each of the two and one request in flight on it, so that only the
server delays it. It records the start and duration of each request. The clock is common to all processes of the
machine, so its parent process can relate them to other events.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

from callboard.bench.group_setup import Member, join_members
from callboard.bench.harness import BenchError, ChildProcess
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
    """A span of time, by the same clock."""

    began_s: float
    ended_s: float


class BystanderWaits(NamedTuple):
    """The response times that a bystander measured."""

    heartbeats: tuple[Wait, ...]
    describes: tuple[Wait, ...]


def longest_s(waits: Sequence[Wait], spans: Sequence[Span]) -> float:
    """The longest wait that overlaps one of these spans; 0 if there is none."""
    return max(
        (
            wait.took_s
            for wait in waits
            for span in spans
            if wait.began_s < span.ended_s and wait.began_s + wait.took_s > span.began_s
        ),
        default=0.0,
    )


class Bystander(ChildProcess):
    """The bystander's process, as seen by its parent. It runs until ``stop_and_collect``."""

    def __init__(self, address: str, group_id: str) -> None:
        super().__init__(["-m", "callboard.bench.members_bystander", address, group_id], "the bystander")
        try:
            self.read_line(ANSWER_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def stop_and_collect(self) -> BystanderWaits:
        self.write_line("stop")
        waits = json.loads(self.read_line(ANSWER_TIMEOUT_S))
        return BystanderWaits(
            tuple(Wait(*wait) for wait in waits["beats"]), tuple(Wait(*wait) for wait in waits["describes"])
        )


class RepeatedRequest:
    """One request, sent repeatedly on its own connection, ``pause_s`` after each response.

    Its frame is prepared, and its response is not decoded, since decoding would delay the other request.
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
        """Receive a part of the response. Raises BenchError if the server disconnected."""
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


def watch(address: str, group_id: str) -> None:
    """Send both requests until a line is read from standard input; then print all waits."""
    with Client(address) as heartbeat_client, Client(address) as describe_client:
        [member] = join_members([heartbeat_client], [BYSTANDERS], "large")
        heartbeats, describes = _beats(heartbeat_client, member), _describes(describe_client, group_id)
        print("watching", flush=True)
        askers = (heartbeats, describes)
        while not select.select([sys.stdin], [], [], 0)[0] or not all(asker.waits for asker in askers):
            _turn(askers)
            _check(heartbeats)
        print(json.dumps({"beats": heartbeats.waits, "describes": describes.waits}), flush=True)


def _turn(askers: Sequence[RepeatedRequest]) -> None:
    for asker in askers:
        if asker.is_due():
            asker.ask()
    left_s = min(asker.next_s for asker in askers) - time.perf_counter()
    ready, _, _ = select.select([*askers, sys.stdin], [], [], min(max(left_s, 0), BEAT_PAUSE_S))
    for asker in askers:
        if asker in ready:
            asker.take()


def _beats(client: Client, member: Member) -> RepeatedRequest:
    fields = {"group_id": member.group_id, "generation_id": member.generation, "member_id": member.member_id}
    return RepeatedRequest(client, api("heartbeat", 4).request(1, **fields), BEAT_PAUSE_S)


def _check(heartbeats: RepeatedRequest) -> None:
    if heartbeats.answer:
        error = int(api("heartbeat", 4).read_answer(heartbeats.answer, 1).error_code)
        heartbeats.answer = b""
        if error:
            raise BenchError(f"the bystander's heartbeat returned error code {error}")


def _describes(client: Client, group_id: str) -> RepeatedRequest:
    fields = {"groups": (group_id,), "include_authorized_operations": False}
    return RepeatedRequest(client, api("describe_groups", 5).request(1, **fields), DESCRIBE_PAUSE_S)


if __name__ == "__main__":
    watch(*sys.argv[1:])
