"""What ``callboard bench actors`` compares, and one design's work in a process of its own.

``python -m callboard.bench.actor_designs DESIGN ACTORS MESSAGES ASKS`` prints its figures as a line of JSON. The actors
of all designs do the same (``Part``): they count hits, pass tokens on and tell their count. At the end the counts must
add up to what was sent.
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

BURST = 200  # messages that a producer sends before it waits until they are handled, as a server that reads sockets
TOKENS = 64
STRIDE = 7919  # from who has a token to who gets it: a prime, so that tokens visit all and memory cannot be guessed
RESIDENT_BYTES_MIN = 4 << 20  # of growth; below, what the allocator keeps in reserve is larger than what is measured
WAIT_S = 300.0
WORKERS = 4
SEED = 5


class Hit(NamedTuple):
    """To be counted."""


class Token(NamedTuple):
    """To be passed on ``left`` times."""

    left: int


class Count(NamedTuple):
    """Asks how many hits there were."""


HIT, COUNT = Hit(), Count()


class Score:
    """What all parts of a play share: who they are, how to reach them, and when it is over.

    Parts may run on several threads: ``next(numbers)`` is one step of the interpreter, an addition is not.
    """

    def __init__(self, send: Callable[[Any, Any], object]) -> None:
        self.send = send
        self.players: list[Any] = []
        self.done: Callable[[], object] = lambda: None
        self.expect(0)

    def expect(self, total: int) -> None:
        self.total = total
        self.numbers = itertools.count(1)


class Part:
    """What an actor does, whoever runs it."""

    def __init__(self, index: int, score: Score) -> None:
        self.index = index
        self.score = score
        self.hits = 0

    def hit(self, _message: Hit) -> None:
        self.hits += 1
        score = self.score
        if next(score.numbers) == score.total:
            score.done()

    def pass_on(self, token: Token) -> None:
        score = self.score
        if token.left:
            players = score.players
            score.send(players[(self.index + STRIDE) % len(players)], Token(token.left - 1))
        elif next(score.numbers) == score.total:
            score.done()

    def count(self, _message: Count) -> int:
        return self.hits


METHODS: dict[type, Callable[[Any, Any], Any]] = {Hit: Part.hit, Token: Part.pass_on, Count: Part.count}


class Design:
    """Makes actors, lets them work, ends them. The methods return when all is done."""

    def __init__(self, send: Callable[[Any, Any], object]) -> None:
        self.score = Score(send)

    def start(self, count: int) -> None:
        """Make so many, and wait until the last of them answers."""
        raise NotImplementedError

    def hit_each(self, order: Sequence[int], burst: int) -> None:
        """A hit for each of ``order``, so many at a time: the next are sent when these have been handled."""
        raise NotImplementedError

    def pass_tokens(self, hops: int) -> None:
        """Let tokens go round until each was passed on ``hops`` times."""
        raise NotImplementedError

    def ask(self, index: int) -> int:
        """One question, for the check."""
        raise NotImplementedError

    def ask_each(self, order: Sequence[int]) -> list[int]:
        """Ask one after the other; ns from each question to its answer."""
        return [_timed(lambda index=index: self.ask(index)) for index in order]  # type: ignore[misc]

    def stop(self) -> None:
        """End all, youngest first."""
        raise NotImplementedError

    def bursts(self, order: Sequence[int], burst: int) -> Iterator[None]:
        """Send hits; yields after each burst, which must be handled before it goes on."""
        send, players = self.score.send, self.score.players
        for start in range(0, len(order), burst):
            part = order[start : start + burst]
            self.score.expect(len(part))
            for index in part:
                send(players[index], HIT)
            yield

    def send_tokens(self, hops: int) -> None:
        players = self.score.players
        self.score.expect(TOKENS)
        for number in range(TOKENS):
            self.score.send(players[number * len(players) // TOKENS], Token(hops))


# A bare deque ---------------------------------------------------------------------------------------------------------


class Floor(Design):
    """A deque of (part, message) and a loop: no stopping, no asking, no errors, no fairness. What nothing undercuts."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Part, Any]] = deque()
        super().__init__(lambda part, message: self.queue.append((part, message)))

    def start(self, count: int) -> None:
        self.score.players = [Part(index, self.score) for index in range(count)]

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
        self.score.send(self.score.players[index], COUNT)
        answer: int = self.run()
        return answer

    def stop(self) -> None:
        self.score.players.clear()


# Our actors -----------------------------------------------------------------------------------------------------------


class Player(Part, Actor):
    handlers = {Hit: "hit", Token: "pass_on", Count: "count"}

    def __init__(self, index: int, score: Score) -> None:
        Actor.__init__(self)
        Part.__init__(self, index, score)


class OnLoop(Design):
    """What works on an event loop. ``make_loop``: asyncio's, or another."""

    def __init__(self, send: Callable[[Any, Any], object], make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        super().__init__(send)
        self.loop = make_loop()
        self.over = asyncio.Event()
        self.score.done = self.over.set

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


class LoopActors(OnLoop):
    """``LoopDispatcher``."""

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        super().__init__(ActorRef.tell, make_loop)
        self.system = System.on_loop(self.loop)

    async def start_on_loop(self, count: int) -> None:
        self.score.players = [self.system.spawn(Player, index, self.score) for index in range(count)]
        await self.answer(count - 1)

    async def answer(self, index: int) -> int:
        answer: int = await self.score.players[index].ask(COUNT, block=False)
        return answer

    async def stop_on_loop(self) -> None:
        await self.system.stop()


class OffLoop(Design):
    """Actors that other threads run, or the simulation: a blocking ``ask`` is right."""

    def __init__(self, send: Callable[[Any, Any], object]) -> None:
        super().__init__(send)
        self.over = threading.Event()
        self.score.done = self.over.set

    def ask(self, index: int) -> int:
        answer: int = self.score.players[index].ask(COUNT)
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


class ThreadActors(OffLoop):
    """``ThreadsDispatcher``."""

    def __init__(self, workers: int = 1) -> None:
        super().__init__(ActorRef.tell)
        self.dispatcher = ThreadsDispatcher(workers)
        self.system = System(self.dispatcher)

    def start(self, count: int) -> None:
        self.score.players = [self.system.spawn(Player, index, self.score) for index in range(count)]
        self.ask(count - 1)

    def stop(self) -> None:
        self.system.stop_all()
        self.dispatcher.close()


class SimulatedActors(OffLoop):
    """``Simulation``: a random mailbox at a time, one message a turn."""

    def __init__(self) -> None:
        super().__init__(ActorRef.tell)
        self.simulation = Simulation(SEED)
        self.system = System(self.simulation)

    def start(self, count: int) -> None:
        self.score.players = [self.system.spawn(Player, index, self.score) for index in range(count)]
        self.wait()

    def wait(self) -> None:
        while self.simulation.step():
            pass

    def stop(self) -> None:
        self.system.stop_all()


# Others' --------------------------------------------------------------------------------------------------------------


class PykkaPlayer(Part, pykka.ThreadingActor):
    def __init__(self, index: int, score: Score) -> None:
        pykka.ThreadingActor.__init__(self)
        Part.__init__(self, index, score)

    def on_receive(self, message: Any) -> Any:
        return METHODS[type(message)](self, message)


class PykkaThreads(OffLoop):
    """Pykka's own actors, a thread for each, and its own registry."""

    def __init__(self) -> None:
        super().__init__(pykka.ActorRef.tell)

    def start(self, count: int) -> None:
        self.score.players = [PykkaPlayer.start(index, self.score) for index in range(count)]
        self.ask(count - 1)

    def stop(self) -> None:
        pykka.ActorRegistry.stop_all()


class Asked(NamedTuple):
    answer: asyncio.Future[int]


class Tasks(OnLoop):
    """A task with a queue for each: what one writes without an actor library."""

    def __init__(self, make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        super().__init__(asyncio.Queue.put_nowait, make_loop)
        self.tasks: list[asyncio.Task[None]] = []

    async def start_on_loop(self, count: int) -> None:
        self.score.players = [asyncio.Queue() for _ in range(count)]
        parts = (Part(index, self.score) for index in range(count))
        self.tasks = [
            self.loop.create_task(_play(part, queue)) for part, queue in zip(parts, self.score.players, strict=True)
        ]
        await self.answer(count - 1)

    async def answer(self, index: int) -> int:
        future: asyncio.Future[int] = self.loop.create_future()
        self.score.players[index].put_nowait(Asked(future))
        return await future

    async def stop_on_loop(self) -> None:
        for queue in reversed(self.score.players):
            queue.put_nowait(None)
        await asyncio.gather(*self.tasks)


async def _play(part: Part, queue: asyncio.Queue[Any]) -> None:
    while (message := await queue.get()) is not None:
        if type(message) is Asked:
            message.answer.set_result(part.count(COUNT))
        else:
            METHODS[type(message)](part, message)


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


DESIGNS: dict[str, Callable[[], Design]] = {
    "deque": Floor,
    "loop": LoopActors,
    "loop-uvloop": lambda: LoopActors(_uvloop),
    "threads": ThreadActors,
    "threads-4": lambda: ThreadActors(WORKERS),
    "simulation": SimulatedActors,
    "tasks": Tasks,
    "tasks-uvloop": lambda: Tasks(_uvloop),
    "pykka": PykkaThreads,
}

# Measuring ------------------------------------------------------------------------------------------------------------


def measure(name: str, count: int, messages: int, asks: int) -> dict[str, float | None]:
    """All of a design's work. Rates a second; times as the names say; bytes for each idle actor, None when too few."""
    chance = random.Random(SEED)
    order = [chance.randrange(count) for _ in range(messages)]
    design = DESIGNS[name]()
    gc.collect()
    before = resident_bytes(os.getpid())
    figures: dict[str, float | None] = {"start_us": _timed(lambda: design.start(count)) / 1e3 / count}
    figures["bytes"] = _grown(before, count)
    gc.freeze()  # as a server does that has started
    figures["flood_per_s"] = 1e9 * messages / _timed(lambda: design.hit_each(order, messages))
    figures["bursts_per_s"] = 1e9 * messages / _timed(lambda: design.hit_each(order, BURST))
    hops = -(-messages // TOKENS)
    figures["hops_per_s"] = 1e9 * hops * TOKENS / _timed(lambda: design.pass_tokens(hops))
    times = sorted(design.ask_each([chance.randrange(count) for _ in range(asks)]))
    figures["ask_p50_us"], figures["ask_p99_us"] = times[asks // 2] / 1e3, times[asks * 99 // 100] / 1e3
    _check(name, design, count, messages)
    figures["stop_s"] = _timed(design.stop) / 1e9
    return figures


def _check(name: str, design: Design, count: int, messages: int) -> None:
    hits = sum(design.ask(index) for index in range(count))
    if hits != 2 * messages:
        raise BenchError(f"{name}: {2 * messages} messages were sent to {count} actors, and they counted {hits}")


def _grown(before: int | None, count: int) -> float | None:
    gc.collect()
    after = resident_bytes(os.getpid())
    if before is None or after is None or after - before < RESIDENT_BYTES_MIN:
        return None
    return (after - before) / count


def _timed(work: Callable[[], object]) -> int:
    start = perf_counter_ns()
    work()
    return perf_counter_ns() - start


def main(argv: Sequence[str]) -> int:
    name, count, messages, asks = argv
    print(json.dumps(measure(name, int(count), int(messages), int(asks))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
