"""The simulation: the same seed gives the same trace, another seed another order; only tests move the clock."""

from __future__ import annotations

import random
from typing import Any

import pytest
from actor_system.players import Player, Say, do, keep_reply

from callboard.actors.base import Actor, ActorRef, Supervision
from callboard.actors.timer.messages import Expired, Schedule
from callboard.runtime.engine.simulation import START_WALL_MS, Simulation
from callboard.runtime.engine.system import System
from callboard.runtime.engine.trace import as_line

SEEDS = range(1, 13)


# Seeds ---------------------------------------------------------------------------------------------------------------


class Gossip(Actor):
    """Sends each message on to actors chosen by its text; sometimes raises a bug, sometimes passivates itself."""

    handlers = {str: "on_text"}
    supervision = Supervision(restarts=100)
    may_passivate = True

    def __init__(self, actors: list[ActorRef]) -> None:
        super().__init__()
        self.actors = actors
        self.received = 0

    def on_text(self, text: str) -> str:
        self.received += 1
        rng = random.Random(f"{text} {self.received}")
        if len(text) < 12:
            for _ in range(rng.randrange(3)):
                rng.choice(self.actors).tell(text + rng.choice("abc"))
        if rng.random() < 0.1:
            raise ValueError(text)
        if rng.random() < 0.2:
            self.passivate()
        return f"{self.actor_ref.actor_inbox.label} has heard {text}"

    def save_state(self, error: Exception | None) -> int:
        return self.received

    def restore_state(self, saved: int) -> None:
        self.received = saved


def trace_of(seed: int) -> bytes:
    """The trace of seven actors that send messages to each other, with all replies, references and statistics."""
    lines: list[str] = []
    system = System(Simulation(seed))
    system.trace(lambda traced: lines.append(as_line(traced)))
    actors: list[ActorRef] = []
    actors += [system.spawn(Gossip, actors) for _ in range(7)]
    replies = [actors[number % 7].ask(str(number), block=False) for number in range(20)]
    system.dispatcher.run()  # type: ignore[attr-defined]
    for reply in replies:
        try:
            lines.append(reply.get())
        except ValueError as error:
            lines.append(f"bug: {error}")
    lines += [str(ref) for ref in actors]
    lines.append(repr(system.stats()))
    assert len(lines) > 100
    return "\n".join(lines).encode()


@pytest.mark.parametrize("seed", SEEDS)
def test_same_seed_gives_same_trace(seed: int) -> None:
    assert trace_of(seed) == trace_of(seed)


def test_other_seeds_give_other_traces() -> None:
    assert len({trace_of(seed) for seed in SEEDS}) == len(SEEDS)


def order(seed: int | None, names: str = "abcdef") -> str:
    system = System(Simulation(seed))
    received: list[str] = []
    for name in names:
        system.spawn(Player, received, name).tell(Say("!"))
    system.dispatcher.run()  # type: ignore[attr-defined]
    return "".join(text[0] for text in received if text.endswith("!"))


def test_seeds_produce_every_order() -> None:
    """All six orders of three actors occur."""
    assert len({order(seed, "abc") for seed in range(100)}) == 6


def test_without_seed_actors_run_in_ready_order() -> None:
    assert order(None) == "abcdef"


def test_reading_urns_does_not_change_order() -> None:
    """URNs come from the seed too, but from another random generator."""

    def run(reads_urns: bool) -> tuple[list[str], list[str]]:
        system = System(Simulation(3))
        received: list[str] = []
        refs = [system.spawn(Player, received, name) for name in "abcdef"]
        urns = [ref.actor_urn for ref in refs] if reads_urns else []
        system.dispatcher.run()  # type: ignore[attr-defined]
        return received, urns

    assert run(reads_urns=True)[0] == run(reads_urns=False)[0]
    assert run(reads_urns=True)[1] == run(reads_urns=True)[1]


# Steps ---------------------------------------------------------------------------------------------------------------


def test_step_handles_one_message() -> None:
    dispatcher = Simulation(1)
    received: list[str] = []
    player = System(dispatcher).spawn(Player, received)
    for number in range(3):
        player.tell(Say(number))
    counts = []
    while dispatcher.step():
        counts.append(len(received))
    assert counts == [2, 3, 4], "on_start runs in the step of the first message"
    assert not dispatcher.step()


def test_run_with_actors_that_never_become_idle_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.engine.simulation.STEPS_MAX", 1000)
    dispatcher = Simulation(5)
    player = System(dispatcher).spawn(Player)

    def tell_again(actor: Player) -> None:
        actor.actor_ref.tell(do(tell_again))

    player.tell(do(tell_again))
    with pytest.raises(AssertionError, match=r"did not become idle in 1000 steps \(seed 5\)"):
        dispatcher.run()
    with pytest.raises(AssertionError, match=r"did not answer, .* in 1000 steps \(seed 5\)"):
        player.ask(do(keep_reply))


# Time ----------------------------------------------------------------------------------------------------------------


class Waiting(Player):
    """Records the time at which each of its deadlines expires."""

    handlers = {**Player.handlers, Expired: "on_expired"}

    def __init__(self, received: list[Any], clock: Any) -> None:
        super().__init__(received)
        self.clock = clock

    def on_expired(self, message: Expired) -> None:
        self.received += [(self.clock.now_ms, name) for name in message.names]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_advance_fires_alarms_at_their_virtual_time(seed: int | None) -> None:
    """While the clock advances by an hour, each deadline expires at its own time."""
    dispatcher = Simulation(seed)
    system = System(dispatcher)
    received: list[Any] = []
    timer, waiting = system.start_timer(), system.spawn(Waiting, received, dispatcher.clock)
    for name, due_ms in [("late", 3_000_000), ("soon", 50), ("never", 3_600_001), ("same", 50), ("then", 60_000)]:
        timer.tell(Schedule(waiting, name, due_ms))
    dispatcher.advance(3_600_000)
    assert sorted(received[1:]) == [(50, "same"), (50, "soon"), (60_000, "then"), (3_000_000, "late")]
    assert dispatcher.clock.now_ms == 3_600_000
    assert dispatcher.clock.wall_ms() == START_WALL_MS + 3_600_000


def test_clock_does_not_move_while_actors_run() -> None:
    dispatcher = Simulation(1)
    system = System(dispatcher)
    system.start_timer()
    assert system.spawn(Player).ask(Say("x")) == "heard x"
    dispatcher.run()
    assert dispatcher.clock.now_ms == 0


def test_blocking_get_moves_clock_to_deadline() -> None:
    """The clock moves when no actor can run, because the reply may depend on a deadline."""
    dispatcher = Simulation(1)
    system = System(dispatcher)
    timer = system.start_timer()

    class Slow(Waiting):
        handlers = {**Waiting.handlers, str: "on_question"}

        def on_question(self, question: str) -> object:
            from callboard.actors.base import DEFERRED

            self.pending_reply = self.reply_to
            timer.tell(Schedule(self.actor_ref, question, 7000))
            return DEFERRED

        def on_expired(self, message: Expired) -> None:
            assert self.pending_reply is not None
            self.pending_reply.set(f"{message.names[0]} at {self.clock.now_ms}")

    assert system.spawn(Slow, [], dispatcher.clock).ask("what time is it") == "what time is it at 7000"


def test_alarm_that_was_set_again_fires_once() -> None:
    dispatcher = Simulation(1)
    alarm = dispatcher.new_alarm(dispatcher.clock)
    received: list[Any] = []
    alarm.actor = System(dispatcher).spawn(
        type("Bell", (Actor,), {"on_receive": lambda _, message: received.append(message)})
    )
    for due_ms in (500, 100, 100, 300):
        alarm.set(due_ms)
    dispatcher.advance(299)
    assert received == []
    dispatcher.advance(1)
    assert len(received) == 1
    alarm.set(400)
    alarm.clear()
    dispatcher.advance(1000)
    assert len(received) == 1
