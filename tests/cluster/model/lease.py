"""The read lease, in ticks: an owner that answers reads, and a taker that watches its counter.

Every other step may happen at any tick. Ages stand for times, and ranks for counters, so the states are finite and the
result holds for any length of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .mistakes import Mistake
from .search import Step

TTL_TICKS = 4
LEASE_TICKS = 3
"""A lease is shorter than a TTL: clocks may differ by the difference."""
COMMITS_MAX = 3


class OwnerStage:
    IDLE, PUTTING, LOOKING = range(3)


class TakerStage:
    WATCHES, BURIES, LOOKS_AGAIN, WAITS, TAKES_OVER, SERVES = range(6)


class Owner(NamedTuple):
    """``age_ticks``: since the renewal began. ``lease_ticks``: left. ``value``: what it would answer."""

    counter: int = 1
    stage: int = OwnerStage.IDLE
    age_ticks: int = 0
    lease_ticks: int = 0
    value: int = 0
    is_fenced: int = 0
    paused_ticks: int = 0


FENCED = Owner(counter=0, is_fenced=1)


class Taker(NamedTuple):
    """``seen_ticks``: since it first saw the counter ``seen``, or since it saw another one after the tombstone."""

    seen: int = 1
    seen_ticks: int = 0
    stage: int = TakerStage.WATCHES


class LeaseState(NamedTuple):
    """``stored``: the counter in the store. ``late``: one that may still land. ``acknowledged``: commits."""

    stored: int = 1
    late: int = 0
    has_tombstone: int = 0
    is_sealed: int = 0
    acknowledged: int = 0
    owner: Owner = Owner()
    taker: Taker = Taker()

    def with_owner(self, **fields: int) -> LeaseState:
        return self._replace(owner=self.owner._replace(**fields))

    def with_taker(self, **fields: int) -> LeaseState:
        return self._replace(taker=self.taker._replace(**fields))


class LeaseModel:
    def __init__(self, mistake: Mistake | None = None) -> None:
        self._mistake = mistake
        self._wait_ticks = TTL_TICKS // 2 if mistake is Mistake.CLOCK_RATES else TTL_TICKS

    def first_state(self) -> LeaseState:
        return LeaseState()

    def violation(self, state: LeaseState) -> str:
        """Promises are broken by answers, see ``steps``."""
        return ""

    def stuck(self, state: LeaseState) -> str:
        """Not asked here."""
        return ""

    def steps(self, state: LeaseState) -> Iterator[Step]:
        for label, following in self._moves(state):
            yield Step((label,), ranked(following), stale_read(label, following))

    def _moves(self, state: LeaseState) -> Iterator[tuple[str, LeaseState]]:
        yield from self._tick(state)
        if not state.owner.is_fenced:
            yield from self._renew(state)
            yield from self._serve(state)
        if state.late:
            yield "a late put of the counter lands", state._replace(stored=state.late, late=0)
        yield from self._take(state)

    def _tick(self, state: LeaseState) -> Iterator[tuple[str, LeaseState]]:
        owner = state.owner
        following = state.with_taker(seen_ticks=min(state.taker.seen_ticks + 1, self._wait_ticks))
        if self._mistake is Mistake.CLOCK_PAUSED and owner.paused_ticks < 2 and owner.lease_ticks:
            yield "tick, the owner is paused", following.with_owner(paused_ticks=owner.paused_ticks + 1)
        age, lease = min(owner.age_ticks + 1, LEASE_TICKS), max(owner.lease_ticks - 1, 0)
        yield "tick", following.with_owner(age_ticks=age, lease_ticks=lease)

    def _renew(self, state: LeaseState) -> Iterator[tuple[str, LeaseState]]:
        """The lease counts from before the put, and needs a look without a tombstone after it."""
        owner = state.owner
        if owner.stage == OwnerStage.IDLE:
            following = state.with_owner(counter=owner.counter + 1, stage=OwnerStage.PUTTING, age_ticks=0)
            yield "owner: puts its counter", following
        elif owner.stage == OwnerStage.PUTTING:
            landed = state.with_owner(stage=OwnerStage.LOOKING)._replace(stored=owner.counter)
            yield "owner: the counter is stored", landed
            if not state.late:
                yield (
                    "owner: the put times out, and may land late",
                    state.with_owner(stage=OwnerStage.IDLE, age_ticks=0)._replace(late=owner.counter),
                )
                if self._mistake is Mistake.COUNTER_LANDS_TWICE:
                    yield "owner: the counter is stored, a copy is on its way", landed._replace(late=owner.counter)
        elif state.has_tombstone:
            yield "owner: finds its tombstone", state._replace(owner=FENCED)
        else:
            lease = LEASE_TICKS - owner.age_ticks
            yield "owner: has a lease", state.with_owner(stage=OwnerStage.IDLE, age_ticks=0, lease_ticks=lease)

    def _serve(self, state: LeaseState) -> Iterator[tuple[str, LeaseState]]:
        owner = state.owner
        if owner.lease_ticks or self._mistake is Mistake.NO_LEASE:
            yield ANSWER, state
        if state.is_sealed:
            yield "owner: meets the seal", state._replace(owner=FENCED)
        elif state.acknowledged < COMMITS_MAX - 1:
            commits = state.acknowledged + 1
            yield "owner: acknowledges a commit", state.with_owner(value=commits)._replace(acknowledged=commits)

    def _take(self, state: LeaseState) -> Iterator[tuple[str, LeaseState]]:
        taker, is_new = state.taker, state.taker.seen != state.stored
        has_waited = taker.seen_ticks >= self._wait_ticks
        if taker.stage == TakerStage.WATCHES:
            if is_new:
                yield "taker: sees a new counter", state.with_taker(seen=state.stored, seen_ticks=0)
            elif has_waited or self._mistake is Mistake.OPERATOR_DOES_NOT_WAIT:
                yield "taker: declares the owner dead", state.with_taker(seen_ticks=0, stage=TakerStage.BURIES)
        elif taker.stage == TakerStage.BURIES:
            looks_again = self._mistake not in (Mistake.NO_SECOND_LOOK, Mistake.OPERATOR_DOES_NOT_WAIT)
            stage = TakerStage.LOOKS_AGAIN if looks_again else TakerStage.TAKES_OVER
            yield (
                "taker: creates the tombstone",
                state.with_taker(seen_ticks=0, stage=stage)._replace(has_tombstone=1),
            )
        elif taker.stage == TakerStage.LOOKS_AGAIN:
            if is_new:
                yield "taker: sees a new counter, waits", state.with_taker(seen_ticks=0, stage=TakerStage.WAITS)
            else:
                yield "taker: sees no new counter", state.with_taker(seen_ticks=0, stage=TakerStage.TAKES_OVER)
        elif taker.stage == TakerStage.WAITS:
            if has_waited:
                yield "taker: has waited a TTL", state.with_taker(seen_ticks=0, stage=TakerStage.TAKES_OVER)
        elif taker.stage == TakerStage.TAKES_OVER:
            following = state.with_taker(seen_ticks=0, stage=TakerStage.SERVES)
            acknowledged = state.acknowledged + 1
            yield (
                "taker: seals, takes over, acknowledges a commit",
                following._replace(is_sealed=1, acknowledged=acknowledged),
            )


ANSWER = "owner: answers a read"


def stale_read(label: str, state: LeaseState) -> str:
    is_stale = label == ANSWER and state.owner.value < state.acknowledged
    return "I2: a read is older than an acknowledged commit" if is_stale else ""


def ranked(state: LeaseState) -> LeaseState:
    """Counters by their order: only which of them are equal or greater matters."""
    counters = sorted({state.stored, state.late, state.owner.counter, state.taker.seen} - {0})
    rank = {0: 0} | {counter: index + 1 for index, counter in enumerate(counters)}
    return state._replace(
        stored=rank[state.stored],
        late=rank[state.late],
        owner=state.owner._replace(counter=rank[state.owner.counter]),
        taker=state.taker._replace(seen=rank[state.taker.seen]),
    )
