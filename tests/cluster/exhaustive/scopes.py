"""The scopes of the exhaustive search: how often each thing may happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NOT_MEASURED = (0, 0, 0)


class Scope(NamedTuple):
    """``budgets``: how often each thing may happen, by its name and the process.

    ``processes``: named by the letter of their node. The first one owns the partition at first. Those that have a
    budget to start do not take part from the beginning. ``horizon``: if given, time passes until then, and sleeps end
    when they are due; else they may end at any time, and anybody may be declared dead at any time. ``states_max``:
    where the search stops, 0 for never. ``calm_each``: one of so many states is a start from which the nodes must come
    to serve the partition, 0 for none. ``size``: states, steps and depth, as far as it is searched. ``is_short``: it
    takes a few seconds.
    """

    about: str
    budgets: Mapping[str, int]
    processes: tuple[str, ...] = ("a", "b")
    horizon: int = 0
    states_max: int = 0
    calm_each: int = 100
    size: tuple[int, int, int] = NOT_MEASURED
    is_short: bool = False

    @property
    def has_clock(self) -> bool:
        return self.horizon > 0


SCOPES: Mapping[str, Scope] = {
    "round": Scope(
        "a commits, and b declares it dead",
        {"commit a": 1, "suspect b": 1, "look b": 1},
        calm_each=10,
        size=(3335, 4747, 25),
        is_short=True,
    ),
    "burial": Scope(
        "the same with two commits of a, and one of b",
        {"commit a": 2, "suspect b": 1, "look b": 1, "commit b": 1},
        size=(20818, 31895, 31),
    ),
    "late": Scope(
        "a gives up one of its operations, which lands later",
        {"commit a": 2, "suspect b": 1, "look b": 1, "late a": 1},
        size=(177234, 335457, 32),
    ),
    "checkpoint": Scope(
        "a writes a checkpoint and deletes rounds",
        {"commit a": 1, "checkpoint a": 1, "suspect b": 1, "look b": 1},
        size=(22903, 37622, 33),
        is_short=True,
    ),
    "continuity": Scope(
        "a compares the store with what it knows, while it commits and deletes rounds and is declared dead",
        {"commit a": 1, "checkpoint a": 1, "continuity a": 1, "suspect b": 1, "look b": 1},
        states_max=60_000,
        calm_each=500,
        size=(60000, 101102, 14),
    ),
    "own-continuity": Scope(
        "a alone: it compares the store with what it knows, while it commits and deletes rounds",
        {"commit a": 1, "checkpoint a": 1, "continuity a": 1},
        processes=("a",),
        size=(437, 436, 14),
        is_short=True,
    ),
    "checkpoint-taken": Scope(
        "the same, and b commits",
        {"commit a": 1, "checkpoint a": 1, "suspect b": 1, "look b": 1, "commit b": 1},
        size=(25641, 42043, 35),
    ),
    "large": Scope(
        "all of this: two commits of a, a checkpoint, an operation that lands late, a burial, a commit of b",
        {"commit a": 2, "checkpoint a": 1, "suspect b": 1, "look b": 1, "commit b": 1, "late a": 1},
        states_max=1_200_000,
        calm_each=500,
        size=(1200000, 2241455, 17),
    ),
    "own": Scope(
        "a alone: a checkpoint while it commits",
        {"commit a": 2, "checkpoint a": 1},
        processes=("a",),
        size=(294, 293, 12),
        is_short=True,
    ),
    "own-garbage": Scope(
        "a alone: a checkpoint, and a collection of garbage",
        {"commit a": 1, "checkpoint a": 1, "garbage a": 1},
        processes=("a",),
        states_max=5_000,
        size=(5001, 5000, 12),
    ),
    "leave": Scope(
        "a leaves while b declares it dead",
        {"commit a": 1, "leave a": 1, "suspect b": 1, "look b": 1},
        states_max=60_000,
        size=(60000, 90587, 16),
    ),
    "crash": Scope(
        "a dies, its next process joins while b declares the first one dead",
        {"commit a": 1, "crash a": 1, "start a2": 1, "suspect b": 1, "look b": 1},
        processes=("a", "b", "a2"),
        states_max=60_000,
        size=(60000, 137987, 19),
    ),
    "mutual": Scope(
        "both declare each other dead",
        {"commit a": 1, "suspect b": 1, "look b": 1, "suspect a": 1, "look a": 1},
        states_max=60_000,
        size=(60000, 104378, 16),
    ),
    "lease": Scope(
        "a reads under its lease while b watches it and takes over: time passes in steps of a quarter of a TTL",
        {"beat a": 1, "read a": 1, "look b": 6, "commit b": 1},
        horizon=10,
        size=(110799, 160151, 37),
        is_short=True,
        calm_each=0,
    ),
    "lease-slow": Scope(
        "the same, and one answer to a takes any time",
        {"beat a": 1, "slow a": 1, "read a": 1, "look b": 6, "commit b": 1},
        horizon=10,
        size=(366781, 620721, 38),
        calm_each=0,
    ),
}
