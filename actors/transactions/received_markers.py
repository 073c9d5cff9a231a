"""Markers that the coordinator of a transaction on another node sends to the owner of partitions of offsets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import pykka

from ..base import DEFERRED, ActorRef
from ..coordinator.directory import Directory
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..group.contexts import deliver_reply
from ..messages import Append
from ..ports import Entry
from ..records import MarkerRecord
from .commits import ProducerPartition, TransactionalCommits
from .environment import OFFSETS_TOPIC, TransactionEnvironment
from .messages import WriteMarker
from .peers import TopicPartition

COORDINATOR_EPOCHS_MAX = 100_000
"""Producers whose coordinator epoch is remembered. A late marker of more producers ago is not on its way any more."""


class Writing:
    """A request in progress. ``errors``: the outcomes by partition."""

    __slots__ = ("errors", "reply", "request")

    def __init__(self, request: WriteMarker, reply: ReplyTo) -> None:
        self.request = request
        self.reply = reply
        self.errors: dict[TopicPartition, ErrorCode] = {}

    def finish(self, partition: TopicPartition, error: ErrorCode) -> None:
        """The reply is sent with the last outcome."""
        self.errors[partition] = error
        partitions = self.request.partitions
        if len(self.errors) == len(partitions):
            deliver_reply(self.reply, tuple(map(self.errors.__getitem__, partitions)))


class ReceivedMarkers:
    """Appends markers behind the offsets of their transaction, and tells the groups when they are durable.

    A marker is appended even if no offsets are pending, so that a repeated one is answered alike. One of an earlier
    coordinator, with a lower epoch, is refused: its producer may have begun another transaction.
    """

    def __init__(self, environment: TransactionEnvironment, owner: ActorRef, commits: TransactionalCommits) -> None:
        self._environment = environment
        self._owner = owner
        self._commits = commits
        self._epochs: OrderedDict[int, int] = OrderedDict()  # of the coordinator, by producer id
        self._waiting: dict[ProducerPartition, list[Writing]] = {}

    def write(self, request: WriteMarker, reply: ReplyTo | None) -> object:
        assert reply is not None, "requests have a reply"
        if not self._is_current(request.marker):
            return (ErrorCode.TRANSACTION_COORDINATOR_FENCED,) * len(request.partitions)
        writing = Writing(request, reply)
        for topic, partition in request.partitions:
            if topic == OFFSETS_TOPIC:
                self._write_to_offsets(writing, partition)
            else:
                writing.finish((topic, partition), self._end_in_topic(request.marker, topic, partition))
        return DEFERRED if request.partitions else ()

    def _write_to_offsets(self, writing: Writing, partition: int) -> None:
        key = writing.request.marker.producer_id, partition
        self._commits.end_checks(key)
        if self._commits.has_in_flight(key):
            self._waiting.setdefault(key, []).append(writing)
        else:
            self._append(writing, partition)

    def _end_in_topic(self, marker: MarkerRecord, topic: str, partition: int) -> ErrorCode:
        environment = self._environment
        if environment.peers is None or not environment.peers.leads(topic):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        environment.topics.end_transaction(topic, partition, marker, environment.clock.wall_ms())
        return ErrorCode.NONE

    def handle_commits_done(self, key: ProducerPartition) -> None:
        """No more offsets of this producer and partition are in flight."""
        for writing in self._waiting.pop(key, ()):
            self._append(writing, key[1])

    def _is_current(self, marker: MarkerRecord) -> bool:
        epochs = self._epochs
        if marker.coordinator_epoch < epochs.get(marker.producer_id, -1):
            return False
        epochs[marker.producer_id] = marker.coordinator_epoch
        epochs.move_to_end(marker.producer_id)
        if len(epochs) > COORDINATOR_EPOCHS_MAX:
            epochs.popitem(last=False)
        return True

    def _append(self, writing: Writing, partition: int) -> None:
        error = self._environment.directory.partitions[partition].answers.marker
        if error is not ErrorCode.NONE:
            writing.finish((OFFSETS_TOPIC, partition), error)
            return
        entry = Entry(partition, (writing.request.marker,))
        self._environment.writer.tell(Append(self._owner, entry, partial(self._handle_written, writing, partition)))

    def _handle_written(self, writing: Writing, partition: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            marker = writing.request.marker
            groups = self._commits.take_groups(marker.producer_id, (partition,))
            send_marker(self._environment.directory, groups, marker)
        writing.finish((OFFSETS_TOPIC, partition), error)


def send_marker(directory: Directory, group_ids: Iterable[str], marker: MarkerRecord) -> None:
    """Send a durable marker to groups. Those that were deleted have no pending offsets any more."""
    for group_id in group_ids:
        ref = directory.groups.get(group_id)
        if ref is not None:
            with suppress(pykka.ActorDeadError):
                ref.tell(marker)
