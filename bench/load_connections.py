"""Connections of the load generator: they send prepared requests and compare complete responses at low cost.

A request costs the load generator one ``send`` and one ``recv``, as it costs the server; everything else must be cheap.
So requests and expected responses are prepared as bytes, 256 in a row, and a burst is a slice of them. It uses epoll: a
uvloop protocol was not faster with one request in flight, where the kernel takes 80 % of the time.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from ssl import SSLWantReadError
from typing import NamedTuple

from callboard.bench.harness import BenchError, quantile

FRAMES = 256  # in a sequence: the last byte of each number is then constant
RECEIVE_BYTES = 16_384
STALL_S = 30.0
IN_FLIGHT_MAX = 128  # a burst always fits into an empty socket buffer

Field = tuple[int, int]  # position and width in bytes of a number in a frame


class FrameSequence:
    """An endless sequence of one frame, numbered 0, 1, 2, ... in its ``fields``; 256 frames are prepared at a time."""

    def __init__(self, frame: bytes, fields: Sequence[Field]) -> None:
        self.frame_bytes = len(frame)
        self.position = 0
        self._fields = fields
        self._turn = 0
        self._frames = bytearray(frame * FRAMES)
        for offset, width in fields:
            self._frames[offset + width - 1 :: self.frame_bytes] = bytes(range(FRAMES))
        self._number()

    def take(self, count: int) -> bytes:
        """The next ``count`` frames, at most 256."""
        start, end = self.position, self.position + count * self.frame_bytes
        if end <= len(self._frames):
            self.position = end
            return bytes(self._frames[start:end])
        head = bytes(self._frames[start:])
        self._roll()
        self.position = end - len(self._frames)
        return head + self._frames[: self.position]

    def accept(self, data: bytes) -> bool:
        """Whether ``data`` equals the next bytes; if so, advance past it."""
        if self._frames.startswith(data, self.position):
            self.position += len(data)
            return True
        head = self._frames[self.position :]
        if not data.startswith(head):
            return False
        self._roll()
        return self.accept(data[len(head) :])

    def expected(self) -> bytes:
        """The next frame, or the one that is partly received."""
        start = self.position // self.frame_bytes * self.frame_bytes
        return bytes(self._frames[start : start + self.frame_bytes])

    def _roll(self) -> None:
        self._turn += 1
        self.position = 0
        self._number()

    def _number(self) -> None:
        """Write the upper bytes of the numbers: equal in all 256 frames, so one slice assignment per byte."""
        for offset, width in self._fields:
            upper_bytes = self._turn.to_bytes(width - 1, "big")
            for index, byte in enumerate(upper_bytes, offset):
                self._frames[index :: self.frame_bytes] = bytes((byte,)) * FRAMES


class LoadConnection:
    """One connection with one kind of request. Numbers continue from run to run."""

    def __init__(self, connection: socket.socket, name: str, requests: FrameSequence, answers: FrameSequence) -> None:
        self.name = name
        self.sent = 0
        self.answered = 0
        self.latencies_s: list[float] = []
        self._socket = connection
        self._requests = requests
        self._answers = answers
        self._send = connection.send
        self._receive = connection.recv
        self._rest = 0  # bytes of an incomplete response
        self._probe = 0
        self._probe_sent_at = 0.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def start(self, in_flight: int) -> None:
        self._socket.setblocking(False)
        self.latencies_s = []
        self._probe, self._probe_sent_at = self.sent, time.perf_counter()
        self.send(in_flight)

    def send(self, count: int) -> None:
        frames = self._requests.take(count)
        if self._send(frames) != len(frames):
            raise BenchError(f"{self.name}: the server does not read its requests")
        self.sent += count

    def take_requests(self, count: int) -> bytes:
        """The next requests, at most 256, which the caller sends itself."""
        self.sent += count
        return self._requests.take(count)

    def on_readable(self) -> None:
        """Receive responses and send as many new requests.

        One request at a time is timed on each connection; with one in flight, all are timed.
        """
        count = self.take()
        if not count:
            return
        if self.answered > self._probe:
            now = time.perf_counter()
            self.latencies_s.append(now - self._probe_sent_at)
            self._probe, self._probe_sent_at = self.sent, now
        self.send(count)

    def take(self) -> int:
        """Read once and check every byte. Returns the number of completed responses."""
        try:
            data = self._receive(RECEIVE_BYTES)
        except SSLWantReadError:
            return 0  # a part of a record, or one without data
        if not data or not self._answers.accept(data):
            raise BenchError(self._wrong(data))
        count, self._rest = divmod(self._rest + len(data), self._answers.frame_bytes)
        self.answered += count
        return count

    def drain(self) -> None:
        """Receive all outstanding responses."""
        self._socket.settimeout(STALL_S)
        try:
            while self.answered < self.sent:
                self.take()
        except TimeoutError:
            raise BenchError(f"{self.name}: {self.sent - self.answered} responses are missing") from None

    def _wrong(self, data: bytes) -> str:
        if not data:
            return f"{self.name}: the server closed the connection after {self.answered} responses"
        return (
            f"{self.name}: a wrong response after {self.answered} correct ones: got {data[:64].hex(' ')}, "
            f"expected {self._answers.expected().hex(' ')}"
        )


class LoadResult(NamedTuple):
    """The figures of one run. CPU times in seconds; None if the system does not provide them."""

    answers: int
    elapsed_s: float
    latency_p50_s: float
    latency_p99_s: float
    server_cpu_s: float | None
    load_cpu_s: float
    ready_each_poll: float  # connections with a waiting response at each poll
    latency_p999_s: float


def run_load(
    connections: Sequence[LoadConnection], in_flight: int, seconds: float, server_cpu_s: Callable[[], float | None]
) -> LoadResult:
    """Keep ``in_flight`` requests in flight on each connection for ``seconds``, then wait for outstanding responses.

    It takes longer until there is a response. The rate is that of the responses before the wait.
    """
    if not 0 < in_flight <= IN_FLIGHT_MAX:
        raise BenchError(f"{in_flight} requests in flight: expected 1 to {IN_FLIGHT_MAX}")
    wait = _waiter(connections)
    turns = {connection.fileno(): connection.on_readable for connection in connections}
    answered_before = sum(connection.answered for connection in connections)
    server_started, load_started, started = server_cpu_s(), time.process_time(), time.perf_counter()
    for connection in connections:
        connection.start(in_flight)
    polls, ready_total = _turn_until(started + seconds, wait, turns)
    elapsed, load, server = time.perf_counter() - started, time.process_time() - load_started, server_cpu_s()
    answers = sum(connection.answered for connection in connections) - answered_before
    for connection in connections:
        connection.drain()
    latencies = sorted(latency for connection in connections for latency in connection.latencies_s)
    if not answers:
        raise BenchError(f"no response in {seconds} s; give more --seconds")
    server_used = None if server is None or server_started is None else server - server_started
    p50, p99, p999 = (quantile(latencies, share) for share in (0.50, 0.99, 0.999))
    return LoadResult(answers, elapsed, p50, p99, server_used, load, ready_total / polls, p999)


def _turn_until(
    end: float, wait: Callable[[], list[tuple[int, int]]], turns: dict[int, Callable[[], None]]
) -> tuple[int, int]:
    """Returns the number of polls, at least one, and of ready connections. The clock is read once per poll."""
    polls = ready_total = 0
    while not polls or time.perf_counter() < end:
        ready = wait()
        if not ready:
            raise BenchError(f"no response on any connection for {STALL_S:.0f} s")
        polls += 1
        ready_total += len(ready)
        for fileno, _ in ready:
            turns[fileno]()
    return polls, ready_total


def _waiter(connections: Sequence[LoadConnection]) -> Callable[[], list[tuple[int, int]]]:
    """epoll, or poll if there is none; ``selectors`` would create an object for each event."""
    if sys.platform == "linux":
        epoll = select.epoll()
        for connection in connections:
            epoll.register(connection.fileno(), select.EPOLLIN)
        return partial(epoll.poll, STALL_S)
    poll = select.poll()
    for connection in connections:
        poll.register(connection.fileno(), select.POLLIN)
    return partial(poll.poll, STALL_S * 1000)
