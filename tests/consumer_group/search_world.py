"""A consumer group and its clients, as states of a search: they can be frozen into small values and thawed again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from callboard.actors.assignors.server.base import GroupToAssign, ServerAssignor, TargetAssignment
from callboard.actors.assignors.server.uniform import Uniform
from callboard.actors.consumer_group.heartbeat import handle_heartbeat
from callboard.actors.consumer_group.leaving import leave_group
from callboard.actors.consumer_group.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from callboard.actors.consumer_group.plan import ConsumerGroupSettings, Plan
from callboard.actors.consumer_group.records import (
    CurrentValue,
    GroupEpochValue,
    MemberState,
    MemberValue,
    Partition,
    RegexValue,
    TargetEpochValue,
)
from callboard.actors.consumer_group.regexes import apply_result
from callboard.actors.consumer_group.removal import member_expired, rebalance_expired
from callboard.actors.consumer_group.state import GroupState, Member, Seen
from callboard.actors.consumer_group.subscriptions import topics_of
from callboard.actors.errors import NO_ERROR, CoordinatorError, ErrorCode
from callboard.actors.messages import LeaveGroup, LeavingMember
from callboard.actors.steps import Steps, run_steps

TOPIC_IDS = {"t": b"t" * 16, "u": b"u" * 16}
COUNTS = {"t": 2, "u": 1}
PARTITIONS: tuple[Partition, ...] = ((TOPIC_IDS["t"], 0), (TOPIC_IDS["t"], 1), (TOPIC_IDS["u"], 0))
BITS = {partition: 1 << number for number, partition in enumerate(PARTITIONS)}
SETS = tuple(
    tuple(partition for partition in PARTITIONS if number & BITS[partition]) for number in range(1 << len(PARTITIONS))
)


class Subscription(NamedTuple):
    topics: tuple[str, ...] = ()
    regex: str = ""


MATCHES = {"all": ("t", "u"), "one": ("t",)}
BOTH = Subscription(("t", "u"))
SUBSCRIPTIONS: Mapping[str, tuple[Subscription, Subscription]] = {
    "names": (BOTH, Subscription(("t",))),
    "regexes": (Subscription(regex="all"), Subscription(regex="one")),
    "mixed": (BOTH, Subscription(regex="one")),
}
"""The two subscriptions that the clients of a search change between."""

REBALANCE_TIMEOUT_MS, INTERVAL_MS, ASSIGNED_MS, EARLY_MS, LATE_MS = 1000, 10, 1, 5, 20
RESOLVED_MS = -20_000  # so long ago that what is not resolved yet need not wait

Snapshot = tuple[Any, ...]


class Violation(AssertionError):
    """A state that must not be. The text has the steps that lead to it."""


class Client(NamedTuple):
    """A consumer. ``told``: its assignment in the last answer; ``owned``: what it consumes. Both are bit sets.

    ``missed``: an answer was lost, so it sends a full request next. ``is_fenced``: the group has removed it, and it
    does not know. ``life``: of a static member, 0 or 1; its member id depends on it.
    """

    epoch: int = 0
    told: int = 0
    owned: int = 0
    subscription: int = 0
    missed: bool = False
    is_fenced: bool = False
    life: int = 0


class SearchTopics:
    """The topics, which do not change."""

    version = created_version = 1

    def names(self) -> Iterable[str]:
        return COUNTS

    def topic_id(self, name: str) -> bytes | None:
        return TOPIC_IDS.get(name)

    def partition_count(self, name: str) -> int | None:
        return COUNTS.get(name)


class SearchRegexes:
    """Two regular expressions."""

    def problem(self, _regex: str) -> str | None:
        return None

    def find(self, regexes: Collection[str], _names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        return {regex: MATCHES[regex] for regex in regexes}


class RememberingUniform:
    """Kafka's ``uniform``, which is asked the same again and again here."""

    name = "uniform"

    def __init__(self) -> None:
        self._targets: dict[object, TargetAssignment] = {}

    def assign(self, group: GroupToAssign) -> TargetAssignment:
        key = (
            group.is_homogeneous,
            *(
                (member.member_id, member.topics, *((topic_id, *owned) for topic_id, owned in member.owned.items()))
                for member in group.members
            ),
        )
        if key not in self._targets:
            self._targets[key] = Uniform().assign(group)
        return self._targets[key]


ASSIGNORS: dict[str, ServerAssignor] = {"uniform": RememberingUniform()}


def _no_hash(_names: Iterable[str]) -> Steps[int]:
    yield
    return 0


def bits(partitions: Iterable[Partition]) -> int:
    return sum(BITS[partition] for partition in partitions)


class SearchWorld:
    """The group and its clients. ``deadlines``: the member epoch of each rebalance deadline that is set.

    ``is_late``: whether the assignment interval is over. ``resolving``: the regular expressions whose result is on its
    way.
    """

    settings = ConsumerGroupSettings(assignment_interval_ms=INTERVAL_MS)
    topics = SearchTopics()
    assignors = ASSIGNORS
    regexes = SearchRegexes()

    def __init__(self, names: tuple[str, ...], kind: str = "names") -> None:
        self.names = names
        self.kind = kind
        self.state = GroupState("g")
        self.state.seen = Seen(SearchTopics.version, SearchTopics.version)
        self.resolving: tuple[str, ...] = ()
        self.clients = dict.fromkeys(names, Client())
        self.deadlines: dict[str, int] = {}
        self.metadata_hash: Callable[[Iterable[str]], Steps[int]] = _no_hash
        self.new_member_id: Callable[[], str] = str
        self.is_late = True
        self.has_asked_time = False

    @property
    def subscriptions(self) -> tuple[Subscription, Subscription]:
        return SUBSCRIPTIONS[self.kind]

    @property
    def is_resolving(self) -> bool:
        return bool(self.resolving)

    @property
    def wall_ms(self) -> int:
        self.has_asked_time = True
        return LATE_MS if self.is_late else EARLY_MS

    def member_id(self, name: str) -> str:
        return f"{name}{self.clients[name].life}"

    def member_of(self, name: str) -> Member | None:
        return self.state.members.get(self.member_id(name))

    def partitions(self, number: int) -> tuple[Partition, ...]:
        return SETS[number]

    def subscribed(self) -> list[Partition]:
        """The partitions of all topics that members subscribe to."""
        state = self.state
        names = {
            name for member in state.members.values() for name in run_steps(topics_of(member.about, state.regexes))
        }
        topic_ids = {TOPIC_IDS[name] for name in names}
        return [partition for partition in PARTITIONS if partition[0] in topic_ids]

    def update(self, name: str, **changes: Any) -> None:
        self.clients[name] = self.clients[name]._replace(**changes)

    def end_process(self, name: str) -> None:
        """The next process of a static member has another member id."""
        client = self.clients[name]
        self.clients[name] = Client(life=1 - client.life if name.isupper() else 0)

    def mark_fenced(self) -> None:
        for name, client in self.clients.items():
            if client.epoch and self.member_of(name) is None:
                self.update(name, is_fenced=True)

    # What happens to the group ---------------------------------------------------------------------------------------

    def send(
        self,
        name: str,
        epoch: int,
        arrives: bool,
        subscription: Subscription | None = None,
        owned: tuple[Partition, ...] | None = None,
        is_full: bool = False,
    ) -> None:
        """A heartbeat. ``arrives``: whether its answer does."""
        request = ConsumerHeartbeat(
            *("g", self.member_id(name), epoch, name if name.isupper() else None),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            topics=None if subscription is None else subscription.topics,
            regex=None if subscription is None else subscription.regex,
            owned=owned,
        )
        plan = Plan()
        try:
            reply = run_steps(handle_heartbeat(self.state, request, self, plan))
        except CoordinatorError:
            if arrives:
                self.end_process(name)
            else:
                self._miss(name)
            return
        self._apply(plan)
        if arrives:
            self._learn(name, reply)
        else:
            self._miss(name)

    def error_of(self, request: ConsumerHeartbeat) -> ErrorCode:
        """What a heartbeat would be told; it has no effect."""
        try:
            run_steps(handle_heartbeat(self.state, request, self, Plan()))
        except CoordinatorError as error:
            return error.code
        return NO_ERROR

    def _learn(self, name: str, reply: ConsumerHeartbeatReply) -> None:
        if reply.member_epoch <= 0:
            raise Violation(f"{name} is a member with epoch {reply.member_epoch}")
        told = self.clients[name].told if reply.assigned is None else bits(reply.assigned)
        self.update(name, epoch=reply.member_epoch, told=told, missed=False)

    def _miss(self, name: str) -> None:
        """Until it is told again, the client acquires nothing: the group has heard that it did not own it."""
        client = self.clients[name]
        if client.epoch:
            self.update(name, told=client.told & client.owned, missed=True)

    def resolve(self) -> None:
        """The result of the regular expressions is there."""
        values = {regex: _resolved(regex) for regex in self.resolving}
        self.resolving = ()
        plan = Plan()
        run_steps(apply_result(self.state, values, self, plan))
        self._apply(plan)

    def remove_all(self) -> None:
        """An administrator removes all members, which do not know it."""
        plan = Plan()
        identities = tuple(LeavingMember(member_id, None) for member_id in self.state.members)
        left = run_steps(leave_group(self.state, LeaveGroup("g", identities), self, plan))
        if any(member.error is not NO_ERROR for member in left.members):
            raise Violation(f"members cannot be removed: {left}")
        self._apply(plan)

    def expire_session(self, member_id: str) -> None:
        plan = Plan()
        run_steps(member_expired(self.state, member_id, self, plan))
        self._apply(plan)

    def expire_rebalance(self, member_id: str) -> None:
        plan = Plan()
        run_steps(rebalance_expired(self.state, member_id, self.deadlines.pop(member_id), self, plan))
        self._apply(plan)

    def _apply(self, plan: Plan) -> None:
        run_steps(self.state.replay_all(plan.records))
        if self.state.target.timestamp_ms:
            self.state.target = self.state.target._replace(timestamp_ms=ASSIGNED_MS)
        for member_id, deadline in plan.deadlines.items():
            self.deadlines.pop(member_id, None)
            if deadline is not None:
                self.deadlines[member_id] = deadline.member_epoch
        for member_id in plan.removed:
            self.deadlines.pop(member_id, None)
        if plan.regexes_to_resolve:
            self.resolving = tuple(sorted(plan.regexes_to_resolve))

    # Snapshots -------------------------------------------------------------------------------------------------------

    def freeze(self) -> Snapshot:
        """The state as a value. Epochs are numbered anew: only their order matters."""
        state = self.state
        ranks = self._ranks()
        members = tuple(
            (
                member_id,
                member.about.instance_id,
                self.subscriptions.index(Subscription(member.about.topics, member.about.regex)),
                ranks(member.current.member_epoch),
                ranks(member.current.previous_member_epoch),
                int(member.current.state),
                bits(member.current.assigned),
                bits(member.current.pending_revocation),
                bits(state.targets[member_id]) if member_id in state.targets else -1,
            )
            for member_id, member in sorted(state.members.items())
        )
        deadlines = tuple((member_id, ranks(epoch)) for member_id, epoch in sorted(self.deadlines.items()))
        clients = tuple((ranks(client.epoch), *client[1:]) for client in self.clients.values())
        group = (ranks(state.epoch.epoch), ranks(state.target.epoch), state.target.timestamp_ms > 0)
        return group, members, deadlines, clients, tuple(sorted(state.regexes)), self.resolving

    def _ranks(self) -> Callable[[int], int]:
        currents = [member.current for member in self.state.members.values()]
        epochs = {
            *(self.state.epoch.epoch, self.state.target.epoch),
            *(current.member_epoch for current in currents),
            *(current.previous_member_epoch for current in currents),
            *self.deadlines.values(),
            *(client.epoch for client in self.clients.values()),
        }
        ranks = {epoch: rank for rank, epoch in enumerate(sorted(epoch for epoch in epochs if epoch > 0), 1)}
        return lambda epoch: ranks.get(epoch, epoch)

    @classmethod
    def thaw(cls, names: tuple[str, ...], kind: str, snapshot: Snapshot) -> SearchWorld:
        group, members, deadlines, clients, regexes, resolving = snapshot
        world = cls(names, kind)
        state = world.state
        state.epoch = GroupEpochValue(group[0])
        state.target = TargetEpochValue(group[1], ASSIGNED_MS if group[2] else 0)
        for member_id, instance_id, subscription, epoch, previous, member_state, assigned, pending, target in members:
            current = (epoch, previous, member_state, assigned, pending)
            state.set_member(_member(member_id, instance_id, world.subscriptions[subscription], *current))
            if target >= 0:
                state.targets[member_id] = SETS[target]
        state.seen = state.seen._replace(members_max=len(names))
        state.regexes = {regex: _resolved(regex) for regex in regexes}
        world.resolving = tuple(resolving)
        world.deadlines = dict(deadlines)
        world.clients = {name: Client(*client) for name, client in zip(names, clients, strict=True)}
        return world


def _resolved(regex: str) -> RegexValue:
    return RegexValue(MATCHES[regex], SearchTopics.version, RESOLVED_MS)


@lru_cache(maxsize=100_000)
def _member(
    member_id: str,
    instance_id: str | None,
    subscription: Subscription,
    epoch: int,
    previous: int,
    state: int,
    assigned: int,
    pending: int,
) -> Member:
    sets = (dict.fromkeys(SETS[assigned], 0), dict.fromkeys(SETS[pending], 0))
    return Member(
        member_id,
        MemberValue(instance_id, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, **subscription._asdict()),
        CurrentValue(epoch, previous, MemberState(state), *sets),
    )
