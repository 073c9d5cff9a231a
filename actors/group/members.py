"""The members of one classic group, with their parked requests and their votes for a protocol."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ..engine_ports import ReplyTo
from ..javahash import first_in_hash_map
from ..memory import MEMBER_BYTES, PENDING_MEMBER_BYTES
from ..messages import DescribedMember, JoinedMember, JoinGroup, Protocol
from ..records import MemberValue
from ..steps import Steps, pieces
from .effects import Deadline

SIZE_MAX = 2**28
"""Maximum size (bytes) of names and metadata of all members together. The leader gets nearly all of it in one response,
which is limited to 2**31 bytes."""


class GroupMember:
    """A member, with its parked requests."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, group_instance_id: str | None, client_id: str, client_host: str) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session = Deadline(("session", member_id))
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.protocols: tuple[Protocol, ...] = ()
        self.assignment = b""
        self.joining: ReplyTo | None = None
        self.syncing: ReplyTo | None = None
        self.is_new = False

    @classmethod
    def from_request(cls, member_id: str, request: JoinGroup) -> GroupMember:
        member = cls(member_id, request.group_instance_id, request.client_id, request.client_host)
        member.is_new = True
        member.update(request)
        return member

    @classmethod
    def from_record(cls, value: MemberValue, protocol: str | None) -> GroupMember:
        """A member from its record, which contains only the chosen protocol."""
        member = cls(value.member_id, value.group_instance_id, value.client_id, value.client_host)
        member.session_timeout_ms = value.session_timeout_ms
        # Records of version 0 have no rebalance timeout; the session timeout is used instead.
        has_timeout = value.rebalance_timeout_ms >= 0
        member.rebalance_timeout_ms = value.rebalance_timeout_ms if has_timeout else value.session_timeout_ms
        member.protocols = (Protocol(protocol or "", value.subscription),)
        member.assignment = value.assignment
        return member

    def copy(self, member_id: str) -> GroupMember:
        """The same member with another id, without parked requests."""
        member = GroupMember(member_id, self.group_instance_id, self.client_id, self.client_host)
        member.protocols, member.assignment = self.protocols, self.assignment
        member.session_timeout_ms = self.session_timeout_ms
        member.rebalance_timeout_ms = self.rebalance_timeout_ms
        return member

    def update(self, request: JoinGroup) -> None:
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        """Its subscription for a protocol; empty if it does not offer that protocol."""
        for offer in self.protocols:  # faster than next(); called twice per member and rebalance
            if offer.name == protocol:
                return offer.metadata
        return b""

    def to_record(self, protocol: str | None, assignment: bytes) -> MemberValue:
        return MemberValue(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol) if protocol is not None else b"",
            self.assignment,
        )


def size_of(protocols: tuple[Protocol, ...]) -> int:
    """The approximate size (bytes) of a member's protocols in a response."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


class PendingMembers(dict[str, Deadline]):
    """The ids that are assigned and not used yet, with the deadlines for their JoinGroup.

    ``name_bytes``: of all ids.
    """

    __slots__ = ("name_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.name_bytes = 0

    def __setitem__(self, member_id: str, deadline: Deadline) -> None:
        self.name_bytes += len(member_id) if member_id not in self else 0
        super().__setitem__(member_id, deadline)

    def __delitem__(self, member_id: str) -> None:
        super().__delitem__(member_id)
        self.name_bytes -= len(member_id)

    def forget(self, member_id: str) -> Deadline | None:
        """Remove an id if it is there. Returns its deadline."""
        deadline = self.get(member_id)
        if deadline is not None:
            del self[member_id]
        return deadline


class Members:
    """All members by id, static members also by instance id, and pending member ids (assigned, not joined yet).

    Counts are updated when members are added or removed. So every method takes constant time, except the vote and the
    maximum timeout, which are needed once per rebalance.
    """

    def __init__(self) -> None:
        # Not a dict: after its first entries are deleted, finding the first remaining entry (the new leader) takes
        # linear time. When the sessions of 20,000 members end together, this adds up to half a second.
        self.by_id: OrderedDict[str, GroupMember] = OrderedDict()
        self.static: dict[str, str] = {}  # instance id -> member id
        self.pending = PendingMembers()
        self._supporters: dict[str, int] = {}  # protocol name -> members that offer it
        self._joining = 0
        self._size = 0  # sum for ``fits``
        self.assignment_bytes = 0
        """Of the assignments when ``count_assignments`` was called last."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(self.by_id.values())

    @property
    def content_bytes(self) -> int:
        """About the memory of all members and pending ids."""
        pending = self.pending
        return (
            len(self.by_id) * MEMBER_BYTES
            + self._size
            + self.assignment_bytes
            + len(pending) * PENDING_MEMBER_BYTES
            + pending.name_bytes
        )

    def count_assignments(self) -> Steps[None]:
        """Update ``assignment_bytes`` after a generation has got its assignments."""
        assignment_bytes = 0
        for members in pieces(self):
            assignment_bytes += sum([len(member.assignment) for member in members])
            yield
        self.assignment_bytes = assignment_bytes

    @property
    def joining(self) -> int:
        """How many members have a parked JoinGroup."""
        return self._joining

    def all_joined(self) -> bool:
        return self._joining == len(self.by_id) and not self.pending

    def add(self, member: GroupMember) -> None:
        self.by_id[member.member_id] = member
        self.pending.forget(member.member_id)
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        self._count(member, 1)
        self._joining += member.joining is not None

    def fits(self, request: JoinGroup) -> bool:
        """Whether the members stay within ``SIZE_MAX`` if a member joins or rejoins with this request."""
        member = self.by_id.get(request.member_id)
        size = self._size - (0 if member is None else size_of(member.protocols))
        return size + size_of(request.protocols) <= SIZE_MAX

    def remove(self, member: GroupMember) -> None:
        del self.by_id[member.member_id]
        if member.group_instance_id is not None and self.static.get(member.group_instance_id) == member.member_id:
            del self.static[member.group_instance_id]
        self._count(member, -1)
        self._joining -= member.joining is not None

    def update(self, member: GroupMember, request: JoinGroup) -> None:
        self._count(member, -1)
        member.update(request)
        self._count(member, 1)

    def restore(self, member: GroupMember, protocols: tuple[Protocol, ...]) -> None:
        """Restore the previous protocols of a member."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def park_join(self, member: GroupMember, reply: ReplyTo) -> None:
        """Park a JoinGroup. It replaces an earlier one, which the client has abandoned (as in Kafka)."""
        self._joining += member.joining is None
        member.joining = reply

    def pop_join(self, member: GroupMember) -> ReplyTo | None:
        """Remove and return the parked JoinGroup."""
        reply, member.joining = member.joining, None
        self._joining -= reply is not None
        return reply

    def supports(self, offers: tuple[Protocol, ...]) -> bool:
        """Whether at least one of the protocols is offered by all members."""
        member_count = len(self.by_id)
        return any(self._supporters.get(offer.name, 0) == member_count for offer in offers)

    def common_protocols(self) -> Iterator[str]:
        """Those that all members offer."""
        member_count = len(self.by_id)
        return (name for name, count in self._supporters.items() if count == member_count)

    def vote(self) -> Steps[str]:
        """The protocol that all members offer and most prefer. A tie is decided by the order of Kafka's hash map."""
        member_count = len(self.by_id)
        any_member = next(iter(self))
        common = {offer.name for offer in any_member.protocols if self._supporters[offer.name] == member_count}
        votes: dict[str, int] = {}
        for members in pieces(self):
            for member in members:
                choice = next(offer.name for offer in member.protocols if offer.name in common)
                votes[choice] = votes.get(choice, 0) + 1
            yield
        max_votes = max(votes.values())
        winners = [name for name, count in votes.items() if count == max_votes]
        return first_in_hash_map(winners, entries=len(votes))

    def max_rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def joined(self, protocol: str | None) -> Steps[tuple[JoinedMember, ...]]:
        """The list of members in the leader's response."""
        joined: list[JoinedMember] = []
        for members in pieces(self):
            joined += [JoinedMember(m.member_id, m.group_instance_id, m.metadata(protocol)) for m in members]
            yield
        return tuple(joined)

    def check(self) -> None:
        """Raise AssertionError unless the counts agree with the members. For tests."""
        assert self._joining == sum(m.joining is not None for m in self), "parked joins are miscounted"
        offered = [offer.name for m in self for offer in {o.name: o for o in m.protocols}.values()]
        assert self._supporters == {name: offered.count(name) for name in offered}, "supporters are miscounted"
        statics = {m.group_instance_id: m.member_id for m in self if m.group_instance_id is not None}
        assert self.static == statics, "the map of static members is wrong"
        sizes = [size_of(m.protocols) + len(m.member_id) + len(m.client_id) for m in self]
        assert self._size == sum(sizes), "the members' size is miscounted"
        assert not self.pending.keys() & self.by_id.keys(), "a member is pending"

    def _count(self, member: GroupMember, step: int) -> None:
        self._size += step * (size_of(member.protocols) + len(member.member_id) + len(member.client_id))
        for name in {offer.name for offer in member.protocols}:
            count = self._supporters.get(name, 0) + step
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
