"""The results of the admin methods: frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from ...actors.recorder.detectors import Finding
from ...actors.recorder.explanation import explanation_json
from ...actors.recorder.now import GroupNow
from ...actors.recorder.record import RebalanceRecord as RebalanceRecord

TopicPartition = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    ``topics``: its subscription, and ``assigned``: its partitions, sorted. Both are None if ``metadata`` or
    ``assignment``, the raw bytes, are not in the format of Kafka's consumers. In a group of the consumer protocol there
    are no such bytes, but an ``epoch`` and a ``target``: the partitions that the member shall have.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] | None
    assigned: tuple[TopicPartition, ...] | None
    metadata: bytes
    assignment: bytes
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group at one moment. ``state``: Kafka's name; ``protocol``: the name of the assignor in use.

    ``type``: "classic" or "consumer". ``epoch`` and ``assignment_epoch``, that of the targets: None if it is classic.
    ``guarded_until``: until when commits without a generation to the partitions of its last reset are refused; None:
    they are not, or its node in the cluster has an older version.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    type: str = "classic"
    epoch: int | None = None
    assignment_epoch: int | None = None
    guarded_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """Why a group is as it is. docs/operate.md describes the fields of a ``RebalanceRecord``.

    ``sentence``: at most 200 characters. ``now``: its state, what it waits for, which members are missing, since when
    and until when; None if the group does not exist any more. ``rebalances``: the last ones, the newest first.
    ``findings``: patterns such as a storm of rebalances, each with the name of its detector and a text.
    """

    group_id: str
    sentence: str
    now: GroupNow | None
    rebalances: tuple[RebalanceRecord, ...]
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """Objects, lists, texts and numbers."""
        return {"group": self.group_id, **explanation_json(self)}


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a listing. ``type`` is "classic" or "consumer"."""

    group_id: str
    state: str
    protocol_type: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups, sorted by id. ``after``: the argument for the next page; None on the last page."""

    groups: tuple[ListedGroup, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset: the next one to process. ``leader_epoch`` is -1 if the client sent none."""

    offset: int
    metadata: str
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class CoordinatorStats:
    """Figures of one coordinator at one moment. Their number does not depend on groups or clients.

    Those from ``commits`` to ``expired_offsets`` count from its start. ``passivated_groups`` are without members, and
    packed in memory. ``memory_bytes`` is counted, not measured, and limited by ``memory_limit_bytes``. docs/metrics.md
    describes each.
    """

    active_groups: int
    passivated_groups: int
    quarantined_groups: int
    failed_partitions: int
    commits: int
    rebalances: int
    expired_sessions: int
    expired_offsets: int
    connections: int
    transactional_ids: int
    memory_bytes: int
    memory_limit_bytes: int
    journal_bytes: int
    log_damages: int
    is_log_full: bool


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a coordinator serves its clients. ``reason``: why it does not, else ""."""

    is_ready: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """The target of a reset: the committed offset of the partition, moved by so many records; negative: back."""

    records: int


@dataclass(frozen=True, slots=True)
class OffsetsOf:
    """The target of a reset: the committed offset that another group has of the partition."""

    group: str


Target = int | Literal["earliest", "latest"] | datetime | ShiftBy | OffsetsOf
"""The target of a reset: an offset, the start or end of the partition, or the first record of a time or later."""

Targets = Mapping[TopicPartition | str, Target]
"""Targets by partition. A topic's name alone means all its partitions that are not named."""

ResetTargets = Mapping[TopicPartition | str, Target | None]
"""The same for ``evict_and_reset``. None: the partition is to have no committed offset."""

OffsetsByPartition = Mapping[TopicPartition | str, int | None]
"""Offsets by partition; None: there is none. The type allows names of topics, so that it can be ``ResetTargets``."""


@dataclass(frozen=True, slots=True)
class GroupReset:
    """A reset of a group. ``before`` and ``after``: the committed offsets of its partitions.

    ``removed``: ids of the members that were removed; of a dry run, that would be. ``members``: all members before it.
    ``guarded_until``: until when commits without a generation to these partitions are refused; None if no member was
    removed, and no earlier reset is guarded. ``notes``: why an offset is not the one that was asked for. ``warnings``:
    what the reset does not do, such as to stop consumers that use ``assign()``. ``change_id``: by which the reset can
    be watched and undone; "" for a dry run.
    """

    group: str
    before: OffsetsByPartition
    after: OffsetsByPartition
    removed: tuple[str, ...]
    guarded_until: datetime | None
    members: tuple[GroupMember, ...] = ()
    notes: Mapping[TopicPartition, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    change_id: str = ""


@dataclass(frozen=True, slots=True)
class ResetChange:
    """A reset that was made. ``by``: the principal. ``undoes``: the id of the change that it undoes; "" for none."""

    change_id: str
    group: str
    made_at: datetime
    by: str
    reason: str
    before: OffsetsByPartition
    after: OffsetsByPartition
    removed: tuple[str, ...]
    undoes: str


@dataclass(frozen=True, slots=True)
class ResetProgress:
    """What has become of a reset. ``sentence``: in words.

    ``is_complete``: all removed members are back, the group is stable, and the offsets of the reset that members have
    were fetched. ``elapsed_s``: until then, or until now. ``expected``: how many members were removed; ``returned``:
    how many of them are back; ``missing``: the others, ``since`` the reset. ``unfetched``: partitions whose offset no
    member has asked for; None if that is not known, because the server has started again, or the group was reset again.
    """

    change_id: str
    group: str
    is_complete: bool
    elapsed_s: float
    expected: int
    returned: int
    missing: tuple[GroupMember, ...]
    unfetched: tuple[TopicPartition, ...] | None
    since: datetime
    sentence: str


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets of a partition's records in memory: from ``start_offset`` up to but excluding ``end_offset``."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic. ``is_internal``: used by the coordinator itself, such as ``__consumer_offsets``."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionRange, ...]
    is_internal: bool
