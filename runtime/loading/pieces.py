"""What is asked of loading, and what it finds, piece by piece: the words between a server and who loads for it.

Apart from ``child``, because a server whose log is empty needs the words and none of the work.
"""

from __future__ import annotations

import pickle
import struct
from typing import NamedTuple

from ...actors.group.offsets import GroupData
from ...actors.records import TransactionValue
from ..log.format.errors import Damage

LENGTH = struct.Struct(">I")
"""Before each piece, when it comes from another process."""


class Job(NamedTuple):
    """A partition to load. ``fast``: with numpy if it is there, whose import pays from some size on.

    ``topic_partitions``: how many its topic has; 0 if it is not known, then names are not checked.
    """

    partition: int
    folder: str
    is_transactions: bool
    log_bytes: int
    fast: bool = False
    topic_partitions: int = 0


class Asleep(NamedTuple):
    """Some groups of a partition, packed."""

    groups: dict[str, bytes]


class Awake(NamedTuple):
    """Some groups that cannot sleep."""

    groups: dict[str, GroupData]


class Ends(NamedTuple):
    """The largest offsets that are committed for some partitions of topics."""

    offsets: dict[tuple[str, int], int]


class Ids(NamedTuple):
    """Some transactional ids."""

    values: dict[str, TransactionValue]


class Report(NamedTuple):
    """The job is done. ``failure``: why it could not be; then nothing of it was found.

    ``misplaced``: a group or transactional id that belongs to another partition; then nothing of it is handed over.
    """

    records: int = 0
    unknown_keys: int = 0
    quarantined: dict[str, str] = {}
    damages: tuple[Damage, ...] = ()
    troubles: tuple[str, ...] = ()
    failure: str = ""
    misplaced: str = ""


Piece = Asleep | Awake | Ends | Ids | Report


def unpack(data: bytes) -> Piece:
    """A piece, from our own child."""
    piece: Piece = pickle.loads(data)
    return piece
