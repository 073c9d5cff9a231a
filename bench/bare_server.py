"""The baseline of ``callboard bench server``: decodes each request with kio and responds with prepared bytes.

It has the same event loop, sockets and parser as Callboard's server, but no coordinator, so that the ratio to it is the
cost of the coordinator. It supports Heartbeat v4, ConsumerGroupHeartbeat v1 and OffsetCommit v9, and always responds
with success; any other request closes the connection.
``python -m callboard.bench.bare_server [--listen HOST:PORT] [--wrong-at N] [--tls KEYSTORE]``.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import uvloop

from callboard.bench.consumer_members import INTERVAL_MS
from callboard.bench.harness import parse_address
from callboard.bench.wire import CORRELATION_AT_ANSWER, CORRELATION_AT_REQUEST, api, no_error
from callboard.runtime.kafka.codec.kio import kio
from callboard.runtime.kafka.codec.schemas import schema
from callboard.runtime.kafka.codec.short_heartbeat import NAME as CONSUMER_HEARTBEAT


class Answers:
    """Prepared responses without correlation id. ``wrong_at``: the response that gets a wrong one (0: none)."""

    def __init__(self, wrong_at: int = 0) -> None:
        heartbeat, consumer_heartbeat, commit = api("heartbeat", 4), api(CONSUMER_HEARTBEAT, 1), api("offset_commit", 9)
        self._read_header = kio("serial").entity_reader(heartbeat.request_type.__header_schema__)
        self._read: dict[int, Callable[[bytes, int, int], Any]] = {
            heartbeat.key: lambda data, start, _end: heartbeat.read_request(data, start)[0],
            consumer_heartbeat.key: _read_consumer_heartbeat,
            commit.key: lambda data, start, _end: commit.read_request(data, start)[0],
        }
        self._prepared = {
            heartbeat.key: self._prepared_heartbeat,
            consumer_heartbeat.key: self._prepared_consumer_heartbeat,
            commit.key: self._prepared_commit,
        }
        self._heartbeat = _cut(heartbeat.answer(0, throttle_time=timedelta(0), error_code=no_error()))
        self._consumer_heartbeats: dict[str, tuple[bytes, bytes]] = {}
        self._commits: dict[tuple[str, int], tuple[bytes, bytes]] = {}
        self._until_wrong = wrong_at

    def answer(self, data: bytes, start: int, end: int) -> bytes:
        """The response to the frame whose size field is at ``start``. Raises KeyError for an unknown API."""
        header, size = self._read_header(data, start + 4)
        request = self._read[header.request_api_key](data, start + 4 + size, end)
        head, tail = self._prepared[header.request_api_key](request)
        position = start + CORRELATION_AT_REQUEST
        correlation_id = data[position : position + 4]
        if self._until_wrong:
            correlation_id = self._spoil(correlation_id)
        return head + correlation_id + tail

    def _prepared_heartbeat(self, _request: Any) -> tuple[bytes, bytes]:
        return self._heartbeat

    def _prepared_consumer_heartbeat(self, request: Any) -> tuple[bytes, bytes]:
        prepared = self._consumer_heartbeats.get(request.member_id)
        if prepared is None:
            answer = consumer_heartbeat_answer(request.member_id, request.member_epoch, INTERVAL_MS)
            prepared = self._consumer_heartbeats[request.member_id] = _cut(answer)
        return prepared

    def _prepared_commit(self, request: Any) -> tuple[bytes, bytes]:
        topic = request.topics[0]
        key = topic.name, topic.partitions[0].partition_index
        prepared = self._commits.get(key)
        if prepared is None:
            prepared = self._commits[key] = _cut(commit_answer(*key))
        return prepared

    def _spoil(self, correlation_id: bytes) -> bytes:
        self._until_wrong -= 1
        return correlation_id if self._until_wrong else bytes(byte ^ 0xFF for byte in correlation_id)


def _read_consumer_heartbeat(data: bytes, start: int, end: int) -> Any:
    """Repeated bytes are decoded once, as in Callboard. Raises ValueError for a heartbeat of another form."""
    api_schema = schema(CONSUMER_HEARTBEAT, 1)
    assert api_schema.read_repeated is not None
    request = api_schema.read_repeated(data[start:end])
    if request is None:
        raise ValueError("found a ConsumerGroupHeartbeat that changes something, expected one that does not")
    return request


def consumer_heartbeat_answer(member_id: str, epoch: int, interval_ms: int) -> bytes:
    """The complete response to a ConsumerGroupHeartbeat v1 that changes nothing."""
    return api(CONSUMER_HEARTBEAT, 1).answer(
        0,
        throttle_time=timedelta(0),
        error_code=no_error(),
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms),
        assignment=None,
    )


def commit_answer(topic: str, partition: int, correlation_id: int = 0) -> bytes:
    """The complete response to a successful OffsetCommit v9 of one offset."""
    commit = api("offset_commit", 9)
    types = commit.answer_types
    partition_answer = types.OffsetCommitResponsePartition(partition_index=partition, error_code=no_error())
    topics = (types.OffsetCommitResponseTopic(name=topic, partitions=(partition_answer,)),)
    return commit.answer(correlation_id, throttle_time=timedelta(0), topics=topics)


def _cut(answer: bytes) -> tuple[bytes, bytes]:
    """The bytes before and after the correlation id."""
    return answer[:CORRELATION_AT_ANSWER], answer[CORRELATION_AT_ANSWER + 4 :]


class BareConnection(asyncio.Protocol):
    """Splits frames and responds to all requests of one read with one write."""

    def __init__(self, answers: Answers) -> None:
        self._answer = answers.answer
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        try:
            answers, start = self._answer_all(data)
        except (KeyError, ValueError):
            self._transport.close()
            return
        self._rest = data[start:]
        self._transport.write(b"".join(answers))

    def _answer_all(self, data: bytes) -> tuple[list[bytes], int]:
        """Responses to all complete frames, and the start of the first incomplete one."""
        answers, start, available = [], 0, len(data)
        while available - start >= 4:
            end = start + 4 + int.from_bytes(data[start : start + 4], "big")
            if end > available:
                break
            answers.append(self._answer(data, start, end))
            start = end
        return answers, start


async def serve(host: str, port: int, wrong_at: int, keystore: Path | None = None) -> None:
    """Serve until the process ends. ``keystore``: for the TLS of the event loop."""
    tls = None
    if keystore is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(keystore)
    answers = Answers(wrong_at)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BareConnection(answers), host, port, ssl=tls)
    name, number = server.sockets[0].getsockname()[:2]
    print(f"bare ready on {name}:{number}", flush=True)
    await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.bench.bare_server")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument(
        "--wrong-at", type=int, metavar="N", default=0, help="give response N a wrong correlation id (0: none)"
    )
    parser.add_argument("--tls", type=Path, metavar="KEYSTORE", help="use the event loop's TLS (default: none)")
    options = parser.parse_args(argv)
    uvloop.run(serve(*parse_address(options.listen), options.wrong_at, options.tls))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
