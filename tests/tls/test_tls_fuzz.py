"""Damaged TLS: it closes its connection or waits, raises nothing, and what is delivered is what the client has sent.

Each case is a client of OpenSSL in memory, of which one flight or record is damaged, or random bytes. Cases are drawn
from a seed, ``CALLBOARD_TLS_FUZZ_SEED``; ``CALLBOARD_TLS_FUZZ_CASES`` is their number. ``make soak`` runs 1,000 for
each seed.
"""

from __future__ import annotations

import os
import resource
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from weakref import ref

from harness import MemoryTransport
from tls_helpers import TlsFolder

from callboard.runtime.tls.connection import TlsConnection
from callboard.runtime.tls.handshakes import Handshake, Handshakes
from callboard.runtime.tls.listener_tls import ListenerTls, TlsPeer
from callboard.runtime.tls.settings import parse_tls

CASES = int(os.environ.get("CALLBOARD_TLS_FUZZ_CASES", "300"))
SEED = int(os.environ.get("CALLBOARD_TLS_FUZZ_SEED", "20261127"))
GROWTH_KB_MAX = 32_768
FLIGHTS_MAX = 6
SENT = (b"\0\0\0\x0e" + bytes(14), b"x" * 20_000, b"end")
"""What each client sends after the handshake."""


class Limits:
    handshakes_max_open = 10
    handshake_timeout_ms = 1000


class Timer:
    def cancel(self) -> None:
        pass


class Application:
    """Collects what it gets, and answers it."""

    def __init__(self) -> None:
        self.received = b""
        self.failure = ""
        self.is_secured = self.is_lost = False
        self.transport: TlsConnection

    def accept(self, transport: TlsConnection) -> None:
        self.transport = transport

    def end_handshake(self, _peer: TlsPeer | None) -> None:
        self.is_secured = True

    def fail_handshake(self, reason: str, _limit: str, *, by_certificate: bool) -> None:
        self.failure = reason
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        assert self.is_secured, "nothing is delivered before the handshake has ended"
        self.received += data
        self.transport.write(b"answer")

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_lost = True

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class Case:
    """A client and a connection of the server in memory."""

    def __init__(self, server: ListenerTls, client: ssl.SSLContext) -> None:
        self.turns: list[Handshake] = []
        handshakes = Handshakes(Limits(), self.turns.append, lambda _ms, _callback: Timer())  # type: ignore[arg-type, return-value]
        self.application = Application()
        self.connection = TlsConnection(server, self.application, handshakes)
        self.transport = MemoryTransport()
        self.connection.connection_made(self.transport)
        self._left = list(SENT)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def next_flight(self) -> bytes:
        """What the client sends next; nothing if it waits, or has given up."""
        self._incoming.write(bytes(self.transport.written))
        self.transport.written.clear()
        try:
            self._tls.do_handshake()
            while self._left:
                self._tls.write(self._left.pop(0))
        except ssl.SSLError:
            pass
        return self._outgoing.read()

    def feed(self, data: bytes) -> None:
        if not self.transport.is_closed:
            self.connection.data_received(data)
        while self.turns:
            self.turns.pop(0).take_turn()


def flip(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 3))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def insert(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.choice((1, 5, 300)))


def repeat(data: bytearray, _random: Random) -> None:
    data.extend(bytes(data))


def spoil_a_length(data: bytearray, random: Random) -> None:
    """Of the first record, whose length is in its fourth and fifth byte."""
    data[3:5] = random.choice((b"\0\0", b"\xff\xff", b"\x40\x01", b"\0\x01"))


def replace_all(data: bytearray, random: Random) -> None:
    data[:] = random.randbytes(random.choice((1, 5, 100, 70_000)))


def keep(_data: bytearray, _random: Random) -> None:
    """So that some cases get further."""


WAYS: tuple[Callable[[bytearray, Random], None], ...] = (
    *(flip, cut, insert, repeat, spoil_a_length, replace_all, keep),
)


def run_case(server: ListenerTls, client: ssl.SSLContext, random: Random) -> tuple[str, str]:
    """Returns the kind of damage, and how the connection ended."""
    case, way = Case(server, client), random.choice(WAYS)
    damaged = random.randrange(3)
    for number in range(FLIGHTS_MAX):
        flight = bytearray(case.next_flight())
        if not flight:
            break
        if number == damaged:
            way(flight, random)
        split = random.randrange(len(flight) + 1)
        for part in (bytes(flight[:split]), bytes(flight[split:])):
            if part:
                case.feed(part)
    application = case.application
    assert b"".join(SENT).startswith(application.received), f"{way.__name__}: other bytes were delivered"
    ending = "closed" if case.transport.is_closed else "complete" if application.received else "waits"
    openssl = ref(case.connection._object)
    case.connection.connection_lost(None)
    assert application.is_lost
    assert openssl() is None, "OpenSSL's memory is released at once, not by the garbage collector"
    return way.__name__, ending


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def test_damaged_tls_closes_only_its_connection(tmp_path: Path) -> None:
    files = TlsFolder(tmp_path)
    server = ListenerTls("SSL", parse_tls(files.settings(ssl_client_auth="requested")))
    clients = [files.client_context(), files.client_context("duke"), files.client_context()]
    clients[2].maximum_version = ssl.TLSVersion.TLSv1_2
    random, endings = Random(SEED), Counter[tuple[str, str]]()
    for number in range(CASES):
        endings[run_case(server, random.choice(clients), random)] += 1
        if number == CASES // 4:
            early_kb = resident_kb()
    assert resident_kb() - early_kb < GROWTH_KB_MAX
    assert {ending for way, ending in endings if way == keep.__name__} == {"complete"}
    for way in set(WAYS) - {keep}:
        expected = "waits" if way is cut else "closed"
        assert endings[way.__name__, expected], f"no connection {expected}: {way.__name__}"
