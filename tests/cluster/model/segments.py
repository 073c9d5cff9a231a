"""Garbage collection of segments: two owners one after the other, a compaction, and the owner's collector.

A segment's key has the manifest version that it was written for. It is garbage if that version is taken and the newest
manifest does not name it: whoever loses a version writes its segment anew, so such a segment is never named again.
Deletes land late and in any order. A compaction that slept may create a manifest again that was deleted. An owner does
not: its collector, which alone deletes manifests, leaves those from the one on that the owner's checkpoint follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .mistakes import Mistake
from .search import Step, replaced

OWNERS = 2
GONE = 0


class Manifest(NamedTuple):
    """``names``: the segments as bits."""

    epoch: int = 0
    names: int = 0


DELETED = Manifest()


class Segment(NamedTuple):
    """``version``: of the manifest that it was written for. ``content``: commits as bits, GONE once deleted."""

    version: int
    content: int


class Stage:
    """Of an owner or of the compaction. LOADING: has read the manifest, not the segments."""

    IDLE, LOADING, LOADED, WRITTEN, CREATED, FENCED, NOT_OWNER = range(7)


class Writer(NamedTuple):
    """``version`` and ``names``: the manifest that it knows. ``segment``: the one it has written, as a bit."""

    stage: int = Stage.IDLE
    version: int = 0
    names: int = 0
    segment: int = 0
    content: int = 0


class Collector(NamedTuple):
    """Of an owner. ``version`` and ``names``: of the manifest that it has read."""

    version: int = 0
    names: int = 0
    owner: int = 0


class SegmentState(NamedTuple):
    """``manifests`` by version. ``believed``: commits whose rounds may be deleted. ``deleting``: segments as bits.

    ``deleting_below``: manifests with smaller versions are being deleted. ``owner``: by the register.
    """

    manifests: tuple[Manifest, ...]
    segments: tuple[Segment, ...]
    believed: int
    deleting: int
    deleting_below: int
    owner: int
    writers: tuple[Writer, ...]
    compaction: Writer
    collector: Collector
    checkpoints: int
    compactions: int
    collections: int

    @property
    def newest(self) -> int:
        return len(self.manifests) - 1

    def content_of(self, names: int) -> int:
        return sum_of(segment.content for index, segment in enumerate(self.segments) if names >> index & 1)

    def has_all(self, names: int) -> bool:
        return all(segment.content for index, segment in enumerate(self.segments) if names >> index & 1)

    def with_writer(self, owner: int, **fields: int) -> SegmentState:
        return self._replace(writers=replaced(self.writers, owner, self.writers[owner]._replace(**fields)))

    def with_compaction(self, **fields: int) -> SegmentState:
        return self._replace(compaction=self.compaction._replace(**fields))


def sum_of(contents: Iterator[int]) -> int:
    union = 0
    for content in contents:
        union |= content
    return union


class SegmentModel:
    """``checkpoints``, ``compactions`` and ``collections``: how many there are."""

    def __init__(
        self, mistake: Mistake | None = None, checkpoints: int = 3, compactions: int = 2, collections: int = 2
    ) -> None:
        self._mistake = mistake
        self._checkpoints = checkpoints
        self._budgets = (checkpoints, compactions, collections)

    def first_state(self) -> SegmentState:
        writers = (Writer(), Writer(Stage.NOT_OWNER))
        return SegmentState((Manifest(1, 0),), (), 0, 0, 0, 0, writers, Writer(), Collector(), *self._budgets)

    def violation(self, state: SegmentState) -> str:
        names = state.manifests[state.newest].names
        if not state.has_all(names):
            return "I4: a segment is deleted that the newest manifest names"
        if state.believed & ~state.content_of(names):
            return "I1: a commit is in no segment of the newest manifest, and its rounds may be deleted"
        return ""

    def stuck(self, state: SegmentState) -> str:
        """Not asked here."""
        return ""

    def steps(self, state: SegmentState) -> Iterator[Step]:
        for owner in range(OWNERS):
            yield from self._owner_steps(state, owner)
        if state.owner + 1 < OWNERS:
            following = state.with_writer(state.owner + 1, stage=Stage.IDLE)._replace(owner=state.owner + 1)
            yield Step(("owner {} is declared dead", state.owner), self._loading(following, state.owner + 1))
        yield from self._compaction_steps(state)
        yield from self._collector_steps(state)
        yield from self._late_deletes(state)

    # Owners ----------------------------------------------------------------------------------------------------------

    def _owner_steps(self, state: SegmentState, owner: int) -> Iterator[Step]:
        writer = state.writers[owner]
        if writer.stage == Stage.IDLE and state.checkpoints:
            content = 1 << self._checkpoints - state.checkpoints
            following = state._replace(checkpoints=state.checkpoints - 1)
            yield self._write(following.with_writer(owner, content=content), owner)
        elif writer.stage == Stage.LOADING:
            yield self._load(state, owner)
        elif writer.stage in (Stage.LOADED, Stage.WRITTEN):
            yield self._create(state, owner)
        elif writer.stage == Stage.CREATED:
            yield self._look(state, owner)

    def _loading(self, state: SegmentState, owner: int) -> SegmentState:
        names = state.manifests[state.newest].names
        return state.with_writer(owner, stage=Stage.LOADING, version=state.newest, names=names)

    def _load(self, state: SegmentState, owner: int) -> Step:
        """A segment that is missing is damage only if its manifest is still the newest one."""
        writer = state.writers[owner]
        if state.has_all(writer.names):
            following = state.with_writer(owner, stage=Stage.LOADED)
            return Step(("owner {}: has loaded manifest {}", owner, writer.version), following)
        is_damage = self._mistake is Mistake.DAMAGE_AT_ONCE or writer.version == state.newest
        return Step(
            ("owner {}: a segment of manifest {} is missing", owner, writer.version),
            self._loading(state, owner),
            "I4: a partition is refused as damaged, and nothing is lost" if is_damage else "",
        )

    def _write(self, state: SegmentState, owner: int) -> Step:
        writer = state.writers[owner]
        version = writer.version + 1
        written, segment = self._with_segment(state, version, writer.content)
        following = written.with_writer(owner, stage=Stage.WRITTEN, segment=segment)
        return Step(("owner {}: writes a segment for manifest {}", owner, version), following)

    def _with_segment(self, state: SegmentState, version: int, content: int) -> tuple[SegmentState, int]:
        """The token in a key makes it unique."""
        if self._mistake is Mistake.SEGMENT_WITHOUT_TOKEN:
            for index, segment in enumerate(state.segments):
                if segment.version == version:
                    segments = replaced(state.segments, index, Segment(version, content))
                    return state._replace(segments=segments), 1 << index
        return state._replace(segments=(*state.segments, Segment(version, content))), 1 << len(state.segments)

    def _create(self, state: SegmentState, owner: int) -> Step:
        """A version that was deleted can be created again."""
        writer = state.writers[owner]
        version = writer.version + 1
        if version < len(state.manifests) and state.manifests[version] != DELETED:
            return self._rebase(state, owner)
        names = writer.names | writer.segment
        created = with_manifest(state, version, Manifest(owner + 1, names))
        following = created.with_writer(owner, stage=Stage.CREATED, version=version, names=names)
        return Step(("owner {}: creates manifest {}", owner, version), following)

    def _rebase(self, state: SegmentState, owner: int) -> Step:
        writer, newest = state.writers[owner], state.manifests[state.newest]
        if newest.epoch > owner + 1:
            following = state.with_writer(owner, stage=Stage.FENCED)
            return Step(("owner {}: manifest {} has another epoch", owner, state.newest), following)
        if writer.stage == Stage.LOADED:
            return Step(("owner {}: reads manifest {}", owner, state.newest), self._loading(state, owner))
        following = state.with_writer(owner, version=state.newest, names=newest.names)
        if self._mistake is Mistake.REBASE_KEEPS_SEGMENT:
            return Step(("owner {}: reads manifest {}, keeps its segment", owner, state.newest), following)
        return self._write(following, owner)

    def _look(self, state: SegmentState, owner: int) -> Step:
        if state.owner != owner:
            return Step(("owner {}: finds its tombstone", owner), state.with_writer(owner, stage=Stage.FENCED))
        content = state.writers[owner].content
        following = state.with_writer(owner, stage=Stage.IDLE, segment=0, content=0)
        believed = state.believed | content
        return Step(("owner {}: believes its manifest", owner), following._replace(believed=believed))

    # Compaction ------------------------------------------------------------------------------------------------------

    def _compaction_steps(self, state: SegmentState) -> Iterator[Step]:
        """It belongs to no session, so no tombstone fences it."""
        compaction = state.compaction
        if compaction.stage == Stage.IDLE and state.compactions:
            names = state.manifests[state.newest].names
            following = state._replace(compactions=state.compactions - 1)
            yield Step(
                ("compaction: reads manifest {}", state.newest),
                following.with_compaction(stage=Stage.LOADING, version=state.newest, names=names),
            )
        elif compaction.stage == Stage.LOADING:
            yield self._merge(state)
        elif compaction.stage == Stage.WRITTEN:
            yield self._create_compacted(state)

    def _merge(self, state: SegmentState) -> Step:
        compaction = state.compaction
        if not compaction.names or not state.has_all(compaction.names):
            return Step(("compaction: finds nothing to merge",), state._replace(compaction=Writer()))
        version = compaction.version + 1
        written, segment = self._with_segment(state, version, state.content_of(compaction.names))
        following = written.with_compaction(stage=Stage.WRITTEN, segment=segment)
        if self._mistake is Mistake.COMPACTION_DELETES_FIRST:
            following = following._replace(deleting=following.deleting | compaction.names)
        return Step(("compaction: writes a segment for manifest {}", version), following)

    def _create_compacted(self, state: SegmentState) -> Step:
        compaction = state.compaction
        version = compaction.version + 1
        ended = state._replace(compaction=Writer())
        if version < len(state.manifests) and state.manifests[version] != DELETED:
            return Step(("compaction: lost manifest {}", version), ended)
        epoch = state.manifests[min(compaction.version, state.newest)].epoch or 1
        following = with_manifest(ended, version, Manifest(epoch, compaction.segment))
        if self._mistake is Mistake.COMPACTION_BELIEVES:
            following = following._replace(deleting=following.deleting | compaction.names)
        return Step(("compaction: creates manifest {}", version), following)

    # The collector ---------------------------------------------------------------------------------------------------

    def _collector_steps(self, state: SegmentState) -> Iterator[Step]:
        """That of the owner. It looks at its tombstone before it deletes."""
        collector = state.collector
        if collector.version:
            yield self._collect(state)
        elif state.collections and state.newest:
            newest = Collector(state.newest, state.manifests[state.newest].names, state.owner)
            following = state._replace(collector=newest, collections=state.collections - 1)
            yield Step(("collector: reads manifest {}", state.newest), following)

    def _collect(self, state: SegmentState) -> Step:
        version, names, owner = state.collector
        if state.owner != owner:
            return Step(("collector: finds the tombstone",), state._replace(collector=Collector()))
        taken = state.newest if self._mistake is Mistake.GARBAGE_BY_OLD_MANIFEST else version
        if self._mistake is Mistake.GARBAGE_BY_NAME:
            taken = len(state.manifests) + 1
        garbage = sum(
            1 << index
            for index, segment in enumerate(state.segments)
            if segment.content and segment.version <= taken and not names >> index & 1
        )
        below = version if self._mistake is Mistake.COLLECTS_AHEAD else min(version, state.writers[owner].version)
        following = state._replace(
            collector=Collector(),
            deleting=state.deleting | garbage,
            deleting_below=max(below, state.deleting_below),
        )
        return Step(("collector: deletes garbage by manifest {}", version), following)

    def _late_deletes(self, state: SegmentState) -> Iterator[Step]:
        for index, segment in enumerate(state.segments):
            if state.deleting >> index & 1 and segment.content:
                segments = replaced(state.segments, index, segment._replace(content=GONE))
                yield Step(("segment {} is deleted", index), state._replace(segments=segments))
        for version in range(min(state.deleting_below, state.newest)):
            if state.manifests[version] != DELETED:
                manifests = replaced(state.manifests, version, DELETED)
                yield Step(("manifest {} is deleted", version), state._replace(manifests=manifests))


def with_manifest(state: SegmentState, version: int, manifest: Manifest) -> SegmentState:
    if version < len(state.manifests):
        return state._replace(manifests=replaced(state.manifests, version, manifest))
    return state._replace(manifests=(*state.manifests, manifest))
