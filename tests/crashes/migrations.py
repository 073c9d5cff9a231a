"""Crash runs in which groups change between the classic and the consumer protocol."""

from __future__ import annotations

from collections.abc import Sequence

from migrated_groups import downgraded, upgraded

from callboard.actors.records import GroupRecord, Record
from callboard.runtime.cli.log.forward import LogReplay

from .crash_run import CrashRun
from .entries import GROUPS, RECORDS_MAX, EntryGenerator
from .model import LogRecord, ModelViolation, PartitionModel

MEMBERS = ("a", "b")


class MigratingGroups(EntryGenerator):
    """Each entry with the state of a group deletes all that the group may have of the other protocol."""

    def _of_offsets(self) -> tuple[Record, ...]:
        group, roll = f"g{self._random.randrange(GROUPS)}", self._random.random()
        if roll < 0.3:
            return upgraded(group, next(self._numbers), MEMBERS[: self._random.randint(1, len(MEMBERS))])
        if roll < 0.6:
            generation = self._group(group)
            assert isinstance(generation, GroupRecord)
            return downgraded(generation, MEMBERS)
        return tuple(self._offset(group) for _ in range(self._random.randint(1, RECORDS_MAX)))


class MigratingModel(PartitionModel):
    """The groups that a start makes of the records must be the same, too: there the order of records counts."""

    def check_meaning(self, actual: Sequence[LogRecord], expected: Sequence[LogRecord]) -> None:
        super().check_meaning(actual, expected)
        if (found := _replayed(actual)) != (wanted := _replayed(expected)):
            raise ModelViolation(f"partition {self.number}: compaction has changed {wanted} to {found}")


def _replayed(records: Sequence[LogRecord]) -> dict[str, object]:
    replay = LogReplay()
    for record in records:
        replay.apply(record.record)
    return replay.state()


class MigrationRun(CrashRun):
    entries = MigratingGroups
    model = MigratingModel
