"""The state of the cluster's log: what the store has, and what each session knows."""

from __future__ import annotations

from typing import NamedTuple

from .search import replaced

NOBODY = 15
"""The owner of a partition that has none."""
FREE = 99
"""``Partition.first_round`` of a partition whose batches are all in segments."""

# A cell of a WAL: EMPTY, SEAL, or a round with its content. Deleted rounds keep their content while copies may land.
EMPTY, SEAL = 0, 1
ROUND_BITS, DELETED_BITS, CELL_MASK = 2, 3, 3

Wal = tuple[int, ...]


class SessionPhase:
    """ABSENT: has left, and a manifest of a load may still be created."""

    UNBORN, ACTIVE, WRITER_DEAD, LEAVING, SEALING, SEALED, ABSENT, ENDED = range(8)


class PartitionPhase:
    """Of a partition in a session. CLOSING: no more appends. CLOSED: its last manifest of this session stands."""

    NONE, READING, TAIL_READ, CREATED, SERVING, CHECKPOINT, CLOSING, CLOSED = range(8)


class BurialStage:
    LISTS_FLOORS, SEALS, CHANGES_REGISTER = range(3)


class Register(NamedTuple):
    """``members``: a bit for each session. ``owners`` and ``epochs`` by partition."""

    members: int
    owners: tuple[int, ...]
    epochs: tuple[int, ...]

    def has(self, session: int) -> bool:
        return bool(self.members >> session & 1)

    def given(self, partition: int, owner: int) -> Register:
        owners, epochs = replaced(self.owners, partition, owner), list(self.epochs)
        epochs[partition] += 1
        return Register(self.members, owners, tuple(epochs))

    def with_member(self, session: int) -> Register:
        """A joiner owns what nobody has."""
        register = self._replace(members=self.members | 1 << session)
        for partition, owner in enumerate(self.owners):
            if owner == NOBODY:
                register = register.given(partition, session)
        return register

    def without_member(self, session: int, count: int) -> Register:
        """The next member owns what the session had. ``count``: of all sessions."""
        register = self._replace(members=self.members & ~(1 << session))
        others = [(session + step) % count for step in range(1, count)]
        heir = next((other for other in others if register.has(other)), NOBODY)
        for partition, owner in enumerate(self.owners):
            if owner == session:
                register = register.given(partition, heir)
        return register


class Manifest(NamedTuple):
    """The newest of a partition. ``content``: the commits in its segments. ``tail``: a session + 1, or 0."""

    version: int
    epoch: int
    content: int
    tail: int


NO_MANIFEST = Manifest(0, 0, 0, 0)


class Round(NamedTuple):
    """A round in flight. ``content``: a bit for its commit."""

    number: int
    content: int
    is_stored: bool


class Partition(NamedTuple):
    """What a session knows of a partition.

    ``content``: the commits that it serves. ``first_round``: from there on its WAL has batches that no segment has.
    ``saved`` and ``next_round``: of the checkpoint in progress. ``target``: to whom it is given.
    """

    phase: int = PartitionPhase.NONE
    epoch: int = 0
    manifest: Manifest = NO_MANIFEST
    content: int = 0
    first_round: int = FREE
    saved: int = 0
    next_round: int = 0
    target: int = 0


NOT_HELD = Partition()


class Session(NamedTuple):
    """``register``: as it knows it. ``flight``: the rounds without an answer, in order.

    ``burial``: victim, stage, number. ``deleting``: the floor that was created, or victim, partition of the dead.
    """

    phase: int
    register: Register
    next_number: int = 0
    flight: tuple[Round, ...] = ()
    partitions: tuple[Partition, ...] = ()
    burial: tuple[int, ...] = ()
    deleting: tuple[int, ...] = ()

    @property
    def stored_number(self) -> int:
        """All rounds below are stored and answered."""
        return self.flight[0].number if self.flight else self.next_number

    def with_partition(self, partition: int, value: Partition) -> Session:
        return self._replace(partitions=replaced(self.partitions, partition, value))


NO_REGISTER = Register(0, (), ())
UNBORN = Session(SessionPhase.UNBORN, NO_REGISTER)
ENDED = Session(SessionPhase.ENDED, NO_REGISTER)


class Budgets(NamedTuple):
    """How often each of these can still happen. ``copies``: second copies of a round's create that land."""

    commits: int
    checkpoints: int = 0
    hand_overs: int = 0
    burials: int = 0
    leaves: int = 0
    copies: int = 0
    failed_loads: int = 0
    compactions: int = 0


class State(NamedTuple):
    """``floors`` by session. ``deletes``: below these numbers rounds are deleted, late and in any order.

    ``answered``: a bit for each acknowledged commit. ``compaction``: partition and version that it has read.
    ``late_change``: a version of the register that was given up, and the one before it.
    """

    register: Register
    tombstones: int
    wals: tuple[Wal, ...]
    floors: tuple[int, ...]
    deletes: tuple[int, ...]
    manifests: tuple[Manifest, ...]
    answered: int
    budgets: Budgets
    compaction: tuple[int, ...]
    late_change: tuple[Register, ...]
    sessions: tuple[Session, ...]

    def has_tombstone(self, session: int) -> bool:
        return bool(self.tombstones >> session & 1)

    def with_session(self, session: int, value: Session) -> State:
        return State(*self[:-1], replaced(self.sessions, session, value))

    def with_partition(self, session: int, partition: int, value: Partition) -> State:
        return self.with_session(session, self.sessions[session].with_partition(partition, value))

    def with_cell(self, session: int, number: int, value: int) -> State:
        wal = self.wals[session]
        wal += (EMPTY,) * (number + 1 - len(wal))
        return self._replace(wals=replaced(self.wals, session, replaced(wal, number, value)))

    def with_manifest(self, partition: int, value: Manifest) -> State:
        return self._replace(manifests=replaced(self.manifests, partition, value))

    def with_floor(self, session: int, number: int) -> State:
        return self._replace(floors=replaced(self.floors, session, number))

    def deleting_below(self, session: int, number: int) -> State:
        return self._replace(deletes=replaced(self.deletes, session, max(number, self.deletes[session])))

    def fenced(self, session: int) -> State:
        """Whatever the session knew is forgotten."""
        return self.with_session(session, ENDED)

    def spent(self, budget: str) -> State:
        return self._replace(budgets=self.budgets._replace(**{budget: getattr(self.budgets, budget) - 1}))


# WALs ----------------------------------------------------------------------------------------------------------------


def round_cell(content: int) -> int:
    return content << 2 | ROUND_BITS


def is_round(cell: int) -> bool:
    return cell & CELL_MASK == ROUND_BITS


def is_free(cell: int) -> bool:
    """A create would succeed."""
    return cell == EMPTY or cell & CELL_MASK == DELETED_BITS


def cell_at(wal: Wal, number: int) -> int:
    return wal[number] if number < len(wal) else EMPTY


def read_tail(wal: Wal, floor: int) -> tuple[int, int, bool]:
    """The content of the rounds from the floor on, where they end, and whether the seal is there."""
    content, number = 0, floor
    while is_round(cell := cell_at(wal, number)):
        content |= cell >> 2
        number += 1
    return content, number, cell == SEAL
