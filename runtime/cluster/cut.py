"""A consistent cut: the content of all partitions at one moment, while nodes go on.

What was acknowledged before the cut began is in it. A transaction is in it as a whole or not at all: no decision about
a transaction is made between the first and the last look at the WALs, and the partitions of transactions are cut at the
last look, those of offsets at the one before. So each marker has its decision, each decision has all offsets that it is
about, and no offset waits for a transaction that the cut does not know. After a decision all looks are repeated.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...actors.records import TransactionRecord
from ...actors.transactions.rules import TransactionState
from ..log.format.batch import read_batches
from ..log.format.transaction_records import decode_transactions
from ..log.journal_frames import frame_batches, frame_content
from .content import Superseded, read_content
from .keys import FLOORS, TOPICS, number_of, owner_of, wal_prefix
from .manifest import Manifest, newest_manifest
from .register import Register
from .register_log import newest_register
from .segments import SegmentDamaged
from .store import Store
from .tails import following
from .topics_document import TopicsDocument, decode_topics
from .version_log import newest_version
from .wal import WalDamaged, read_tail

UNDECIDED = frozenset((TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD))

Batches = Sequence[bytes]
WalEnds = Mapping[str, int]
"""The number after the last round, by session."""
Rounds = Mapping[str, Sequence[tuple[int, int, bytes]]]
"""By session the number of a round, a partition and its batch."""


class Moved(Exception):
    """Something has changed between two looks: begin again. The text says what."""


class Cut(NamedTuple):
    """``tails``: by partition the batches after the segments of its manifest."""

    register: Register
    topics: TopicsDocument
    manifests: Sequence[Manifest]
    tails: Sequence[Batches]


async def make_cut(store: Store) -> Cut:
    """``store`` is patient and has a register. Raises Moved."""
    register, topics = await _documents(store)
    floors = await _floors(store)  # before the manifests, which do not need what is below
    manifests = await asyncio.gather(*(newest_manifest(store, p) for p in range(len(register.owners))))
    _check_loaded(register, manifests)
    sessions = sorted({manifest.tail.session for manifest in manifests if manifest.tail is not None})
    first, middle, last = [await _wal_ends(store, sessions) for _ in range(3)]
    if await _documents(store) != (register, topics):
        raise Moved("the register or the topics have changed")
    if topics.deletions:
        raise Moved("the offsets of deleted topics are not deleted yet")
    rounds = await _read_rounds(store, floors, last)
    offsets = register.counts.offsets
    tails = []
    for manifest in manifests:
        ends = middle if manifest.partition < offsets else last
        tails.append(_tail(manifest, rounds, ends))
    _check_undecided(rounds, first, offsets)
    return Cut(register, topics, manifests, tails)


async def content_of(store: Store, cut: Cut, partition: int) -> Batches:
    """The batches of a partition; those of a segment are one value. Raises Moved if segments were deleted since."""
    manifest = cut.manifests[partition]
    try:
        segments = await read_content(store, manifest)
    except (SegmentDamaged, Superseded) as error:
        raise Moved(str(error)) from error
    if [segment for segment, _ in segments] != list(manifest.segments):
        raise Moved(f"partition {partition} was compacted")
    return [*(data for _, data in segments), *cut.tails[partition]]


async def _documents(store: Store) -> tuple[Register, TopicsDocument]:
    register = await newest_register(store)
    topics = await newest_version(store, TOPICS, decode_topics)
    assert register is not None, "the caller has read one"
    return register, topics or TopicsDocument(0, "", {})


def _check_loaded(register: Register, manifests: Iterable[Manifest]) -> None:
    """Else a node loads the partition now, and commits that follow would be missing."""
    for manifest in manifests:
        owner, epoch = register.owners[manifest.partition], register.epochs[manifest.partition]
        if owner in register.nodes and manifest.epoch != epoch:
            raise Moved(f"partition {manifest.partition} is not loaded by its owner {owner}")


async def _floors(store: Store) -> dict[str, int]:
    """By session, the highest one: rounds below may be deleted."""
    return {owner_of(key): number_of(key) for key in await store.list(FLOORS)}  # in the order of their numbers


async def _wal_ends(store: Store, sessions: Sequence[str]) -> WalEnds:
    """If all rounds are deleted, the WAL ends at its floor."""
    listed = await asyncio.gather(*(store.list(wal_prefix(session)) for session in sessions))
    floors = await _floors(store)
    return {
        session: max(floors.get(session, 0), number_of(keys[-1]) + 1 if keys else 0)
        for session, keys in zip(sessions, listed, strict=True)
    }


async def _read_rounds(store: Store, floors: Mapping[str, int], ends: WalEnds) -> Rounds:
    batches: dict[str, list[tuple[int, int, bytes]]] = defaultdict(list)
    try:
        for session, end in ends.items():
            number = floors.get(session, 0)
            async for frame in read_tail(store, session, number, end):
                batches[session] += [(number, p, bytes(batch)) for p, batch in frame_batches(frame_content(frame))]
                number += 1
    except WalDamaged as error:
        raise Moved(str(error)) from error  # its owner has written a checkpoint and deleted the round
    return batches


def _tail(manifest: Manifest, rounds: Rounds, ends: WalEnds) -> Batches:
    if manifest.tail is None:
        return ()
    session = manifest.tail.session
    batches = [
        batch
        for number, partition, batch in rounds.get(session, ())
        if partition == manifest.partition and number < ends[session]
    ]
    try:
        return following(batches, manifest)
    except WalDamaged as error:
        raise Moved(str(error)) from error


def _check_undecided(rounds: Rounds, first: WalEnds, offsets_partitions: int) -> None:
    """Raise Moved for a record since the first look that says how a transaction ends."""
    for session, batches in rounds.items():
        for number, partition, batch in batches:
            if partition >= offsets_partitions and number >= first[session] and _decides(batch):
                raise Moved("a transaction was decided")


def _decides(data: bytes) -> bool:
    records = (record for batch in read_batches(data) for _, _, record in decode_transactions(batch))
    return any(
        isinstance(record, TransactionRecord) and record.value is not None and record.value.state not in UNDECIDED
        for record in records
    )
