"""The searches by name: what is searched, how large it is, and in which of them each planted mistake is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from .cleaning import CleaningModel
from .cluster_model import ClusterModel
from .lease import LeaseModel
from .mistakes import Mistake
from .register import RegisterModel
from .scopes import SCOPES, Cluster, Scope
from .search import ALL_STATES, Model, Result, Search
from .segments import SegmentModel
from .transactions import TransactionModel

MakeModel = Callable[[Mistake | None], Model]

RECOVERIES_EVERY = 10
"""In scopes of the log, the proof asks of each tenth state whether those who live can finish."""


class Size(NamedTuple):
    """Of a complete search. ``depth``: steps to the farthest state."""

    states: int
    steps: int
    depth: int


class Space(NamedTuple):
    """``stuck_every``: it is asked of each n-th state whether those who live can finish; 0: of none."""

    make: MakeModel
    size: Size
    stuck_every: int = 0


class Plant(NamedTuple):
    """``space``: where the mistake is found. ``steps``: of the shortest trace. ``states``: seen until then."""

    space: str
    steps: int
    states: int
    stuck_every: int = 0


def make_cluster_model(scope: Scope, mistake: Mistake | None) -> Model:
    return ClusterModel(Cluster(scope, mistake))


def log_space(name: str, size: Size, stuck_every: int = RECOVERIES_EVERY) -> Space:
    return Space(partial(make_cluster_model, SCOPES[name]), size, stuck_every)


def segment_space(checkpoints: int, compactions: int, collections: int, size: Size) -> Space:
    make = partial(SegmentModel, checkpoints=checkpoints, compactions=compactions, collections=collections)
    return Space(make, size)


SPACES: Mapping[str, Space] = {
    "small": log_space("small", Size(261, 581, 17), 1),
    "give": log_space("give", Size(1_124, 3_168, 22), 1),
    "ended": log_space("ended", Size(1_355, 4_053, 26), 1),
    "back": log_space("back", Size(55_993, 194_437, 46), 1),
    "join": log_space("join", Size(132_728, 542_553, 34)),
    "tomb": log_space("tomb", Size(379_700, 2_720_739, 39)),
    "pack": log_space("pack", Size(265_542, 1_072_807, 37)),
    "die": log_space("die", Size(302_070, 1_373_669, 37)),
    "leave": log_space("leave", Size(815_281, 3_958_311, 40)),
    "pipe": log_space("pipe", Size(579_430, 2_791_410, 44)),
    "gc": log_space("gc", Size(622_321, 2_985_629, 44)),
    "two": log_space("two", Size(1_340_677, 6_885_051, 42)),
    "three": log_space("three", Size(1_404_882, 7_164_439, 40)),
    "one": log_space("one", Size(7_815_100, 44_159_416, 46), 1000),
    "lease": Space(LeaseModel, Size(14_154, 59_634, 29)),
    "register": Space(RegisterModel, Size(377_545, 1_414_120, 28)),
    "segments": segment_space(2, 1, 1, Size(24_477, 74_372, 22)),
    "compactions": segment_space(2, 2, 1, Size(464_304, 1_979_160, 29)),
    "checkpoints": segment_space(3, 1, 1, Size(229_878, 870_968, 27)),
    "collections": segment_space(2, 2, 2, Size(1_700_858, 8_362_576, 31)),
    "cleaning": Space(CleaningModel, Size(53_401, 149_128, 12)),
    "cleaning-four": Space(partial(CleaningModel, appends=4, checkpoints=3), Size(738_550, 2_204_105, 14)),
    "cleaning-compactions": Space(
        partial(CleaningModel, appends=4, checkpoints=3, compactions=3), Size(1_874_036, 6_086_004, 16)
    ),
    "markers": Space(TransactionModel, Size(21_704, 54_206, 23)),
    "copies": Space(partial(TransactionModel, has_copies=True), Size(20_168, 96_900, 23)),
    "markers-three": Space(partial(TransactionModel, transactions=3), Size(199_848, 510_086, 31)),
    "copies-three": Space(partial(TransactionModel, transactions=3, has_copies=True), Size(173_268, 955_614, 31)),
    "receivers": Space(partial(TransactionModel, receivers=2, burials=1), Size(86_908, 326_754, 32)),
    "receivers-copies": Space(
        partial(TransactionModel, receivers=2, burials=1, has_copies=True), Size(92_692, 825_830, 32)
    ),
    "receivers-burials": Space(partial(TransactionModel, receivers=2), Size(1_895_886, 8_858_496, 37)),
}

PLANTS: Mapping[Mistake, Plant] = {
    Mistake.SEAL_FROM_OLDEST: Plant("back", 8, 351),
    Mistake.FLOOR_OF_SERVED: Plant("back", 5, 81),
    Mistake.MANIFEST_REREAD: Plant("back", 18, 6_132),
    Mistake.NEXT_NUMBER_NAMED: Plant("back", 4, 47),
    Mistake.LEAVER_NOT_SEALED: Plant("leave", 7, 3_094),
    Mistake.OWN_TAIL_READ: Plant("die", 4, 61, 1),
    Mistake.NOT_TAKEN_BACK: Plant("three", 5, 1_068, 1),
    Mistake.WRITER_DIES: Plant("small", 2, 6, 1),
    Mistake.NO_SEAL: Plant("small", 10, 179),
    Mistake.BLIND_MANIFESTS: Plant("small", 13, 230),
    Mistake.ANSWER_BEFORE_STORED: Plant("small", 1, 2),
    Mistake.ANSWER_OUT_OF_ORDER: Plant("pipe", 4, 56),
    Mistake.NO_TOMBSTONE: Plant("back", 12, 1_112),
    Mistake.NO_FLOOR: Plant("back", 10, 696),
    Mistake.NO_LOOK_BEFORE_DELETES: Plant("back", 12, 1_569),
    Mistake.DEAD_ROUNDS_BY_NAME: Plant("two", 17, 46_820),
    Mistake.ENDED_BEFORE_SEAL: Plant("ended", 20, 3_104),
    Mistake.DROPPED_EARLY: Plant("small", 5, 39),
    Mistake.CHANGE_GIVEN_UP: Plant("give", 5, 108, 1),
    Mistake.COMPACTION_DROPS_TAIL: Plant("pack", 5, 157),
    Mistake.COMPACTION_OF_OLD_MANIFEST: Plant("pack", 8, 1_003),
    Mistake.TWO_TASKS_ADVANCE: Plant("register", 7, 804),
    Mistake.NO_LOOK_AFTER_VERSION: Plant("register", 14, 33_573),
    Mistake.JOINER_BELIEVES: Plant("register", 13, 27_310),
    Mistake.VERSIONS_DELETED_EARLY: Plant("register", 10, 8_129),
    Mistake.NO_LEASE: Plant("lease", 9, 1_050),
    Mistake.NO_SECOND_LOOK: Plant("lease", 11, 2_427),
    Mistake.CLOCK_RATES: Plant("lease", 11, 3_438),
    Mistake.CLOCK_PAUSED: Plant("lease", 13, 11_195),
    Mistake.COUNTER_LANDS_TWICE: Plant("lease", 17, 15_021),
    Mistake.OPERATOR_DOES_NOT_WAIT: Plant("lease", 7, 1_226),
    Mistake.GARBAGE_BY_NAME: Plant("segments", 8, 581),
    Mistake.GARBAGE_BY_OLD_MANIFEST: Plant("segments", 8, 566),
    Mistake.REBASE_KEEPS_SEGMENT: Plant("segments", 12, 4_710),
    Mistake.SEGMENT_WITHOUT_TOKEN: Plant("segments", 7, 298),
    Mistake.COMPACTION_BELIEVES: Plant("checkpoints", 15, 27_303),
    Mistake.COLLECTS_AHEAD: Plant("compactions", 15, 33_050),
    Mistake.COMPACTION_DELETES_FIRST: Plant("segments", 5, 74),
    Mistake.DAMAGE_AT_ONCE: Plant("segments", 10, 2_190),
    Mistake.TOMBSTONE_AT_ONCE: Plant("cleaning", 9, 17_059),
    Mistake.OLDER_SEGMENTS_LEFT: Plant("cleaning", 8, 7_193),
    Mistake.OPEN_TRANSACTION_COMPACTED: Plant("cleaning", 4, 358),
    Mistake.ABORTED_RECORD_COUNTS: Plant("cleaning", 6, 1_245),
    Mistake.WAL_COMPACTED: Plant("cleaning", 5, 491),
    Mistake.REPLACED_BY_NUMBER: Plant("cleaning", 8, 7_965),
    Mistake.EPOCH_IN_MEMORY: Plant("markers", 13, 8_107),
    Mistake.EPOCH_WITH_PENDING_ONLY: Plant("markers", 12, 3_795),
    Mistake.OLDER_EPOCH_ACCEPTED: Plant("markers", 12, 3_753),
    Mistake.MARKERS_NOT_SENT_AGAIN: Plant("markers", 7, 457),
    Mistake.NEXT_BEFORE_MARKERS: Plant("markers", 6, 346),
    Mistake.ONE_ANSWER_COMPLETES: Plant("receivers", 8, 971),
    Mistake.MARKER_BEFORE_DECISION: Plant("markers", 6, 387),
    Mistake.NUMBER_MISSING: Plant("copies", 10, 1_798),
    Mistake.OFFSETS_UNVERIFIED: Plant("markers", 7, 334),
    Mistake.VERIFIED_BEFORE_MARKER: Plant("markers", 8, 598),
    Mistake.VERIFIED_BY_ZOMBIE: Plant("markers", 9, 890),
}


def search_space(name: str, max_states: int = ALL_STATES) -> Result:
    """The rules as they are: no violation is expected."""
    space = SPACES[name]
    return Search(space.make(None), max_states, space.stuck_every).run()


def search_plant(mistake: Mistake, max_states: int = ALL_STATES) -> Result:
    """The rules with one mistake: a violation is expected."""
    plant = PLANTS[mistake]
    return Search(SPACES[plant.space].make(mistake), max_states, plant.stuck_every).run()
