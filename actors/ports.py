"""What the outside supplies to the actors. Everything here is a protocol; ``runtime/`` holds the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from .errors import ErrorCode
from .records import MarkerRecord, Record


class Random(Protocol):
    """A source of member ids; a test gives a seeded one."""

    def uuid(self) -> str:
        """A random UUID as 36 lower-case characters."""


class Entry(NamedTuple):
    """Records of one operation: they are kept together, in one batch, or not at all."""

    partition: int
    records: tuple[Record, ...]


class Appended(NamedTuple):
    """What became of an entry: ``base_offset`` is that of its first record, -1 when ``error`` is set.

    ``durability``: "synced", it survives a loss of power; "written", it survives the end of the process, and a loss of
    power if the system has come to it by then; "" for what the log does not say, or did not take.
    """

    error: ErrorCode
    base_offset: int
    durability: str = ""


class Log(Protocol):
    """The offsets log, as the writer sees it."""

    def append(self, entries: Sequence[Entry], timestamp_ms: int, done: Callable[[Sequence[Appended]], None]) -> None:
        """Write the entries of one round, all partitions together.

        Does not block. Calls ``done`` exactly once, from any thread, with one ``Appended`` for each entry and in
        their order, when they are as durable as the log's policy promises or have failed. The writer never has two
        rounds in flight.
        """


class TransactionTopics(Protocol):
    """Where producer ids come from, and the topics that transactions write to."""

    def new_producer_id(self) -> int:
        """An id that was never given before, not even before a restart. CoordinatorError if the disk fails."""

    def end_transaction(self, topic: str, partition: int, marker: MarkerRecord, timestamp_ms: int) -> None:
        """Put a marker behind what the producer has written there; nothing where there is no such partition."""


class TransactionSettings(Protocol):
    """The settings that transactions look at."""

    @property
    def transaction_max_timeout_ms(self) -> int: ...

    @property
    def transactional_id_expiration_ms(self) -> int: ...

    @property
    def transaction_remove_expired_transaction_cleanup_interval_ms(self) -> int: ...


class GroupSettings(Protocol):
    """The settings that groups look at. They may change while the system runs."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...

    @property
    def group_min_session_timeout_ms(self) -> int: ...

    @property
    def group_max_session_timeout_ms(self) -> int: ...

    @property
    def group_max_size(self) -> int: ...

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
