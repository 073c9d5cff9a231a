"""A real Kafka for scripts. The time until no more responses arrive can only be estimated.

So every script is played at several speeds, and a script is dropped if its responses differ.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from uuid import UUID

from peers.waiting import wait_until
from peers.wire import ANSWER_TIMEOUT_S, FRAME_SIZE, Wire, encode
from real_kafka.kafka import NOT_READY

from .playing import Frames

BARRIER = encode("heartbeat", 4, {"group_id": "none", "generation_id": 0, "member_id": "", "group_instance_id": None})
BARRIERS = 4  # one after the other, because a busy broker answers these slowly, too
TURN_S = 0.002  # interval of checks for a required response
TOPICS = {"t": 3, "u": 1}


class Speed(NamedTuple):
    """The time without a response that ends a step, the pause between steps, and the factor of waits."""

    quiet_s: float
    pause_s: float
    stretch: float


SPEEDS = (Speed(0.06, 0.0, 1.0), Speed(0.04, 0.02, 1.05), Speed(0.1, 0.01, 0.97))
CAREFUL_SPEEDS = tuple(speed._replace(quiet_s=4 * speed.quiet_s) for speed in SPEEDS)
"""For scenarios, whose results must be the same at each speed."""


class KafkaServer:
    """Connections to one broker."""

    def __init__(self, host: str, port: int, topics: dict[str, UUID], speed: Speed = SPEEDS[0]) -> None:
        self.topics = topics
        self._address = (host, port)
        self._pace = speed
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._frames: Frames = {}
        self._came = 0
        self._barrier: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self, line: str) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        self._writers[line] = writer
        self._readers.append(asyncio.create_task(self._read(line, reader)))

    def send(self, line: str, *payloads: bytes) -> None:
        self._writers[line].write(b"".join(FRAME_SIZE.pack(len(payload)) + payload for payload in payloads))

    async def disconnect(self, line: str) -> None:
        self._writers.pop(line).close()

    async def wait(self, ms: int) -> None:
        await asyncio.sleep(ms * self._pace.stretch / 1000)

    async def settle(self, expected: int, outstanding: int) -> Frames:
        """Wait until all requests are answered, or until none is answered while the coordinator answers others."""
        await asyncio.sleep(self._pace.pause_s)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while self._came < expected:
                await asyncio.sleep(TURN_S)
        while self._came < outstanding:
            previous = self._came
            await asyncio.sleep(self._pace.quiet_s)
            for _ in range(BARRIERS):
                await self._pass_barrier()
            if self._came == previous:
                break
        frames, self._frames, self._came = self._frames, {}, 0
        return frames

    async def leave(self) -> None:
        for writer in [*self._writers.values(), *([self._barrier[1]] if self._barrier else [])]:
            writer.close()
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _read(self, line: str, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._note(line, await _frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            if line in self._writers:
                self._note(line, None)

    def _note(self, line: str, payload: bytes | None) -> None:
        self._frames.setdefault(line, []).append(payload)
        self._came += 1

    async def _pass_barrier(self) -> None:
        if self._barrier is None:
            self._barrier = await asyncio.open_connection(*self._address)
        reader, writer = self._barrier
        writer.write(FRAME_SIZE.pack(len(BARRIER)) + BARRIER)
        await _frame(reader)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = FRAME_SIZE.unpack(await reader.readexactly(FRAME_SIZE.size))
    return await reader.readexactly(size)


def prepare_broker(host: str, port: int) -> dict[str, UUID]:
    """Wait until the coordinator answers, create missing topics of scripts, and return their ids."""
    new = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        for name, count in TOPICS.items()
    ]
    request = {
        "topics": [{"name": name, "topic_id": UUID(int=0)} for name in TOPICS],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    with Wire(host, port) as wire:
        wait_until(lambda: _coordinator_of(wire), lambda error: error not in NOT_READY, "the coordinator")
        wait_until(lambda: _transactions_of(wire), lambda error: error == "NONE", "the coordinator of transactions")
        wire.ask("create_topics", 4, topics=new, timeout=30_000, validate_only=False)
        topics = wait_until(lambda: wire.ask("metadata", 12, **request)["topics"], _are_there, "the topics")
    return {topic["name"]: topic["topic_id"] for topic in topics}


def _coordinator_of(wire: Wire) -> str:
    wire.ask("find_coordinator", 0, key="any")  # creates the offsets topic
    error: str = wire.ask("describe_groups", 0, groups=["any"])["groups"][0]["error_code"]
    return error


def _transactions_of(wire: Wire) -> str:
    wire.ask("find_coordinator", 1, key="any", key_type=1)  # creates the transaction topic
    values = {"transactional_id": "any", "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    error: str = wire.ask("init_producer_id", 3, **values)["error_code"]
    return error


def _are_there(topics: list[dict[str, Any]]) -> bool:
    return all(topic["error_code"] == "NONE" for topic in topics)
