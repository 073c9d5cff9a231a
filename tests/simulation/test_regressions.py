"""What long runs have found. Each interleaving has a test that reproduces it without a seed.

A seed repeats its run only until the scenario changes, so seeds of past failures are not kept. Here the bug of each row
is planted, and its test must fail. ``docs/contributing.md`` says when a row is added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from callboard.actors.messages import Joined
from callboard.runtime.member import subscribed_resources
from callboard.runtime.member.membership import Membership
from callboard.runtime.member.owned_shards import OwnedShards
from callboard.runtime.member.resource_subscription import ResourceSubscription
from callboard.runtime.member.shards import TopicPartition

from .mutations import unknown_numbers_are_dropped
from .mutations_log import Plant

JOBS = {"jobs"}  # the resource of the test, whose shards have numbers
TESTS = Path(__file__).resolve().parents[1]


class Regression(NamedTuple):
    """``scenario``: the one that found it. ``plant``: brings the bug back. ``test``: FOLDER/MODULE.FUNCTION."""

    scenario: str
    plant: Plant
    test: str


def lost_claims_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A member that lost shards while its JoinGroup claimed them does not rejoin for them."""
    apply_assignment = Membership._apply_assignment

    async def apply(self: Membership, assigned: Sequence[TopicPartition]) -> bool:
        self._subscription.claimed = tuple(self.owned.shards)
        return await apply_assignment(self, assigned)

    patch.setattr(Membership, "_apply_assignment", apply)


def returning_static_members_check_nothing(patch: pytest.MonkeyPatch) -> None:
    """A static member that restarts with other resources does not look whether they have owners."""

    async def none(self: ResourceSubscription, joined: object) -> set[object]:
        return set()

    patch.setattr(ResourceSubscription, "partitions_to_check", none)


def returning_static_members_check_only_names(patch: pytest.MonkeyPatch) -> None:
    """A static member that restarts does not look whether shards without names have owners."""
    partitions_to_check = ResourceSubscription.partitions_to_check

    async def with_names(self: ResourceSubscription, joined: Joined) -> set[TopicPartition]:
        partitions = await partitions_to_check(self, joined)
        return {partition for partition in partitions if joined.skip_assignment or partition[0] not in JOBS}

    patch.setattr(ResourceSubscription, "partitions_to_check", with_names)


def leaving_members_wait_for_no_lost_shard(patch: pytest.MonkeyPatch) -> None:
    """A member leaves although work on a shard that it has lost has not ended."""

    async def return_at_once(self: OwnedShards, allowed_s: float) -> None: ...

    patch.setattr(OwnedShards, "wait_for_lost_at_most", return_at_once)


def full_disks_end_members(patch: pytest.MonkeyPatch) -> None:
    """No error is temporary for a member that creates topics."""
    patch.setattr(subscribed_resources, "_is_temporary", lambda error: False)


REGRESSIONS = {
    "a member starts with more shards while the disk is full, and ends with an error": Regression(
        "growing_resource",
        full_disks_end_members,
        "member/test_member_topics.test_member_starts_when_the_full_disk_has_room",
    ),
    "a member leaves while its work on a lost shard ends, and the shard has another owner": Regression(
        "growing_resource",
        leaving_members_wait_for_no_lost_shard,
        "member/test_member_lease.test_member_leaves_when_work_on_a_shard_that_it_has_lost_has_ended",
    ),
    "the leader adds shards that a member does not know yet, and the member drops them": Regression(
        "growing_resource",
        unknown_numbers_are_dropped,
        "member/test_member_resources.test_shards_that_the_leader_has_added_first_are_owned_by_members_that_do_not"
        "_know_them_yet",
    ),
    "a member loses a shard while its JoinGroup claims it, and nobody else gets it": Regression(
        "embedded_members",
        lost_claims_are_forgotten,
        "member/test_member_lease.test_shard_lost_while_a_join_is_held_back_and_moved_elsewhere_gets_an_owner",
    ),
    "a static member restarts with more resources, and nobody assigns them": Regression(
        "growing_resource",
        returning_static_members_check_nothing,
        "member/test_member_groups.test_static_member_that_returns_with_a_new_name_gets_it",
    ),
    "a static member restarts, its JoinGroup that gave back a shard is lost, and nobody gets it": Regression(
        "growing_resource",
        returning_static_members_check_only_names,
        "member/test_member_groups.test_static_member_that_returns_sees_that_a_shard_it_gave_back_has_no_owner",
    ),
}


def find_test(name: str, patch: pytest.MonkeyPatch) -> Callable[[], None]:
    path, function = name.rsplit(".", 1)
    folder, module = path.split("/")
    patch.setattr(sys, "path", [str(TESTS / folder), *sys.path])
    test: Callable[[], None] = getattr(import_module(module), function)
    return test


@pytest.mark.parametrize("found", REGRESSIONS)
def test_interleaving_of_a_long_run_is_reproduced_by_its_test(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    regression = REGRESSIONS[found]
    run_test = find_test(regression.test, monkeypatch)
    run_test()
    regression.plant(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        run_test()
