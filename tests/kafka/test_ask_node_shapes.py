"""AskNode with hostile content, generated from the messages of all subjects: long arrays, and damaged JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ask_node_helpers import CLIENT, NODE, OF_CLIENTS, OpenGate, question, random_message, with_long_arrays
from fuzz_helpers import WATCHED, Fuzzer, beat, describe_reference_groups, reference_groups
from harness import MemoryClient, NodeHarness, async_test, running_node
from longest_steps import longest_step
from work_counter import _one_step_a_turn, endless_clock

from callboard.runtime.common import json_steps
from callboard.runtime.kafka.codec.message_json import write_message
from callboard.runtime.kafka.connections import connection
from callboard.runtime.kafka.node_subjects import SUBJECTS
from callboard.runtime.node.environment import Environment, WorkClocks

__all__ = ["_one_step_a_turn"]

FEW, MANY = 500, 1_000
LINES_PER_ITEM = 2
FRAMES = int(os.environ.get("CALLBOARD_FUZZ_FRAMES", "20000")) // 8
SEED = int(os.environ.get("CALLBOARD_FUZZ_SEED", "20261127"))
FRAMES_A_TURN, FRAMES_A_BEAT = 10, 100

SENDERS = [(NODE, subject) for subject in SUBJECTS] + [(CLIENT, subject) for subject in OF_CLIENTS]


def requests(client_id: str, subject: str, size: int) -> Iterator[tuple[str, bytes]]:
    for name, message in with_long_arrays(subject, size):
        yield name, question(message, client_id)


@pytest.mark.usefixtures("_one_step_a_turn")
@pytest.mark.parametrize(("client_id", "subject"), SENDERS)
@async_test
async def test_longest_step_does_not_grow_with_the_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client_id: str, subject: str
) -> None:
    monkeypatch.setattr(connection, "LARGE_REQUEST_BYTES", 0)  # all are decoded in steps
    monkeypatch.setattr(json_steps, "STEP_CHARS", 512)
    environment = Environment(work_clocks=WorkClocks(slice_ns=endless_clock(), budget_ns=lambda: 0))
    async with running_node(tmp_path, {"sync": "none"}, environment=environment) as harness:
        harness.node.services.routes.peer_gate = OpenGate()
        few = {name: await longest_step(harness, data) for name, data in requests(client_id, subject, FEW)}
        many = {name: await longest_step(harness, data) for name, data in requests(client_id, subject, MANY)}
    growth = {name: lines - few[name] for name, lines in many.items()}
    assert {name: lines for name, lines in growth.items() if lines > LINES_PER_ITEM * (MANY - FEW)} == {}


def test_some_subjects_have_arrays() -> None:
    assert {subject for subject in SUBJECTS if list(with_long_arrays(subject, 1))} >= {"OffsetCommit", "ResetOffsets"}


# Damaged content ------------------------------------------------------------------------------------------------------


def replace_a_value(content: bytes, random: Random) -> bytes:
    """Any value anywhere in the message is another one."""
    message = json.loads(content)
    spoilt: Any = random.choice((None, True, "", "x", [], {}, -1, 0, 2**31, 2**63, 2**70, 1.5, [[]], ["t", 0]))
    parent, position = random.choice([*places(message)])
    parent[position] = spoilt
    return json.dumps(message).encode()


def places(value: list[Any]) -> Iterator[tuple[list[Any], int]]:
    for position, item in enumerate(value):
        yield value, position
        if isinstance(item, list):
            yield from places(item)


def change_bytes(content: bytes, random: Random) -> bytes:
    damaged = bytearray(content)
    at = random.randrange(len(damaged))
    match random.randrange(4):
        case 0:
            damaged[at] ^= 1 << random.randrange(8)
        case 1:
            del damaged[at:]
        case 2:
            del damaged[at : at + random.randrange(1, 6)]
        case _:
            damaged[at:at] = random.choice((b"[", b"]", b'"', b",", b"\\ud800", b"9" * 400, b"[" * 5000, b"\xff"))
    return bytes(damaged)


def leave(content: bytes, _random: Random) -> bytes:
    return content


DAMAGES: tuple[Callable[[bytes, Random], bytes], ...] = (replace_a_value, change_bytes, leave)


def test_damaged_content_is_refused_and_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    asyncio.run(fuzz(tmp_path))
    assert [record.getMessage() for record in caplog.records] == []


async def fuzz(folder: Path) -> None:
    random = Random(SEED)
    async with running_node(folder, {"sync": "none"}) as harness:
        harness.node.services.routes.peer_gate = OpenGate()
        client = await harness.connect()
        members = await reference_groups(client)
        reference, fuzzer = await describe_reference_groups(client), Fuzzer(harness)
        for number in range(FRAMES):
            sender, subject = random.choice(SENDERS)
            message = random_message(SUBJECTS[subject].message, random)
            damage = DAMAGES[number % len(DAMAGES)]
            content = damage(write_message(message), random)
            fuzzer.feed(damage.__name__, question(message, sender, content=content))
            if number % FRAMES_A_TURN == 0:
                await asyncio.sleep(0)
                fuzzer.sort()
            if number % FRAMES_A_BEAT == 0:
                await beat(client, WATCHED[0], members[0])
        await until_answered(harness)
        fuzzer.sort()
        assert await describe_reference_groups(client) == reference
        assert fuzzer.answers > FRAMES * 0.9
        assert not sum(fuzzer.closed.values())


async def until_answered(harness: NodeHarness) -> None:
    """All requests before this one."""
    last = MemoryClient(harness.node)
    last.feed(question(SUBJECTS["ReadTopics"].message(), NODE))
    await last.answered(1)
    last.close()
