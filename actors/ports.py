"""Protocols that the environment of Kafka's actors implements. The implementations are in ``runtime/``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from .errors import ErrorCode
from .records import MarkerRecord, OffsetRecord, Record, item_count
from .steps import SHORT_WORK_ITEMS, Steps

T = TypeVar("T")


class Random(Protocol):
    """A source of UUIDs for member ids; tests use a seeded one."""

    def uuid(self) -> str:
        """A random UUID as 36 lower-case characters."""


class Entry(NamedTuple):
    """Records of one operation. They are written together, in one batch, or not at all."""

    partition: int
    records: tuple[Record, ...]


def are_long(entries: Sequence[Entry]) -> bool:
    """Whether entries have many records, or a record with many members or partitions. Looks at few of the records."""
    all_records = [entry.records for entry in entries]
    items = sum(map(len, all_records))
    if items > SHORT_WORK_ITEMS:
        return True
    others = [records for records in all_records if records and type(records[-1]) is not OffsetRecord]
    return items + sum(item_count(record) for records in others for record in records) > SHORT_WORK_ITEMS


class Appended(NamedTuple):
    """The result of appending an entry. ``base_offset`` is the offset of its first record, -1 if ``error`` is set.

    ``durability``: "synced" if it survives a power cut; "written" if it survives the end of the process, and a power
    cut only after the operating system has flushed it; "" if it is unknown or the append failed.
    """

    error: ErrorCode
    base_offset: int
    durability: str = ""


NO_EPOCH = -1
"""The epoch of a partition that this node never owned, or does not own now."""

NO_EPOCHS: Mapping[int, int] = MappingProxyType({})


class Log(Protocol):
    """The offsets log, as the writer uses it."""

    def append(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        done: Callable[[Sequence[Appended]], None],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """Write the entries of one round, for all partitions together.

        Does not block. Calls ``done`` exactly once, from any thread, with one ``Appended`` per entry in the same order,
        when the entries are as durable as the sync policy promises, or have failed. The writer never has two rounds in
        flight.

        ``epochs``: the epoch of each partition that this node owns; the mapping does not change. If the log is shared
        with other nodes, it refuses an entry whose partition has a higher epoch, or is not in ``epochs``, with
        NOT_LEADER_OR_FOLLOWER. The content of that partition is then unloaded.
        """

    def append_in_steps(
        self,
        entries: Sequence[Entry],
        timestamp_ms: int,
        done: Callable[[Sequence[Appended]], None],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Steps[None]:
        """The same for a round with so many records that encoding them should not hold up other work."""


class TopicsView(Protocol):
    """The topics that exist, for kinds of groups whose coordinator assigns partitions."""

    @property
    def version(self) -> int:
        """Grows with each change of names, ids or partition counts."""

    @property
    def created_version(self) -> int:
        """The version with which the last topic was created."""

    def names(self) -> Iterable[str]: ...

    def topic_id(self, name: str) -> bytes | None:
        """16 bytes; None if there is no such topic. A topic that is created again has another id."""

    def partition_count(self, name: str) -> int | None: ...


class TransactionTopics(Protocol):
    """The source of producer ids, and the topics that transactions write to."""

    def new_producer_id(self) -> int:
        """An id that was never assigned before, including before a restart. CoordinatorError if the disk fails."""

    def end_transaction(self, topic: str, partition: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """Append a marker to a partition. Does nothing if the partition does not exist."""


class TransactionSettings(Protocol):
    """The settings that transactions use."""

    @property
    def max_transactional_ids(self) -> int: ...

    @property
    def transaction_max_timeout_ms(self) -> int: ...

    @property
    def transactional_id_expiration_ms(self) -> int: ...

    @property
    def transaction_remove_expired_transaction_cleanup_interval_ms(self) -> int: ...


class ClassicGroupSettings(Protocol):
    """The settings that classic groups and offsets use. They may change at run time."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...

    @property
    def group_min_session_timeout_ms(self) -> int: ...

    @property
    def group_max_session_timeout_ms(self) -> int: ...

    @property
    def group_max_size(self) -> int: ...

    @property
    def group_max_pending_members(self) -> int: ...

    @property
    def memory_limit_bytes(self) -> int: ...

    @property
    def group_generation_from_clock(self) -> bool: ...

    @property
    def offset_metadata_max_bytes(self) -> int: ...

    @property
    def offsets_topic_num_partitions(self) -> int: ...

    @property
    def offsets_retention_minutes(self) -> int: ...

    @property
    def offsets_retention_check_interval_ms(self) -> int: ...


class GroupSettings(ClassicGroupSettings, Protocol):
    """The settings that groups of all kinds use."""

    @property
    def groups_max(self) -> int: ...

    @property
    def offsets_max_per_group(self) -> int: ...

    @property
    def group_consumer_session_timeout_ms(self) -> int: ...

    @property
    def group_consumer_heartbeat_interval_ms(self) -> int: ...

    @property
    def group_consumer_max_size(self) -> int: ...

    @property
    def group_consumer_assignment_interval_ms(self) -> int: ...

    @property
    def group_consumer_regex_refresh_interval_ms(self) -> int: ...

    @property
    def group_consumer_migration_policy(self) -> str: ...


GroupConfigs = Mapping[str, Mapping[str, int]]
"""Settings of single groups (Kafka's resource type GROUP), by group id and Kafka's name, such as
``consumer.session.timeout.ms``. The mapping changes while the coordinator runs, and few groups are in it.
"""

NO_CONFIGS: GroupConfigs = MappingProxyType({})


class BackgroundWork(Protocol):
    """Runs what would block the event loop."""

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call ``work``, which does not raise, and then ``done`` with its result, both perhaps in another thread."""


class InlineWork:
    """Runs it at once."""

    def run(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        done(work())
