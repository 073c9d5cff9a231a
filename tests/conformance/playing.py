"""Plays a script to a server: a real Kafka or a Callboard node. The same code plays to both.

After each step the server returns all responses that have arrived, also those to earlier requests. So the result shows
after which step a pending request is answered.
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
"""The number of the step that sent the request, and the response; ["hung up", line] if the server disconnected."""

Frames = dict[str, list[bytes | None]]
"""The received frames, by connection; None if it was closed."""


class ConformanceServer(Protocol):
    """A server that can play scripts."""

    topics: dict[str, UUID]

    async def open(self, line: str) -> None: ...

    def send(self, line: str, *payloads: bytes) -> None:
        """Send requests, in one write."""

    async def disconnect(self, line: str) -> None: ...

    async def settle(self, expected: int, outstanding: int) -> Frames:
        """Wait until the last step has had all its effects; return the frames received since the last call.

        ``expected``: a lower bound for the number of responses. ``outstanding``: the number of unanswered requests.
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
    """One run of a script, step by step. ``group``: the name of ``$group``, a new one by default."""

    def __init__(self, server: ConformanceServer, group: str | None = None) -> None:
        self.server = server
        self.names = Names(group or f"g-{uuid4().hex}", server.topics)
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
        return self._read(await self.server.settle(max(expected, self._count_certain()), waiting))

    def _count_certain(self) -> int:
        """Count the responses that do not depend on the group: no join or sync is before them on the connection."""
        return sum(
            len(list(takewhile(lambda request: request.api not in PARKED, requests)))
            for requests in self.outstanding.values()
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
        responses: list[tuple[PendingRequest, Any]] = []
        closed: list[StepResponse] = []
        for line, payloads in frames.items():
            for payload in payloads:
                if payload is None:
                    self.outstanding.pop(line, None)
                    closed.append(["hung up", line])
                else:
                    request = self.outstanding[line].popleft()
                    responses.append((request, self._decode(request, payload)))
        responses.sort(key=lambda item: item[0].number)
        for _, response in responses:
            self.names.learn(response)
        return [
            [request.number, self.names.to_script(response, _unordered(request))] for request, response in responses
        ] + sorted(closed)

    def _decode(self, request: PendingRequest, payload: bytes) -> dict[str, Any]:
        response = decode(request.api, request.version, payload)
        if request.api == "list_groups":  # other scripts run at the same time
            response["groups"] = [group for group in response["groups"] if self.names.is_ours(group["group_id"])]
        if request.api == "list_transactions":
            states = response["transaction_states"]
            response["transaction_states"] = [each for each in states if self.names.is_ours(each["transactional_id"])]
        return response


def _unordered(request: PendingRequest) -> frozenset[str]:
    if request.api != "offset_fetch":
        return UNORDERED.get(request.api, frozenset())
    groups = request.values.get("groups", [request.values])
    asks_for_all = any(group.get("topics") is None for group in groups)
    return UNORDERED_IN_ALL_OFFSETS if asks_for_all else frozenset()


async def play(server: ConformanceServer, script: Script) -> list[list[StepResponse]]:
    """Play a whole script; return the responses after each step."""
    run, responses = Play(server), list[list[StepResponse]]()
    try:
        for step in script:
            responses.append(await run.take(step))
        return responses
    except KeyError as error:
        error.add_note(
            f"no response has defined {error} in the first {len(responses)} steps; the last: {responses[-3:]}"
        )
        raise
    finally:
        await server.leave()
