"""Races between threads, each repeated many times.

Every request is settled, and every message is handled once.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pykka
import pytest
from actor_system.players import REAL, WAIT_TIMEOUT_S, Player, Say, SystemHarness, system_fixture

from callboard.actors.base import Actor, ActorRef
from callboard.runtime.engine.flag import Flag
from callboard.runtime.engine.mailbox import Mailbox, SharedMailbox
from callboard.runtime.engine.reply import Reply
from callboard.runtime.engine.simulation import Simulation
from callboard.runtime.engine.system import System

actor_system = system_fixture(*REAL)


def run_concurrently(*bodies: Callable[[], object]) -> None:
    """Run each body on its own thread, started together; raise the first error of any."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(bodies))

    def run(body: Callable[[], object]) -> None:
        start.wait()
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_ask_racing_with_stop_is_always_settled(actor_system: SystemHarness) -> None:
    """Each reply has a value or an ActorDeadError. (Pykka's own actors may leave such a request open.)"""

    def asks_and_stop(ref: ActorRef, replies: list[Reply]) -> list[Callable[[], None]]:
        def ask() -> None:
            replies.extend(ref.ask(Say(number), block=False) for number in range(8))

        return [ask, ask, ask, lambda: ref.stop(block=False)]

    for _ in range(40):
        received: list[str] = []
        ref, replies = actor_system.spawn(Player, received), list[Reply]()
        run_concurrently(*asks_and_stop(ref, replies))
        answered = 0
        for reply in replies:
            try:
                reply.get(timeout=WAIT_TIMEOUT_S)
                answered += 1
            except pykka.ActorDeadError:
                pass
        assert len(replies) == 24
        assert answered == len(received) - 2, "exactly the handled messages are answered"
        assert received[-1] == "stop"


def test_stop_all_while_actors_start_does_not_hang(actor_system: SystemHarness) -> None:
    """Actors registered before the call are stopped. Others are either stopped or still answer."""
    started: list[ActorRef] = []
    first = [actor_system.spawn(Player) for _ in range(50)]

    def start_actors() -> None:
        started.extend(actor_system.spawn(Player) for _ in range(200))

    run_concurrently(start_actors, lambda: actor_system.system.stop_all(timeout=WAIT_TIMEOUT_S))
    assert not any(ref.is_alive() for ref in first)
    assert actor_system.system.actors() == [ref for ref in started if ref.is_alive()]
    for ref in actor_system.system.actors():
        assert ref.ask(Say("x")) == "heard x"


def test_concurrent_stops_of_one_actor_all_return(actor_system: SystemHarness) -> None:
    for _ in range(20):
        received: list[str] = []
        ref = actor_system.spawn(Player, received)
        run_concurrently(*[partial(ref.stop, timeout=WAIT_TIMEOUT_S)] * 4)
        assert received.count("stop") == 1
        assert not ref.is_alive()


class Node(Actor):
    """Counts the tokens that it gets, and sends each on to a random node."""

    handlers = {tuple: "on_token"}

    def __init__(self, nodes: list[ActorRef], seed: int) -> None:
        super().__init__()
        self.nodes = nodes
        self.rng = random.Random(seed)
        self.passed = 0

    def on_token(self, token: tuple[int, Any]) -> None:
        self.passed += 1
        hops, done = token
        if hops:
            self.rng.choice(self.nodes).tell((hops - 1, done))
        else:
            done.release()


def test_tokens_passed_between_threads_and_actors_are_neither_lost_nor_duplicated(actor_system: SystemHarness) -> None:
    """Four threads and the actors send tokens to five actors, so threads often use the same mailbox."""
    tokens, hops = 40, 100
    done = threading.Semaphore(0)
    nodes: list[ActorRef] = []
    nodes += [actor_system.spawn(Node, nodes, seed) for seed in range(5)]

    def send() -> None:
        for number in range(tokens // 4):
            nodes[number % 5].tell((hops, done))

    run_concurrently(send, send, send, send)
    for _ in range(tokens):
        assert done.acquire(timeout=WAIT_TIMEOUT_S)
    assert sum(node.proxy().passed.get() for node in nodes) == tokens * (hops + 1)


@pytest.mark.parametrize("settlers", [1, 2])
def test_callback_added_during_settle_is_called_once(settlers: int) -> None:
    """One thread adds callbacks while one or two others settle the reply."""
    for number in range(300):
        reply, received = Reply(), list[int]()

        def settle(reply: Reply = reply, number: int = number) -> None:
            try:
                reply.set(number)
            except Exception:
                assert settlers == 2, "only the second settle may fail"

        def add_callbacks(reply: Reply = reply, received: list[int] = received) -> None:
            for _ in range(10):
                reply.on_done(lambda future: received.append(future.get()))

        run_concurrently(*itertools.repeat(settle, settlers), add_callbacks)
        assert received == [number] * 10


class SlowEvent(threading.Event):
    """An event whose creation takes a millisecond, so that another thread may create one meanwhile."""

    def __init__(self) -> None:
        threading.Event().wait(0.001)
        super().__init__()


def test_concurrent_waits_for_actor_stopped_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """``actor_stopped`` creates its event at the first wait, and only one event."""
    monkeypatch.setattr("callboard.runtime.engine.flag.threading", SimpleNamespace(Event=SlowEvent))
    flag = Flag()
    waiting = [partial(flag.wait, WAIT_TIMEOUT_S)] * 3
    received: list[bool] = []

    def set_late() -> None:
        while flag._event is None:
            threading.Event().wait(0.0001)
        threading.Event().wait(0.005)
        flag.set()

    run_concurrently(set_late, *[lambda wait=wait: received.append(wait()) for wait in waiting])
    assert received == [True] * 3


def test_wait_for_actor_stopped_during_stop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = Flag()

    def create_event_after_set() -> threading.Event:
        flag.set()
        return threading.Event()

    monkeypatch.setattr("callboard.runtime.engine.flag.threading", SimpleNamespace(Event=create_event_after_set))
    assert flag.wait(0.01)


def test_urn_read_by_several_threads_is_the_same(actor_system: SystemHarness) -> None:
    for _ in range(50):
        ref, names = actor_system.spawn(Player), list[str]()
        run_concurrently(*[lambda ref=ref, names=names: names.append(ref.actor_urn)] * 4)
        assert len(set(names)) == 1


class PutAfterCheck(deque[Any]):
    """A queue that calls ``put`` just after its ``empty_checks``-th check has found it empty."""

    def __init__(self, empty_checks: int, put: Callable[[], object]) -> None:
        super().__init__()
        self._empty_checks = empty_checks
        self._put = put

    def __bool__(self) -> bool:
        is_empty = len(self) == 0
        self._empty_checks -= is_empty
        if is_empty and self._empty_checks == 0:
            self._put()
        return not is_empty


@pytest.mark.parametrize("mailbox_class", [Mailbox, SharedMailbox])
@pytest.mark.parametrize("empty_checks", [1, 2, 3, 4])
def test_message_during_end_of_turn_is_handled(mailbox_class: type[Mailbox], empty_checks: int) -> None:
    """A message that arrives between the last check of the queue and the end of the turn is not lost."""
    dispatcher = Simulation()
    dispatcher.new_mailbox = partial(mailbox_class, dispatcher)  # type: ignore[method-assign]
    received: list[str] = []
    ref = System(dispatcher).spawn(Player, received)
    dispatcher.run()
    ref.actor_inbox.queue = PutAfterCheck(empty_checks, lambda: ref.tell(Say("interruption")))
    for number in range(4):
        ref.tell(Say(number))
        dispatcher.run()
        assert len(ref.actor_inbox.queue) == 0
    assert received[1:].count("interruption") == 1
    assert [text for text in received[1:] if text != "interruption"] == ["0", "1", "2", "3"]
