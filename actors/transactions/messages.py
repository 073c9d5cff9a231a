"""What the transactions' actor is asked, and what it answers. See ``messages.TxnOffsetCommit`` for offsets."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from ..errors import ErrorCode
from ..records import TransactionValue

Partitions = frozenset[tuple[str, int]]
"""Topics and partitions. The offsets of a group belong to a transaction as a partition of ``__consumer_offsets``."""


class InitProducerId(NamedTuple):
    """Of a producer with a transactional id. Producer id and epoch: one that goes on after an error (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1


class ProducerIdAssigned(NamedTuple):
    """Answer to InitProducerId, and to EndTransaction, after which a producer of the newer protocol goes on with it."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn. Answered with a bare ``ErrorCode``."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Partitions
    client_version: int = 0


class AddOffsets(NamedTuple):
    """AddOffsetsToTxn: the group's offsets are to be part of the transaction. Answered with a bare ``ErrorCode``."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class VerifyPartitions(NamedTuple):
    """Whether partitions are part of a transaction. Answered with an ``ErrorCode`` for each."""

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
    """From a group's answer to the transactions' actor: offsets that it has sent on are decided and durable, or not."""

    transactional_id: str


class TransactionsLoaded(NamedTuple):
    """At start: everything was read. ``pending``: for each producer the groups in which its transaction is open."""

    values: Mapping[str, TransactionValue]
    pending: Mapping[int, Set[str]]


TransactionRequest = InitProducerId | AddPartitions | AddOffsets | VerifyPartitions | EndTransaction
