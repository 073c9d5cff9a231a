"""Engines on event loops: one loop without anything else, one with a lock per group, and one loop per partition.

``PlainLoopEngine`` is the least that an event loop needs: calls in a queue, on one thread. Compared with it, the
figures of ``actor-loop`` show what a mailbox for each group costs.

``AsyncioLockEngine`` is the usual design of a service on asyncio. Nothing awaits while it holds a lock, so locks are
never contended; their uncontended cost and the cost of the tasks are measured.

``PartitionLoopEngine`` is Kafka's design (CoordinatorRuntime): several threads, each of which takes events from its own
queue and is the only one to access the groups of its partitions. Such a loop waits for a queue and not for sockets, so
it is a thread with a ``SimpleQueue``; waking an asyncio loop from another thread would cost a system call.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent.futures import TimeoutError as NotInTime
from queue import SimpleQueue
from time import perf_counter
from typing import Any
from zlib import crc32

from callboard.actors.engine_ports import ReplyTo
from callboard.bench.concurrency.cell import Answers, Append, Cell, Request, deliver
from callboard.bench.concurrency.clients import Client, ClientRunner, LoopClientRunner, RunState
from callboard.bench.concurrency.engines import BARRIER_S, WORKERS, Engine
from callboard.bench.concurrency.services import LoopTimer, ThreadTimer

PULSE_S = 0.002
"""Interval of measuring a loop's delay; shorter pauses may be missed."""


SLICE_S = 0.002
"""How long the plain loop handles events before other callbacks run, as the dispatcher of actors."""

Event = tuple[Callable[..., Answers], tuple[Any, ...]]


class LoopEngine(Engine):
    """An asyncio loop on its own thread, which runs cells, clients and timer."""

    def prepare(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pause_s = 0.0
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)
        self._thread.start()
        self.timer = LoopTimer(self.loop, self.clock, self.expired)
        self.run_on_engine_thread(self._pulse)

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def run_on_engine_thread(self, work: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result()

    def runners(self, run_state: RunState, clients: Sequence[Client]) -> list[ClientRunner]:
        return [LoopClientRunner(run_state, clients, self.submit, self.loop)]

    def written(self, appends: Sequence[Append]) -> None:
        self.loop.call_soon_threadsafe(self.on_round_written, appends)

    @abstractmethod
    def on_round_written(self, appends: Sequence[Append]) -> None:
        """As ``written``, but called on the loop."""

    def wait_for(self, waiting: Coroutine[Any, Any, Any]) -> bool:
        """Run a coroutine on the loop; False after a timeout."""
        try:
            asyncio.run_coroutine_threadsafe(waiting, self.loop).result(BARRIER_S)
        except NotInTime:
            return False
        return True

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(BARRIER_S)

    @property
    def loop_pause_s(self) -> float:
        return self._pause_s

    def reset_counters(self) -> None:
        self._pause_s = 0.0

    def _pulse(self) -> None:
        self.loop.call_later(PULSE_S, self._record_delay, self.loop.time() + PULSE_S)

    def _record_delay(self, due: float) -> None:
        self._pause_s = max(self._pause_s, self.loop.time() - due)
        self._pulse()


class PlainLoopEngine(LoopEngine):
    """One queue of calls for all groups. The loop's only thread makes it unnecessary to serialise them further."""

    def prepare(self) -> None:
        self._cells: dict[str, Cell] = {}
        self._events: deque[Event] = deque()
        self._is_scheduled = False
        super().prepare()

    def add_cell(self, cell: Cell) -> None:
        self._cells[cell.group_id] = cell

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        self._put(self._cells[request.group_id].handle, request, reply_to)

    def on_round_written(self, appends: Sequence[Append]) -> None:
        for append in appends:
            self._put(append.cell.written, append)

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self._put(cell.expired, names)

    def barrier(self) -> bool:
        return self.wait_for(self._all_handled())

    async def _all_handled(self) -> None:
        await asyncio.sleep(0)  # lets callbacks scheduled by the writer's thread run first
        while self._events:
            await asyncio.sleep(0)

    def _put(self, decide: Callable[..., Answers], *message: Any) -> None:
        self._events.append((decide, message))
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._handle_events)

    def _handle_events(self) -> None:
        """Handle events for one slice; then the loop's other callbacks run."""
        events, deadline_s = self._events, perf_counter() + SLICE_S
        while events and perf_counter() < deadline_s:
            decide, message = events.popleft()
            deliver(decide(*message))
        self._is_scheduled = bool(events)
        if events:
            self.loop.call_soon(self._handle_events)


class AsyncioLockEngine(LoopEngine):
    """One asyncio.Lock per group, and a task for each turn."""

    def prepare(self) -> None:
        self._cells: dict[str, tuple[Cell, asyncio.Lock]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # the loop has only weak references to tasks
        self._wait_s = 0.0
        super().prepare()

    def add_cell(self, cell: Cell) -> None:
        self._cells[cell.group_id] = (cell, asyncio.Lock())

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        cell, lock = self._cells[request.group_id]
        self._start(lock, cell.handle, request, reply_to)

    def on_round_written(self, appends: Sequence[Append]) -> None:
        for append in appends:
            self._start(self._cells[append.cell.group_id][1], append.cell.written, append)

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self._start(self._cells[cell.group_id][1], cell.expired, names)

    def _start(self, lock: asyncio.Lock, decide: Callable[..., Answers], *message: Any) -> None:
        task = self.loop.create_task(self._turn(lock, decide, *message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turn(self, lock: asyncio.Lock, decide: Callable[..., Answers], *message: Any) -> None:
        if lock.locked():
            began = perf_counter()
            await lock.acquire()
            self._wait_s += perf_counter() - began
        else:
            await lock.acquire()
        try:
            answers = decide(*message)
        finally:
            lock.release()
        deliver(answers)

    def barrier(self) -> bool:
        return self.wait_for(self._all_done())

    async def _all_done(self) -> None:
        await asyncio.sleep(0)  # lets callbacks scheduled by the writer's thread run first
        while self._tasks:
            await asyncio.gather(*self._tasks)

    @property
    def lock_wait_s(self) -> float:
        return self._wait_s

    def reset_counters(self) -> None:
        super().reset_counters()
        self._wait_s = 0.0


class PartitionLoop:
    """A thread that handles the events of its groups from one queue."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self.put = self._queue.put
        self.pause_s = 0.0
        self._thread = threading.Thread(target=self._run, name="partition", daemon=True)
        self._thread.start()

    def measure_delay(self) -> None:
        """Measure how long an event waits in the queue."""
        self._queue.put((self._record_delay, (perf_counter(),)))

    def signal_when_reached(self, event: threading.Event) -> None:
        """Set ``event`` when all events queued before are handled."""
        self._queue.put((_set, (event,)))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(BARRIER_S)

    def _record_delay(self, sent_s: float) -> Answers:
        self.pause_s = max(self.pause_s, perf_counter() - sent_s)
        return ()

    def _run(self) -> None:
        take = self._queue.get
        while (event := take()) is not None:
            decide, message = event
            deliver(decide(*message))


def _set(event: threading.Event) -> Answers:
    event.set()
    return ()


class PartitionLoopEngine(Engine):
    """As many loops as other engines have workers. A group's loop depends on the hash of its name."""

    loops = WORKERS

    def prepare(self) -> None:
        self.timer = ThreadTimer(self.clock, self.expired)
        self._loops = [PartitionLoop() for _ in range(self.loops)]
        self._cells: dict[str, tuple[Cell, PartitionLoop]] = {}
        self._ending = threading.Event()
        self._pulses = threading.Thread(target=self._pulse, name="pulse", daemon=True)
        self._pulses.start()

    def add_cell(self, cell: Cell) -> None:
        self._cells[cell.group_id] = (cell, self._loops[crc32(cell.group_id.encode()) % self.loops])

    def submit(self, request: Request, reply_to: ReplyTo) -> None:
        cell, loop = self._cells[request.group_id]
        loop.put((cell.handle, (request, reply_to)))

    def written(self, appends: Sequence[Append]) -> None:
        for append in appends:
            cell, loop = self._cells[append.cell.group_id]
            loop.put((cell.written, (append,)))

    def expired(self, cell: Cell, names: Sequence[Hashable]) -> None:
        self._cells[cell.group_id][1].put((cell.expired, (names,)))

    def barrier(self) -> bool:
        waiting = [threading.Event() for _ in self._loops]
        for loop, event in zip(self._loops, waiting, strict=True):
            loop.signal_when_reached(event)
        return all(event.wait(BARRIER_S) for event in waiting)

    def end(self) -> None:
        self._ending.set()
        self._pulses.join(BARRIER_S)
        for loop in self._loops:
            loop.close()

    def _pulse(self) -> None:
        while not self._ending.wait(PULSE_S):
            for loop in self._loops:
                loop.measure_delay()

    @property
    def loop_pause_s(self) -> float:
        return max(loop.pause_s for loop in self._loops)

    def reset_counters(self) -> None:
        for loop in self._loops:
            loop.pause_s = 0.0
