"""Damaged authentication: it is answered or disconnected, nothing raises, and nobody is let in without a password.

Each case is a client that sends the frames of an authentication and of a request, damaged in one or several ways, in
pieces. Cases are drawn from a seed, ``CALLBOARD_SASL_FUZZ_SEED``; ``CALLBOARD_SASL_FUZZ_CASES`` is their number.
``make soak`` runs 1,000 for each seed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conformance.sasl_scripts import SCRIPTS
from harness import MemoryClient, async_test, framed
from sasl_helpers import PASSWORD, USER, running_sasl_node

from callboard.actors.engine_ports import ReplyTo
from callboard.actors.messages import GroupRequest
from callboard.runtime.kafka.authentication.principal import ANONYMOUS
from callboard.runtime.kafka.call import Call, ResponseChannel
from callboard.runtime.kafka.codec.schemas import Schema
from callboard.runtime.kafka.services import MessageRouter, Origin

CASES = int(os.environ.get("CALLBOARD_SASL_FUZZ_CASES", "1500"))
SEED = int(os.environ.get("CALLBOARD_SASL_FUZZ_SEED", "20261127"))
GROWTH_KB_MAX = 32_768
CASES_A_TURN = 20
TURNS = 8
"""In which the frames are handled that were received together, one in each."""
LOGIN = f"\0{USER}\0{PASSWORD}".encode()

Damage = Callable[[Random, list[bytes]], None]


def flip(random: Random, frames: list[bytes]) -> None:
    number = random.randrange(len(frames))
    data = bytearray(frames[number])
    data[random.randrange(len(data))] = random.randrange(256)
    frames[number] = bytes(data)


def cut(random: Random, frames: list[bytes]) -> None:
    number = random.randrange(len(frames))
    frames[number] = frames[number][: random.randrange(1, len(frames[number]) + 1)]


def insert(random: Random, frames: list[bytes]) -> None:
    number = random.randrange(len(frames))
    at = random.randrange(len(frames[number]) + 1)
    frames[number] = frames[number][:at] + random.randbytes(random.randrange(1, 40)) + frames[number][at:]


def resize(random: Random, frames: list[bytes]) -> None:
    number = random.randrange(len(frames))
    size = random.choice((0, 1, 9, 524_288, 524_289, 2**31 - 1, 2**32 - 1))
    frames[number] = size.to_bytes(4, "big") + frames[number][4:]


def swap(random: Random, frames: list[bytes]) -> None:
    random.shuffle(frames)


def repeat(random: Random, frames: list[bytes]) -> None:
    frames.append(random.choice(frames))


def garbage(random: Random, frames: list[bytes]) -> None:
    frames.insert(random.randrange(len(frames) + 1), framed(random.randbytes(random.randrange(1, 200))))


DAMAGES: tuple[Damage, ...] = (flip, cut, insert, resize, swap, repeat, garbage)


def cases(random: Random) -> Iterator[bytes]:
    scripts = [[framed(send.payload) for send in script] for script in SCRIPTS.values()]
    for _ in range(CASES):
        frames = [frame for frame in random.choice(scripts) if frame]
        for _ in range(random.choice((0, 1, 1, 2, 5))):
            random.choice(DAMAGES)(random, frames)
        yield b"".join(frames)


class Watch:
    """An interceptor: only clients that are authenticated have a request handled."""

    def call(self, connection: ResponseChannel, schema: Schema, correlation_id: int, request: Any) -> Call:
        assert connection.principal != ANONYMOUS, f"{schema.name} of nobody"
        return Call(connection, schema, correlation_id, request)

    def handle(self, _call: Call, handle: Callable[[Call], None]) -> None:
        handle(_call)

    def refused(self, connection: ResponseChannel, reason: str) -> None:
        pass

    def ask(self, router: MessageRouter, message: GroupRequest, origin: Origin, reply: ReplyTo) -> None:
        raise AssertionError("nobody in this process asks")

    def disconnected(self, origin: Origin) -> None:
        raise AssertionError("nobody in this process connects")


def cheap_hash(_name: str, password: bytes, salt: bytes, iterations: int, dklen: int | None = None) -> bytes:
    """Real ones would take all the time."""
    return hashlib.sha256(password + salt + bytes([iterations % 256])).digest()


def outcome(client: MemoryClient, sent: bytes) -> str:
    if client.connection.principal == ANONYMOUS:
        return "closed" if client.is_closed else "waits"
    assert LOGIN in sent, "nobody else knows the password"
    return "authenticated"


@async_test
async def test_damaged_authentication_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hashlib.pbkdf2_hmac", cheap_hash)
    caplog.set_level(logging.ERROR)
    random = Random(SEED)
    outcomes = Counter[str]()
    async with running_sasl_node(tmp_path) as harness:
        node = harness.node
        node.services.interceptor = Watch()
        begin_kb = 0
        for number, data in enumerate(cases(random)):
            client, rest = MemoryClient(node), data
            while rest and not client.is_closed:
                size = random.choice((1, 7, len(rest)))
                client.feed(rest[:size])
                rest = rest[size:]
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if number % CASES_A_TURN == 0:
                await asyncio.sleep(0.002)  # passwords are checked, failures are answered
            outcomes[outcome(client, data)] += 1
            client.connection.connection_lost(None)
            if number == CASES // 2:
                begin_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        node.services.interceptor = None
        while node.connections:
            await asyncio.sleep(0.001)
    assert [record.getMessage() for record in caplog.records] == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin_kb < GROWTH_KB_MAX
    assert len(outcomes) == 3, outcomes
