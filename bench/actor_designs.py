"""The designs that ``callboard bench actors`` compares, and the measurement of one design in a process of its own.

``python -m callboard.bench.actor_designs DESIGN ACTORS MESSAGES ASKS`` prints its figures as a line of JSON. The
actors of all designs do the same work (``Participant``): they count hits, pass tokens on and reply with their count.
At the end the counts must equal the number of messages sent.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

import pykka

from callboard.actors.base import Actor, ActorRef
from callboard.bench.harness import BenchError, resident_bytes
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System
from callboard.runtime.engine.threads import ThreadsDispatcher

BURST = 200  # messages sent before waiting until they are handled, like a server that reads sockets
TOKENS = 64
STRIDE = 7919  # between the indexes of two hops; a prime, so that tokens visit all actors in an unpredictable order
RESIDENT_BYTES_MIN = 4 << 20  # of growth; smaller values are hidden by the allocator's reserve
WAIT_S = 300.0
WORKERS = 4
SEED = 5


class Hit(NamedTuple):
    """A message to be counted."""


class Token(NamedTuple):
    """A message to be passed on ``left`` times."""

    left: int


class Count(NamedTuple):
    """A request for the number of hits."""


HIT, COUNT = Hit(), Count()


class SharedState:
    """Shared by all participants: their list, how to send to them, and the callback when all work is done.

    Participants may run on several threads. ``next(numbers)`` is atomic in the interpreter, an addition is not.
    """

    def __init__(self, send: Callable[[Any, Any], object]) -> None:
        self.send = send
        self.participants: list[Any] = []
        self.done: Callable[[], object] = lambda: None
        self.expect(0)

    def expect(self, total: int) -> None:
        self.total = total
        self.numbers = itertools.count(1)


class Participant:
    """The behaviour of an actor, independent of the design that runs it."""

    def __init__(self, index: int, shared: SharedState) -> None:
        self.index = index
        self.shared = shared
        self.hits = 0

    def hit(self, _message: Hit) -> None:
        self.hits += 1
        shared = self.shared
        if next(shared.numbers) == shared.total:
            shared.done()

    def pass_on(self, token: Token) -> None:
        shared = self.shared
        if token.left:
            participants = shared.participants
            shared.send(participants[(self.index + STRIDE) % len(participants)], Token(token.left - 1))
        elif next(shared.numbers) == shared.total:
            shared.done()

    def count(self, _message: Count) -> int:
        return self.hits


METHODS: dict[type, Callable[[Any, Any], Any]] = {
    Hit: Participant.hit,
    Token: Participant.pass_on,
    Count: Participant.count,
}


class ActorDesign:
    """Starts actors, gives them work and stops them. Each method returns when its work is done."""

    def __init__(self, send: Callable[[Any, Any], object]) -> None:
        self.shared = SharedState(send)

    def start(self, count: int) -> None:
        """Start ``count`` actors, and wait until the last one replies."""
        raise NotImplementedError

    def hit_each(self, order: Sequence[int], burst: int) -> None:
        """Send a hit to each actor in ``order``, in bursts; each burst is handled before the next is sent."""
        raise NotImplementedError

    def pass_tokens(self, hops: int) -> None:
        """Pass tokens on until each was passed ``hops`` times."""
        raise NotImplementedError

    def ask(self, index: int) -> int:
        """The number of hits of one actor."""
        raise NotImplementedError

    def ask_each(self, order: Sequence[int]) -> list[int]:
        """Ask actors one after the other; returns the time from each request to its reply in ns."""
        return [_timed(lambda index=index: self.ask(index)) for index in order]  # type: ignore[misc]

    def stop(self) -> None:
        """Stop all actors, the newest first."""
        raise NotImplementedError

    def bursts(self, order: Sequence[int], burst: int) -> Iterator[None]:
        """Send hits; yields after each burst, which the caller must let be handled."""
        send, participants = self.shared.send, self.shared.participants
        for start in range(0, len(order), burst):
            part = order[start : start + burst]
            self.shared.expect(len(part))
            for index in part:
                send(participants[index], HIT)
            yield

    def send_tokens(self, hops: int) -> None:
        participants = self.shared.participants
        self.shared.expect(TOKENS)
        for number in range(TOKENS):
            self.shared.send(participants[number * len(participants) // TOKENS], Token(hops))


# A bare deque ---------------------------------------------------------------------------------------------------------


class BareDeque(ActorDesign):
    """A deque of (participant, message) and a loop, without stopping, replies, errors or fairness: the lower bound."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Participant, Any]] = deque()
        super().__init__(lambda part, message: self.queue.append((part, message)))

    def start(self, count: int) -> None:
        self.shared.participants = [Participant(index, self.shared) for index in range(count)]

    def run(self) -> Any:
        queue, methods, answer = self.queue, METHODS, None
        while queue:
            part, message = queue.popleft()
            answer = methods[type(message)](part, message)
        return answer

    def hit_each(self, order: Sequence[int], burst: int) -> None:
        for _ in self.bursts(order, burst):
            self.run()

    def pass_tokens(self, hops: int) -> None:
        self.send_tokens(hops)
        self.run()

    def ask(self, index: int) -> int:
        self.shared.send(self.shared.participants[index], COUNT)
        answer: int = self.run()
        return answer

    def stop(self) -> None:
        self.shared.participants.clear()


# Our actors -----------------------------------------------------------------------------------------------------------


class ActorParticipant(Participant, Actor):
    handlers = {Hit: "hit", Token: "pass_on", Count: "count"}

    def __init__(self, index: int, shared: SharedState) -> None:
        Actor.__init__(self)
        Participant.__init__(self, index, shared)


class LoopDesign(ActorDesign):
    """A design on an event loop. ``make_loop`` makes asyncio's loop or another one."""

    def __init__(self, send: Callable[[Any, Any], object], make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        super().__init__(send)
        self.loop = make_loop()
        self.over = asyncio.Event()
        self.shared.done = self.over.set

    def start(self, count: int) -> None:
        self.loop.run_until_complete(self.start_on_loop(count))

    def hit_each(self, order: Sequence[int], burst: int) -> None:
        self.loop.run_until_complete(self.hit_on_loop(order, burst))

    def pass_tokens(self, hops: int) -> None:
        self.send_tokens(hops)
        self.loop.run_until_complete(self.wait())

    def ask(self, index: int) -> int:
        return self.loop.run_until_complete(self.answer(index))

    def ask_each(self, order: Sequence[int]) -> list[int]:
        return self.loop.run_until_complete(self.ask_on_loop(order))

    def stop(self) -> None:
        self.loop.run_until_complete(self.stop_on_loop())
        self.loop.close()

    async def start_on_loop(self, count: int) -> None:
        raise NotImplementedError

    async def answer(self, index: int) -> int:
        raise NotImplementedError

    async def stop_on_loop(self) -> None:
        raise NotImplementedError

    async def hit_on_loop(self, order: Sequence[int], burst: int) -> None:
        for _ in self.bursts(order, burst):
            await self.wait()

    async def wait(self) -> None:
        await self.over.wait()
        self.over.clear()

    async def ask_on_loop(self, order: Iterable[int]) -> list[int]:
        times = []
        for index in order:
            start = perf_counter_ns()
            await self.answer(index)
            times.append(perf_counter_ns() - start)
        return times


class LoopActors(LoopDesign):
    """``LoopDispatcher``."""

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        super().__init__(ActorRef.tell, make_loop)
        self.system = System.on_loop(self.loop)

    async def start_on_loop(self, count: int) -> None:
        self.shared.participants = [self.system.spawn(ActorParticipant, index, self.shared) for index in range(count)]
        await self.answer(count - 1)

    async def answer(self, index: int) -> int:
        answer: int = await self.shared.participants[index].ask(COUNT, block=False)
        return answer

    async def stop_on_loop(self) -> None:
        await self.system.stop()


class ThreadDesign(ActorDesign):
    """Actors that run on other threads or in the simulation, so that a blocking ``ask`` is allowed."""

    def __init__(self, send: Callable[[Any, Any], object]) -> None:
        super().__init__(send)
        self.over = threading.Event()
        self.shared.done = self.over.set

    def ask(self, index: int) -> int:
        answer: int = self.shared.participants[index].ask(COUNT)
        return answer

    def hit_each(self, order: Sequence[int], burst: int) -> None:
        for _ in self.bursts(order, burst):
            self.wait()

    def pass_tokens(self, hops: int) -> None:
        self.send_tokens(hops)
        self.wait()

    def wait(self) -> None:
        if not self.over.wait(WAIT_S):
            raise BenchError(f"{type(self).__name__}: not done within {WAIT_S:g} s")
        self.over.clear()


class ThreadActors(ThreadDesign):
    """``ThreadsDispatcher``."""

    def __init__(self, workers: int = 1) -> None:
        super().__init__(ActorRef.tell)
        self.dispatcher = ThreadsDispatcher(workers)
        self.system = System(self.dispatcher)

    def start(self, count: int) -> None:
        self.shared.participants = [self.system.spawn(ActorParticipant, index, self.shared) for index in range(count)]
        self.ask(count - 1)

    def stop(self) -> None:
        self.system.stop_all()
        self.dispatcher.close()


class SimulatedActors(ThreadDesign):
    """``Simulation``: one message of a random mailbox at a time."""

    def __init__(self) -> None:
        super().__init__(ActorRef.tell)
        self.simulation = Simulation(SEED)
        self.system = System(self.simulation)

    def start(self, count: int) -> None:
        self.shared.participants = [self.system.spawn(ActorParticipant, index, self.shared) for index in range(count)]
        self.wait()

    def wait(self) -> None:
        while self.simulation.step():
            pass

    def stop(self) -> None:
        self.system.stop_all()


# Others' --------------------------------------------------------------------------------------------------------------


class PykkaParticipant(Participant, pykka.ThreadingActor):
    def __init__(self, index: int, shared: SharedState) -> None:
        pykka.ThreadingActor.__init__(self)
        Participant.__init__(self, index, shared)

    def on_receive(self, message: Any) -> Any:
        return METHODS[type(message)](self, message)


class PykkaDesign(ThreadDesign):
    """Pykka's own actors, with a thread each, and its own registry."""

    def __init__(self) -> None:
        super().__init__(pykka.ActorRef.tell)

    def start(self, count: int) -> None:
        self.shared.participants = [PykkaParticipant.start(index, self.shared) for index in range(count)]
        self.ask(count - 1)

    def stop(self) -> None:
        pykka.ActorRegistry.stop_all()


class CountRequest(NamedTuple):
    answer: asyncio.Future[int]


class AsyncioTasks(LoopDesign):
    """A task and a queue for each actor: the usual design without an actor library."""

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        super().__init__(asyncio.Queue.put_nowait, make_loop)
        self.tasks: list[asyncio.Task[None]] = []

    async def start_on_loop(self, count: int) -> None:
        self.shared.participants = [asyncio.Queue() for _ in range(count)]
        parts = (Participant(index, self.shared) for index in range(count))
        self.tasks = [
            self.loop.create_task(_run_participant(part, queue))
            for part, queue in zip(parts, self.shared.participants, strict=True)
        ]
        await self.answer(count - 1)

    async def answer(self, index: int) -> int:
        future: asyncio.Future[int] = self.loop.create_future()
        self.shared.participants[index].put_nowait(CountRequest(future))
        return await future

    async def stop_on_loop(self) -> None:
        for queue in reversed(self.shared.participants):
            queue.put_nowait(None)
        await asyncio.gather(*self.tasks)


async def _run_participant(part: Participant, queue: asyncio.Queue[Any]) -> None:
    while (message := await queue.get()) is not None:
        if type(message) is CountRequest:
            message.answer.set_result(part.count(COUNT))
        else:
            METHODS[type(message)](part, message)


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


DESIGNS: dict[str, Callable[[], ActorDesign]] = {
    "deque": BareDeque,
    "loop": LoopActors,
    "loop-uvloop": lambda: LoopActors(_uvloop),
    "threads": ThreadActors,
    "threads-4": lambda: ThreadActors(WORKERS),
    "simulation": SimulatedActors,
    "tasks": AsyncioTasks,
    "tasks-uvloop": lambda: AsyncioTasks(_uvloop),
    "pykka": PykkaDesign,
}

# Measuring ------------------------------------------------------------------------------------------------------------


def measure(name: str, count: int, messages: int, ask_count: int) -> dict[str, float | None]:
    """Measure a design. Rates per second, times in the unit of their name; bytes per idle actor, None if too few."""
    chance = random.Random(SEED)
    order = [chance.randrange(count) for _ in range(messages)]
    design = DESIGNS[name]()
    gc.collect()
    bytes_before = resident_bytes(os.getpid())
    figures: dict[str, float | None] = {"start_us": _timed(lambda: design.start(count)) / 1e3 / count}
    figures["bytes"] = _grown(bytes_before, count)
    gc.freeze()  # as a server does after its start
    figures["flood_per_s"] = 1e9 * messages / _timed(lambda: design.hit_each(order, messages))
    figures["bursts_per_s"] = 1e9 * messages / _timed(lambda: design.hit_each(order, BURST))
    hops = -(-messages // TOKENS)
    figures["hops_per_s"] = 1e9 * hops * TOKENS / _timed(lambda: design.pass_tokens(hops))
    times = sorted(design.ask_each([chance.randrange(count) for _ in range(ask_count)]))
    figures["ask_p50_us"], figures["ask_p99_us"] = times[ask_count // 2] / 1e3, times[ask_count * 99 // 100] / 1e3
    _check(name, design, count, messages)
    figures["stop_s"] = _timed(design.stop) / 1e9
    return figures


def _check(name: str, design: ActorDesign, count: int, messages: int) -> None:
    answers = sum(design.ask(index) for index in range(count))
    if answers != 2 * messages:
        raise BenchError(f"{name}: {2 * messages} messages were sent to {count} actors, and they counted {answers}")


def _grown(bytes_before: int | None, count: int) -> float | None:
    gc.collect()
    bytes_after = resident_bytes(os.getpid())
    if bytes_before is None or bytes_after is None or bytes_after - bytes_before < RESIDENT_BYTES_MIN:
        return None
    return (bytes_after - bytes_before) / count


def _timed(work: Callable[[], object]) -> int:
    start = perf_counter_ns()
    work()
    return perf_counter_ns() - start


def main(argv: Sequence[str]) -> int:
    name, count, messages, ask_count = argv
    print(json.dumps(measure(name, int(count), int(messages), int(ask_count))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
