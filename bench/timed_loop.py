"""``callboard serve`` on an event loop that measures how long each callback holds it.

``python -m callboard.bench.timed_loop serve ...``: a line on standard input is answered by a line of JSON with what was
measured since the line before. Parts of a callback are measured, too: the turns of actors, and garbage collections.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import uvloop

LONG_NS = 1_000_000
"""A callback that takes longer counts as long."""
NAMED_NS = 100_000
"""Shorter callbacks are counted without their names, which would cost more than they take."""
TIMER_NS = 2_000_000
LATE_TIMER = "timer that was late"
SCHEDULING = {"call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1, "call_at": 1}
"""Methods of a loop, and the position of the callback in their arguments."""
PROTOCOL_METHODS = ("connection_made", "connection_lost", "data_received", "resume_writing")

_MEASURED = "_measured_by_bench"


class Hold(NamedTuple):
    """How long one callback, or a part of callbacks, held the loop at most.

    ``cpu_longest_ns``: the most CPU time of the loop's thread in one call, perhaps another one. In the rest of a call
    it waited: for a disk, a lock, or a processor. ``long`` and ``cpu_long``: how many calls took more than 1 ms.
    ``process_longest_ns``: as ``longest_ns``, but a call counts at most the CPU time of the whole process in it. So it
    has the wait for the interpreter's lock, and not that for a processor that other programs use.
    """

    name: str
    longest_ns: int = 0
    cpu_longest_ns: int = 0
    long: int = 0
    cpu_long: int = 0
    process_longest_ns: int = 0

    def with_call(self, elapsed_ns: int, cpu_ns: int, process_ns: int) -> Hold:
        return Hold(
            self.name,
            max(self.longest_ns, elapsed_ns),
            max(self.cpu_longest_ns, cpu_ns),
            self.long + (elapsed_ns > LONG_NS),
            self.cpu_long + (cpu_ns > LONG_NS),
            max(self.process_longest_ns, min(elapsed_ns, process_ns)),
        )


class HoldTimes:
    """What was measured since the last ``take``."""

    def __init__(self) -> None:
        self._callbacks = 0
        self._holds: dict[str, Hold] = {}

    def add(self, name: Callable[[], str], elapsed_ns: int, cpu_ns: int, process_ns: int) -> None:
        """``name`` makes the name; it is called for what takes 0.1 ms or more."""
        self._callbacks += 1
        if elapsed_ns >= NAMED_NS:
            key = name()
            self._holds[key] = self._holds.get(key, Hold(key)).with_call(elapsed_ns, cpu_ns, process_ns)

    def take(self) -> dict[str, Any]:
        """For JSON, the longest first. Called in another thread: what is added meanwhile may be lost."""
        callbacks, holds = self._callbacks, self._holds
        self._callbacks, self._holds = 0, {}
        ordered = sorted(holds.values(), key=lambda hold: hold.longest_ns, reverse=True)
        return {"callbacks": callbacks, "holds": [hold._asdict() for hold in ordered]}

    def measured(self, function: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """The function with its time measured. ``name`` gets the same arguments."""

        def run(*arguments: Any, **named: Any) -> Any:
            began = clocks_ns()
            try:
                return function(*arguments, **named)
            finally:
                self.add(lambda: name(*arguments, **named), *since(began))

        return run


def clocks_ns() -> tuple[int, int, int]:
    """The time, and the CPU time of the thread and of the process."""
    return time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns()


def since(began: tuple[int, int, int]) -> tuple[int, int, int]:
    now = clocks_ns()
    return now[0] - began[0], now[1] - began[1], now[2] - began[2]


def callback_name(callback: Any) -> str:
    """``Class.method`` of a callback; the coroutine of a task's step."""
    if isinstance(callback, partial):
        return callback_name(callback.func)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', '?')}"
    if owner is not None and not isinstance(owner, type):
        return f"{type(owner).__name__}.{getattr(callback, '__name__', '?')}"
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def measure_loop(loop: Any, times: HoldTimes) -> None:
    """Measure the callbacks that are scheduled on a loop, and those of the protocols of its servers."""
    for method, position in SCHEDULING.items():
        setattr(loop, method, _scheduling(getattr(loop, method), position, times))
    create_server = loop.create_server

    async def create_measured(protocol_factory: Callable[[], asyncio.Protocol], *arguments: Any, **named: Any) -> Any:
        def make() -> asyncio.Protocol:
            protocol = protocol_factory()
            measure_protocol(type(protocol), times)
            return protocol

        return await create_server(make, *arguments, **named)

    loop.create_server = create_measured


def _scheduling(schedule: Callable[..., Any], position: int, times: HoldTimes) -> Callable[..., Any]:
    def measured(*arguments: Any, **named: Any) -> Any:
        callback = arguments[position]
        run = times.measured(callback, lambda *_arguments: callback_name(callback))
        return schedule(*arguments[:position], run, *arguments[position + 1 :], **named)

    return measured


def measure_protocol(protocol: type[asyncio.Protocol], times: HoldTimes) -> None:
    """uvloop calls a protocol without a handle, so the methods of its class are measured."""
    if _MEASURED in protocol.__dict__:
        return
    setattr(protocol, _MEASURED, True)
    for method in PROTOCOL_METHODS:
        name = f"{protocol.__name__}.{method}"
        setattr(protocol, method, times.measured(getattr(protocol, method), _constant(name)))


def _constant(name: str) -> Callable[..., str]:
    return lambda *_arguments, **_named: name


def measure_waits(loop: asyncio.AbstractEventLoop, times: HoldTimes) -> None:
    """Measure by a timer how late a callback begins: the loop may wait for the interpreter's lock before it."""

    def start() -> None:
        loop.call_later(TIMER_NS / 1e9, late, clocks_ns())

    def late(began: tuple[int, int, int]) -> None:
        elapsed_ns, cpu_ns, process_ns = since(began)
        times.add(_constant(LATE_TIMER), max(elapsed_ns - TIMER_NS, 0), cpu_ns, process_ns)
        start()

    loop.call_soon(start)


def measure_turns(times: HoldTimes) -> None:
    """Measure what the mailbox of each actor does in one run: at most 64 messages."""
    from callboard.runtime.engine.mailbox import Mailbox

    run = times.measured(Mailbox.run, lambda mailbox, *_arguments: f"turns of {mailbox.actor_class.__name__}")
    setattr(Mailbox, "run", run)  # noqa: B010 (mypy refuses the assignment)


def measure_collections(times: HoldTimes) -> None:
    """Measure Python's garbage collections, in whichever thread they run."""
    began: list[tuple[int, int, int]] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            began.append(clocks_ns())
        elif began:
            name = f"garbage collection, generation {info['generation']}"
            times.add(_constant(name), *since(began.pop()))

    gc.callbacks.append(on_collection)


def _answer_orders(times: HoldTimes) -> None:
    for _ in sys.stdin:
        print(json.dumps(times.take()), flush=True)


def main() -> None:
    from callboard.runtime.cli.main import main as run_callboard

    times = HoldTimes()

    def new_loop() -> uvloop.Loop:
        loop = uvloop.Loop()
        measure_waits(loop, times)
        measure_loop(loop, times)
        return loop

    uvloop.new_event_loop = new_loop
    measure_turns(times)
    measure_collections(times)
    threading.Thread(target=_answer_orders, args=(times,), daemon=True).start()
    run_callboard()


if __name__ == "__main__":
    main()
