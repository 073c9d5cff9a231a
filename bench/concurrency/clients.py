"""The load: clients with one request in flight each, in a closed or an open loop.

In a closed loop a client sends its next request when it has the response. In an open loop its requests are due at fixed
times, so that all clients together send a given number per second. A request whose time has passed is sent at once.

A client is a script: a generator that yields requests and receives the responses. A runner runs the scripts of many
clients on one thread and measures latencies. For engines on a loop, runners are on the loop's thread, where sockets
would be; for threaded engines, on two threads of their own, like Kafka's network threads. So a request to a threaded
engine crosses threads twice, as in a server, and one to a loop does not. The number in flight is the same for all.

Latency is the time from the submission of a request to the arrival of its response at the client. In an open loop it
begins when the request was due: otherwise a pause of the engine would delay requests without being measured, since
their clients wait for responses (coordinated omission).
"""

from __future__ import annotations

import sys
import threading
import time
from array import array
from asyncio import AbstractEventLoop
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import Any, NamedTuple, NoReturn

from callboard.bench.concurrency.cell import Bug, Request
from callboard.bench.concurrency.services import DurableState, LabClock

Script = Generator[Request, Any, None]

TICK_S = 0.001
"""How long an open loop waits at most before it looks whether the time is up."""

START_STEPS = 8
"""The number of steps in which a runner starts its clients. A single step would block an engine on the same loop."""


class RunState:
    """State shared by the clients of one run."""

    def __init__(self, group_ids: Iterable[str], recorded: Iterable[int] = ()) -> None:
        """``recorded``: numbers of the groups whose requests and responses are kept for the oracle."""
        self.numbers: Mapping[str, int] = {group_id: number for number, group_id in enumerate(group_ids)}
        self.recorded = frozenset(recorded)
        self.interval_ns = 0
        """Between two requests of a client in an open loop; 0: a closed loop."""
        self.end_ns = 0
        """When the time was up, of ``perf_counter_ns``; 0 before."""
        self.clock = LabClock()
        """The engine's clock; until ``observe`` a paused one."""
        self.durable: DurableState | None = None
        """What the engine's writer has written; None without an engine."""

    @property
    def over(self) -> bool:
        """Whether the time is up. Scripts check it before each new step."""
        return self.end_ns > 0

    def observe(self, clock: LabClock, durable: DurableState) -> None:
        """Compare the responses of an engine with its clock and its writer from now on."""
        self.clock, self.durable = clock, durable


class JoinResult(NamedTuple):
    """A member's successful JoinGroup response."""

    group_id: str
    generation: int
    member_id: str
    leader_id: str
    member_ids: tuple[str, ...]  # for the leader only


class Exchange(NamedTuple):
    """A request of a recorded group, and its response."""

    request: Request
    answer: Any


class WrongAnswer(Exception):
    """Ends a script after a wrong response."""


class Ledger:
    """The acknowledged results of one client, which the oracle compares with the groups."""

    def __init__(self) -> None:
        self.acked: dict[tuple[str, int], int] = {}
        """The last acknowledged offset, by group and partition."""
        self.commits: dict[str, int] = {}
        """The number of acknowledged offsets, by group."""
        self.generations: dict[str, int] = {}
        """The last generation in a response to this client, by group."""
        self.joined: dict[str, set[str]] = {}
        """The joined members of this client, by group; an empty set if all have left."""
        self.heartbeats_ms: dict[tuple[str, str], int] = {}
        """When the last acknowledged heartbeat was sent, by group and member, on the engine's clock."""
        self.told: list[JoinResult] = []
        self.unexpected: list[str] = []
        """Responses that a correct coordinator never sends; the client stops after the first."""

    def fail_on_response(self, answer: object, request: object) -> NoReturn:
        """Record an unexpected response. Raises WrongAnswer."""
        self.unexpected.append(f"{request} was answered {answer}")
        raise WrongAnswer


class Client:
    """A script and its ledger."""

    __slots__ = ("ledger", "script")

    def __init__(self, script: Callable[[Ledger], Script]) -> None:
        self.ledger = Ledger()
        self.script = script(self.ledger)


class ResponseSlot:
    """Receives the response to one request: a ``ReplyTo`` that detects a second response."""

    __slots__ = ("answered", "client", "group", "issued_ns", "request", "sink")

    def __init__(self, client: Client, request: Request, group: int, sink: Callable[[tuple[ResponseSlot, Any]], None]):
        self.client = client
        self.request = request
        self.group = group
        self.sink = sink
        self.answered = False
        self.issued_ns = 0  # 0: submitted after the time was up, not measured

    def set(self, value: Any = None) -> None:
        self.sink((self, value))

    def set_exception(self, exc_info: Any = None) -> None:
        self.sink((self, Bug(f"{exc_info[1]!r}" if exc_info else "an unknown error")))


Submit = Callable[[Request, ResponseSlot], None]


class Schedule:
    """The requests of an open loop that are not due yet. The clients begin one after another within an interval.

    Time counts from the first request.
    """

    def __init__(self, interval_ns: int, clients: int) -> None:
        self.is_counted = False
        """Whether the requests that were not sent at the end were counted."""
        self._interval_ns = interval_ns
        self._begun = 0
        self._first_ns = 0
        self._clients = clients
        self._due_ns: dict[Client, int] = {}
        self._waiting: list[tuple[int, int, Client, Request]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, client: Client, request: Request) -> None:
        """Put the next request of a client on the schedule."""
        due_ns = self._due_ns.get(client)
        if due_ns is None:
            self._first_ns = self._first_ns or perf_counter_ns()
            due_ns = self._first_ns + self._interval_ns * self._begun // self._clients
            self._begun += 1
        self._due_ns[client] = due_ns + self._interval_ns
        heappush(self._waiting, (due_ns, id(client), client, request))

    def wait_s(self) -> float:
        """How long to wait for the next request, at most ``TICK_S``. May be called on any thread."""
        first = self._waiting[:1]
        return max(min((first[0][0] - perf_counter_ns()) / 1e9, TICK_S), 0.0) if first else TICK_S

    def overdue_ns(self, end_ns: int) -> Iterator[int]:
        """When each request was due that was due by the end and is not sent."""
        yield from (due_ns for due_ns, *_ in self._waiting if due_ns <= end_ns)
        for next_ns in self._due_ns.values():
            yield from range(next_ns, end_ns + 1, self._interval_ns)

    def take_due(self, now_ns: int) -> Iterator[tuple[int, Client, Request]]:
        """Take the requests that are due by a time, each with the time at which it was due."""
        while self._waiting and self._waiting[0][0] <= now_ns:
            due_ns, _, client, request = heappop(self._waiting)
            yield due_ns, client, request


class Measurements:
    """What one runner measured. ``recorded``: numbers of the groups whose exchanges are kept."""

    def __init__(self, recorded: Collection[int]) -> None:
        self.latencies_ns = array("q")
        self.groups = array("l")
        """Of each latency, its group."""
        self.groups_after = array("l")
        """Of each answer that is not measured, its group."""
        self.unsent_ns = array("q")
        """Of each request of an open loop that was due and never sent, its age at the end."""
        self.last_answer_ns = 0
        self.exchanges: list[Exchange] = []
        self._recorded = recorded

    def add(self, slot: ResponseSlot, answer: Any, now_ns: int) -> None:
        """Record a response."""
        if slot.issued_ns:
            self.latencies_ns.append(now_ns - slot.issued_ns)
            self.groups.append(slot.group)
            self.last_answer_ns = now_ns
        else:
            self.groups_after.append(slot.group)
        if slot.group in self._recorded:
            self.exchanges.append(Exchange(slot.request, answer))


class ClientRunner:
    """Runs the scripts of many clients on one thread. Not thread-safe, except ``ThreadClientRunner._inbox``."""

    def __init__(self, run_state: RunState, clients: Sequence[Client], submit: Submit) -> None:
        self.clients = clients
        self.measured = Measurements(run_state.recorded)
        self.in_flight = 0
        self.second_answers: list[str] = []
        self.finished = threading.Event()
        self._stage = run_state
        self._submit = submit
        self._sink: Callable[[tuple[ResponseSlot, Any]], None] = self.settle
        self._all_begun = False
        self._held: list[tuple[Client, Any]] = []  # answered before all had begun
        self._beginnings = self._begin_all()
        self._schedule = Schedule(run_state.interval_ns, len(clients)) if run_state.interval_ns else None

    def start(self) -> None:
        """Start the clients; ``finished`` is set when every script has ended. Called from another thread."""
        raise NotImplementedError

    def start_next_clients(self) -> bool:
        """Start the scripts of the next clients; False if there are no more."""
        next_clients = list(islice(self._beginnings, len(self.clients) // START_STEPS + 1))
        for client, answer in next_clients:
            self._go_on(client, answer)
        return bool(next_clients)

    def _begin_all(self) -> Iterator[tuple[Client, Any]]:
        """All clients send their first request before any sends a second, so that the number in flight is reached."""
        for client in self.clients:
            yield client, None
        self._all_begun = True
        yield from self._held

    def settle(self, response: tuple[ResponseSlot, Any]) -> None:
        """Handle a response: record it and resume the script."""
        slot, answer = response
        now_ns = perf_counter_ns()
        if slot.answered:
            self.second_answers.append(f"{slot.request} was answered again: {answer}")
            return
        slot.answered = True
        self.in_flight -= 1
        self.measured.add(slot, answer, now_ns)
        if isinstance(answer, Bug):
            slot.client.ledger.unexpected.append(f"{slot.request} was answered {answer}")
        elif self._all_begun:
            self._go_on(slot.client, answer)
        else:
            self._held.append((slot.client, answer))
        if not self.in_flight:
            self._rest()

    def _rest(self) -> None:
        """Called when no request is in flight."""

    def _go_on(self, client: Client, answer: Any) -> None:
        try:
            request = client.script.send(answer)
        except (StopIteration, WrongAnswer):
            return
        if self._schedule is None:
            self._send(client, request, perf_counter_ns())
        else:
            self._schedule.add(client, request)

    def _send(self, client: Client, request: Request, issued_ns: int) -> None:
        run_state = self._stage
        slot = ResponseSlot(client, request, run_state.numbers[request.group_id], self._sink)
        self.in_flight += 1
        if not run_state.over:
            slot.issued_ns = issued_ns
        self._submit(request, slot)

    def send_due(self) -> bool:
        """In an open loop, send the requests that are due; all of them when the time is up. False if none are left."""
        if self._schedule is None:
            return False
        is_over = self._stage.over
        if is_over:
            self._count_unsent(self._schedule)
        for due_ns, client, request in list(self._schedule.take_due(sys.maxsize if is_over else perf_counter_ns())):
            self._send(client, request, due_ns)
        return bool(self._schedule)

    def _finish(self) -> None:
        """Called when every script has ended, which may be before ``send_due`` was called after the end."""
        if self._schedule is not None:
            self._count_unsent(self._schedule)
        self.finished.set()

    def _count_unsent(self, schedule: Schedule) -> None:
        """Count the requests that were due and not sent, at the end: leaving them out would leave out the slowest."""
        if not schedule.is_counted:
            schedule.is_counted = True
            end_ns = self._stage.end_ns
            self.measured.unsent_ns.extend(end_ns - due_ns for due_ns in schedule.overdue_ns(end_ns))


class LoopClientRunner(ClientRunner):
    """Runs on the engine's loop: a response leads directly to the next request.

    In an open loop a thread waits for the time of the next request, since a loop's own timers are a millisecond late.
    """

    def __init__(self, run_state: RunState, clients: Sequence[Client], submit: Submit, loop: AbstractEventLoop) -> None:
        super().__init__(run_state, clients, submit)
        self._loop = loop
        self._is_started = False
        self._has_ticked = threading.Event()

    def start(self) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self.start_next_clients():
            self._loop.call_soon(self._begin)
            return
        self._is_started = True
        if self._schedule is not None:
            threading.Thread(target=self._pace, args=(self._schedule,), name="pace", daemon=True).start()
        self._rest()

    def _pace(self, schedule: Schedule) -> None:
        """In an open loop, have requests sent when they are due. Runs on a thread of its own."""
        while not self.finished.is_set():
            if (wait_s := schedule.wait_s()) and not self._stage.over:
                time.sleep(wait_s)
                continue
            self._has_ticked.clear()
            try:
                self._loop.call_soon_threadsafe(self._tick)
            except RuntimeError:  # the loop was closed before all requests had responses
                return
            self._has_ticked.wait(TICK_S)
            if self._stage.over:
                time.sleep(TICK_S)

    def _tick(self) -> None:
        self.send_due()
        self._rest()
        self._has_ticked.set()

    def _rest(self) -> None:
        if self._is_started and not self.in_flight and not self._schedule:
            self._finish()


class ThreadClientRunner(ClientRunner):
    """Runs on its own thread, with a queue for the responses."""

    def __init__(self, run_state: RunState, clients: Sequence[Client], submit: Submit) -> None:
        super().__init__(run_state, clients, submit)
        self._inbox: SimpleQueue[tuple[ResponseSlot, Any]] = SimpleQueue()
        self._sink = self._inbox.put

    def start(self) -> None:
        threading.Thread(target=self._run, name="clients", daemon=True).start()

    def settle_late_responses(self) -> None:
        """Handle responses that came after the end; there should be none."""
        while not self._inbox.empty():
            self.settle(self._inbox.get())

    def _run(self) -> None:
        while self.start_next_clients():
            self.settle_late_responses()
        inbox, settle = self._inbox.get, self.settle
        while self.send_due() or self.in_flight:
            try:
                settle(inbox(timeout=None if self._schedule is None else self._schedule.wait_s()))
            except Empty:
                continue
        self._finish()
