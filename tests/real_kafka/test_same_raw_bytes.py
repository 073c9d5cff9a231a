"""Error responses, compared byte by byte: a decoded response does not show, for example, the encoding of null.

Both servers play the same script of ``conformance``. Ids of members, topics and producers, group ids and the port are
replaced by common values; their lengths are equal on both servers. All other bytes are compared.
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
APIS_WITH_PRODUCER_ID = frozenset({"init_producer_id", "end_txn"})
UNORDERED_APIS = frozenset({"join_group", "describe_groups", "delete_groups"})
STAGES: Mapping[str, list[Step]] = {
    "absent": [],
    "static": pair({"group_instance_id": "a"}, {"group_instance_id": "b"}),
}


class RawPlay(Play):
    """Stores the bytes of the responses, without ids that differ between servers."""

    def __init__(self, server: KafkaServer, port: int) -> None:
        super().__init__(server)
        self.responses: dict[int, bytes] = {}
        self._port = struct.pack(">i", port)
        self._group = str(self.names.to_request("$group")).encode()

    def _decode(self, request: PendingRequest, payload: bytes) -> dict[str, Any]:
        response = super()._decode(request, payload)
        self.responses[request.number] = self._masked(request.api, payload, response)
        return response

    def _masked(self, api: str, payload: bytes, response: Mapping[str, Any]) -> bytes:
        masked = MEMBER_ID.sub(b"<member>", payload).replace(self._group, b"<group>").replace(self._port, b"PORT")
        for topic_id in self.server.topics.values():
            masked = masked.replace(topic_id.bytes, b"<the topic's id>")
        if api in APIS_WITH_PRODUCER_ID and response.get("producer_id", -1) >= 0:
            masked = masked.replace(struct.pack(">q", response["producer_id"]), b"producer")
        return bytes(sorted(masked)) if api in UNORDERED_APIS else masked


async def play(address: Address, topics: dict[str, UUID], script: list[Step]) -> dict[int, bytes]:
    server = KafkaServer(*address, topics, SPEEDS[0])
    run = RawPlay(server, address[1])
    try:
        for step in script:
            await run.take(step)
    finally:
        await server.leave()
    return run.responses


@pytest.mark.parametrize("stage", STAGES)
def test_invalid_raw_requests(real_kafka: RealKafka, our_address: Address, stage: str) -> None:
    script = [init("P"), *STAGES[stage], *refusals(VERSIONS, has_members=stage != "absent")]
    addresses = our_address, (real_kafka.host, real_kafka.port)
    topics = [prepare_broker(*address) for address in addresses]

    async def both() -> list[dict[int, bytes]]:
        return await asyncio.gather(*(play(*arguments, script) for arguments in zip(addresses, topics, strict=True)))

    ours, theirs = asyncio.run(both())
    assert len(theirs) >= len(script) - 1, "too few responses"
    differences = {number for number in range(len(script)) if ours.get(number) != theirs.get(number)}
    assert not differences, "\n".join(
        f"{script[number]}\n    ours    {ours.get(number)!r}\n    Kafka's {theirs.get(number)!r}"
        for number in sorted(differences)[:5]
    )
