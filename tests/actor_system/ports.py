"""Implementations of ``actors/ports.py`` and ``actors/engine_ports.py`` that a test controls."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from callboard.actors.errors import ErrorCode
from callboard.actors.group.offsets import GroupData
from callboard.actors.ports import NO_EPOCHS, Appended, Entry
from callboard.actors.records import Record, TransactionRecord, UnknownRecord
from callboard.actors.steps import Steps
from callboard.runtime.loading.loader import PartitionReplay

WALL_MS = 1_700_000_000_000  # wall-clock time at monotonic time 0


class TestClock:
    """A clock that only the test moves. Wall-clock and monotonic time move together."""

    __test__ = False

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms


class SeededRandom:
    """A source of UUIDs that depend only on the seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def draw_as(self, other: SeededRandom) -> None:
        """Go on where the other one is."""
        self._random.setstate(other._random.getstate())


class FakeGroupSettings:
    """``GroupSettings`` with Kafka's defaults, which a test may change."""

    def __init__(self) -> None:
        self.group_initial_rebalance_delay_ms = 3000
        self.group_min_session_timeout_ms = 6000
        self.group_max_session_timeout_ms = 1_800_000
        self.group_max_size = 2**31 - 1
        self.groups_max = 2**31 - 1
        self.offsets_max_per_group = 2**31 - 1
        self.group_max_pending_members = 50_000
        self.group_consumer_session_timeout_ms = 45_000
        self.group_consumer_heartbeat_interval_ms = 5_000
        self.group_consumer_max_size = 2**31 - 1
        self.group_consumer_assignment_interval_ms = 1_000
        self.group_consumer_regex_refresh_interval_ms = 600_000
        self.group_consumer_migration_policy = "bidirectional"
        self.memory_limit_bytes = 2**63 - 1
        self.group_generation_from_clock = False
        self.offset_metadata_max_bytes = 4096
        self.offsets_topic_num_partitions = 50
        self.offsets_retention_minutes = 10_080
        self.offsets_retention_check_interval_ms = 600_000


class FakeTopicsView:
    """``TopicsView`` of two topics, which a test may change."""

    def __init__(self) -> None:
        self.version = self.created_version = 0
        self.counts = {"jobs": 3, "t": 3}
        self.ids: dict[str, bytes] = {}  # where a test chooses them

    def names(self) -> Iterable[str]:
        return self.counts

    def topic_id(self, name: str) -> bytes | None:
        made = uuid.uuid5(uuid.NAMESPACE_URL, name).bytes
        return self.ids.get(name, made) if name in self.counts else None

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)


class RecordedReply:
    """A ``ReplyTo`` that records the reply and fails at a second one."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.errors: list[BaseException | None] = []

    def set(self, value: Any = None) -> None:
        self.answers.append(value)
        self._check()

    def set_exception(self, exc_info: Any = None) -> None:
        self.errors.append(exc_info[1] if exc_info else None)
        self._check()

    @property
    def is_waiting(self) -> bool:
        return not self.answers and not self.errors

    @property
    def value(self) -> Any:
        """The reply. AssertionError if there is none."""
        assert not self.errors, f"the reply is an exception: {self.errors}"
        assert len(self.answers) == 1, f"{len(self.answers)} replies: {self.answers}"
        return self.answers[0]

    @property
    def error(self) -> ErrorCode:
        """The error code of the reply, or the reply itself if it is an error code."""
        value = self.value
        return value if isinstance(value, ErrorCode) else ErrorCode(value.error)

    def _check(self) -> None:
        assert len(self.answers) + len(self.errors) == 1, f"more than one reply: {self.answers} {self.errors}"


class ManualLog:
    """A ``Log`` whose rounds the test ends: ``complete_append`` makes a round durable, ``fail`` fails it.

    ``steps``: into how many steps the encoding of a large round is divided.
    """

    def __init__(self) -> None:
        self.durable: list[tuple[int, Record]] = []  # partition and record, in the order of the log
        self.rounds: list[list[Entry]] = []  # all rounds so far
        self.timestamps_ms: list[int] = []
        self.steps = 3
        self._done: Callable[[Sequence[Appended]], None] | None = None

    @property
    def in_flight(self) -> list[Entry]:
        return self.rounds[-1] if self._done is not None else []

    def append(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        done: Callable[[Sequence[Appended]], None],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        assert self._done is None, "two rounds in flight"
        assert entries, "a round has no entries"
        self.rounds.append(list(entries))
        self.timestamps_ms.append(timestamp_ms)
        self._done = done

    def append_in_steps(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        done: Callable[[Sequence[Appended]], None],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Steps[None]:
        for _ in range(self.steps):
            yield
        self.append(entries, timestamp_ms, done, epochs)

    def complete_append(self) -> None:
        self.settle([ErrorCode.NONE] * len(self.in_flight))

    def fail(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        self.settle([error] * len(self.in_flight))

    def settle(self, errors: Sequence[ErrorCode]) -> None:
        """End the round in flight with one error code per entry."""
        assert self._done is not None, "no round is in flight"
        outcomes = [self._outcome(entry, error) for entry, error in zip(self.in_flight, errors, strict=True)]
        done, self._done = self._done, None
        done(outcomes)

    def groups(self) -> dict[str, GroupData]:
        """The groups as a loader would build them from the durable records."""
        partitions: dict[int, PartitionReplay] = {}
        for partition, record in self.durable:
            assert not isinstance(record, UnknownRecord)
            if not isinstance(record, TransactionRecord):
                partitions.setdefault(partition, PartitionReplay()).replay(record)
        return {group_id: data for content in partitions.values() for group_id, data in content.groups.items()}

    def _outcome(self, entry: Entry, error: ErrorCode) -> Appended:
        if error is not ErrorCode.NONE:
            return Appended(error, -1)
        base_offset = sum(partition == entry.partition for partition, _ in self.durable)
        self.durable += [(entry.partition, record) for record in entry.records]
        return Appended(ErrorCode.NONE, base_offset)


class ManualAlarm:
    """An ``Alarm`` that stores its time; the test fires it."""

    def __init__(self) -> None:
        self.due_ms: int | None = None

    def set(self, due_ms: int) -> None:
        self.due_ms = due_ms

    def clear(self) -> None:
        self.due_ms = None
