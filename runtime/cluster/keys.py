"""The keys of a cluster's store. ``docs/design.md`` has the table of what each holds, who writes it and when it goes.

Numbers have leading zeros, so that keys are listed in their order.
"""

from __future__ import annotations

REGISTER = "cluster/"
TOPICS = "topics/"
SESSIONS = "alive/"
TOMBSTONES = "out/"
ROUNDS = "wal/"
PACKS = "pack/"
FLOORS = "low/"
MANIFESTS = "man/"
SEGMENTS = "seg/"
SECRET_KEY = "secret/nodes"  # nosec B105 # the name of an object
"""What nodes prove to each other that they know. Created by the first node."""
IMPORTED_SETTINGS_KEY = "settings/imported"
"""What a single node had changed while it ran, from its import to an export. Nodes do not read it."""


def version_key(prefix: str, version: int) -> str:
    """A version of the register, or of the topics."""
    return f"{prefix}{version:010d}"


def register_key(version: int) -> str:
    return version_key(REGISTER, version)


def alive_key(session: str) -> str:
    """A counter that the session increments while it lives."""
    return f"{SESSIONS}{session}"


def tombstone_key(session: str) -> str:
    """Present since another session has declared this one dead. Never deleted."""
    return f"{TOMBSTONES}{session}"


def floor_prefix(session: str) -> str:
    return f"{FLOORS}{session}/"


def floor_key(session: str, number: int) -> str:
    """The session may delete its rounds below ``number``."""
    return f"{floor_prefix(session)}{number:010d}"


def wal_prefix(session: str) -> str:
    return f"{ROUNDS}{session}/"


def round_key(session: str, number: int) -> str:
    """A round of the session, or its seal."""
    return f"{wal_prefix(session)}{number:010d}"


def pack_prefix(session: str) -> str:
    return f"{PACKS}{session}/"


def pack_key(session: str, first: int, end: int) -> str:
    """A copy of the rounds from ``first`` on, below ``end``."""
    return f"{pack_prefix(session)}{first:010d}-{end:010d}"


def pack_end(key: str) -> int:
    return int(key.rpartition("-")[2])


def manifest_prefix(partition: int) -> str:
    return f"{MANIFESTS}{partition:05d}/"


def manifest_key(partition: int, version: int) -> str:
    return f"{manifest_prefix(partition)}{version:010d}"


def segment_prefix(partition: int) -> str:
    return f"{SEGMENTS}{partition:05d}/"


def segment_key(partition: int, version: int, token: str) -> str:
    """``version``: the version of the manifest that the segment was written for."""
    return f"{segment_prefix(partition)}{version:010d}-{token}"


def owner_of(key: str) -> str:
    """The session of a round, or the partition of a manifest or segment."""
    return key.split("/")[1]


def number_of(key: str) -> int:
    """The number at the end of a key; of a segment, the version of its manifest; of a pack, its first round."""
    return int(key.rpartition("/")[2].partition("-")[0])
