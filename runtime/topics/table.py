"""The table of topics and the rules for changing it. One copy is visible to clients, others are drafts. Pure."""

from __future__ import annotations

from uuid import UUID

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.text import format_count
from ..settings.table import PARTITIONS_MAX
from .names import METADATA_TOPIC, check_name, metric_name
from .setting_values import Overrides
from .store import TopicRow


class TopicTable:
    """The rows of ``topics.json``, and the rules for changing them. All checks raise CoordinatorError."""

    def __init__(self, internal_names: frozenset[str], next_producer_id: int) -> None:
        """``internal_names``: the coordinator's own topics, which have no rows."""
        self.rows: dict[str, TopicRow] = {}
        self.partitions = 0
        self.settings_chars = 0  # of the names and values of all settings
        self.version = 0  # grows with each change of the topics
        self.created_version = 0  # that of the last topic that was added
        self.next_producer_id = next_producer_id
        self._internal_names = internal_names
        self._metric_names = {metric_name(name): name for name in internal_names}

    def copy(self) -> TopicTable:
        copy = TopicTable(self._internal_names, self.next_producer_id)
        copy.rows = dict(self.rows)
        copy.partitions, copy.version, copy.created_version = self.partitions, self.version, self.created_version
        copy.settings_chars = self.settings_chars
        copy._metric_names = dict(self._metric_names)
        return copy

    def add(self, row: TopicRow) -> None:
        self.rows[row.name] = row
        self.version += 1
        self.created_version = self.version
        self.partitions += row.partitions
        self.settings_chars += _chars(row.settings)
        self._metric_names[metric_name(row.name)] = row.name

    def remove(self, name: str) -> None:
        self.version += 1
        row = self.rows.pop(name)
        self.partitions -= row.partitions
        self.settings_chars -= _chars(row.settings)
        del self._metric_names[metric_name(name)]

    def replace(self, row: TopicRow) -> None:
        """Change the number of partitions or the slots of a topic."""
        self.version += 1
        self.partitions += row.partitions - self.rows[row.name].partitions
        self.rows[row.name] = row

    def change_settings(self, row: TopicRow) -> None:
        """Change the settings of a topic. What groups know about topics stays the same, so the version does too."""
        self.settings_chars += _chars(row.settings) - _chars(self.rows[row.name].settings)
        self.rows[row.name] = row

    def find(self, name: str, topic_id: UUID) -> TopicRow:
        """The row of a topic with this name and id, which clients may change."""
        if name in self._internal_names:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is the coordinator's own and cannot be changed"
            )
        row = self.rows.get(name)
        if row is None or row.topic_id != topic_id:
            raise CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return row

    def check_new(self, name: str, partitions: int, partitions_max: int, other_partitions: int = 0) -> None:
        """Check that such a topic can be created, with Kafka's error codes.

        ``other_partitions``: partitions of other topics that are about to be created too.
        """
        check_name(name)
        if name == METADATA_TOPIC:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"topic {name!r}: the name is Kafka's own")
        if name in self.rows or name in self._internal_names:
            raise CoordinatorError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        other = self._metric_names.get(metric_name(name))
        if other is not None:
            raise CoordinatorError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic name {name!r} collides with topic {other!r}: Kafka's metrics replace dots by underscores",
            )
        if partitions < 1:
            raise CoordinatorError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: expected 1 or more")
        self.check_count(partitions)
        self.check_room(partitions, partitions_max, other_partitions)

    def check_count(self, partitions: int) -> None:
        """Check that a topic may have so many partitions."""
        if partitions > PARTITIONS_MAX:
            raise CoordinatorError(
                ErrorCode.POLICY_VIOLATION, f"{partitions} partitions: expected at most {PARTITIONS_MAX}"
            )

    def check_room(self, added: int, partitions_max: int, other_partitions: int = 0) -> None:
        """Check that all topics together may have ``added`` more partitions."""
        existing_partitions = self.partitions + other_partitions
        if existing_partitions + added > partitions_max:
            raise CoordinatorError(
                ErrorCode.POLICY_VIOLATION,
                f"{format_count(added, 'more partition')}: all topics together have {existing_partitions}, expected"
                f" at most max_partitions={partitions_max}; delete topics, or start the server with a larger one",
                limit="max_partitions",
            )


def _chars(settings: Overrides) -> int:
    return sum(len(name) + len(text) for name, text in settings.items())
