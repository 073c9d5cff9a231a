"""The catalogue of all topics. Their names and end offsets are durable, their records are not.

A created topic survives any crash, with its id and partitions. The catalogue includes the coordinator's own topics, so
clients see them in metadata; this package does not store their records.

A topic becomes visible once its creation is durable, and is visible until its deletion is durable. ``FileWork`` writes
the files, so the event loop is not blocked; the caller of a change passes a callback for the outcome. Changes that wait
for the file share its next write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import UUID

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.ports import Random
from ...actors.records import MarkerRecord
from ...actors.steps import ITEMS_PER_STEP, Steps, pieces
from ...actors.text import format_count
from ..common.errors import StartError
from ..common.logs import get_logger
from ..disk.disk import Disk
from ..disk.group_commit import immediate_outcome
from ..log.folder import TOPICS_NAME
from ..settings.table import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from .draft import TopicsDraft
from .ends import InternalTopicEnds, TopicEnds
from .failures import storage_error, to_coordinator_error
from .files import TopicFiles
from .held_records import HeldRecords
from .ids import new_topic_id, transactions_topic_id
from .opening import open_files
from .policy import policy_of
from .producer_ids import ProducerIdAllocator, ProducerIds
from .setting_values import NO_OVERRIDES, Overrides, check_overrides
from .store import NewTopic, TopicRow, TopicsFile
from .table import TopicTable
from .topic import EndOffsets, Topic

log = get_logger("callboard.runtime")

RAISED_END_MAX = 2**62  # clients may commit any offset; a higher end would leave no offsets to append

TOPIC_BYTES = 2500
"""A topic without partitions and records, with its row in the file."""

PARTITION_BYTES = 800
"""A partition that is used, without records."""

CHAR_BYTES = 3
"""A character of a setting: in the table, in a draft and in the file that is written."""

ChangeOverrides = Callable[[Overrides], Overrides]
"""Computes the settings of a topic from those that it has. Raises CoordinatorError."""

SeenCount = Callable[[int], object]
"""Gets the number of partitions that a topic has before it grows. Other changes may share the write."""


def unseen(_partitions: int) -> None:
    """The default of ``SeenCount``."""


CreateOutcome = Topic | CoordinatorError
DeleteOutcome = CoordinatorError | None


class TopicLimits(Protocol):
    """The settings that the catalogue uses."""

    @property
    def offsets_topic_num_partitions(self) -> int: ...

    @property
    def transaction_state_log_num_partitions(self) -> int: ...

    @property
    def topic_retention_bytes(self) -> int: ...

    @property
    def total_retention_bytes(self) -> int: ...

    @property
    def message_max_bytes(self) -> int: ...

    @property
    def max_partitions(self) -> int: ...


class CatalogueFollower(Protocol):
    def published(self, topic: Topic) -> None:
        """A topic becomes visible in this turn."""


class TopicCatalogue:
    """The topics by name and by id. All methods must be called on the event loop's thread."""

    def __init__(
        self,
        folder: Path,
        settings: TopicLimits,
        random: Random,
        internal_partition_counts: tuple[int, int] | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open the files in ``folder``, or create them. Raises StartError if one is missing, damaged or too new.

        ``internal_partition_counts``: partitions of the offsets and the transactions topic, if not those of
        the settings.
        """
        self._settings = settings
        self._random = random
        self._records = HeldRecords(lambda: settings.total_retention_bytes)
        self.refuses_new: Callable[[int], bool] = _has_memory
        """Whether the limit of the server's memory is reached, so that no topic may be created. The node sets it.

        Its argument: the bytes of topics that are about to be created.
        """
        self.follower: CatalogueFollower | None = None
        """In a cluster: whoever changes this catalogue, by ``Adoption`` only. It decides which topics are led here."""
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        disk = disk or Disk()
        opened = open_files(folder, disk, lambda: new_topic_id(random))
        table, self._ends = opened.table, opened.ends
        counts = internal_partition_counts or (
            settings.offsets_topic_num_partitions,
            _transactions_partitions(settings),
        )
        for name, topic_id, ends in _internal_topics(table, *counts):
            self._publish_topic(self._build_topic(name, topic_id, ends))
        topic_table = TopicTable(frozenset(self._topics), table.next_producer_id)
        for row in table.topics:
            topic_table.add(row)
            self._publish_topic(self._topic_of_row(row))
        self.files = TopicFiles(folder / TOPICS_NAME, disk, opened, topic_table)
        self.producer_ids: ProducerIdAllocator = ProducerIds(table.next_producer_id, self.files.changes)

    @property
    def memory_bytes(self) -> int:
        """About the memory of all topics and their records."""
        return self._records.memory_bytes + _topics_bytes(self.files.table)

    def names(self) -> list[str]:
        """All topics, the coordinator's own included."""
        return list(self._topics)

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """The topic with that id. None, which is how kio decodes the zero id, is the id of no topic."""
        return None if topic_id is None else self._by_id.get(topic_id)

    # Changes ---------------------------------------------------------------------------------------------------------

    def check_new(self, name: str, partitions: int, other_partitions: int = 0) -> None:
        """Raise CoordinatorError, with Kafka's error code, unless such a topic can be created.

        ``other_partitions``: partitions of other topics that are about to be created too.
        """
        self.files.table.check_new(name, partitions, self._settings.max_partitions, other_partitions)
        self._check_memory(name, self.files.table)

    def _check_memory(self, name: str, table: TopicTable) -> None:
        """``table``: visible topics, or a draft, with topics that do not count as memory yet."""
        if self.refuses_new(_topics_bytes(table) - _topics_bytes(self.files.table)):
            raise CoordinatorError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name!r} is not created: the server has reached its memory_limit_bytes; try again later, or"
                f" start it with a larger memory_limit_bytes",
                limit="memory_limit_bytes",
            )

    def create_many(self, requests: Sequence[NewTopic], done: Callable[[list[CreateOutcome]], None]) -> None:
        """Create topics with one durable change; ``done`` gets the outcome of each."""
        outcomes: list[CreateOutcome] = []

        def create_one(draft: TopicsDraft, new: NewTopic) -> Steps[CreateOutcome]:
            try:
                draft.table.check_new(new.name, new.partitions, self._settings.max_partitions)
                self._check_memory(new.name, draft.table)
                return (yield from self.add_to(draft, new, new_topic_id(self._random)))
            except OSError as error:
                return storage_error(error)
            except CoordinatorError as refusal:
                return refusal

        def create(draft: TopicsDraft) -> Steps[bool]:
            for request in requests:
                outcomes.append((yield from create_one(draft, request)))
                yield
            return any(isinstance(outcome, Topic) for outcome in outcomes)

        def finish(failure: Exception | None) -> None:
            refusal = None if failure is None else to_coordinator_error(failure)
            done([refusal if refusal and isinstance(outcome, Topic) else outcome for outcome in outcomes])

        self.files.changes.submit(create, finish)

    def add_to(self, draft: TopicsDraft, new: NewTopic, topic_id: UUID) -> Steps[Topic]:
        """Create a topic in a draft. Raises OSError."""
        first_slot = yield from draft.allocate_slots(new.partitions)
        for start in range(0, new.partitions, ITEMS_PER_STEP):
            self._ends.reserve(first_slot + start, [0] * min(ITEMS_PER_STEP, new.partitions - start))
            yield
        row = TopicRow(new.name, topic_id, new.partitions, first_slot, new.settings)
        topic = self._topic_of_row(row)
        draft.add(row, partial(self._publish_topic, topic))
        return topic

    def delete_many(self, topics: Sequence[Topic], done: Callable[[list[DeleteOutcome]], None]) -> None:
        """Delete topics with one durable change; ``done`` gets for each the error, or None if it is deleted."""
        outcomes: list[DeleteOutcome] = []

        def delete(draft: TopicsDraft) -> Steps[bool]:
            for piece in pieces(topics):
                outcomes.extend(self._delete(draft, topic) for topic in piece)
                yield
            return None in outcomes

        def finish(failure: Exception | None) -> None:
            refusal = None if failure is None else to_coordinator_error(failure)
            done([refusal if outcome is None else outcome for outcome in outcomes])

        self.files.changes.submit(delete, finish)

    def _delete(self, draft: TopicsDraft, topic: Topic) -> DeleteOutcome:
        try:
            draft.table.find(topic.name, topic.topic_id)
        except CoordinatorError as refusal:
            return refusal
        draft.remove(topic.name, partial(self.unpublish, topic))
        return None

    def check_growable(self, topic: Topic, partitions: int) -> None:
        """Raise CoordinatorError unless a topic may have so many partitions."""
        check_growable(self.files.table, topic, partitions, self._settings.max_partitions)

    def grow(
        self, topic: Topic, partitions: int, done: Callable[[CoordinatorError | None], None], seen: SeenCount = unseen
    ) -> None:
        """Give a topic more partitions with one durable change; ``done`` gets the error, or None.

        The end offsets of a topic are in adjacent slots, so they move to new slots.
        """

        def grow(draft: TopicsDraft) -> Steps[bool]:
            check_growable(draft.table, topic, partitions, self._settings.max_partitions)
            seen(draft.table.rows[topic.name].partitions)
            return (yield from self.grow_in(draft, topic, partitions))

        def finish(failure: Exception | None) -> None:
            done(None if failure is None else to_coordinator_error(failure))

        self.files.changes.submit(grow, finish)

    def grow_in(self, draft: TopicsDraft, topic: Topic, partitions: int) -> Steps[bool]:
        """Give a topic more partitions in a draft. Raises OSError."""
        ends, row = topic.ends, draft.table.rows[topic.name]
        assert isinstance(ends, TopicEnds)
        first = yield from draft.allocate_slots(partitions)
        self._ends.reserve(first + partitions - 1, [0])
        ends.begin_move(first)  # from now on new ends are stored in both places
        try:
            for indexes in pieces(range(partitions)):
                offsets = [ends[index] if index < len(ends) else 0 for index in indexes]
                self._ends.reserve(first + indexes[0], offsets)
                yield
        except OSError:
            ends.cancel_move(first)
            raise
        draft.replace(
            row._replace(partitions=partitions, first_slot=first),
            publish=partial(_finish_move, topic, first, partitions),
            discard=partial(ends.cancel_move, first),
        )
        return True

    def alter(self, topic: Topic, change: ChangeOverrides, done: Callable[[CoordinatorError | None], None]) -> None:
        """Change the settings of a topic durably; ``done`` gets the error, or None."""

        def apply(draft: TopicsDraft) -> bool:
            row = altered_row(draft.table, topic, change)
            self._check_memory(topic.name, draft.table)
            draft.change_settings(row, partial(topic.use_policy, policy_of(row.settings, self._settings)))
            return True

        def finish(failure: Exception | None) -> None:
            done(None if failure is None else to_coordinator_error(failure))

        self.files.changes.submit(apply, finish)

    def create(self, name: str, partitions: int) -> Topic:
        """Create a topic while files are written on the caller's thread. Raises CoordinatorError."""
        outcomes: list[CreateOutcome] = immediate_outcome(partial(self.create_many, [NewTopic(name, partitions)]))
        if isinstance(outcomes[0], CoordinatorError):
            raise outcomes[0]
        return outcomes[0]

    def ensure(self, topics: Iterable[tuple[str, int]]) -> None:
        """At start: create the topics that do not exist, with one durable change. Raises StartError."""
        missing = []
        for name, partitions in topics:
            topic = self._topics.get(name)
            if topic is None:
                missing.append(NewTopic(name, partitions))
            elif len(topic.partitions) != partitions:
                log.warning("the topic exists with another number of partitions", topic=name, has=len(topic.partitions))
        if missing:
            outcomes: list[CreateOutcome] = immediate_outcome(partial(self.create_many, missing))
            for new, outcome in zip(missing, outcomes, strict=True):
                if isinstance(outcome, CoordinatorError):
                    raise StartError(f"--topic {new.name}:{new.partitions}: {outcome}") from outcome

    # End offsets -----------------------------------------------------------------------------------------------------

    def raise_end(self, name: str, partition: int, offset: int) -> None:
        """Raise the end offset of a partition to a committed offset. Called at start for each committed offset.

        So no partition ends below it after a power loss. Unknown topics and partitions, and impossible offsets, are
        ignored. In a cluster ends follow from epochs.
        """
        topic = self._topics.get(name) if self.follower is None else None
        if topic is None or topic.is_internal or not topic.has_partition(partition) or offset > RAISED_END_MAX:
            return
        try:
            topic.raise_end(partition, offset)
        except CoordinatorError as error:  # it is in effect, and the next check rewrites the file
            log.error("an end offset could not be stored", topic=name, partition=partition, reason=str(error))

    def end_transaction(self, topic: str, partition: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """See ``actors.ports.TransactionTopics``. The topic may have been deleted."""
        stored = self._topics.get(topic)
        if stored is None or stored.is_internal or not stored.has_partition(partition):
            return
        try:
            stored.end_transaction(partition, marker, timestamp_ms)
        except CoordinatorError as error:  # the marker is in effect, and the next check rewrites the file
            log.error("an end offset could not be stored", topic=topic, partition=partition, reason=str(error))

    def new_producer_id(self) -> int:
        """See ``actors.ports.TransactionTopics``."""
        return self.producer_ids.allocate()

    # What is visible -------------------------------------------------------------------------------------------------

    def _topic_of_row(self, row: TopicRow) -> Topic:
        ends = TopicEnds(self._ends, row.first_slot, row.partitions)
        return self._build_topic(row.name, row.topic_id, ends, row.settings)

    def _build_topic(
        self,
        name: str,
        topic_id: UUID,
        ends: EndOffsets,
        overrides: Overrides = NO_OVERRIDES,
    ) -> Topic:
        is_internal = name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        return Topic(name, topic_id, ends, policy_of(overrides, self._settings), self._records, is_internal)

    def use_offsets_topic_id(self, offsets_topic_id: UUID) -> None:
        """Have the coordinator's own topics under these ids, which are those of the cluster."""
        ids = {OFFSETS_TOPIC: offsets_topic_id, TRANSACTIONS_TOPIC: transactions_topic_id(offsets_topic_id)}
        for name, topic_id in ids.items():
            topic = self._topics[name]
            if name not in self.files.table.rows:  # a topic of clients keeps its id
                del self._by_id[topic.topic_id]
                topic.topic_id = topic_id
                self._by_id[topic_id] = topic

    def _publish_topic(self, topic: Topic) -> None:
        if self.follower is not None:
            self.follower.published(topic)
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def unpublish(self, topic: Topic) -> None:
        """A topic is deleted."""
        del self._topics[topic.name], self._by_id[topic.topic_id]
        topic.close()


def _has_memory(_waiting_bytes: int) -> bool:
    """The default of ``refuses_new``."""
    return False


def _topics_bytes(table: TopicTable) -> int:
    """About the memory of topics without their records."""
    return len(table.rows) * TOPIC_BYTES + table.partitions * PARTITION_BYTES + table.settings_chars * CHAR_BYTES


def _transactions_partitions(settings: TopicLimits) -> int:
    return settings.transaction_state_log_num_partitions


def _internal_topics(
    table: TopicsFile, offsets_partitions: int, transactions_partitions: int
) -> Iterator[tuple[str, UUID, InternalTopicEnds]]:
    """Name, id and end offsets of the coordinator's own topics."""
    yield OFFSETS_TOPIC, table.offsets_topic_id, InternalTopicEnds(offsets_partitions)
    # Older versions allowed this name for clients' topics.
    if all(row.name != TRANSACTIONS_TOPIC for row in table.topics):
        topic_id = transactions_topic_id(table.offsets_topic_id)
        yield TRANSACTIONS_TOPIC, topic_id, InternalTopicEnds(transactions_partitions)


def check_growable(table: TopicTable, topic: Topic, partitions: int, partitions_max: int) -> None:
    """Raise CoordinatorError unless a topic may have so many partitions."""
    row = table.find(topic.name, topic.topic_id)
    table.check_count(partitions)
    if partitions <= row.partitions:
        raise CoordinatorError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {format_count(row.partitions, 'partition')}: expected more",
        )
    table.check_room(partitions - row.partitions, partitions_max)


def altered_row(table: TopicTable, topic: Topic, change: ChangeOverrides) -> TopicRow:
    """The row of a topic with changed settings. Raises CoordinatorError, with Kafka's error code, for invalid ones."""
    row = table.find(topic.name, topic.topic_id)
    return row._replace(settings=check_overrides(change(row.settings)))


def _finish_move(topic: Topic, first_slot: int, partitions: int) -> None:
    assert isinstance(topic.ends, TopicEnds)
    topic.ends.finish_move(first_slot, partitions)
    topic.partitions.refresh_count()
