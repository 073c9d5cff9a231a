"""Planted bugs of groups that change between the classic and the consumer protocol."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.consumer_group import classic_members
from callboard.actors.consumer_group.heartbeat import current_after
from callboard.actors.consumer_group.records import CurrentValue
from callboard.actors.consumer_group.state import GroupState, Member
from callboard.actors.consumer_group.target import Target
from callboard.actors.steps import Steps

from .mutations_log import Plant


def classic_members_get_all_of_their_targets(patch: pytest.MonkeyPatch) -> None:
    """Also partitions that another member has not given back."""

    def take(state: GroupState, member: Member, target: Target, *others: Any) -> Steps[CurrentValue]:
        current = yield from current_after(state, member, target, *others)
        return current._replace(assigned=dict.fromkeys(target.partitions, current.member_epoch))

    patch.setattr(classic_members, "current_after", take)


def classic_members_are_not_asked_to_join_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(classic_members, "_must_join", lambda *_arguments: False)


MIXED_MUTATIONS: dict[str, tuple[Plant, str]] = {
    "classic members get all of their targets": (classic_members_get_all_of_their_targets, "mixed_members"),
    "classic members are not asked to join again": (classic_members_are_not_asked_to_join_again, "mixed_members"),
}
