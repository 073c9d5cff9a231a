"""The members of one classic group: who they are, who waits for what, and what they vote for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ..engine_ports import ReplyTo
from ..javahash import first_in_hash_map
from ..messages import DescribedMember, JoinedMember, JoinGroup, Protocol
from ..records import MemberValue
from .effects import Deadline

SIZE_MAX = 2**28
"""Names and metadata of all members together. The leader is sent nearly all of it, and an answer has 2**31 bytes."""


class Member:
    """A member, with the requests of it that are parked."""

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
    def of_request(cls, member_id: str, request: JoinGroup) -> Member:
        member = cls(member_id, request.group_instance_id, request.client_id, request.client_host)
        member.is_new = True
        member.update(request)
        return member

    @classmethod
    def of_record(cls, value: MemberValue, protocol: str | None) -> Member:
        """A member as the log knows it: it supports the one protocol that was chosen."""
        member = cls(value.member_id, value.group_instance_id, value.client_id, value.client_host)
        member.session_timeout_ms = value.session_timeout_ms
        # Records of version 0 have no rebalance timeout; the session timeout was it.
        has_one = value.rebalance_timeout_ms >= 0
        member.rebalance_timeout_ms = value.rebalance_timeout_ms if has_one else value.session_timeout_ms
        member.protocols = (Protocol(protocol or "", value.subscription),)
        member.assignment = value.assignment
        return member

    def update(self, request: JoinGroup) -> None:
        self.protocols = request.protocols
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        """Its subscription for a protocol; nothing if it does not offer that one."""
        for offer in self.protocols:  # a loop, not next(): it is asked twice a member in one turn of the group
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
    """What a member's protocols take in an answer, about."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


class Members:
    """All members by id, static ones also by instance id, and the ids that were handed out but have not joined yet.

    Counts are kept as members come and go, so that nothing here costs more the more members there are, apart from the
    vote and the longest timeout, which are asked for once a rebalance.
    """

    def __init__(self) -> None:
        # Not a dict: when its first entries have been deleted, it takes ever longer to find the first that is left, a
        # leader's heir. When the sessions of 20,000 members end at once this was half a second.
        self.by_id: OrderedDict[str, Member] = OrderedDict()
        self.static: dict[str, str] = {}  # instance id -> member id
        self.pending: dict[str, Deadline] = {}  # member id -> until when it may join
        self._supporters: dict[str, int] = {}  # protocol name -> members that offer it
        self._joining = 0
        self._size = 0  # of all members, as ``fits`` counts

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    @property
    def joining(self) -> int:
        """How many members have a parked JoinGroup."""
        return self._joining

    def all_joined(self) -> bool:
        return self._joining == len(self.by_id) and not self.pending

    def add(self, member: Member) -> None:
        self.by_id[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        self._count(member, 1)
        self._joining += member.joining is not None

    def fits(self, request: JoinGroup) -> bool:
        """Whether the leader's list stays within ``SIZE_MAX`` if a member joins, or joins again, with this request."""
        member = self.by_id.get(request.member_id)
        size = self._size - (0 if member is None else size_of(member.protocols))
        return size + size_of(request.protocols) <= SIZE_MAX

    def remove(self, member: Member) -> None:
        del self.by_id[member.member_id]
        if member.group_instance_id is not None and self.static.get(member.group_instance_id) == member.member_id:
            del self.static[member.group_instance_id]
        self._count(member, -1)
        self._joining -= member.joining is not None

    def update(self, member: Member, request: JoinGroup) -> None:
        self._count(member, -1)
        member.update(request)
        self._count(member, 1)

    def restore(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Give a member back the protocols that it had."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def park_join(self, member: Member, reply: ReplyTo) -> None:
        """Keep a JoinGroup. An older one of the same member is forgotten: its client has given it up (as in Kafka)."""
        self._joining += member.joining is None
        member.joining = reply

    def take_join(self, member: Member) -> ReplyTo | None:
        """The parked JoinGroup, which is about to be answered."""
        reply, member.joining = member.joining, None
        self._joining -= reply is not None
        return reply

    def supports(self, offers: tuple[Protocol, ...]) -> bool:
        """Whether at least one of the protocols is offered by all members."""
        everyone = len(self.by_id)
        return any(self._supporters.get(offer.name, 0) == everyone for offer in offers)

    def vote(self) -> str:
        """The protocol that all offer and most put first; a tie goes as Kafka's hash map has it."""
        everyone = len(self.by_id)
        common = {name for name, count in self._supporters.items() if count == everyone}
        votes: dict[str, int] = {}
        for member in self:
            choice = next(offer.name for offer in member.protocols if offer.name in common)
            votes[choice] = votes.get(choice, 0) + 1
        most = max(votes.values())
        return first_in_hash_map([name for name, count in votes.items() if count == most], entries=len(votes))

    def max_rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """The list that the leader gets."""
        return tuple(JoinedMember(m.member_id, m.group_instance_id, m.metadata(protocol)) for m in self)

    def check(self) -> None:
        """Raise AssertionError unless the counts agree with the members. For tests."""
        assert self._joining == sum(m.joining is not None for m in self), "parked joins are miscounted"
        offered = [offer.name for m in self for offer in {o.name: o for o in m.protocols}.values()]
        assert self._supporters == {name: offered.count(name) for name in offered}, "supporters are miscounted"
        statics = {m.group_instance_id: m.member_id for m in self if m.group_instance_id is not None}
        assert self.static == statics, "static members are misfiled"
        sizes = [size_of(m.protocols) + len(m.member_id) + len(m.client_id) for m in self]
        assert self._size == sum(sizes), "the members' size is miscounted"
        assert not self.pending.keys() & self.by_id.keys(), "a member is pending"

    def _count(self, member: Member, step: int) -> None:
        self._size += step * (size_of(member.protocols) + len(member.member_id) + len(member.client_id))
        for name in {offer.name for offer in member.protocols}:
            count = self._supporters.get(name, 0) + step
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
