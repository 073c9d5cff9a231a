"""SimulatedNode: keeps a number per partition and key, on the session and the log of the product."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from callboard.runtime.cluster.content import Superseded, read_content
from callboard.runtime.cluster.continuity import Known
from callboard.runtime.cluster.manifest import newest_manifest
from callboard.runtime.cluster.patient_store import PatientStore
from callboard.runtime.cluster.register import Endpoint, Register
from callboard.runtime.cluster.segments import SegmentDamaged
from callboard.runtime.cluster.session import NodeIdentity, Phase, Session
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.store import Store
from callboard.runtime.cluster.wal import Fenced, WalDamaged
from callboard.runtime.log.format.batch import encode_batch, frame_record, read_batches
from callboard.runtime.log.journal_frames import encode_frame
from callboard.runtime.log.partition_counts import PartitionCounts

PAUSE_S = 0.05
BUG = re.compile(r"Error\(")
"""In the reason why a session has ended: a bug in one of its tasks. The next session would hide it."""

OnAcknowledged = Callable[[str, int, int], None]
"""Called with session, partition and epoch when a commit is acknowledged."""


class Commit(NamedTuple):
    partition: int
    key: bytes
    value: int
    answer: asyncio.Future[bool]


class WrongContent(Exception):
    """A partition has a mark that was deleted, or lacks one."""


def mark(key: bytes, value: int) -> bytes:
    return b"%b/%d" % (key, value)


def read_values(contents: Iterable[bytes]) -> dict[bytes, int]:
    """The numbers by key. Raises WrongContent unless each has exactly the mark of its value."""
    live: dict[bytes, bytes] = {}
    for data in contents:
        for batch in read_batches(data):
            for _, _, key, value in batch.records():
                if value is None:
                    live.pop(key or b"", None)
                else:
                    live[key or b""] = value
    values = {key: int(value) for key, value in live.items() if b"/" not in key}
    expected = {mark(key, value) for key, value in values.items()}
    if (marks := live.keys() - values.keys()) != expected:
        raise WrongContent(f"found the marks {sorted(marks)}, expected {sorted(expected)}")
    return values


class SimulatedNode:
    """``SessionListener``. ``damages``: partitions that could not be loaded, with the reason.

    ``load_s``: so long it takes to load the content of a partition. ``repeats_loads``: each
    load is given up once, after its manifest stands.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        environment: SessionEnvironment,
        counts: PartitionCounts,
        on_acknowledged: OnAcknowledged,
    ) -> None:
        self.name = name
        self.damages: dict[int, str] = {}
        self.values: dict[int, dict[bytes, int]] = {}  # of the partitions that are served
        self.session: Session | None = None
        self.is_exclusive = False
        self.load_s = 0.0
        self.repeats_loads = False
        self._store = store
        self._environment = environment
        self._counts = counts
        self._on_acknowledged = on_acknowledged
        self._ends: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._told: dict[tuple[str, int], int] = {}  # the newest epoch by session and partition
        self._written: dict[int, dict[bytes, int]] = {}  # by partition and key, the last value in the log
        self._queue: list[Commit] = []
        self._wake = asyncio.Event()
        self._writing: set[int] = set()
        self._released: list[tuple[Session, int]] = []  # by the session, after the round in flight
        self._is_stopping = False

    async def run(self) -> None:
        """Take part until it leaves; begin another session whenever one is fenced."""
        writer = asyncio.get_running_loop().create_task(self._write())
        while not self._is_stopping:
            is_draining = self.session is not None and self.session.is_draining
            identity = NodeIdentity(
                self.name,
                {"": Endpoint(self.name, 9092)},
                is_exclusive=self.is_exclusive,
                is_draining=is_draining,
            )
            session = Session(self._store, self._environment, identity, self)
            try:
                await session.register.create(self._counts)
                self.session = session
                await session.join()
                await session.run()
            except Fenced as error:
                session.fence(str(error))
            if session.refusal is not None:  # although this store never loses anything
                self.damages.update(dict.fromkeys(range(self._counts.offsets), str(session.refusal)))
            await self._environment.sleep(PAUSE_S)
        writer.cancel()

    async def leave(self) -> None:
        self._is_stopping = True
        if self.session is not None and self.session.phase == Phase.ACTIVE:
            await self.session.leave()

    # SessionListener -------------------------------------------------------------------------------------------------

    def gained(self, epochs: Mapping[int, int]) -> None:
        for partition, epoch in epochs.items():
            self.lost([partition])
            self._epochs[partition] = epoch
            self._note_told(partition, epoch)
            asyncio.get_running_loop().create_task(self._load(self.session, partition, epoch))

    def _note_told(self, partition: int, epoch: int) -> None:
        key = self.session.name if self.session is not None else "", partition
        before = self._told.get(key, -1)
        if epoch <= before:
            self.damages[partition] = f"its session is told epoch {epoch} after {before}"
        self._told[key] = epoch

    def lost(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            self.values.pop(partition, None)
            self._epochs.pop(partition, None)
            if self.session is None:
                continue
            if partition in self._writing:  # perhaps by an earlier session, whose round has no answer yet
                self._released.append((self.session, partition))
            else:
                self.session.release(partition)

    def fenced(self, reason: str) -> None:
        if BUG.search(reason):
            asyncio.get_running_loop().call_exception_handler({"message": f"the session has ended: {reason}"})
        self.values.clear()
        self._epochs.clear()
        self._answer_all(self._queue, False)
        self._queue = []

    def register_changed(self) -> None:
        """Nothing depends on it."""

    def confirmed(self, register: Register, known: Known) -> None:
        """Nothing is noted."""

    def followed_key(self) -> str | None:
        return None

    def followed_unchanged(self, key: str, asked_s: float) -> None:
        """It follows none."""

    def followed_changed(self) -> None:
        raise AssertionError("nothing is followed")

    async def _load(self, session: Session | None, partition: int, epoch: int) -> None:
        assert session is not None
        try:
            if self.repeats_loads:
                await self._begin_load(session, partition, epoch)
            manifest = await session.log.load(partition, epoch)
            if self.load_s:
                await self._environment.sleep(self.load_s)
            contents = await read_content(PatientStore(self._store), manifest)
            values = read_values([data for _, data in contents])
        except (Superseded, asyncio.CancelledError):
            return
        except Fenced as error:
            session.fence(str(error))
        except (WalDamaged, SegmentDamaged, WrongContent) as error:
            self.damages[partition] = str(error)
        else:
            if session.phase == Phase.ACTIVE and self._epochs.get(partition) == epoch:
                self.values[partition], self._ends[partition] = values, manifest.end
                self._written[partition] = dict(values)

    async def _begin_load(self, session: Session, partition: int, epoch: int) -> None:
        manifest = await newest_manifest(PatientStore(self._store), partition)
        if manifest.epoch < epoch:
            await session.log._taken(manifest, epoch)

    # Requests --------------------------------------------------------------------------------------------------------

    async def commit(self, partition: int, key: bytes, value: int) -> bool:
        """Whether it was acknowledged. False if this node does not serve the partition."""
        if partition not in self.values:
            return False
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append(Commit(partition, key, value, answer))
        self._wake.set()
        return await answer

    def read(self, partition: int, key: bytes) -> int | None:
        """The value, 0 if there is none; None if this node may not answer."""
        if partition not in self.values or self.session is None or not self.session.lease.is_valid:
            return None
        return self.values[partition].get(key, 0)

    async def _write(self) -> None:
        """One round at a time."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            commits, self._queue = self._queue, []
            served = [commit for commit in commits if commit.partition in self.values]
            self._answer_all([commit for commit in commits if commit.partition not in self.values], False)
            if served:
                await self._write_round(served)

    async def _write_round(self, commits: list[Commit]) -> None:
        session, epochs = self.session, dict(self._epochs)
        assert session is not None
        batches = [self._batch(partition, commits) for partition in sorted({commit.partition for commit in commits})]
        self._writing = {partition for partition, _ in batches}
        try:
            await session.log.append(encode_frame(batches), batches)
        except Fenced as error:
            self._answer_all(commits, False)
            session.fence(str(error))
        else:
            for commit in commits:
                if commit.partition in self.values and session.phase != Phase.ENDED:
                    self.values[commit.partition][commit.key] = commit.value
                if session.phase != Phase.ENDED:
                    self._on_acknowledged(session.name, commit.partition, epochs[commit.partition])
            self._answer_all(commits, session.phase != Phase.ENDED)
        finally:
            self._writing = set()
            released, self._released = self._released, []
            for owner, partition in released:
                owner.release(partition)

    def _batch(self, partition: int, commits: list[Commit]) -> tuple[int, bytes]:
        """Each commit moves the mark of its number: the one of the value before is deleted."""
        changes: list[tuple[bytes, bytes | None]] = []
        written = self._written[partition]
        for commit in commits:
            if commit.partition == partition:
                changes += [(commit.key, b"%d" % commit.value), (mark(commit.key, commit.value), b"x")]
                if commit.key in written:
                    changes.append((mark(commit.key, written[commit.key]), None))
                written[commit.key] = commit.value
        records = [frame_record(0, delta, key, value) for delta, (key, value) in enumerate(changes)]
        batch = encode_batch(self._ends[partition], 0, 0, records)
        self._ends[partition] += len(records)
        return partition, batch

    @staticmethod
    def _answer_all(commits: list[Commit], is_acknowledged: bool) -> None:
        for commit in commits:
            if not commit.answer.done():
                commit.answer.set_result(is_acknowledged)
