"""Requests to TransactionsActor and their replies. ``messages.TxnOffsetCommit`` is the request for offsets."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from ..errors import ErrorCode
from ..records import MarkerRecord, TransactionValue

Partitions = frozenset[tuple[str, int]]
"""Topics and partitions. Offsets of a group are part of a transaction as a partition of ``__consumer_offsets``."""


class InitProducerId(NamedTuple):
    """Sent by transactional producers. With producer id and epoch: the producer recovers from an error (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class ProducerIdAssigned(NamedTuple):
    """Reply to InitProducerId, and to EndTransaction, after which producers of the new protocol use the new epoch.

    ``limit``: the setting by which a new transactional id is refused.
    """

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    limit: str = ""


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn. The reply is an ``ErrorCode``."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Partitions
    client_version: int = 0


class AddOffsets(NamedTuple):
    """AddOffsetsToTxn: adds the offsets of a group to the transaction. The reply is an ``ErrorCode``."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class VerifyPartitions(NamedTuple):
    """Checks whether partitions are part of a transaction. The reply has an ``ErrorCode`` per partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]


class EndTransaction(NamedTuple):
    """EndTxn. ``raises_epoch``: version 5 and later (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    raises_epoch: bool = False


class CommitDone(NamedTuple):
    """From ``CommitReply`` to TransactionsActor: a group has replied to offsets that were passed on to it.

    ``partition``: of ``__consumer_offsets``.
    """

    transactional_id: str
    producer_id: int
    partition: int


class WriteMarker(NamedTuple):
    """From the coordinator of a transaction on another node: end it in partitions of this node, each named once.

    The reply has an ``ErrorCode`` per partition.
    """

    marker: MarkerRecord
    partitions: tuple[tuple[str, int], ...]


class TransactionsLoaded(NamedTuple):
    """Some transactional ids of a partition, whose number is that in the log."""

    partition: int
    epoch: int
    values: Mapping[str, TransactionValue]


class PendingLoaded(NamedTuple):
    """From the partitions of offsets that were loaded: groups with offsets of an open transaction, by producer id."""

    groups: Mapping[int, Set[str]]


TransactionRequest = InitProducerId | AddPartitions | AddOffsets | VerifyPartitions | EndTransaction | WriteMarker
