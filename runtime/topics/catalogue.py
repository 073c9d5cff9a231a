"""All topics of the node: their names and where they end are durable, their records are not.

A topic that was created is there after any crash, with the same id and partitions. The coordinator's own topics stand
in it too, so that clients find them in metadata; their records are none of this package's business.

A topic is visible as soon as it is durable, and a deleted one until its deletion is. Until then the event loop serves
others: the files are written by ``FileWork``, and who asked for a change is called back. Changes that wait for the file
share its next write.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import UUID

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.ports import Random
from ...actors.records import MarkerRecord
from ..common.errors import StartError
from ..common.logs import get_logger
from ..disk.disk import Disk, file_size, replace_file
from ..disk.file_work import FileWork, OnCaller
from ..disk.group_commit import GroupCommit, at_once
from ..settings.table import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from .draft import TopicsDraft
from .ends import NoEnds, TopicEnds
from .failures import as_refusal, storage_error
from .ids import new_topic_id, transactions_topic_id
from .opening import UNKNOWN, open_files
from .producer_ids import ProducerIds
from .store import TopicRow, TopicsFile, encode_table
from .table import TopicTable
from .topic import Ends, Topic

log = get_logger("callboard.runtime")

RAISED_END_MAX = 2**62  # a client may commit any offset; an end beyond this would leave no room to append

Created = Topic | CoordinatorError
Deleted = CoordinatorError | None


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

    @property
    def max_partitions(self) -> int: ...


class TopicCatalogue:
    """The topics by name and by id. Everything but ``write`` belongs to the thread of the loop."""

    def __init__(
        self,
        folder: Path,
        settings: Limits,
        random: Random,
        own: tuple[int, int] | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open what ``folder`` holds, or begin there. Raises StartError when a file is missing, damaged or too new.

        ``own``: how many partitions the topics of offsets and of transactions have, if not what the settings say.
        """
        self._path = folder / "topics.json"
        self._disk = disk or Disk()
        self._settings = settings
        self._random = random
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        table, self._ends, self._saved_bytes = open_files(folder, self._disk, lambda: new_topic_id(random))
        self._offsets_topic_id = table.offsets_topic_id
        self._show_own(table, *(own or (settings.offsets_topic_num_partitions, _transactions_partitions(settings))))
        self._table = TopicTable(frozenset(self._topics), table.next_producer_id)
        for row in table.topics:
            self._table.add(row)
            self._show(self._topic(row))
        self._is_looking = False
        self._changes: GroupCommit[TopicsDraft] = GroupCommit(self, OnCaller())
        self.producer_ids = ProducerIds(table.next_producer_id, self._changes)

    def run_on(self, files: FileWork) -> None:
        """From now on write files there; until then it is done on the caller's thread."""
        self._changes.files = files

    def names(self) -> list[str]:
        """All topics, the coordinator's own included."""
        return list(self._topics)

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """The topic of that id; None, which is how kio reads the zero id, is nobody's."""
        return None if topic_id is None else self._by_id.get(topic_id)

    # Changes ---------------------------------------------------------------------------------------------------------

    def check_new(self, name: str, partitions: int, beside: int = 0) -> None:
        """Raise CoordinatorError, with Kafka's code, unless such a topic could be created.

        ``beside``: so many partitions are to be created together with it.
        """
        self._table.check_new(name, partitions, self._settings.max_partitions, beside)

    def create_many(self, wanted: Sequence[tuple[str, int]], done: Callable[[list[Created]], None]) -> None:
        """Create topics with one durable change, then say for each what became of it."""
        outcomes: list[Created] = []

        def create(draft: TopicsDraft) -> bool:
            outcomes.extend(self._create(draft, name, partitions) for name, partitions in wanted)
            return any(isinstance(outcome, Topic) for outcome in outcomes)

        def finish(failure: Exception | None) -> None:
            refusal = None if failure is None else as_refusal(failure)
            done([refusal if refusal and isinstance(outcome, Topic) else outcome for outcome in outcomes])

        self._changes.submit(create, finish)

    def _create(self, draft: TopicsDraft, name: str, partitions: int) -> Created:
        try:
            draft.table.check_new(name, partitions, self._settings.max_partitions)
            row = TopicRow(name, new_topic_id(self._random), partitions, draft.allocate_slots(partitions))
            self._ends.reserve(row.first_slot, [0] * partitions)
        except OSError as error:
            return storage_error(error)
        except CoordinatorError as refusal:
            return refusal
        topic = self._topic(row)
        draft.add(row, partial(self._show, topic))
        return topic

    def delete_many(self, topics: Sequence[Topic], done: Callable[[list[Deleted]], None]) -> None:
        """Delete topics with one durable change, then say for each why it stays; None if it is gone."""
        outcomes: list[Deleted] = []

        def delete(draft: TopicsDraft) -> bool:
            outcomes.extend(self._delete(draft, topic) for topic in topics)
            return None in outcomes

        def finish(failure: Exception | None) -> None:
            refusal = None if failure is None else as_refusal(failure)
            done([refusal if outcome is None else outcome for outcome in outcomes])

        self._changes.submit(delete, finish)

    def _delete(self, draft: TopicsDraft, topic: Topic) -> Deleted:
        try:
            draft.table.find(topic.name, topic.topic_id)
        except CoordinatorError as refusal:
            return refusal
        draft.remove(topic.name, partial(self._hide, topic))
        return None

    def check_deletable(self, topic: Topic) -> None:
        """Raise CoordinatorError for the coordinator's own topics, which it cannot do without."""
        self._table.find(topic.name, topic.topic_id)

    def check_growable(self, topic: Topic, partitions: int) -> None:
        """Raise CoordinatorError unless a topic may have so many partitions."""
        _check_growable(self._table, topic, partitions, self._settings.max_partitions)

    def grow(self, topic: Topic, partitions: int, done: Callable[[CoordinatorError | None], None]) -> None:
        """Give a topic more partitions with one durable change, then say why it has not got them; None if it has.

        The ends of a topic lie side by side, so they move to slots where there is room for all of them.
        """

        def finish(failure: Exception | None) -> None:
            done(None if failure is None else as_refusal(failure))

        self._changes.submit(partial(self._grow, topic, partitions), finish)

    def _grow(self, topic: Topic, partitions: int, draft: TopicsDraft) -> bool:
        _check_growable(draft.table, topic, partitions, self._settings.max_partitions)
        ends, row = topic.ends, draft.table.rows[topic.name]
        assert isinstance(ends, TopicEnds)
        first = draft.allocate_slots(partitions)
        self._ends.reserve(first, [ends[index] if index < len(ends) else 0 for index in range(partitions)])
        ends.move(first)
        draft.replace(
            row._replace(partitions=partitions, first_slot=first),
            publish=partial(_moved, topic, first, partitions),
            discard=ends.stay,
        )
        return True

    def create(self, name: str, partitions: int) -> Topic:
        """Create a topic where files are written on the caller's thread. CoordinatorError with Kafka's code."""
        outcomes: list[Created] = at_once(partial(self.create_many, [(name, partitions)]))
        if isinstance(outcomes[0], CoordinatorError):
            raise outcomes[0]
        return outcomes[0]

    def ensure(self, name: str, partitions: int) -> None:
        """At start: create a topic unless it exists. Raises StartError."""
        topic = self._topics.get(name)
        if topic is None:
            try:
                self.create(name, partitions)
            except CoordinatorError as error:
                raise StartError(f"--topic {name}:{partitions}: {error}") from error
        elif len(topic.partitions) != partitions:
            log.warning("the topic exists with another number of partitions", topic=name, has=len(topic.partitions))

    # Group commit ----------------------------------------------------------------------------------------------------

    def draft(self) -> TopicsDraft:
        """See ``group_commit.TopicsFile``, as for the following three."""
        return TopicsDraft(self._table, self._offsets_topic_id)

    def write(self, draft: TopicsDraft) -> None:
        """The ends first: the slots that a row names may hold the ends of a deleted topic."""
        problem = self._ends.sync()
        if problem:
            raise OSError(errno.EIO, f"topics.ends is being written anew: {problem}")
        content = encode_table(draft.content())
        self._saved_bytes = UNKNOWN  # if this fails either content may be there
        replace_file(self._disk, self._path, content)
        self._saved_bytes = len(content)

    def publish(self, draft: TopicsDraft) -> None:
        self._table = draft.table
        for show in draft.to_publish:
            show()

    def discard(self, draft: TopicsDraft) -> None:
        for take_back in draft.to_discard:
            take_back()

    # The ends --------------------------------------------------------------------------------------------------------

    def raise_end(self, name: str, partition: int, offset: int) -> None:
        """At start, for each committed offset: no partition ends below it, whatever a power loss took back.

        Unknown topics and partitions are ignored, and so are offsets that nobody can have reached.
        """
        topic = self._topics.get(name)
        if topic is None or topic.is_internal or not topic.has_partition(partition) or offset > RAISED_END_MAX:
            return
        try:
            topic.raise_end(partition, offset)
        except CoordinatorError as error:  # it counts, and the file is written anew by the next look
            log.error("an end offset could not be stored", topic=name, partition=partition, reason=str(error))

    def end_transaction(self, topic: str, partition: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """See ``actors.ports.TransactionTopics``. The topic may have been deleted meanwhile."""
        found = self._topics.get(topic)
        if found is None or found.is_internal or not found.has_partition(partition):
            return
        try:
            found.end_transaction(partition, marker, timestamp_ms)
        except CoordinatorError as error:  # the marker is there, and the file is written anew by the next look
            log.error("an end offset could not be stored", topic=topic, partition=partition, reason=str(error))

    def new_producer_id(self) -> int:
        """See ``actors.ports.TransactionTopics``."""
        return self.producer_ids.allocate()

    # The files -------------------------------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Sync the ends, and write anew what others have removed or cut. To be called now and then; does not block."""
        if self._is_looking:
            return  # the disk is slow
        self._is_looking = True
        problems: list[str] = []
        self._changes.files.submit(lambda: problems.extend(self._look()), lambda error: self._looked(problems, error))

    def _look(self) -> tuple[str, str]:
        """What is wrong with both files; "" for a file that is whole. Blocks. Raises OSError."""
        return self._ends.sync(), self._table_problem()

    def _table_problem(self) -> str:
        try:
            size = file_size(self._disk, self._path)
        except FileNotFoundError:
            return "it was removed"
        expected = self._saved_bytes
        if expected == UNKNOWN:
            return "it could not be written before"
        return "" if size == expected else f"it has {size} bytes, expected {expected}"

    def _looked(self, problems: Sequence[str], error: OSError | None) -> None:
        self._is_looking = False
        if error is not None:
            log.error("the topics could not be synced", reason=str(error))
            return
        ends_problem, table_problem = problems
        if ends_problem:
            self._rewrite_ends(ends_problem)
        if table_problem:
            log.error("topics.json is written anew", reason=table_problem)
            self._changes.submit(lambda draft: True, partial(_rewritten, "topics.json"))

    def _rewrite_ends(self, problem: str) -> None:
        log.error("topics.ends is written anew from memory", reason=problem)
        try:
            self._ends.rewrite()
        except OSError as error:
            _rewritten("topics.ends", error)
        else:
            self._changes.files.submit(self._ends.put_in_place, partial(_rewritten, "topics.ends"))

    def close(self) -> None:
        """Sync and let go of the files. Raises OSError when the sync failed; the files are closed all the same."""
        try:
            if self._ends.sync():
                self._ends.rewrite()
                self._ends.put_in_place()
        finally:
            self._ends.close()

    def halt(self) -> None:
        """Let go of the files as a process does that dies."""
        self._ends.close()

    # What is visible -------------------------------------------------------------------------------------------------

    def _topic(self, row: TopicRow) -> Topic:
        return self._made(row.name, row.topic_id, TopicEnds(self._ends, row.first_slot, row.partitions))

    def _made(self, name: str, topic_id: UUID, ends: Ends, *, is_internal: bool = False) -> Topic:
        settings = self._settings
        is_internal = is_internal or name == TRANSACTIONS_TOPIC
        return Topic(name, topic_id, ends, settings.message_max_bytes, settings.topic_retention_bytes, is_internal)

    def _show_own(self, table: TopicsFile, offsets_partitions: int, transactions_partitions: int) -> None:
        self._show(self._made(OFFSETS_TOPIC, table.offsets_topic_id, NoEnds(offsets_partitions), is_internal=True))
        if not any(row.name == TRANSACTIONS_TOPIC for row in table.topics):  # once it was as free as any other name
            topic_id = transactions_topic_id(table.offsets_topic_id)
            self._show(self._made(TRANSACTIONS_TOPIC, topic_id, NoEnds(transactions_partitions)))

    def _show(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _hide(self, topic: Topic) -> None:
        del self._topics[topic.name], self._by_id[topic.topic_id]
        topic.close()


def _transactions_partitions(settings: Limits) -> int:
    return settings.transaction_state_log_num_partitions


def _check_growable(table: TopicTable, topic: Topic, partitions: int, partitions_max: int) -> None:
    row = table.find(topic.name, topic.topic_id)
    table.check_count(partitions)
    if partitions <= row.partitions:
        raise CoordinatorError(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {row.partitions} partitions: expected more"
        )
    table.check_room(partitions - row.partitions, partitions_max)


def _moved(topic: Topic, first_slot: int, partitions: int) -> None:
    assert isinstance(topic.ends, TopicEnds)
    topic.ends.moved(first_slot, partitions)
    topic.partitions.recount()


def _rewritten(name: str, failure: Exception | None) -> None:
    if failure is None:
        log.info("a file was written anew", file=name)
    else:
        log.error("a file could not be written anew; that is tried again", file=name, reason=str(failure))
