"""The mistakes that can be planted: each is one rule of the protocol that does not hold."""

from __future__ import annotations

from enum import Enum


class Mistake(Enum):
    """The value says what is done wrong. A model has at most one of them."""

    # The log: scopes of the protocol
    SEAL_FROM_OLDEST = "the seal begins at the oldest round that is left"
    FLOOR_OF_SERVED = "the floor ignores a partition that is being closed"
    MANIFEST_REREAD = "a checkpoint that lost its manifest version takes the next one, whatever its epoch"
    NEXT_NUMBER_NAMED = "a checkpoint and a floor count the round in flight as stored"
    LEAVER_NOT_SEALED = "a session that leaves does not seal its WAL"
    OWN_TAIL_READ = "a repeated load reads its own open WAL as the tail"
    NOT_TAKEN_BACK = "a closed partition whose new owner has gone is left closed"
    WRITER_DIES = "the writer of a session dies, and the session renews its lease"
    NO_SEAL = "the taker does not seal the WAL"
    BLIND_MANIFESTS = "manifests are put, not created"
    ANSWER_BEFORE_STORED = "a commit is answered before its round is stored"
    ANSWER_OUT_OF_ORDER = "a round is answered before the one before it is stored"
    NO_TOMBSTONE = "the taker creates no tombstone before it seals"
    NO_FLOOR = "rounds are deleted without a floor"
    NO_LOOK_BEFORE_DELETES = "the session does not look at its tombstone after its floor"
    DEAD_ROUNDS_BY_NAME = "rounds of an ended session go when no manifest names it, whatever the epochs"
    ENDED_BEFORE_SEAL = "the register by which a session has ended is read before its seal"
    DROPPED_EARLY = "batches count as stored in a segment before the manifest stands"
    CHANGE_GIVEN_UP = "a hand-over is taken back while its register version is on its way"
    COMPACTION_DROPS_TAIL = "a compaction takes the segments as complete: its manifest has no tail"
    COMPACTION_OF_OLD_MANIFEST = "a compaction that lost its version creates the next one from what it had read"
    # The register
    TWO_TASKS_ADVANCE = "two tasks of a node each advance the version that it knows"
    NO_LOOK_AFTER_VERSION = "no look at the tombstone after a register version was created"
    JOINER_BELIEVES = "a joiner does not list the register again after its create"
    VERSIONS_DELETED_EARLY = "register versions are deleted while a live session may read there"
    # The lease
    NO_LEASE = "reads without a lease"
    NO_SECOND_LOOK = "the taker does not look at the counter again after the tombstone"
    CLOCK_RATES = "the taker's clock runs at twice the speed"
    CLOCK_PAUSED = "the owner's machine is paused, and its clock with it"
    COUNTER_LANDS_TWICE = "a put of the counter lands twice"
    OPERATOR_DOES_NOT_WAIT = "cluster seal changes the register without waiting a TTL"
    # Segments
    GARBAGE_BY_NAME = "a segment that the newest manifest does not name is garbage, whatever its version"
    GARBAGE_BY_OLD_MANIFEST = "the names are those of a manifest that was read before"
    REBASE_KEEPS_SEGMENT = "a rebase names the segment that was written for the lost version"
    SEGMENT_WITHOUT_TOKEN = "two writers of one version give their segments the same key"
    COMPACTION_BELIEVES = "a compaction deletes its inputs once its create has succeeded"
    COLLECTS_AHEAD = "the collector deletes manifests that are newer than the one its owner's checkpoint follows"
    COMPACTION_DELETES_FIRST = "a compaction deletes its inputs before its manifest is created"
    DAMAGE_AT_ONCE = "a missing segment is damage although a newer manifest stands"
    # What a compaction removes
    TOMBSTONE_AT_ONCE = "a tombstone is removed by the first compaction that reads it"
    OLDER_SEGMENTS_LEFT = "a compaction reads only what was never compacted, and removes tombstones there"
    OPEN_TRANSACTION_COMPACTED = "a compaction goes beyond the first open transaction"
    ABORTED_RECORD_COUNTS = "a record of an aborted transaction replaces an older one"
    WAL_COMPACTED = "a compaction takes records that are in no segment yet"
    REPLACED_BY_NUMBER = "a compaction that lost its version replaces as many segments as it has read"
    # Transactions
    EPOCH_IN_MEMORY = "the receiver keeps the coordinator epoch in memory only"
    EPOCH_WITH_PENDING_ONLY = "the receiver keeps the coordinator epoch only if offsets are pending"
    OLDER_EPOCH_ACCEPTED = "the receiver does not compare coordinator epochs"
    MARKERS_NOT_SENT_AGAIN = "the successor completes a prepared transaction without sending its markers again"
    NEXT_BEFORE_MARKERS = "the producer goes on before the markers are answered"
    ONE_ANSWER_COMPLETES = "a transaction is complete when one of its receivers has answered"
    MARKER_BEFORE_DECISION = "markers are sent before the decision is stored"
    NUMBER_MISSING = "a marker does not say which transaction it decides"
    OFFSETS_UNVERIFIED = "the receiver does not ask whether the transaction is open"
    VERIFIED_BEFORE_MARKER = "the receiver uses an answer that is older than a marker"
    VERIFIED_BY_ZOMBIE = "a buried coordinator still answers whether a transaction is open"

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return self.name.lower().replace("_", "-")
