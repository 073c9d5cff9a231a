"""The load: closed-loop clients, each with one request in flight, none with a pause between answer and next request.

A client is a script: a generator that yields requests and is sent the answers. A crew runs the scripts of many clients
on one thread and keeps the times. Where crews live is what is natural to the engine: on the loop's own thread for
engines on a loop, which is where their sockets would be; on two threads of their own for engines made of threads, as
Kafka's network threads stand before its handler threads. So a request to an engine of threads crosses threads twice,
in the laboratory as in a server, and one to a loop does not. The number in flight is the same for all.

A latency is the time from the hand-over of a request to the arrival of its answer at its client.
"""

from __future__ import annotations

import threading
from array import array
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any, NamedTuple, NoReturn

from callboard.bench.concurrency.cell import Bug, Request

Script = Generator[Request, Any, None]

BEGINNING_TURNS = 8
"""In how many steps the clients of a crew begin: not in one, which an engine on the same loop would be blamed for."""


class Stage:
    """What the clients of one run share."""

    def __init__(self, group_ids: Iterable[str], watched: Iterable[int] = ()) -> None:
        """``watched``: numbers of groups whose requests and answers are kept, for the oracle."""
        self.numbers: Mapping[str, int] = {group_id: number for number, group_id in enumerate(group_ids)}
        self.watched = frozenset(watched)
        self.over = False
        """Set when the time is up. Scripts look at it before they begin something new."""


class Told(NamedTuple):
    """One JoinGroup that was answered: what a member knows of its generation."""

    group_id: str
    generation: int
    member_id: str
    leader_id: str
    member_ids: tuple[str, ...]  # for the leader only


class Exchange(NamedTuple):
    """A request of a watched group, and what it was answered."""

    request: Request
    answer: Any


class WrongAnswer(Exception):
    """Ends a script: what it would do next means nothing any more."""


class Ledger:
    """What one client was promised: the oracle holds the groups to it."""

    def __init__(self) -> None:
        self.acked: dict[tuple[str, int], int] = {}
        """The last offset that was acknowledged, by group and partition."""
        self.commits: dict[str, int] = {}
        """How many offsets were acknowledged, by group."""
        self.generations: dict[str, int] = {}
        """The last generation that a member of this client was told, by group."""
        self.joined: dict[str, set[str]] = {}
        """The members of this client that are in, by group; a group where all have left has an empty set."""
        self.told: list[Told] = []
        self.strange: list[str] = []
        """Answers that no right coordinator gives; after the first the client stops."""

    def object_to(self, answer: object, request: object) -> NoReturn:
        """Note an answer that no right coordinator gives. Raises WrongAnswer."""
        self.strange.append(f"{request} was answered {answer}")
        raise WrongAnswer


class Client:
    """A script and what it was promised."""

    __slots__ = ("ledger", "script")

    def __init__(self, script: Callable[[Ledger], Script]) -> None:
        self.ledger = Ledger()
        self.script = script(self.ledger)


class Ticket:
    """The place for the answer to one request: a ``ReplyTo`` that can tell a second answer from the first."""

    __slots__ = ("answered", "client", "group", "issued_ns", "request", "sink")

    def __init__(self, client: Client, request: Request, group: int, sink: Callable[[tuple[Ticket, Any]], None]):
        self.client = client
        self.request = request
        self.group = group
        self.sink = sink
        self.answered = False
        self.issued_ns = 0  # 0: issued after the time was up, and not measured

    def set(self, value: Any = None) -> None:
        self.sink((self, value))

    def set_exception(self, exc_info: Any = None) -> None:
        self.sink((self, Bug(f"{exc_info[1]!r}" if exc_info else "an unknown error")))


Submit = Callable[[Request, Ticket], None]


class Crew:
    """Runs scripts on one thread. Nothing here is touched by another, but for ``settle`` of a ``ThreadCrew``."""

    def __init__(self, stage: Stage, clients: Sequence[Client], submit: Submit) -> None:
        self.clients = clients
        self.latencies_ns = array("q")
        self.groups = array("l")  # of each latency, its group
        self.groups_after = array("l")  # of each answer that is not measured, its group
        self.last_answer_ns = 0
        self.in_flight = 0
        self.second_answers: list[str] = []
        self.exchanges: list[Exchange] = []
        self.finished = threading.Event()
        self._stage = stage
        self._submit = submit
        self._sink: Callable[[tuple[Ticket, Any]], None] = self.settle
        self._all_begun = False
        self._held: list[tuple[Client, Any]] = []  # answered before all had begun
        self._beginnings = self._begin_all()

    def start(self) -> None:
        """Begin; ``finished`` is set when every script has ended. Called from another thread."""
        raise NotImplementedError

    def begin_some(self) -> bool:
        """Start the scripts of the next clients; False when there are no more."""
        some = list(islice(self._beginnings, len(self.clients) // BEGINNING_TURNS + 1))
        for client, answer in some:
            self._go_on(client, answer)
        return bool(some)

    def _begin_all(self) -> Iterator[tuple[Client, Any]]:
        """Everybody's first request comes before anybody's second, so that as many are in flight as was said."""
        for client in self.clients:
            yield client, None
        self._all_begun = True
        yield from self._held

    def settle(self, letter: tuple[Ticket, Any]) -> None:
        """An answer has arrived: note it, let the script go on."""
        ticket, answer = letter
        now_ns = perf_counter_ns()
        if ticket.answered:
            self.second_answers.append(f"{ticket.request} was answered again: {answer}")
            return
        ticket.answered = True
        self.in_flight -= 1
        self._note(ticket, answer, now_ns)
        if isinstance(answer, Bug):
            ticket.client.ledger.strange.append(f"{ticket.request} was answered {answer}")
        elif self._all_begun:
            self._go_on(ticket.client, answer)
        else:
            self._held.append((ticket.client, answer))
        if not self.in_flight:
            self._rest()

    def _rest(self) -> None:
        """Nothing is in flight."""

    def _note(self, ticket: Ticket, answer: Any, now_ns: int) -> None:
        if ticket.issued_ns:
            self.latencies_ns.append(now_ns - ticket.issued_ns)
            self.groups.append(ticket.group)
            self.last_answer_ns = now_ns
        else:
            self.groups_after.append(ticket.group)
        if ticket.group in self._stage.watched:
            self.exchanges.append(Exchange(ticket.request, answer))

    def _go_on(self, client: Client, answer: Any) -> None:
        try:
            request = client.script.send(answer)
        except (StopIteration, WrongAnswer):
            return
        stage = self._stage
        ticket = Ticket(client, request, stage.numbers[request.group_id], self._sink)
        self.in_flight += 1
        if not stage.over:
            ticket.issued_ns = perf_counter_ns()
        self._submit(request, ticket)


class LoopCrew(Crew):
    """On the engine's loop: an answer goes straight on to the next request."""

    def __init__(self, stage: Stage, clients: Sequence[Client], submit: Submit, loop: AbstractEventLoop) -> None:
        super().__init__(stage, clients, submit)
        self._loop = loop
        self._is_started = False

    def start(self) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self.begin_some():
            self._loop.call_soon(self._begin)
            return
        self._is_started = True
        self._rest()

    def _rest(self) -> None:
        if self._is_started and not self.in_flight:
            self.finished.set()


class ThreadCrew(Crew):
    """On a thread of its own, with a queue for the answers."""

    def __init__(self, stage: Stage, clients: Sequence[Client], submit: Submit) -> None:
        super().__init__(stage, clients, submit)
        self._inbox: SimpleQueue[tuple[Ticket, Any]] = SimpleQueue()
        self._sink = self._inbox.put

    def start(self) -> None:
        threading.Thread(target=self._run, name="clients", daemon=True).start()

    def take_rest(self) -> None:
        """Look at answers that came after the end; there should be none."""
        while not self._inbox.empty():
            self.settle(self._inbox.get())

    def _run(self) -> None:
        while self.begin_some():
            self.take_rest()
        inbox, settle = self._inbox.get, self.settle
        while self.in_flight:
            settle(inbox())
        self.finished.set()
