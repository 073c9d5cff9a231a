"""Plays a script to a server: a real Kafka or a Callboard node. The same code plays to both.

After each step the server says which answers have come, to whichever requests: so what a step answers, and when a
parked request is answered, is part of the result.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid4

from peers.wire import decode, encode

from .script import DISCONNECT, MORE, UNORDERED, UNORDERED_IN_ALL_OFFSETS, WAIT, Names, Script, Step, client_of

PARKED = frozenset({"join_group", "sync_group"})

StepResponse = list[Any]
"""Number of the step that sent the request, and its answer; ["hung up", line] where the server closed a connection."""

Frames = dict[str, list[bytes | None]]
"""The received frames, by connection; None if it was closed."""


class ConformanceServer(Protocol):
    """A server that scripts are played to."""

    topics: dict[str, UUID]

    async def open(self, line: str) -> None: ...

    def send(self, line: str, *payloads: bytes) -> None:
        """Send requests, in one write."""

    async def disconnect(self, line: str) -> None: ...

    async def settle(self, expected: int, outstanding: int) -> Frames:
        """What has come since the last call, once all that the last step causes has come.

        ``expected`` answers are known to come, if the caller knows; ``outstanding`` requests are unanswered.
        """

    async def wait(self, ms: int) -> None: ...

    async def leave(self) -> None:
        """Close all connections."""


class PendingRequest(NamedTuple):
    number: int
    api: str
    version: int
    values: Any


class Play:
    """One run of a script, step by step."""

    def __init__(self, server: ConformanceServer) -> None:
        self.server = server
        self.names = Names(f"g-{uuid4().hex}", server.topics)
        self.outstanding: dict[str, deque[PendingRequest]] = {}
        self._unsent: list[bytes] = []
        self._number = -1

    async def take(self, step: Step, expected: int = 0) -> list[StepResponse]:
        """Play one step; return all responses to it, in the order of their requests."""
        self._number += 1
        if step[0] == WAIT:
            await self.server.wait(step[1])
        elif step[0] == DISCONNECT:
            await self.server.disconnect(step[1])
            self.outstanding.pop(step[1], None)
        else:
            await self._send(*step)
            if self._unsent:
                return []
        waiting = sum(map(len, self.outstanding.values()))
        return self._read(await self.server.settle(max(expected, self._certain()), waiting))

    def _certain(self) -> int:
        """How many answers must come, whatever the group does: of requests that nobody parks, with none before them."""
        return sum(
            len(list(takewhile(lambda one: one.api not in PARKED, asked))) for asked in self.outstanding.values()
        )

    def is_busy(self, line: str) -> bool:
        return bool(self.outstanding.get(line))

    async def _send(self, line: str, api: str, version: int, values: Any, more: str = "") -> None:
        if line not in self.outstanding:
            self.outstanding[line] = deque()
            await self.server.open(line)
        payload = encode(api, version, self.names.to_request(values), client_id=client_of(line))
        self.outstanding[line].append(PendingRequest(self._number, api, version, values))
        self._unsent.append(payload)
        if more != MORE:
            self.server.send(line, *self._unsent)
            self._unsent = []

    def _read(self, frames: Frames) -> list[StepResponse]:
        came: list[tuple[PendingRequest, Any]] = []
        ended: list[StepResponse] = []
        for line, payloads in frames.items():
            for payload in payloads:
                if payload is None:
                    self.outstanding.pop(line, None)
                    ended.append(["hung up", line])
                else:
                    asked = self.outstanding[line].popleft()
                    came.append((asked, self._decode(asked, payload)))
        came.sort(key=lambda one: one[0].number)
        for _, answer in came:
            self.names.learn(answer)
        return [[asked.number, self.names.to_script(answer, _unordered(asked))] for asked, answer in came] + sorted(
            ended
        )

    def _decode(self, asked: PendingRequest, payload: bytes) -> dict[str, Any]:
        answer = decode(asked.api, asked.version, payload)
        if asked.api == "list_groups":  # other scripts are played beside this one
            answer["groups"] = [group for group in answer["groups"] if self.names.is_ours(group["group_id"])]
        return answer


def _unordered(asked: PendingRequest) -> frozenset[str]:
    if asked.api != "offset_fetch":
        return UNORDERED.get(asked.api, frozenset())
    groups = asked.values.get("groups", [asked.values])
    asks_for_all = any(group.get("topics") is None for group in groups)
    return UNORDERED_IN_ALL_OFFSETS if asks_for_all else frozenset()


async def play(server: ConformanceServer, script: Script) -> list[list[StepResponse]]:
    """Play a whole script; return the responses after each step."""
    run, came = Play(server), list[list[StepResponse]]()
    try:
        for step in script:
            came.append(await run.take(step))
        return came
    except KeyError as error:
        error.add_note(f"nothing brought {error} in the first {len(came)} steps; the last: {came[-3:]}")
        raise
    finally:
        await server.leave()
