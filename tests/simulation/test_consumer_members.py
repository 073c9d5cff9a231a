"""Mistakes in a member of the consumer protocol that the simulation finds. ``test_seeds_apart`` runs it without."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from callboard.runtime.member.consumer_membership import ConsumerMembership
from callboard.runtime.member.consumer_reconciler import ConsumerReconciler
from callboard.runtime.member.consumer_session import ConsumerSession
from callboard.runtime.member.consumer_state import ConsumerState, Event
from callboard.runtime.testing.simulation.simulate import run_seed

from .consumer_members import SESSION_MS, consumer_members

SEEDS = 20


def names_only_what_it_is_assigned(patch: pytest.MonkeyPatch) -> None:
    """Work on the partitions that it must give back has not ended."""
    patch.setattr(ConsumerState, "owned", lambda state: frozenset(state.assigned))


def counts_its_lease_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    extend = ConsumerMembership._extend_lease
    patch.setattr(
        ConsumerMembership,
        "_extend_lease",
        lambda member, record, sent_s: extend(member, record, member.lease.now_s()),
    )


def works_on_after_it_was_fenced(patch: pytest.MonkeyPatch) -> None:
    def abandon(member: ConsumerMembership, event: Event, reason: str) -> None:
        member.apply(event)

    patch.setattr(ConsumerMembership, "_abandon", abandon)


def assumes_a_longer_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerSession, "_timeouts", lambda session, _told_ms: session._options.timeouts(2 * SESSION_MS))


def takes_shards_that_it_has_lost_again(patch: pytest.MonkeyPatch) -> None:
    take = ConsumerReconciler._take
    patch.setattr(ConsumerReconciler, "_take", lambda reconciler, prepared: not take(reconciler, prepared) and False)


@pytest.mark.parametrize(
    ("mistake", "seed", "expected"),
    [
        (names_only_what_it_is_assigned, 6, "at the same time"),
        (counts_its_lease_from_the_answer, 3, "its session may end"),
        (works_on_after_it_was_fenced, 4, "newer owner|at the same time"),
        (assumes_a_longer_session, 0, "its session may end"),
        (takes_shards_that_it_has_lost_again, 3, "all shards have one owner"),
    ],
)
def test_mistake_of_a_member_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], seed: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first seed that finds it, or one of the next."""
    mistake(monkeypatch)
    failures = (run_seed(consumer_members, number).failure for number in range(seed, seed + SEEDS))
    assert re.search(expected, str(next(filter(None, failures), None)))
