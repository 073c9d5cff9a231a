"""The model of the cluster's log: sessions, WALs, the register, manifests.

There is no clock: anybody may be declared dead at any time, and a session that does nothing is slow, frozen or dead.
An operation whose answer was lost is settled by reading, so it is the same step, a little later.
"""

from __future__ import annotations

from collections.abc import Iterator

from .burials import burial_steps
from .checkpoints import checkpoint_steps, compaction_steps
from .garbage import garbage_steps, late_delete_steps
from .handovers import hand_over_steps, late_change_steps, leave_steps
from .loads import load_steps
from .membership import membership_steps
from .promises import broken_promise
from .recovery import stuck
from .rounds import round_steps
from .scopes import Cluster
from .search import Step
from .state import (
    FREE,
    NO_MANIFEST,
    NOT_HELD,
    UNBORN,
    Manifest,
    Partition,
    PartitionPhase,
    Register,
    Session,
    SessionPhase,
    State,
)

RUNNING = (
    *(SessionPhase.ACTIVE, SessionPhase.LEAVING),
    *(SessionPhase.SEALING, SessionPhase.SEALED, SessionPhase.ABSENT),
)


class ClusterModel:
    """``cluster``: the scope and the planted mistake."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def first_state(self) -> State:
        """Session 0 owns all partitions, and has loaded the first ``loaded`` ones."""
        scope = self._cluster.scope
        register = Register((1 << scope.members) - 1, (0,) * scope.partitions, (1,) * scope.partitions)
        manifest = Manifest(1, 1, 0, 1)
        served = Partition(PartitionPhase.SERVING, 1, manifest, 0, FREE)
        idle = (NOT_HELD,) * (scope.partitions - scope.loaded)
        owner = Session(SessionPhase.ACTIVE, register, partitions=(served,) * scope.loaded + idle)
        other = Session(SessionPhase.ACTIVE, register, partitions=(NOT_HELD,) * scope.partitions)
        total = scope.sessions
        return State(
            register=register,
            tombstones=0,
            wals=((),) * total,
            floors=(0,) * total,
            deletes=(0,) * total,
            manifests=(manifest,) * scope.loaded + (NO_MANIFEST,) * len(idle),
            answered=0,
            budgets=scope.budgets,
            compaction=(),
            late_change=(),
            sessions=(owner, *(other,) * (scope.members - 1), *(UNBORN,) * (total - scope.members)),
        )

    def steps(self, state: State) -> Iterator[Step]:
        for number, session in enumerate(state.sessions):
            if session.phase in RUNNING:
                yield from self.session_steps(state, number)
            elif session.phase == SessionPhase.UNBORN:
                yield from membership_steps(self._cluster, state, number)
        yield from late_delete_steps(state)
        yield from late_change_steps(state)
        yield from compaction_steps(self._cluster, state)

    def session_steps(self, state: State, number: int) -> Iterator[Step]:
        cluster = self._cluster
        yield from membership_steps(cluster, state, number)
        yield from round_steps(cluster, state, number)
        for partition in range(len(state.sessions[number].partitions)):
            yield from load_steps(cluster, state, number, partition)
            yield from checkpoint_steps(cluster, state, number, partition)
            yield from hand_over_steps(cluster, state, number, partition)
        yield from leave_steps(cluster, state, number)
        yield from garbage_steps(cluster, state, number)
        yield from burial_steps(cluster, state, number)

    def violation(self, state: State) -> str:
        return broken_promise(self._cluster, state)

    def stuck(self, state: State) -> str:
        return stuck(self._cluster, self, state)
