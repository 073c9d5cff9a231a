"""How large the model is in each search: sessions, partitions, and how often something may happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .mistakes import Mistake
from .state import Budgets


class Scope(NamedTuple):
    """``members`` of ``sessions`` are in the register at first. Of the partitions the first ``loaded`` are served.

    ``pipeline``: rounds in flight. ``collects_ended``: rounds of ended sessions are deleted, too.
    """

    budgets: Budgets
    sessions: int = 2
    members: int = 2
    partitions: int = 1
    loaded: int = 1
    pipeline: int = 1
    collects_ended: bool = False


class Cluster:
    """A scope and a planted mistake. ``masks``: the commits of each partition, as bits."""

    def __init__(self, scope: Scope, mistake: Mistake | None = None) -> None:
        self.scope = scope
        self.mistake = mistake
        self.partitions = scope.partitions
        self.masks = tuple(
            sum(1 << commit * scope.partitions + partition for commit in range(scope.budgets.commits))
            for partition in range(scope.partitions)
        )


SCOPES: Mapping[str, Scope] = {
    "small": Scope(Budgets(commits=1, checkpoints=1, burials=1)),
    "give": Scope(Budgets(commits=1, hand_overs=1, burials=1)),
    "one": Scope(Budgets(commits=3, checkpoints=1, hand_overs=1, burials=2), sessions=3),
    "gc": Scope(Budgets(commits=3, checkpoints=2, hand_overs=1, burials=2, copies=1)),
    "back": Scope(Budgets(commits=2, checkpoints=1, hand_overs=3, burials=1)),
    "pipe": Scope(Budgets(commits=4, checkpoints=1, hand_overs=1, burials=2), pipeline=2),
    "two": Scope(
        Budgets(commits=3, checkpoints=1, hand_overs=1, burials=1), partitions=2, loaded=1, collects_ended=True
    ),
    "die": Scope(Budgets(commits=3, checkpoints=1, burials=1, failed_loads=1), partitions=2, loaded=1),
    "leave": Scope(Budgets(commits=2, burials=1, leaves=1), sessions=3, partitions=2, loaded=1),
    "pack": Scope(Budgets(commits=2, checkpoints=2, hand_overs=1, burials=1, compactions=2)),
    "join": Scope(Budgets(commits=2, checkpoints=1, hand_overs=1, burials=1), sessions=3),
    "tomb": Scope(Budgets(commits=1, burials=2), sessions=3, members=3, partitions=2, loaded=1, collects_ended=True),
    "ended": Scope(Budgets(commits=1, hand_overs=1, burials=1), members=1, collects_ended=True),
    "three": Scope(Budgets(commits=2, checkpoints=1, hand_overs=1, burials=2), sessions=3, members=3),
}
