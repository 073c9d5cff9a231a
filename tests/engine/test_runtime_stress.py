"""What only shows when several threads do it at once, many times.

Every question is answered, and every message counts once.
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


def at_once(*bodies: Callable[[], object]) -> None:
    """Each on a thread of its own, begun together; an error of any is the test's."""
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
    """With its answer or with its death; pykka's own actors forget who asks in the wrong moment."""

    def round_of(ref: ActorRef, replies: list[Reply]) -> list[Callable[[], None]]:
        def ask() -> None:
            replies.extend(ref.ask(Say(number), block=False) for number in range(8))

        return [ask, ask, ask, lambda: ref.stop(block=False)]

    for _ in range(40):
        received: list[str] = []
        ref, replies = actor_system.spawn(Player, received), list[Reply]()
        at_once(*round_of(ref, replies))
        answered = 0
        for reply in replies:
            try:
                reply.get(timeout=WAIT_TIMEOUT_S)
                answered += 1
            except pykka.ActorDeadError:
                pass
        assert len(replies) == 24
        assert answered == len(received) - 2, "what was answered was heard, and the other way round"
        assert received[-1] == "stop"


def test_stop_all_while_actors_start_does_not_hang(actor_system: SystemHarness) -> None:
    """Those on the list when it began are stopped; nobody hangs, nobody is stopped half."""
    born: list[ActorRef] = []
    first = [actor_system.spawn(Player) for _ in range(50)]

    def give_birth() -> None:
        born.extend(actor_system.spawn(Player) for _ in range(200))

    at_once(give_birth, lambda: actor_system.system.stop_all(timeout=WAIT_TIMEOUT_S))
    assert not any(ref.is_alive() for ref in first)
    assert actor_system.system.actors() == [ref for ref in born if ref.is_alive()]
    for ref in actor_system.system.actors():
        assert ref.ask(Say("x")) == "heard x"


def test_concurrent_stops_of_one_actor_all_return(actor_system: SystemHarness) -> None:
    for _ in range(20):
        received: list[str] = []
        ref = actor_system.spawn(Player, received)
        at_once(*[partial(ref.stop, timeout=WAIT_TIMEOUT_S)] * 4)
        assert received.count("stop") == 1
        assert not ref.is_alive()


class Node(Actor):
    """Counts what passes, and sends it on."""

    handlers = {tuple: "on_token"}

    def __init__(self, nodes: list[ActorRef], seed: int) -> None:
        super().__init__()
        self.nodes = nodes
        self.dice = random.Random(seed)
        self.passed = 0

    def on_token(self, token: tuple[int, Any]) -> None:
        self.passed += 1
        hops, done = token
        if hops:
            self.dice.choice(self.nodes).tell((hops - 1, done))
        else:
            done.release()


def test_tokens_passed_between_threads_and_actors_are_neither_lost_nor_duplicated(actor_system: SystemHarness) -> None:
    """Sent from four threads and from the actors themselves, among few actors, so that mailboxes are often shared."""
    tokens, hops = 40, 100
    done = threading.Semaphore(0)
    nodes: list[ActorRef] = []
    nodes += [actor_system.spawn(Node, nodes, seed) for seed in range(5)]

    def send() -> None:
        for number in range(tokens // 4):
            nodes[number % 5].tell((hops, done))

    at_once(send, send, send, send)
    for _ in range(tokens):
        assert done.acquire(timeout=WAIT_TIMEOUT_S)
    assert sum(node.proxy().passed.get() for node in nodes) == tokens * (hops + 1)


@pytest.mark.parametrize("settlers", [1, 2])
def test_callback_added_during_settle_is_called_once(settlers: int) -> None:
    """A reply is settled on one thread while another asks to be told; or two try to settle it."""
    for number in range(300):
        reply, received = Reply(), list[int]()

        def settle(reply: Reply = reply, number: int = number) -> None:
            try:
                reply.set(number)
            except Exception:
                assert settlers == 2, "only the second may fail"

        def listen(reply: Reply = reply, received: list[int] = received) -> None:
            for _ in range(10):
                reply.on_done(lambda one: received.append(one.get()))

        at_once(*itertools.repeat(settle, settlers), listen)
        assert received == [number] * 10


class Slow(threading.Event):
    """An event that takes its time to be made, so that another thread may make one too."""

    def __init__(self) -> None:
        threading.Event().wait(0.001)
        super().__init__()


def test_concurrent_waits_for_actor_stopped_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """``actor_stopped`` makes the event to wait on when somebody waits, and but one."""
    monkeypatch.setattr("callboard.runtime.engine.flag.threading", SimpleNamespace(Event=Slow))
    flag = Flag()
    waiting = [partial(flag.wait, WAIT_TIMEOUT_S)] * 3
    received: list[bool] = []

    def set_late() -> None:
        while flag._event is None:
            threading.Event().wait(0.0001)
        threading.Event().wait(0.005)
        flag.set()

    at_once(set_late, *[lambda wait=wait: received.append(wait()) for wait in waiting])
    assert received == [True] * 3


def test_wait_for_actor_stopped_during_stop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = Flag()

    def event_after_the_end() -> threading.Event:
        flag.set()
        return threading.Event()

    monkeypatch.setattr("callboard.runtime.engine.flag.threading", SimpleNamespace(Event=event_after_the_end))
    assert flag.wait(0.01)


def test_urn_read_by_several_threads_is_the_same(actor_system: SystemHarness) -> None:
    for _ in range(50):
        ref, names = actor_system.spawn(Player), list[str]()
        at_once(*[lambda ref=ref, names=names: names.append(ref.actor_urn)] * 4)
        assert len(set(names)) == 1


class Interrupted(deque[Any]):
    """A queue at which another thread puts something just after somebody has looked and found nothing."""

    def __init__(self, looks: int, interrupt: Callable[[], object]) -> None:
        super().__init__()
        self._looks = looks
        self._interrupt = interrupt

    def __bool__(self) -> bool:
        is_empty = len(self) == 0
        self._looks -= is_empty
        if is_empty and self._looks == 0:
            self._interrupt()
        return not is_empty


@pytest.mark.parametrize("mailbox_class", [Mailbox, SharedMailbox])
@pytest.mark.parametrize("looks", [1, 2, 3, 4])
def test_message_during_end_of_turn_is_handled(mailbox_class: type[Mailbox], looks: int) -> None:
    """Whenever it comes between the last look and the end: one of the two sides takes note of it."""
    dispatcher = Simulation()
    dispatcher.new_mailbox = partial(mailbox_class, dispatcher)  # type: ignore[method-assign]
    received: list[str] = []
    ref = System(dispatcher).spawn(Player, received)
    dispatcher.run()
    ref.actor_inbox.queue = Interrupted(looks, lambda: ref.tell(Say("interruption")))
    for number in range(4):
        ref.tell(Say(number))
        dispatcher.run()
        assert len(ref.actor_inbox.queue) == 0
    assert received[1:].count("interruption") == 1
    assert [one for one in received[1:] if one != "interruption"] == ["0", "1", "2", "3"]
