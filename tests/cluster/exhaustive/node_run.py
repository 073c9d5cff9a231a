"""NodeRun: one process of a node, driven by inputs. It runs the product's session on a loop that stops when it waits.

What a node does depends on its inputs alone: the answers of the store, the ends of its sleeps, the commands, and the
time of each of them. So the same inputs lead to the same state, in whatever order other nodes do their work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from callboard.runtime.cluster.garbage import FIRST_PART
from callboard.runtime.cluster.session import Phase
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.store import StoreUnavailable
from callboard.runtime.log.partition_counts import PartitionCounts
from callboard.runtime.testing.simulation.loop import VirtualLoop

from ..simulated_node import PAUSE_S, SimulatedNode

KEY = b"k"
TTL_S = 8.0
CHECKPOINT_S, GARBAGE_S, CONTINUITY_S, RETRY_S = 101.0, 103.0, 107.0, 0.01
COUNTS = PartitionCounts(1, 0)
PARTITION = 0
SLEEPS = {
    CHECKPOINT_S: "checkpoint",
    GARBAGE_S * FIRST_PART: "garbage",
    GARBAGE_S: "garbage",
    CONTINUITY_S: "continuity",
    PAUSE_S: "rejoin",
    TTL_S: "burial",
}


class Operation(NamedTuple):
    """What a node waits for. ``kind``: an operation of the store, or "sleep" with the name of the sleep and its end."""

    kind: str
    arguments: tuple[Any, ...]


class Input(NamedTuple):
    """``kind``: "answer", "unknown", "wake" (of the operation ``number``), or a command with a ``value``."""

    kind: str
    now: float
    number: int = 0
    value: Any = None


class View(NamedTuple):
    """What can be seen of a node. ``pending``: operations by number. ``served``: epoch and number of its partition.

    ``events`` belong to the last input. ``others``: the other sessions of the register that it knows.
    """

    pending: tuple[tuple[int, Operation], ...]
    served: tuple[int, int] | None
    damage: str
    session: str
    others: tuple[str, ...]
    events: tuple[tuple[Any, ...], ...]


class SteppedLoop(VirtualLoop):
    def run_until_quiet(self) -> None:
        """Timers of the loop, which are pauses between attempts, take no time."""
        asyncio._set_running_loop(self)
        try:
            while self._ready or any(not entry[3].cancelled() for entry in self._timers):
                if not self._ready:
                    self._pass_time()
                handle, _ = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)


class NodeRun:
    """``Store`` of its node."""

    def __init__(self, process: str) -> None:
        self.process = process
        self._now = 0.0
        self._tokens = 0
        self._number = 0
        self._waiting: dict[int, tuple[asyncio.Future[Any], Operation]] = {}
        self._events: list[tuple[Any, ...]] = []
        self._acknowledging = "", 0  # session and epoch
        self._loop = SteppedLoop()
        environment = SessionEnvironment(
            ttl_s=TTL_S,
            checkpoint_interval_s=CHECKPOINT_S,
            garbage_interval_s=GARBAGE_S,
            continuity_interval_s=CONTINUITY_S,
            now=lambda: self._now,
            sleep=self._sleep,
            token=self._token,
        )
        self.node = SimulatedNode(process[0], self, environment, COUNTS, self._note_acknowledged)

    def apply(self, given: Input) -> View:
        self._now = given.now
        self._events = []
        asyncio._set_running_loop(self._loop)
        self._begin(given)
        self._loop.run_until_quiet()
        for context in self._loop.errors:
            self._events.append(("error", f"{context.get('message')}: {context.get('exception')!r}"))
        self._loop.errors.clear()
        return self._view()

    def _begin(self, given: Input) -> None:
        if given.kind in ("answer", "wake", "unknown"):
            future, _ = self._waiting.pop(given.number)
            if given.kind == "unknown":
                future.set_exception(StoreUnavailable("no answer in time"))
            else:
                future.set_result(given.value)
        else:
            COMMANDS[given.kind](self, given.value)

    def _view(self) -> View:
        self._waiting = {number: item for number, item in self._waiting.items() if not item[0].done()}
        node, session = self.node, self.node.session
        is_active = session is not None and session.phase == Phase.ACTIVE
        epoch = node._epochs.get(PARTITION)
        served = (epoch, node.values[PARTITION].get(KEY, 0)) if epoch is not None and PARTITION in node.values else None
        register = None if session is None else session.register.current
        nodes = () if session is None or register is None or not is_active else tuple(sorted(register.nodes))
        name = "" if session is None else session.name
        return View(
            tuple((number, operation) for number, (_, operation) in self._waiting.items()),
            served if is_active else None,
            str(node.damages) if node.damages else "",
            name if is_active else "",
            tuple(other for other in nodes if other != name),
            tuple(self._events),
        )

    # Commands --------------------------------------------------------------------------------------------------------

    def _start(self, _value: None) -> None:
        self._loop.create_task(self.node.run())

    def _commit(self, value: int) -> None:
        session = self.node.session
        self._acknowledging = "" if session is None else session.name, self.node._epochs.get(PARTITION, 0)
        task = self._loop.create_task(self.node.commit(PARTITION, KEY, value))
        task.add_done_callback(lambda done: self._note_answer(value, done.result()))

    def _note_answer(self, value: int, is_acknowledged: bool) -> None:
        if is_acknowledged:
            self._events.append(("acknowledged", *self._acknowledging, value))

    def _read(self, _value: None) -> None:
        number = self.node.read(PARTITION, KEY)
        if number is not None:
            self._events.append(("read", number))

    def _leave(self, _value: None) -> None:
        self._loop.create_task(self.node.leave())

    def _suspect(self, other: str) -> None:
        """Its watch would do it after a TTL of silence."""
        session = self.node.session
        if session is not None:
            session._start(f"end {other}", partial(session._end_other, other, None))

    def _note_acknowledged(self, session: str, partition: int, epoch: int) -> None:
        self._acknowledging = session, epoch

    # Environment and store -------------------------------------------------------------------------------------------

    def _token(self) -> bytes:
        self._tokens += 1
        return self.process.encode().ljust(4, b"\0") + self._tokens.to_bytes(4, "big")

    async def _sleep(self, seconds: float) -> None:
        if seconds != RETRY_S:
            await self._do("sleep", SLEEPS.get(seconds, "beat"), self._now + seconds)

    async def _do(self, kind: str, *arguments: Any) -> Any:
        self._number += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[self._number] = future, Operation(kind, arguments)
        return await future

    async def create(self, key: str, value: bytes) -> bool:
        return bool(await self._do("create", key, value))

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        return list(await self._do("get", *keys))

    async def put(self, key: str, value: bytes) -> None:
        await self._do("put", key, value)

    async def list(self, prefix: str, after: str = "") -> list[str]:
        return [key for key in await self._do("list", prefix) if key > after]

    async def delete(self, keys: Sequence[str]) -> None:
        if keys:
            await self._do("delete", *keys)

    async def sync(self) -> None:
        """A value that can be read is stored."""

    async def announce_change(self) -> None:
        """The own watch need not wait: its pause may end at once. The other nodes miss this hint, and look anyway."""
        for number, (future, operation) in self._waiting.items():
            if operation.arguments[:1] == ("look",):
                self._waiting[number] = future, Operation("sleep", ("look", self._now))

    async def wait_for_change(self, timeout_s: float) -> None:
        await self._do("sleep", "look", self._now + timeout_s)

    async def close(self) -> None:
        """Nothing to do."""


COMMANDS: Mapping[str, Callable[[NodeRun, Any], None]] = {
    "start": NodeRun._start,
    "commit": NodeRun._commit,
    "read": NodeRun._read,
    "leave": NodeRun._leave,
    "suspect": NodeRun._suspect,
}
