"""VirtualLoop: an asyncio event loop for simulations. Every run depends on its seed alone.

There is no real clock: when nothing is ready, time jumps to the next timer. There are no sockets and no threads. Timers
that are due at the same microsecond fire in an order that the seed chooses; ready callbacks run first in, first out, as
asyncio guarantees.

A simulated program has several processes on one loop. A context variable, which tasks and callbacks inherit, holds
the ``Process`` of a callback. A process can be frozen for a while, as by SIGSTOP, or killed: then none of its
code runs again, not even ``finally`` blocks, as after SIGKILL.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
import sys
import threading
from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_S = 1000
"""The first value of ``time()``. Not 0, which some programs treat as "never"."""

CALLBACKS_MAX = 100_000
"""So many callbacks without progress of time mean an endless loop."""

WAITING_SHOWN = 20
CLOSING_ROUNDS = 20  # of cancelling the remaining tasks; some of them may start more
START_WALL_MS = 1_700_000_000_000

_process: ContextVar[Process | None] = ContextVar("callboard_simulated_process", default=None)


class Stuck(RuntimeError):
    """The program cannot continue: nothing is ready and no timer is set. The text lists the waiting tasks."""


class Process:
    """A process of a simulated program. Tasks and callbacks that are started in it belong to it."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self.context = copy_context()
        self.context.run(_process.set, self)
        self.held: list[Handle] = []
        self.freezes = 0
        self._frozen_s = 0.0
        self._loop = loop
        loop.processes.append(self)

    def start(self, coro: Coroutine[Any, Any, T], name: str | None = None) -> Task[T]:
        """Start a task in this process."""
        task: Task[T] = self._loop.create_task(coro, name=name or self.name, context=self.context.copy())
        return task

    def call(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a function in this process, soon."""
        self._loop.call_soon(callback, *args, context=self.context)

    def freeze(self) -> None:
        """Suspend the process until ``thaw``. Time continues."""
        self.is_frozen = True
        self.freezes += 1
        self._frozen_s = self._loop.time()

    def thaw(self, timers_stood_still: bool = False) -> None:
        """Resume. The timers that came due fire now, as after SIGSTOP.

        ``timers_stood_still``: all timers fire later by the time in which the process was frozen, as those of an event
        loop whose machine was suspended: its monotonic clock stood still.
        """
        self.is_frozen = False
        self._loop.release(self, self._loop.time() - self._frozen_s if timers_stood_still else 0.0)

    def kill(self) -> None:
        """End the process: none of its callbacks runs again."""
        self.is_dead = True


class VirtualTask(Task[T]):
    """A task with its number as hash: addresses, and so the order of sets, differ between runs."""

    def __init__(self, coro: Coroutine[Any, Any, T], loop: VirtualLoop, number: int, **options: Any) -> None:
        self.number = number
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


class VirtualFuture(Future[T]):
    """A future with a number as hash, as ``VirtualTask``. The loop sets it: a constructor would take longer."""

    number = 0

    def __hash__(self) -> int:
        return self.number


def not_simulated(name: str) -> Any:
    """Make a method that raises: it would use resources outside the simulation."""

    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise RuntimeError(
            f"{name}() on a virtual loop: a simulation has no sockets, processes and signals; "
            "give the code under test an object of the simulation instead, or simulate that part of it"
        )

    return refuse


class VirtualLoop(AbstractEventLoop):
    """See the module. ``errors``: contexts passed to the exception handler for uncaught errors."""

    add_reader = add_writer = remove_reader = remove_writer = not_simulated("add_reader")
    add_signal_handler = remove_signal_handler = not_simulated("add_signal_handler")
    connect_read_pipe = connect_write_pipe = not_simulated("connect_read_pipe")
    create_connection = create_unix_connection = not_simulated("create_connection")
    create_datagram_endpoint = not_simulated("create_datagram_endpoint")
    create_server = create_unix_server = not_simulated("create_server")
    connect_accepted_socket = start_tls = sendfile = not_simulated("start_tls")
    getaddrinfo = getnameinfo = not_simulated("getaddrinfo")
    sock_accept = sock_connect = sock_recv = sock_recv_into = sock_sendall = not_simulated("sock_connect")
    set_default_executor = not_simulated("set_default_executor")
    sock_recvfrom = sock_recvfrom_into = sock_sendto = sock_sendfile = not_simulated("sock_sendto")
    subprocess_exec = subprocess_shell = not_simulated("subprocess_exec")

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.errors: list[dict[str, Any]] = []
        self.callbacks = 0
        self.processes: list[Process] = []
        self._now_us = START_S * 1_000_000
        self._draw_order = random.Random(f"{seed}/loop").random
        self._ready: deque[tuple[Handle, Process | None]] = deque()
        self._timers: list[tuple[int, float, int, TimerHandle, Process | None]] = []
        self.next_number = itertools.count(1).__next__
        self._tasks: dict[int, VirtualTask[Any]] = {}
        self._generators: WeakValueDictionary[int, AsyncGenerator[Any, Any]] = WeakValueDictionary()
        self._is_running = self._is_closed = self._is_stopping = self._is_debug = False
        self._thread_id = threading.get_ident()
        self._handler: Callable[[AbstractEventLoop, dict[str, Any]], object] | None = None
        self._task_factory: Callable[..., Future[Any]] | None = None

    # Time ------------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_us / 1_000_000

    def now_ms(self) -> int:
        """``time()`` in whole milliseconds."""
        return self._now_us // 1000

    # Callbacks and tasks ---------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Handle:
        if self._is_closed:
            self._check(callback)
        if context is None:
            context = copy_context()
        handle = Handle(callback, args, self, context)
        self._ready.append((handle, context.get(_process)))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self._now_us / 1_000_000 + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        if self._is_closed:
            self._check(callback)
        if context is None:
            context = copy_context()
        handle = TimerHandle(when, callback, args, self, context)
        self._add_timer(when, handle, context.get(_process))
        return handle

    def _add_timer(self, when: float, handle: TimerHandle, process: Process | None) -> None:
        due_us = int(when * 1_000_000)
        if due_us / 1_000_000 < when:  # never early: programs would set the timer again, endlessly
            due_us += 1
        if due_us < self._now_us:
            due_us = self._now_us
        heappush(self._timers, (due_us, self._draw_order(), self.next_number(), handle, process))

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        if threading.get_ident() != self._thread_id:
            raise RuntimeError(
                f"{callback!r} comes from the thread {threading.current_thread().name!r}: a virtual loop has one "
                "thread, so that runs are reproducible; do the work on the loop, or replace it in the simulation"
            )
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> Future[T]:
        """Run the function at once: there are no threads, and no time passes."""
        future: Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Called by asyncio. The timer stays in the heap and does nothing."""

    def _check(self, callback: object) -> None:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        if not callable(callback):
            raise TypeError(f"a callable is expected, not {callback!r}")

    def create_future(self) -> Future[Any]:
        future: VirtualFuture[Any] = VirtualFuture(loop=self)
        future.number = self.next_number()
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        self._check(Task)
        if self._task_factory is not None:
            return self._task_factory(self, coro, **({} if context is None else {"context": context}))
        number = self.next_number()
        task: VirtualTask[Any] = VirtualTask(coro, self, number, name=name or f"task-{number}", context=context)
        self._tasks[number] = task
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: VirtualTask[Any]) -> None:
        self._tasks.pop(task.number, None)

    # Running ---------------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Raises ``Stuck`` if the future can never be done, RuntimeError if the loop was stopped before."""
        is_new = not asyncio.isfuture(future)
        task: Future[Any] = self.create_task(future) if is_new else future
        task.add_done_callback(self._stop)
        try:
            self.run_forever()
        except BaseException:
            if is_new and task.done() and not task.cancelled():
                task.exception()  # the error is raised here anyway
            raise
        finally:
            task.remove_done_callback(self._stop)
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()

    def run_forever(self) -> None:
        self._check(print)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=self._generator_ends)
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            self._run()
        finally:
            self._is_running = self._is_stopping = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _run(self) -> None:
        ready = self._ready
        callbacks_at_this_time = 0
        while not self._is_stopping:
            if not ready:
                if self._pass_time():
                    self.callbacks += callbacks_at_this_time
                    callbacks_at_this_time = 0
                continue
            handle, process = ready.popleft()
            if process is not None and (process.is_dead or process.is_frozen):
                process.held.append(handle)
                continue
            if not handle.cancelled():
                handle._run()
            callbacks_at_this_time += 1
            if callbacks_at_this_time > CALLBACKS_MAX:
                raise Stuck(f"{CALLBACKS_MAX} callbacks and no time passes, the last was {handle!r}")
        self.callbacks += callbacks_at_this_time

    def _pass_time(self) -> bool:
        """Jump to the next timer, and make all due timers ready. Returns whether time has passed."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][3].cancelled():
            heappop(timers)
        if not timers:
            raise Stuck(f"nothing is ready and no timer is set, so these tasks wait for ever:\n{self.waiting()}")
        before_us, now_us = self._now_us, max(self._now_us, timers[0][0])
        self._now_us = now_us
        while timers and timers[0][0] <= now_us:
            _, _, _, handle, process = heappop(timers)
            if not handle.cancelled():
                ready.append((handle, process))
        return now_us > before_us

    def release(self, process: Process, timers_late_s: float = 0.0) -> None:
        """Make the callbacks ready that were held while the process was frozen. Postpone its timers, if they are late.

        Those that have come due keep their order.
        """
        handles, process.held = process.held, []
        if timers_late_s:
            late_us = round(timers_late_s * 1_000_000)
            self._timers = [
                (due_us + late_us if owner is process else due_us, order, number, handle, owner)
                for due_us, order, number, handle, owner in self._timers
            ]
            heapify(self._timers)
        for handle in handles:
            if timers_late_s and isinstance(handle, TimerHandle):
                self._add_timer(handle.when() + timers_late_s, handle, process)
            else:
                self._ready.append((handle, process))

    def waiting(self) -> str:
        """The waiting tasks and where they wait, one a line."""
        lines = [f"  {_describe_task(task)}" for task in self._tasks.values()]
        omitted = [f"  and {len(lines) - WAITING_SHOWN} more"] if len(lines) > WAITING_SHOWN else []
        return "\n".join(lines[:WAITING_SHOWN] + omitted) or "  (no task)"

    def _stop(self, _future: object) -> None:
        self._is_stopping = True

    def stop(self) -> None:
        self._is_stopping = True

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    def end(self) -> None:
        """Cancel all remaining tasks, also those of killed processes, and close. Their errors are ignored."""
        self._timers.clear()
        for _ in range(CLOSING_ROUNDS):
            tasks = list(self._tasks.values())
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            for process in self.processes:
                self.release(process)
            self._run_ready_callbacks()
        for task in self._tasks.values():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro: Any = task.get_coro()
            if inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                coro.close()  # its process was killed before the task began
        self._run_ready_callbacks()
        self.close()

    def _run_ready_callbacks(self) -> None:
        """Run ready callbacks, also those of dead processes. No time passes."""
        asyncio._set_running_loop(self)
        try:
            for _ in range(CALLBACKS_MAX):
                if not self._ready:
                    return
                handle, _ = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)

    # Other methods of event loops ------------------------------------------------------------------------------------

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[self.next_number()] = generator

    def _generator_ends(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._is_closed:
            self.create_task(generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        for _, generator in sorted(self._generators.items(), key=lambda item: item[0]):
            await generator.aclose()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is no executor."""

    def get_debug(self) -> bool:
        return self._is_debug

    def set_debug(self, enabled: bool) -> None:
        self._is_debug = enabled

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    def set_exception_handler(self, handler: Any) -> None:
        self._handler = handler

    def get_exception_handler(self) -> Any:
        return self._handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)


class LoopClock:
    """An ``actors.engine_ports.Clock`` that follows a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.monotonic_ms = loop.now_ms

    def wall_ms(self) -> int:
        return START_WALL_MS + self.monotonic_ms()


def current_process() -> Process | None:
    """The process of the caller."""
    return _process.get()


def run(coro: Coroutine[Any, Any, T], seed: int = 0) -> T:
    """``asyncio.run`` on a virtual loop. Also raises errors of callbacks and of tasks that were not awaited."""
    loop = VirtualLoop(seed)
    try:
        result: T = loop.run_until_complete(coro)
    finally:
        errors = list(loop.errors)
        loop.end()
    raise_first_error(errors)
    return result


def raise_first_error(errors: list[dict[str, Any]]) -> None:
    """Raise the first of the uncaught errors."""
    for context in errors:
        raise RuntimeError(f"{context.get('message')}: {context.get('exception')!r}") from context.get("exception")


def _describe_task(task: Task[Any]) -> str:
    """The name of a task, and the chain of coroutines in which it waits."""
    awaited: Any = task.get_coro()
    names: list[str] = []
    location = ""
    while isinstance(awaited, Coroutine | Generator) and (frame := _frame_of(awaited)) is not None:
        code = frame.f_code
        names.append(code.co_qualname)
        location = f"{code.co_filename}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return f"{task.get_name()} in {' > '.join(names) or 'a coroutine that has not started'} ({location})"


def _frame_of(awaited: Any) -> Any:
    return getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
