"""All topics of the node: their names and where they end are durable, their records are not.

A topic that was created is there after any crash, with the same id and partitions. The coordinator's own topics stand
in it too, so that clients find them in metadata; their records are none of this package's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid5

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.ports import Random
from ....actors.records import MarkerRecord
from ...config import OFFSETS_TOPIC, PARTITIONS_MAX, TRANSACTIONS_TOPIC
from ...errors import StartError
from ...log.disk import Disk, read_file
from ...log.slots import SLOT_BYTES
from .ends import FIRST_SLOT, EndOffsets, free_run
from .names import METADATA_TOPIC, check_name, is_internal, metric_name
from .partition_log import PartitionLog
from .store import Table, TopicRow, id_text, load_table, save_table
from .topic import Topic

PRODUCER_ID_BLOCK = 1000  # Kafka's controller gives its brokers as many at a time
RAISED_END_MAX = 2**62  # a client may commit any offset; an end beyond this would leave no room to append


class Limits(Protocol):
    """What the catalogue needs of the settings."""

    @property
    def offsets_topic_num_partitions(self) -> int: ...

    @property
    def transaction_state_log_num_partitions(self) -> int: ...

    @property
    def topic_retention_bytes(self) -> int: ...

    @property
    def message_max_bytes(self) -> int: ...


class TopicCatalogue:
    """The topics by name and by id. Everything but ``sync`` belongs to one thread."""

    def __init__(
        self,
        folder: Path,
        settings: Limits,
        random: Random,
        own: tuple[int, int] | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open what ``folder`` holds, or begin there. Raises StartError when a file is damaged or too new.

        ``own``: how many partitions the topics of offsets and of transactions have, if not what the settings say.
        """
        self._path = folder / "topics.json"
        self._disk = disk or Disk()
        self._settings = settings
        self._random = random
        self._rows: dict[str, TopicRow] = {}
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._metric_names: dict[str, str] = {}
        ends_path = folder / "topics.ends"
        table = load_table(self._path, self._disk) or self._begin(ends_path)
        self._ends = EndOffsets(ends_path, self._disk)
        self._offsets_topic_id = table.offsets_topic_id
        self._reserved_producer_id = self._next_producer_id = table.next_producer_id
        counts = settings.offsets_topic_num_partitions, settings.transaction_state_log_num_partitions
        self._show_own(table, *(own or counts))
        try:
            for row in table.topics:
                self._add(row, self._ends.load(row.first_slot, row.partitions))
        except StartError:
            self._ends.close()
            raise

    def _begin(self, ends_path: Path) -> Table:
        _refuse_lost_table(self._path, ends_path, self._disk)
        table = Table(self._new_id(), 0, ())
        try:
            EndOffsets.create(ends_path, self._disk)
            save_table(self._path, table, self._disk)
        except OSError as error:
            raise StartError(f"cannot write the topics '{self._path}': {error.strerror}") from error
        return table

    def names(self) -> list[str]:
        """All topics, the coordinator's own included."""
        return list(self._topics)

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """The topic of that id; None, which is how kio reads the zero id, is nobody's."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def check_new(self, name: str, partitions: int) -> None:
        """Raise CoordinatorError, with Kafka's code, unless such a topic could be created."""
        check_name(name)
        if name == METADATA_TOPIC:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"topic {name!r}: the name is Kafka's own")
        if name in self._topics:
            raise CoordinatorError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        other = self._metric_names.get(metric_name(name))
        if other is not None:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic name {name!r} collides with topic {other!r}: Kafka does not tell dots from underscores",
            )
        if partitions < 1:
            raise CoordinatorError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: expected 1 or more")
        if partitions > PARTITIONS_MAX:
            raise CoordinatorError(
                ErrorCode.POLICY_VIOLATION, f"{partitions} partitions: expected at most {PARTITIONS_MAX}"
            )

    def create(self, name: str, partitions: int) -> Topic:
        """Create a topic, durably. Raises CoordinatorError with Kafka's code."""
        [outcome] = self.create_many([(name, partitions)])
        if isinstance(outcome, CoordinatorError):
            raise outcome
        return outcome

    def create_many(self, wanted: Iterable[tuple[str, int]]) -> list[Topic | CoordinatorError]:
        """Create topics with one durable change, and say for each what became of it."""
        outcomes: list[Topic | CoordinatorError] = []
        made: list[Topic] = []
        for name, partitions in wanted:
            try:
                self.check_new(name, partitions)
                made.append(self._make(name, partitions))
                outcomes.append(made[-1])
            except CoordinatorError as refusal:
                outcomes.append(refusal)
        if not made:
            return outcomes
        try:
            self._ends.sync()  # before a row names the slots: they may hold a deleted topic's ends
            self._save()
        except OSError as error:
            for topic in made:
                self._remove(topic)
            failure = storage_error(error)
            return [failure if isinstance(outcome, Topic) else outcome for outcome in outcomes]
        return outcomes

    def delete(self, name: str) -> None:
        """Delete a topic, durably. Raises CoordinatorError with Kafka's code."""
        topic = self._topics.get(name)
        if topic is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        self.check_deletable(topic)
        self.delete_many([topic])

    def check_deletable(self, topic: Topic) -> None:
        """Raise CoordinatorError for the coordinator's own topics, which it cannot do without."""
        if topic.name not in self._rows:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {topic.name!r} is the coordinator's own and stays; delete groups instead",
            )

    def delete_many(self, topics: Sequence[Topic]) -> None:
        """Delete deletable topics with one durable change. Raises CoordinatorError; then they all stay."""
        rows = [self._remove(topic) for topic in topics]
        try:
            self._save()
        except OSError as error:
            for topic, row in zip(topics, rows, strict=True):
                self._rows[row.name] = row
                self._show(topic)
            raise storage_error(error) from error
        for topic in topics:
            topic.close()

    def check_growable(self, topic: Topic, partitions: int) -> None:
        """Raise CoordinatorError unless a topic may have so many partitions."""
        if topic.name not in self._rows:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {topic.name!r} is the coordinator's own; its partitions were fixed when the data were made",
            )
        if partitions > PARTITIONS_MAX:
            raise CoordinatorError(
                ErrorCode.POLICY_VIOLATION, f"{partitions} partitions: expected at most {PARTITIONS_MAX}"
            )

    def grow(self, topic: Topic, partitions: int) -> None:
        """Give a growable topic more partitions, durably. Raises CoordinatorError; then it is as it was.

        The ends of a topic lie side by side, so they move to a place that is long enough.
        """
        old, have = self._rows[topic.name], len(topic.partitions)
        first = free_run(((row.first_slot, row.partitions) for row in self._rows.values()), partitions)
        try:
            self._ends.reserve(first, partitions)
            for index, log in enumerate(topic.partitions):
                self._ends.store(first + index, log.end_offset)
            self._ends.sync()
            self._rows[topic.name] = old._replace(partitions=partitions, first_slot=first)
            self._save()
        except OSError as error:
            self._rows[topic.name] = old
            raise storage_error(error) from error
        added = [PartitionLog(self._settings.message_max_bytes) for _ in range(partitions - have)]
        topic.grow(added, partial(self._keep_end, first))

    def raise_end(self, name: str, partition: int, offset: int) -> None:
        """At start, for each committed offset: no partition ends below it, whatever a power loss took back.

        Unknown topics and partitions are ignored, and so are offsets that nobody can have reached.
        """
        topic = self._topics[name] if name in self._rows else None
        if topic is not None and topic.partition(partition) is not None and offset <= RAISED_END_MAX:
            topic.raise_end(partition, offset)

    def new_producer_id(self) -> int:
        """An id that was never given before, not even before a restart. Raises CoordinatorError if the disk fails."""
        if self._next_producer_id == self._reserved_producer_id:
            self._reserved_producer_id += PRODUCER_ID_BLOCK
            try:
                self._save()
            except OSError as error:
                self._reserved_producer_id -= PRODUCER_ID_BLOCK
                raise storage_error(error) from error
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def keep_producer_ids_above(self, producer_id: int) -> None:
        """At start: ids up to this one are in use, whatever ``topics.json`` says (it may be new)."""
        self._next_producer_id = max(self._next_producer_id, producer_id + 1)
        self._reserved_producer_id = max(self._reserved_producer_id, self._next_producer_id)

    def end_transaction(self, topic: str, partition: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """See ``actors.ports.TransactionTopics``. The topic may have been deleted meanwhile."""
        found = self._topics.get(topic)
        if found is not None and not found.is_internal and found.partition(partition) is not None:
            found.end_transaction(partition, marker, timestamp_ms)

    def sync(self) -> None:
        """Make the end offsets survive a power loss. Blocks; any thread may call it. Raises OSError."""
        self._ends.sync()

    def close(self) -> None:
        """Sync and let go of the files. Raises OSError when the sync failed; the files are closed all the same."""
        try:
            self._ends.sync()
        finally:
            self._ends.close()

    def halt(self) -> None:
        """Let go of the files as a process does that dies."""
        self._ends.close()

    def _make(self, name: str, partitions: int) -> Topic:
        first = free_run(((row.first_slot, row.partitions) for row in self._rows.values()), partitions)
        try:
            self._ends.reserve(first, partitions)
        except OSError as error:
            raise storage_error(error) from error
        return self._add(TopicRow(name, self._new_id(), partitions, first), [0] * partitions)

    def _add(self, row: TopicRow, ends: Iterable[int]) -> Topic:
        settings = self._settings
        logs = [PartitionLog(settings.message_max_bytes, end) for end in ends]
        keep_end = partial(self._keep_end, row.first_slot)
        internal = is_internal(row.name)
        topic = Topic(row.name, row.topic_id, logs, settings.topic_retention_bytes, keep_end, internal)
        self._rows[row.name] = row
        self._show(topic)
        return topic

    def _keep_end(self, first_slot: int, partition: int, offset: int) -> None:
        self._ends.store(first_slot + partition, offset)

    def _show_own(self, table: Table, offsets_partitions: int, transactions_partitions: int) -> None:
        self._show(self._own_topic(OFFSETS_TOPIC, table.offsets_topic_id, offsets_partitions))
        if not any(row.name == TRANSACTIONS_TOPIC for row in table.topics):  # once it was as free as any other name
            topic_id = transactions_topic_id(table.offsets_topic_id)
            self._show(self._own_topic(TRANSACTIONS_TOPIC, topic_id, transactions_partitions))

    def _own_topic(self, name: str, topic_id: UUID, partitions: int) -> Topic:
        settings = self._settings
        logs = [PartitionLog(settings.message_max_bytes) for _ in range(partitions)]
        return Topic(name, topic_id, logs, settings.topic_retention_bytes, _keep_nothing, True)

    def _show(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._metric_names[metric_name(topic.name)] = topic.name

    def _remove(self, topic: Topic) -> TopicRow:
        del self._topics[topic.name], self._by_id[topic.topic_id], self._metric_names[metric_name(topic.name)]
        return self._rows.pop(topic.name)

    def _save(self) -> None:
        rows = tuple(self._rows.values())
        save_table(self._path, Table(self._offsets_topic_id, self._reserved_producer_id, rows), self._disk)

    def _new_id(self) -> UUID:
        return next(topic_id for topic_id in self._random_ids() if _is_like_kafkas(topic_id))

    def _random_ids(self) -> Iterator[UUID]:
        while True:
            yield UUID(self._random.uuid())


def transactions_topic_id(offsets_topic_id: UUID) -> UUID:
    """Another id of this data folder's own that stays the same; only one of the two is kept."""
    ids = (uuid5(offsets_topic_id, f"{TRANSACTIONS_TOPIC}-{number}") for number in count())
    return next(topic_id for topic_id in ids if _is_like_kafkas(topic_id))


def _is_like_kafkas(topic_id: UUID) -> bool:
    """Kafka's ids never begin with "-", so that no tool takes one for an option."""
    return not id_text(topic_id).startswith("-")


def _refuse_lost_table(path: Path, ends_path: Path, disk: Disk) -> None:
    """Ends without topics are what a death while the files were made leaves, as long as all of them are 0."""
    try:
        ends = read_file(disk, ends_path)[FIRST_SLOT * SLOT_BYTES :]
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartError(f"cannot read the end offsets '{ends_path}': {error.strerror}") from error
    if any(ends):
        raise StartError(
            f"found '{ends_path}', in which partitions end, and no '{path}', expected it there; put it back, or remove"
            f" '{ends_path.name}' to start without topics"
        )


def storage_error(error: OSError) -> CoordinatorError:
    return CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, f"the topics cannot be written: {error.strerror}")


def _keep_nothing(partition: int, offset: int) -> None:
    """The coordinator's own topics take no records here."""
