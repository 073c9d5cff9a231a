"""The next version of the topics while it is made. The rules are those of a single node's topics. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from uuid import UUID

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.steps import Steps, pieces
from ...actors.text import format_count
from ..topics.names import INTERNAL_TOPICS
from ..topics.setting_values import Overrides, check_overrides
from ..topics.store import NewTopic, TopicRow
from ..topics.table import TopicTable
from .topics_document import Deletion, SharedTopic, TopicsDocument

NO_SLOT = 0
"""In a cluster no file has the ends of partitions."""


class OffsetsRemain(Exception):
    """The offsets of a deleted topic of the same name are not deleted yet: try again with a later version."""


class SharedTopicsDraft:
    """Begins as a copy of a version: see ``draft_of``. All methods raise CoordinatorError with Kafka's codes.

    They change nothing then. ``groups``: the settings of groups, which ``GroupConfigs.alter`` changes. ``security``:
    users, ACLs and quotas.
    """

    def __init__(
        self, document: TopicsDocument, offsets_partitions: int, table: TopicTable, first_epochs: dict[str, int]
    ) -> None:
        self.table = table
        self._first_epochs = first_epochs
        self._document = document
        self._offsets_partitions = offsets_partitions
        self._deleted: set[str] = set()
        self.groups = dict(document.groups)
        self.security = document.security
        self._unchanged = (dict(self.table.rows), document.deletions, document.groups, document.security)

    def check_cleaned(self, name: str) -> None:
        """Raise OffsetsRemain if the topic cannot be created yet."""
        if name in self._deleted or any(name in deletion.names for deletion in self._document.deletions):
            raise OffsetsRemain(name)

    def create(self, new: NewTopic, topic_id: UUID, first_epoch: int, partitions_max: int) -> None:
        """The same topic may have been created by an earlier attempt."""
        row = self.table.rows.get(new.name)
        if row is None or row.topic_id != topic_id:
            self.table.check_new(new.name, new.partitions, partitions_max)
            self.table.add(TopicRow(new.name, topic_id, new.partitions, NO_SLOT, new.settings))
            self._first_epochs[new.name] = first_epoch

    def delete(self, name: str, topic_id: UUID) -> None:
        self.table.find(name, topic_id)
        self.table.remove(name)
        self._deleted.add(name)

    def grow(self, name: str, topic_id: UUID, partitions: int, partitions_max: int) -> None:
        row = self.table.find(name, topic_id)
        self.table.check_count(partitions)
        if partitions <= row.partitions:
            raise CoordinatorError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {format_count(row.partitions, 'partition')}: expected more",
            )
        self.table.check_room(partitions - row.partitions, partitions_max)
        self.table.replace(row._replace(partitions=partitions))

    def alter(self, name: str, topic_id: UUID, change: Callable[[Overrides], Overrides]) -> None:
        row = self.table.find(name, topic_id)
        self.table.change_settings(row._replace(settings=check_overrides(change(row.settings))))

    def clean(self, cleaned: Mapping[int, Collection[int]]) -> None:
        """Partitions have no offsets of deleted topics any more: partitions by the number of the deletion."""
        self._document = self._document.without_cleaned(cleaned)

    def changed(self) -> Steps[TopicsDocument | None]:
        """The changed content; None if nothing has changed."""
        rows = self.table.rows
        content = (rows, self._document.deletions, self.groups, self.security)
        if not self._deleted and content == self._unchanged:
            return None
        topics: dict[str, SharedTopic] = {}
        for piece in pieces(rows.items()):
            for name, row in piece:
                topics[name] = SharedTopic(row.topic_id, row.partitions, self._first_epochs[name], row.settings)
            yield
        deletions = self._document.deletions
        if self._deleted:
            uncleaned = frozenset(range(self._offsets_partitions))
            deletions = (*deletions, Deletion(self._document.version + 1, frozenset(self._deleted), uncleaned))
        return self._document._replace(topics=topics, deletions=deletions, groups=self.groups, security=self.security)


def draft_of(document: TopicsDocument, offsets_partitions: int) -> Steps[SharedTopicsDraft]:
    table, first_epochs = TopicTable(INTERNAL_TOPICS, 0), dict[str, int]()
    for piece in pieces(rows_of(document)):
        for row in piece:
            table.add(row)
            first_epochs[row.name] = document.topics[row.name].first_epoch
        yield
    return SharedTopicsDraft(document, offsets_partitions, table, first_epochs)


def rows_of(document: TopicsDocument) -> Iterator[TopicRow]:
    for name, topic in document.topics.items():
        yield TopicRow(name, topic.topic_id, topic.partitions, NO_SLOT, topic.settings)
