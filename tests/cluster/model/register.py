"""The register alone, with single operations: tasks that share a known version, a joiner, versions that are deleted.

Nodes 0 and 1 are members at first, and node 0 has two tasks. Node 2 joins. A version is deleted when all members
without a tombstone have read beyond it. Whoever slept longer finds its name free, and creates it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .mistakes import Mistake
from .search import Step, replaced

MEMBERS = (0, 1)
JOINER = 2
TASK_NODES = (0, 0, 1, JOINER)
CHANGES = 5
DELETES = 3
DELETED = 0


class Stage:
    IDLE, READING, CREATING, CREATED, DONE = range(5)


class Task(NamedTuple):
    """``version``: the one that it creates or has created."""

    stage: int = Stage.IDLE
    version: int = 0


class RegisterState(NamedTuple):
    """``versions``: the members of each as bits, or DELETED. ``known``: the newest version that each node has read."""

    versions: tuple[int, ...] = (0b011,)
    tombstones: int = 0
    known: tuple[int, ...] = (0, 0, 0)
    tasks: tuple[Task, ...] = (Task(),) * len(TASK_NODES)
    changes: int = CHANGES
    deletes: int = DELETES

    def has(self, version: int) -> bool:
        return version < len(self.versions) and self.versions[version] != DELETED

    @property
    def newest(self) -> int:
        return max(version for version in range(len(self.versions)) if self.has(version))

    def is_buried(self, node: int) -> bool:
        return bool(self.tombstones >> node & 1)

    def with_task(self, index: int, stage: int, version: int = 0) -> RegisterState:
        return self._replace(tasks=replaced(self.tasks, index, Task(stage, version)))

    def knowing(self, node: int, version: int) -> RegisterState:
        return self._replace(known=replaced(self.known, node, version))


class RegisterModel:
    def __init__(self, mistake: Mistake | None = None) -> None:
        self._mistake = mistake

    def first_state(self) -> RegisterState:
        return RegisterState()

    def violation(self, state: RegisterState) -> str:
        """Promises are broken by steps."""
        return ""

    def stuck(self, state: RegisterState) -> str:
        """Not asked here."""
        return ""

    def steps(self, state: RegisterState) -> Iterator[Step]:
        for index, task in enumerate(state.tasks):
            if task.stage == Stage.IDLE:
                yield from self._begin(state, index)
            elif task.stage == Stage.READING:
                yield self._read(state, index)
            elif task.stage == Stage.CREATING:
                yield self._create(state, index)
            elif task.stage == Stage.CREATED:
                yield self._confirm(state, index)
        yield from self._bury(state)
        yield from self._delete(state)

    def _begin(self, state: RegisterState, index: int) -> Iterator[Step]:
        node = TASK_NODES[index]
        if not state.changes or state.is_buried(node):
            return
        begun = state._replace(changes=state.changes - 1)
        if node == JOINER:
            newest = state.newest
            following = begun.knowing(node, newest).with_task(index, Stage.CREATING, newest + 1)
            yield Step(("task {} of node {}: lists the register, {} is the newest", index, node, newest), following)
        else:
            following = begun.with_task(index, Stage.READING, state.known[node] + 1)
            yield Step(("task {} of node {}: wants to change the register", index, node), following)

    def _read(self, state: RegisterState, index: int) -> Step:
        node, version = TASK_NODES[index], state.tasks[index].version
        if state.has(version):
            known = self._advanced(state, node, version)
            following = state.knowing(node, known).with_task(index, Stage.READING, known + 1)
            return Step(("task {} of node {}: reads version {}", index, node, version), following)
        following = state.with_task(index, Stage.CREATING, state.known[node] + 1)
        return Step(("task {} of node {}: there is no version {}", index, node, version), following)

    def _advanced(self, state: RegisterState, node: int, version: int) -> int:
        known = state.known[node]
        return known + 1 if self._mistake is Mistake.TWO_TASKS_ADVANCE else max(known, version)

    def _create(self, state: RegisterState, index: int) -> Step:
        node, version = TASK_NODES[index], state.tasks[index].version
        if state.has(version):
            is_joiner = node == JOINER
            stage = Stage.IDLE if is_joiner else Stage.READING
            following = state.with_task(index, stage, 0 if is_joiner else state.known[node] + 1)
            return Step(("task {} of node {}: version {} is another's", index, node, version), following)
        created = state.knowing(node, self._advanced(state, node, version)).with_task(index, Stage.CREATED, version)
        following = created._replace(versions=with_version(state, version, node))
        has_gap = version > len(state.versions)
        violation = f"I5: version {version} is created, and {version - 1} never was" if has_gap else ""
        return Step(("task {} of node {}: creates version {}", index, node, version), following, violation)

    def _confirm(self, state: RegisterState, index: int) -> Step:
        """A name that was deleted can be created again, so nobody believes its create alone."""
        node, version = TASK_NODES[index], state.tasks[index].version
        if node == JOINER:
            return self._confirm_join(state, index)
        if state.is_buried(node) and self._mistake is not Mistake.NO_LOOK_AFTER_VERSION:
            following = state.with_task(index, Stage.DONE)
            return Step(("task {} of node {}: finds its tombstone", index, node), following)
        was_passed = version + 1 < len(state.versions) and not state.has(version + 1)
        violation = "I5: a version is believed whose successor was deleted" if was_passed else ""
        following = state.with_task(index, Stage.IDLE)
        return Step(("task {} of node {}: believes version {}", index, node, version), following, violation)

    def _confirm_join(self, state: RegisterState, index: int) -> Step:
        is_member = bool(state.versions[state.newest] >> JOINER & 1)
        if self._mistake is Mistake.JOINER_BELIEVES:
            violation = "" if is_member else "I5: a joiner is not in the newest version"
            return Step(("node {}: believes that it has joined", JOINER), state.with_task(index, Stage.DONE), violation)
        following = state.with_task(index, Stage.DONE if is_member else Stage.IDLE)
        return Step(("node {}: lists the register again", JOINER), following)

    def _bury(self, state: RegisterState) -> Iterator[Step]:
        if not state.tombstones:
            for node in MEMBERS:
                yield Step(("node {} is declared dead", node), state._replace(tombstones=1 << node))

    def _delete(self, state: RegisterState) -> Iterator[Step]:
        if not state.deletes:
            return
        for version in range(self._first_kept(state)):
            if state.has(version):
                versions = replaced(state.versions, version, DELETED)
                following = state._replace(versions=versions, deletes=state.deletes - 1)
                yield Step(("version {} is deleted", version), following)

    def _first_kept(self, state: RegisterState) -> int:
        if self._mistake is Mistake.VERSIONS_DELETED_EARLY:
            return state.newest
        live = [node for node in MEMBERS if not state.is_buried(node)]
        wanted = [task.version - 1 for node, task in zip(TASK_NODES, state.tasks, strict=True) if node in live]
        reads = [version for version in wanted if version >= 0]
        return min([state.newest, *(state.known[node] for node in live), *reads])


def with_version(state: RegisterState, version: int, node: int) -> tuple[int, ...]:
    """The members are those of the version before it, or the first ones if that was deleted."""
    members = state.versions[version - 1] if 0 < version <= len(state.versions) else 0
    members = (members or state.versions[0] or 0b011) | 1 << node
    if version < len(state.versions):
        return replaced(state.versions, version, members)
    return (*state.versions, members)
