"""Refusals, byte for byte: what a decoded answer does not show, such as how null, empty and absent are written.

The same scripts as ``conformance`` plays go to both servers at once. Ids of members, topics and producers, the group's
name and the port have the same lengths on both sides and are made the same; everything else is compared as it came.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from conformance.kafka_server import SPEEDS, KafkaServer, prepare_broker
from conformance.playing import PendingRequest, Play
from conformance.scenarios.transactions import init
from conformance.script import Step
from conformance.steps import pair

from .kafka import RealKafka
from .refusals import refusals
from .side_by_side import Address
from .test_same_bytes import APIS

MEMBER_ID = re.compile(rb"[A-Za-z]*-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VERSIONS = {name: (low, high) for name, low, high in APIS.values()} | {"offset_delete": (0, 0)}
GIVES_PRODUCERS = frozenset({"init_producer_id", "end_txn"})
FROM_A_HASH_MAP = frozenset({"join_group", "describe_groups", "delete_groups"})
STAGES: Mapping[str, list[Step]] = {
    "absent": [],
    "static": pair({"group_instance_id": "a"}, {"group_instance_id": "b"}),
}


class RawPlay(Play):
    """Keeps what came, as bytes that are the same wherever they come from."""

    def __init__(self, server: KafkaServer, port: int) -> None:
        super().__init__(server)
        self.came: dict[int, bytes] = {}
        self._port = struct.pack(">i", port)
        self._group = str(self.names.to_request("$group")).encode()

    def _decode(self, asked: PendingRequest, payload: bytes) -> dict[str, Any]:
        answer = super()._decode(asked, payload)
        self.came[asked.number] = self._masked(asked.api, payload, answer)
        return answer

    def _masked(self, api: str, payload: bytes, answer: Mapping[str, Any]) -> bytes:
        masked = MEMBER_ID.sub(b"<member>", payload).replace(self._group, b"<group>").replace(self._port, b"PORT")
        for topic_id in self.server.topics.values():
            masked = masked.replace(topic_id.bytes, b"<the topic's id>")
        if api in GIVES_PRODUCERS and answer.get("producer_id", -1) >= 0:
            masked = masked.replace(struct.pack(">q", answer["producer_id"]), b"producer")
        return bytes(sorted(masked)) if api in FROM_A_HASH_MAP else masked


async def play(address: Address, topics: dict[str, UUID], script: list[Step]) -> dict[int, bytes]:
    server = KafkaServer(*address, topics, SPEEDS[0])
    run = RawPlay(server, address[1])
    try:
        for step in script:
            await run.take(step)
    finally:
        await server.leave()
    return run.came


@pytest.mark.parametrize("stage", STAGES)
def test_invalid_raw_requests(real_kafka: RealKafka, our_address: Address, stage: str) -> None:
    script = [init("P"), *STAGES[stage], *refusals(VERSIONS, has_members=stage != "absent")]
    addresses = our_address, (real_kafka.host, real_kafka.port)
    topics = [prepare_broker(*address) for address in addresses]

    async def both() -> list[dict[int, bytes]]:
        return await asyncio.gather(*(play(*one, script) for one in zip(addresses, topics, strict=True)))

    ours, theirs = asyncio.run(both())
    assert len(theirs) >= len(script) - 1, "hardly anything is parked"
    differ = {number for number in range(len(script)) if ours.get(number) != theirs.get(number)}
    assert not differ, "\n".join(
        f"{script[at]}\n    ours    {ours.get(at)!r}\n    Kafka's {theirs.get(at)!r}" for at in sorted(differ)[:5]
    )
