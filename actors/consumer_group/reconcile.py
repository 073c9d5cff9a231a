"""Reconciliation: how a member gets from the partitions that it has to those of its target.

A member first gives back what the target does not have. When its heartbeat no longer names those partitions it gets the
new epoch, with the new partitions that no other member has any more. ``RULES`` has the cases by the state of the
member; the first row whose predicate holds says what to do. Source: ``CurrentAssignmentBuilder`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from typing import NamedTuple

from ..errors import CoordinatorError, ErrorCode
from .records import NO_PARTITIONS, CurrentValue, MemberState, Partition, PartitionEpochs

STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


class Reconciliation(NamedTuple):
    """What decides about a member.

    ``owned``: what the member says that it owns; None if it does not say. ``topic_ids``: of the topics that it now
    subscribes to. ``names_topics``: whether it subscribes to any, existing or not. ``has_owner``: whether a partition
    is assigned to a member or has not been given back by one. ``subscription_changed``: with this heartbeat.
    """

    current: CurrentValue
    target_epoch: int
    target: Collection[Partition]
    topic_ids: Set[bytes]
    has_owner: Callable[[Partition], bool]
    owned: Collection[Partition] | None = None
    subscription_changed: bool = False
    names_topics: bool = True


Predicate = Callable[[Reconciliation], bool]
Act = Callable[[Reconciliation], CurrentValue]


def reconcile(given: Reconciliation) -> CurrentValue:
    """The member's next assignment, which may be the current one. Raises CoordinatorError."""
    for holds, act in RULES[given.current.state]:
        if holds(given):
            return act(given)
    return given.current


# Predicates ----------------------------------------------------------------------------------------------------------


def _always(_given: Reconciliation) -> bool:
    return True


def _has_new_target(given: Reconciliation) -> bool:
    return given.current.member_epoch != given.target_epoch


def _subscribes_anew(given: Reconciliation) -> bool:
    return given.subscription_changed


def _still_owns_pending(given: Reconciliation) -> bool:
    return _owns_any(given, given.current.pending_revocation)


def _still_owns_and_subscribes_anew(given: Reconciliation) -> bool:
    return given.subscription_changed and _still_owns_pending(given)


def _may_own(given: Reconciliation) -> bool:
    return given.owned is None or len(given.owned) > 0


def _owns_any(given: Reconciliation, partitions: PartitionEpochs) -> bool:
    """A member that does not say what it owns may own all of them."""
    return given.owned is None or any(partition in partitions for partition in given.owned)


# Acts ----------------------------------------------------------------------------------------------------------------


def _keep(given: Reconciliation) -> CurrentValue:
    return given.current


def _fence(_given: Reconciliation) -> CurrentValue:
    raise CoordinatorError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
    )


def _advance(given: Reconciliation) -> CurrentValue:
    return _advance_from(given, given.current.member_epoch)


def _advance_from_target(given: Reconciliation) -> CurrentValue:
    return _advance_from(given, given.target_epoch)


def _advance_from(given: Reconciliation, epoch: int) -> CurrentValue:
    """One step to the target. While the member has to give back partitions it stays in ``epoch``."""
    current = given.current
    wanted = dict.fromkeys(partition for partition in given.target if partition[0] in given.topic_ids)
    kept = {partition: since for partition, since in current.assigned.items() if partition in wanted}
    revoked = {partition: since for partition, since in current.assigned.items() if partition not in wanted}
    if revoked and _owns_any(given, revoked):
        return CurrentValue(epoch, current.member_epoch, UNREVOKED, kept, revoked)
    added = [partition for partition in wanted if partition not in kept]
    free = [partition for partition in added if _is_free(given, partition)]
    state = UNRELEASED if len(free) < len(added) else STABLE
    assigned = {**kept, **dict.fromkeys(free, given.target_epoch)}
    return CurrentValue(given.target_epoch, current.member_epoch, state, assigned, NO_PARTITIONS)


def _is_free(given: Reconciliation, partition: Partition) -> bool:
    """The member may get back what it was to give."""
    return partition in given.current.pending_revocation or not given.has_owner(partition)


def _shrink(given: Reconciliation) -> CurrentValue:
    """The member gives back what it no longer subscribes to, although there is no new target yet.

    As in Kafka, a member that names no topic any more has its previous epoch set even if it has nothing to give back.
    """
    current = given.current
    removed = {partition: since for partition, since in current.assigned.items() if partition[0] not in given.topic_ids}
    if not removed and (given.names_topics or current.pending_revocation):
        return current
    kept = {partition: since for partition, since in current.assigned.items() if partition not in removed}
    pending = {**current.pending_revocation, **removed}
    epoch = current.member_epoch
    if pending and _owns_any(given, pending):
        return CurrentValue(epoch, epoch, UNREVOKED, kept, pending)
    return CurrentValue(epoch, epoch, current.state, kept, current.pending_revocation)


RULES: Mapping[MemberState, tuple[tuple[Predicate, Act], ...]] = {
    STABLE: ((_has_new_target, _advance), (_subscribes_anew, _shrink)),
    UNREVOKED: ((_still_owns_and_subscribes_anew, _shrink), (_still_owns_pending, _keep), (_always, _advance)),
    UNRELEASED: ((_always, _advance),),
    MemberState.UNKNOWN: ((_may_own, _fence), (_always, _advance_from_target)),
}
