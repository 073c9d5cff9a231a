"""GroupState: a group of the consumer protocol as the sum of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from ..steps import Steps, pieces
from .messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from .records import (
    ConsumerRecord,
    CurrentRecord,
    CurrentValue,
    GroupEpochRecord,
    GroupEpochValue,
    MemberRecord,
    MemberState,
    MemberValue,
    Partition,
    RegexRecord,
    RegexValue,
    Subscription,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    TopicMetadataRecord,
)

NEW_GROUP = GroupEpochValue(1)
NEW_TARGET = TargetEpochValue(1)
NEW_MEMBER = MemberValue()
NEW_CURRENT = CurrentValue()

NO_TARGET: tuple[Partition, ...] = ()

DURABLE = ("group_id", "epoch", "members", "target", "targets", "regexes", "has_topic_metadata")
"""The attributes of ``GroupState`` that records consist of. The others are indexes, or are not durable."""


class GroupPhase(StrEnum):
    """The state of a group in listings."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class Member(NamedTuple):
    """A member, from its records 5 and 8."""

    member_id: str
    about: MemberValue = NEW_MEMBER
    current: CurrentValue = NEW_CURRENT

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.current.member_epoch == epoch


class Seen(NamedTuple):
    """What the group has looked at. None: not yet.

    ``topics_version``: that of the topics when the group last looked at them. ``regexes_version``: that of the topics
    when it last resolved its regular expressions. ``asked_ms``: when an assignor was asked that did not answer at once.
    ``members_max``: the largest number of members so far.
    """

    topics_version: int | None = None
    regexes_version: int | None = None
    asked_ms: int | None = None
    members_max: int = 0


class UnchangedHeartbeat(NamedTuple):
    """A heartbeat that changes nothing, and its reply. A client that repeats it sends the same object."""

    request: ConsumerHeartbeat
    reply: ConsumerHeartbeatReply


class GroupState:
    """``owners``: the member of each partition that is assigned or pending revocation. ``targets``: by member id.

    ``regexes``: the topics of the regular expressions that have been resolved. ``has_topic_metadata``: whether there is
    a record of type 4, which is to be deleted.

    ``subscriptions``: the number of members of each subscription: of its names, and its regular expression or "".
    ``regex_members``: the number of members of each regular expression, resolved or not. ``text_bytes``: about the
    length of what the members said of themselves.

    Not durable: ``seen``, and ``unchanged``: each member's last heartbeat that changed nothing, valid until a record
    changes the state. It is empty while a member has a regular expression.
    """

    __slots__ = (
        *("epoch", "group_id", "has_topic_metadata", "members", "owners", "regex_members"),
        *("regexes", "seen", "static_members", "subscriptions", "target", "targets", "text_bytes", "unchanged"),
        "_counts",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = NEW_GROUP
        self.target = NEW_TARGET
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.targets: dict[str, tuple[Partition, ...]] = {}
        self.owners: dict[Partition, str] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.subscriptions: dict[Subscription, int] = {}
        self.regex_members: dict[str, int] = {}
        self.has_topic_metadata = False
        self.text_bytes = 0
        self.seen = Seen()
        self.unchanged: dict[str, UnchangedHeartbeat] = {}
        self._counts: dict[int | str | None, int] = {}
        """How many members are stable in an epoch, offer a protocol of this name, and use the classic protocol (None).
        """

    def __eq__(self, other: object) -> bool:
        """Whether the records of both amount to the same."""
        if not isinstance(other, GroupState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in DURABLE)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"GroupState({', '.join(f'{name}={getattr(self, name)!r}' for name in DURABLE)})"

    def copy(self) -> GroupState:
        """An independent state. Both share what cannot change."""
        copied = GroupState(self.group_id)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(copied, name, value.copy() if isinstance(value, dict) else value)
        return copied

    @property
    def is_blank(self) -> bool:
        """Whether the state is that of a group without records."""
        has_content = self.members or self.targets or self.regexes or self.has_topic_metadata
        return not has_content and (self.epoch, self.target) == (NEW_GROUP, NEW_TARGET)

    @property
    def phase(self) -> GroupPhase:
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch.epoch > self.target.epoch:
            return GroupPhase.ASSIGNING
        is_stable = self._counts.get(self.target.epoch) == len(self.members)
        return GroupPhase.STABLE if is_stable else GroupPhase.RECONCILING

    @property
    def classic_count(self) -> int:
        """How many members use the classic protocol."""
        return self._counts.get(None, 0)

    def offer_count(self, protocol: str) -> int:
        """How many members of the classic protocol offer a protocol (assignor) of this name."""
        return self._counts.get(protocol, 0)

    def static_member(self, instance_id: str | None) -> Member | None:
        """None also for a dynamic member. The id may be empty: JoinGroup allows that."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def place_of(self, member: Member) -> str:
        """Its own id; of a static member with a new id, that of the member it replaces."""
        known = self.static_member(member.about.instance_id)
        return member.member_id if known is None else known.member_id

    def target_of(self, member: Member) -> tuple[Partition, ...]:
        """That of the member it replaces, if it is a static member with a new id."""
        return self.targets.get(self.place_of(member), NO_TARGET)

    def replay(self, record: ConsumerRecord) -> None:
        """Apply a record. After a tombstone the state is as if there had been no record of this key.

        So the newest record of each key is enough, as loading and compaction need it.
        """
        if self.unchanged:
            self.unchanged.clear()
        _REPLAY[type(record)](self, record)

    def replay_all(self, records: Iterable[ConsumerRecord]) -> Steps[None]:
        for piece in pieces(records):
            for record in piece:
                self.replay(record)
            yield

    def set_member(self, member: Member) -> None:
        """Add or replace a member, in all indexes."""
        known = self.members.get(member.member_id)
        keeps_about = known is not None and known.about is member.about
        self._forget(known, keeps_about)
        self.members[member.member_id] = member
        if len(self.members) > self.seen.members_max:
            self.seen = self.seen._replace(members_max=len(self.members))
        if member.about.instance_id is not None:
            self.static_members[member.about.instance_id] = member.member_id
        for partition in (*member.current.assigned, *member.current.pending_revocation):
            self.owners[partition] = member.member_id
        self._count(member, 1, keeps_about)

    def _forget(self, member: Member | None, keeps_about: bool = False) -> None:
        """Remove what the indexes have of a member, unless another member has taken its place."""
        if member is None:
            return
        instance_id = member.about.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]
        for partition in (*member.current.assigned, *member.current.pending_revocation):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
        self._count(member, -1, keeps_about)

    def _count(self, member: Member, step: int, keeps_about: bool) -> None:
        """``keeps_about``: only the partitions of the member change, so its names are not counted again."""
        if member.current.state is MemberState.STABLE:
            _add(self._counts, member.current.member_epoch, step)
        if keeps_about:
            return
        self.text_bytes += step * member.about.text_bytes
        _add(self.subscriptions, member.about.subscription, step)
        if member.about.classic is not None:
            _add(self._counts, None, step)
            for name in {name for name, _metadata in member.about.classic.protocols}:
                _add(self._counts, name, step)
        if member.about.regex:
            _add(self.regex_members, member.about.regex, step)

    def _replay_epoch(self, record: GroupEpochRecord) -> None:
        self.epoch = NEW_GROUP if record.value is None else record.value

    def _replay_target_epoch(self, record: TargetEpochRecord) -> None:
        self.target = NEW_TARGET if record.value is None else record.value

    def _replay_target(self, record: TargetRecord) -> None:
        if record.value is None:
            self.targets.pop(record.member_id, None)
        else:
            self.targets[record.member_id] = record.value

    def _replay_member(self, record: MemberRecord) -> None:
        if record.value is None:
            self._forget(self.members.pop(record.member_id, None))
        else:
            member = self.members.get(record.member_id) or Member(record.member_id)
            self.set_member(member._replace(about=record.value))

    def _replay_current(self, record: CurrentRecord) -> None:
        member = self.members.get(record.member_id)
        if record.value is not None:
            self.set_member((member or Member(record.member_id))._replace(current=record.value))
        elif member is not None:
            self.set_member(member._replace(current=NEW_CURRENT))

    def _replay_regex(self, record: RegexRecord) -> None:
        if record.value is None:
            self.regexes.pop(record.regex, None)
        else:
            self.regexes[record.regex] = record.value

    def _replay_topic_metadata(self, record: TopicMetadataRecord) -> None:
        self.has_topic_metadata = record.value is not None


def _add(counts: dict[Any, int], key: Any, step: int) -> None:
    """Keys with the count 0 are left out."""
    counts[key] = counts.get(key, 0) + step
    if not counts[key]:
        del counts[key]


_REPLAY: Mapping[type, Callable[[GroupState, Any], None]] = {
    GroupEpochRecord: GroupState._replay_epoch,
    MemberRecord: GroupState._replay_member,
    TargetEpochRecord: GroupState._replay_target_epoch,
    TargetRecord: GroupState._replay_target,
    CurrentRecord: GroupState._replay_current,
    RegexRecord: GroupState._replay_regex,
    TopicMetadataRecord: GroupState._replay_topic_metadata,
}
