"""A short form of the search of the rules, and bugs that it must find. ``make soak`` searches a million states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from consumer_group.search import Search
from consumer_group.search_world import Violation

from callboard.actors.consumer_group import members, reconcile, regexes, removal, target
from callboard.actors.consumer_group.plan import DecisionEnvironment, Plan
from callboard.actors.consumer_group.reconcile import Reconciliation
from callboard.actors.consumer_group.records import (
    NO_PARTITIONS,
    CurrentValue,
    PartitionEpochs,
    RegexRecord,
    TargetRecord,
)
from callboard.actors.consumer_group.state import GroupState
from callboard.actors.steps import Steps


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        *(((*"abS",), "names"), ((*"abc",), "names"), ((*"aS",), "names")),
        *(((*"abS",), "regexes"), ((*"aS",), "regexes"), ((*"aS",), "mixed")),
    ],
)
def test_no_step_leads_to_a_state_that_must_not_be(names: tuple[str, ...], kind: str) -> None:
    found = Search(names, 20, kind).run(1_500)
    assert found.states >= 1_500
    assert found.settled >= 75


def test_a_member_alone_has_few_states() -> None:
    """The search ends when there are no more states."""
    found = Search(("a",), settle_every=1).run(100_000)
    assert found.is_closed
    assert found.states == found.settled


# Bugs ----------------------------------------------------------------------------------------------------------------


def each_partition_is_free(_given: Reconciliation, _partition: object) -> bool:
    return True


def silence_means_that_nothing_is_owned(given: Reconciliation, partitions: PartitionEpochs) -> bool:
    return any(partition in partitions for partition in given.owned or ())


advance = reconcile._advance_from


def pending_partitions_are_forgotten(given: Reconciliation, epoch: int) -> CurrentValue:
    return advance(given, epoch)._replace(pending_revocation=NO_PARTITIONS)


def the_epoch_stays(given: Reconciliation, epoch: int) -> CurrentValue:
    return advance(given, epoch)._replace(member_epoch=epoch)


def nothing_is_checked(*_arguments: object) -> None:
    pass


remove_members = removal.remove_members


def targets_are_left(
    state: GroupState, member_ids: Sequence[str], environment: DecisionEnvironment, plan: Plan
) -> Steps[None]:
    yield from remove_members(state, member_ids, environment, plan)
    plan.records = [record for record in plan.records if not isinstance(record, TargetRecord)]


def expressions_are_left(
    state: GroupState, member_ids: Sequence[str], environment: DecisionEnvironment, plan: Plan
) -> Steps[None]:
    yield from remove_members(state, member_ids, environment, plan)
    plan.records = [record for record in plan.records if not isinstance(record, RegexRecord)]


def nothing_is_due(*_arguments: object) -> tuple[str, ...]:
    return ()


def the_group_epoch_stays(state: GroupState, *_arguments: object) -> Steps[int]:
    yield
    return state.epoch.epoch


def there_is_one_assignment(state: GroupState, _environment: DecisionEnvironment) -> bool:
    return state.target.epoch == 1


@pytest.mark.parametrize(
    ("module", "name", "bug", "problem", "kind"),
    [
        (reconcile, "_is_free", each_partition_is_free, "belongs to", "names"),
        (reconcile, "_owns_any", silence_means_that_nothing_is_owned, "are not its own any more", "names"),
        (reconcile, "_advance_from", pending_partitions_are_forgotten, "are not its own any more", "names"),
        (reconcile, "_advance_from", the_epoch_stays, "is a member with epoch 0", "names"),
        (removal, "remove_members", targets_are_left, "has no member", "names"),
        (target, "_may_assign", there_is_one_assignment, "does not settle", "names"),
        (members, "check_epoch", nothing_is_checked, "expected .*FENCED_MEMBER_EPOCH", "names"),
        (members, "check_released", nothing_is_checked, "expected .*UNRELEASED_INSTANCE_ID", "names"),
        (regexes, "due_regexes", nothing_is_due, "does not settle", "regexes"),
        (regexes, "next_group_epoch", the_group_epoch_stays, "does not settle", "regexes"),
        (removal, "remove_members", expressions_are_left, "has no member|does not settle", "regexes"),
    ],
)
def test_a_bug_is_found(
    module: Any, name: str, bug: Callable[..., Any], problem: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, bug)
    with pytest.raises(Violation, match=problem) as caught:
        Search(("a", "S"), 5, kind).run(2_000)
    assert "start\n" in str(caught.value)
