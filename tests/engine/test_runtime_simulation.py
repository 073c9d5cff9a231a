"""The simulation: one seed, one story, byte for byte; another seed, another order; and a clock that only tests move."""

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


# One seed, one story -------------------------------------------------------------------------------------------------


class Gossip(Actor):
    """Passes what it hears to others, chosen by what it heard; has a bug now and then, sleeps now and then."""

    handlers = {str: "on_rumour"}
    supervision = Supervision(restarts=100)
    may_passivate = True

    def __init__(self, circle: list[ActorRef]) -> None:
        super().__init__()
        self.circle = circle
        self.received = 0

    def on_rumour(self, rumour: str) -> str:
        self.received += 1
        dice = random.Random(f"{rumour} {self.received}")
        if len(rumour) < 12:
            for _ in range(dice.randrange(3)):
                dice.choice(self.circle).tell(rumour + dice.choice("abc"))
        if dice.random() < 0.1:
            raise ValueError(rumour)
        if dice.random() < 0.2:
            self.passivate()
        return f"{self.actor_ref.actor_inbox.label} has heard {rumour}"

    def save_state(self, error: Exception | None) -> int:
        return self.received

    def restore_state(self, kept: int) -> None:
        self.received = kept


def story(seed: int) -> bytes:
    """Everything that happens in a small society: every message, every answer, every name."""
    lines: list[str] = []
    system = System(Simulation(seed))
    system.trace(lambda traced: lines.append(as_line(traced)))
    circle: list[ActorRef] = []
    circle += [system.spawn(Gossip, circle) for _ in range(7)]
    answers = [circle[number % 7].ask(str(number), block=False) for number in range(20)]
    system.dispatcher.run()  # type: ignore[attr-defined]
    for answer in answers:
        try:
            lines.append(answer.get())
        except ValueError as error:
            lines.append(f"bug: {error}")
    lines += [str(ref) for ref in circle]
    lines.append(repr(system.stats()))
    assert len(lines) > 100
    return "\n".join(lines).encode()


@pytest.mark.parametrize("seed", SEEDS)
def test_same_seed_gives_same_trace(seed: int) -> None:
    assert story(seed) == story(seed)


def test_other_seeds_give_other_traces() -> None:
    assert len({story(seed) for seed in SEEDS}) == len(SEEDS)


def order(seed: int | None, names: str = "abcdef") -> str:
    system = System(Simulation(seed))
    received: list[str] = []
    for name in names:
        system.spawn(Player, received, name).tell(Say("!"))
    system.dispatcher.run()  # type: ignore[attr-defined]
    return "".join(one[0] for one in received if one.endswith("!"))


def test_seeds_produce_every_order() -> None:
    """Six orders of three actors, and none is left out."""
    assert len({order(seed, "abc") for seed in range(100)}) == 6


def test_without_seed_actors_run_in_ready_order() -> None:
    assert order(None) == "abcdef"


def test_reading_urns_does_not_change_order() -> None:
    """URNs come from the seed too, but not from the same stream of chance."""

    def run(asks: bool) -> tuple[list[str], list[str]]:
        system = System(Simulation(3))
        received: list[str] = []
        refs = [system.spawn(Player, received, name) for name in "abcdef"]
        urns = [ref.actor_urn for ref in refs] if asks else []
        system.dispatcher.run()  # type: ignore[attr-defined]
        return received, urns

    assert run(asks=True)[0] == run(asks=False)[0]
    assert run(asks=True)[1] == run(asks=True)[1]


# Nothing runs by itself ----------------------------------------------------------------------------------------------


def test_step_handles_one_message() -> None:
    dispatcher = Simulation(1)
    received: list[str] = []
    player = System(dispatcher).spawn(Player, received)
    for number in range(3):
        player.tell(Say(number))
    seen = []
    while dispatcher.step():
        seen.append(len(received))
    assert seen == [2, 3, 4], "the start comes with the first message"
    assert not dispatcher.step()


def test_run_with_actors_that_never_become_idle_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runtime.engine.simulation.STEPS_MAX", 1000)
    dispatcher = Simulation(5)
    player = System(dispatcher).spawn(Player)

    def again(one: Player) -> None:
        one.actor_ref.tell(do(again))

    player.tell(do(again))
    with pytest.raises(AssertionError, match=r"did not become idle in 1000 steps \(seed 5\)"):
        dispatcher.run()
    with pytest.raises(AssertionError, match=r"did not answer, .* in 1000 steps \(seed 5\)"):
        player.ask(do(keep_reply))


# Time ----------------------------------------------------------------------------------------------------------------


class Waiting(Player):
    """Notes when its deadlines come."""

    handlers = {**Player.handlers, Expired: "on_expired"}

    def __init__(self, received: list[Any], clock: Any) -> None:
        super().__init__(received)
        self.clock = clock

    def on_expired(self, message: Expired) -> None:
        self.received += [(self.clock.now_ms, name) for name in message.names]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_advance_fires_alarms_at_their_virtual_time(seed: int | None) -> None:
    """An hour passes at once, and each deadline comes at its own time, not before and a tick later at most."""
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
    """If nothing else helps: the answer may depend on a deadline."""
    dispatcher = Simulation(1)
    system = System(dispatcher)
    timer = system.start_timer()

    class Slow(Waiting):
        handlers = {**Waiting.handlers, str: "on_question"}

        def on_question(self, question: str) -> object:
            from callboard.actors.base import DEFERRED

            self.kept = self.reply_to
            timer.tell(Schedule(self.actor_ref, question, 7000))
            return DEFERRED

        def on_expired(self, message: Expired) -> None:
            assert self.kept is not None
            self.kept.set(f"{message.names[0]} at {self.clock.now_ms}")

    assert system.spawn(Slow, [], dispatcher.clock).ask("what time is it") == "what time is it at 7000"


def test_alarm_that_was_set_again_fires_once() -> None:
    dispatcher = Simulation(1)
    alarm = dispatcher.new_alarm(dispatcher.clock)
    received: list[Any] = []
    alarm.actor = System(dispatcher).spawn(type("Bell", (Actor,), {"on_receive": lambda _, one: received.append(one)}))
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
