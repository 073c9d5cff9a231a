"""Probe: commits to one group per partition through a cluster of real servers, and measures how long it cannot.

Each client sends one request every 20 ms, or at another interval, gives up after a second, and then asks another node
for the coordinator, as Kafka's clients do. While its coordinator loads (error 14), it asks the same one again. Each
tenth request is a fetch. What is read is compared with what was acknowledged before it was asked for, at once and at
the end.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

INTERVAL_S = 0.02
TIMEOUT_S = 1.0
TRIES = 100
FETCH_EACH = 10
TOPIC = "probe"
COORDINATOR_LOAD_IN_PROGRESS = 14
FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH = 10, 8, 9

Address = tuple[str, int]


class Gap(NamedTuple):
    """A time without an acknowledged commit, in seconds of the monotonic clock."""

    group: str
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def frame(api: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", api, version, 0) + text("probe")
    return struct.pack(">i", len(head) + len(body)) + head + body


class NotServed(Exception):
    """An error code."""

    @property
    def is_loading(self) -> bool:
        return self.args == (COORDINATOR_LOAD_IN_PROGRESS,)


class Channel:
    """A connection to one node, with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, api: int, version: int, body: bytes) -> bytes:
        self._writer.write(frame(api, version, body))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return (await self._reader.readexactly(size))[4:]

    def close(self) -> None:
        self._writer.transport.abort()


async def connect(address: Address) -> Channel:
    return Channel(*await asyncio.open_connection(*address))


class ProbeClient:
    """Commits the numbers 1, 2, ... for a group. ``gaps``: the times between two acknowledgements.

    ``violations``: what was read that is older than what was acknowledged, or was never sent. ``pinned_to``: a node
    that is asked for everything, whatever the others say: nobody should hear from it what is not true any more.
    """

    def __init__(
        self,
        group: str,
        bootstrap: Sequence[Address],
        pinned_to: Address | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.group = group
        self.sent = self.acknowledged = self.acknowledged_count = self.fetched_count = 0
        self.gaps: list[Gap] = []
        self.violations: list[str] = []
        self.coordinator: Address | None = None
        self._bootstrap = bootstrap
        self._interval_s = interval_s
        self._pinned_to = pinned_to
        self._asked: Address | None = None  # the node that was asked last
        self._failed: Address | None = None  # that node, if it has not answered
        self._channel: Channel | None = None

    def use(self, bootstrap: Sequence[Address]) -> None:
        """Ask other nodes from now on, whoever is the coordinator."""
        self._bootstrap = bootstrap
        self._pinned_to = None

    async def run(self, until: asyncio.Event) -> None:
        last_s = time.monotonic()
        number = 0
        while not until.is_set():
            started_s = time.monotonic()
            number += 1
            if number % FETCH_EACH == 0:
                await self._try(self._compare())
            elif await self._try(self._commit_next()):
                self.gaps.append(Gap(self.group, last_s, time.monotonic()))
                last_s = self.gaps[-1].end_s
            await asyncio.sleep(max(0.0, started_s + self._interval_s - time.monotonic()))
        if time.monotonic() - last_s > TIMEOUT_S:
            self.gaps.append(Gap(self.group, last_s, time.monotonic()))
        self._close()
        await asyncio.sleep(0)

    async def _commit_next(self) -> None:
        self.sent += 1
        await self._commit()
        self.acknowledged = self.sent
        self.acknowledged_count += 1

    async def _compare(self) -> None:
        known = self.acknowledged
        value = await self._fetch()
        self.fetched_count += 1
        if not known <= max(value, 0) <= self.sent:
            self.violations.append(
                f"{self.group}: {self.coordinator} answers {value}, {known} was acknowledged, {self.sent} was sent"
            )

    async def check(self) -> str:
        """Read the last commit. Returns what is wrong; "" if nothing is."""
        for _ in range(TRIES):
            with suppress(NotServed, OSError, TimeoutError, EOFError):
                async with asyncio.timeout(TIMEOUT_S):
                    value = await self._fetch()
                self._close()
                await asyncio.sleep(0)  # closes the transport
                if self.acknowledged <= max(value, 0) <= self.sent:
                    return ""
                return f"{self.group}: {value} is read, {self.acknowledged} was acknowledged, {self.sent} was sent"
            self._close()
            await asyncio.sleep(0.2)
        return f"{self.group}: no node answers"

    async def _try(self, request: Coroutine[Any, Any, None]) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await request
        except (NotServed, OSError, TimeoutError, EOFError) as error:
            self._failed = None if isinstance(error, NotServed) else self._asked
            if not (isinstance(error, NotServed) and error.is_loading):
                self._close()
            return False
        self._failed = None
        return True

    async def _commit(self) -> None:
        channel = await self._find()
        body = text(self.group) + struct.pack(">i", -1) + text("") + struct.pack(">hi", -1, 1) + text(TOPIC)
        body += struct.pack(">iiqi", 1, 0, self.sent, -1) + text("")
        answer = await channel.ask(OFFSET_COMMIT, 7, body)
        (error,) = struct.unpack(">h", answer[-2:])
        if error:
            raise NotServed(error)

    async def _fetch(self) -> int:
        channel = await self._find()
        body = text(self.group) + struct.pack(">i", 1) + text(TOPIC) + struct.pack(">ii", 1, 0)
        answer = await channel.ask(OFFSET_FETCH, 5, body)
        (whole_error,) = struct.unpack(">h", answer[-2:])
        at = 4 + 4 + 2 + len(TOPIC) + 4
        if whole_error:
            raise NotServed(whole_error)
        _, offset = struct.unpack_from(">iq", answer, at)
        return int(offset)

    async def _find(self) -> Channel:
        """The connection to the coordinator."""
        if self._channel is None:
            self.coordinator = self._pinned_to or await self._find_coordinator()
            self._asked = self.coordinator
            self._channel = await connect(self.coordinator)
        return self._channel

    async def _find_coordinator(self) -> Address:
        """By any node but the one that has not answered."""
        others = [address for address in self._bootstrap if address != self._failed]
        self._asked = random.choice(others or self._bootstrap)
        channel = await connect(self._asked)
        try:
            answer = await channel.ask(FIND_COORDINATOR, 2, text(self.group) + b"\0")
        finally:
            channel.close()
        (error, length) = struct.unpack_from(">hh", answer, 4)
        if error:
            raise NotServed(error)
        at = 8 + max(length, 0) + 4
        (length,) = struct.unpack_from(">h", answer, at)
        host = answer[at + 2 : at + 2 + length].decode()
        (port,) = struct.unpack_from(">i", answer, at + 2 + length)
        return host, port

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
