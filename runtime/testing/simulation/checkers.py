"""Invariants that must hold in every simulated run. Checkers listen to all exchanges.

``GenerationChecker``: generations never decrease, a generation has one leader and one assignment, and requests of
members that left, were replaced or belong to an older generation are refused. ``AnswerChecker``: every request that
arrived is answered once, and in time. ``registers.py`` checks commits, ``holders.py`` the owners of shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from ....actors.consumer_group.messages import ConsumerHeartbeat
from ....actors.errors import ErrorCode
from ....actors.group.events import GroupEvent, Kind
from ....actors.group.offsets import GroupData
from ....actors.group.states import State
from ....actors.messages import (
    Committed,
    DeleteGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    Synced,
    SyncGroup,
)
from .history import Exchange, Listener


class Violation(AssertionError):
    """An invariant is violated."""


Fail = Callable[[str], None]

ANSWER_TIMEOUT_S = 30.0
"""A request must be answered within this virtual time, unless it waits for other members."""

NEW_MEMBER_TIMEOUT_S = 300.0
"""The limit for a new member in a group whose other members do not rejoin (Kafka's limit)."""

WAITING_REQUESTS = (JoinGroup, SyncGroup)


class ObservedGroup:
    """The state of one group according to its answers. ``synced``: assignments by generation and member."""

    def __init__(self) -> None:
        self.synced: dict[int, dict[str, bytes]] = defaultdict(dict)
        self.first_synced_at: dict[int, int] = {}
        self.newest_durable = -1
        self.offered: dict[int, list[dict[str, bytes]]] = defaultdict(list)
        self.reset()

    def forget_unrecorded(self) -> None:
        """Forget the generations that members have joined and that no record has."""
        self.newest_joined = self.newest_durable
        self.leaders: dict[int, str] = {}

    def reset(self) -> None:
        """Forget everything that is not durable, after a restart of the coordinator."""
        self.forget_unrecorded()
        self.removed: dict[str, tuple[float, str]] = {}  # member id -> when and why it was removed
        self.owner_of: dict[str, tuple[str, float]] = {}  # instance id -> member id and since when
        self.offered.clear()  # after a restart members get the stored assignment, if any


class GenerationChecker(Listener):
    """Checks generations. ``fail`` is called with a text. Call ``restarted`` when the coordinator has restarted.

    While it loads (``is_loading``), every heartbeat is answered with NONE, as by Kafka. Groups that members of the
    consumer protocol have used have no generations; each member has its own epoch.
    """

    def __init__(self, fail: Fail, is_loading: Callable[[], bool] = lambda: False) -> None:
        self._fail = fail
        self._is_loading = is_loading
        self._heartbeats_while_loading: set[Exchange] = set()  # heartbeats that arrived while it loaded
        self._groups: dict[str, ObservedGroup] = defaultdict(ObservedGroup)
        self._consumer_groups: set[str] = set()

    def sent(self, exchange: Exchange) -> None:
        if isinstance(exchange.message, ConsumerHeartbeat):
            self._consumer_groups.add(exchange.message.group_id)

    def restarted(self) -> None:
        for group in self._groups.values():
            group.reset()
        self._heartbeats_while_loading.clear()

    def lost(self, exchange: Exchange) -> None:
        self._heartbeats_while_loading.discard(exchange)

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        """A group that restarts from the log knows only what is durable. JoinGroup was answered without a record."""
        if event.state == State.DEAD:
            self._groups[group_id].forget_unrecorded()

    def forget_newer(self, groups: Mapping[str, GroupData]) -> None:
        """After a power loss with ``sync`` other than "always", each group is in the generation that was found."""
        for group_id, group in self._groups.items():
            group_data = groups.get(group_id)
            generation = -1 if group_data is None or group_data.value is None else group_data.value.generation
            for newer in [generation_number for generation_number in group.synced if generation_number > generation]:
                group.synced.pop(newer)
                group.first_synced_at.pop(newer, None)
            group.newest_durable = min(group.newest_durable, generation)

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, SyncGroup) and message.assignments:
            self._groups[message.group_id].offered[message.generation_id].append(dict(message.assignments))
        elif isinstance(message, Heartbeat) and self._is_loading():
            self._heartbeats_while_loading.add(exchange)

    def answered(self, exchange: Exchange) -> None:
        message, answer = exchange.message, exchange.answer
        if getattr(message, "group_id", None) in self._consumer_groups:
            return
        match message:
            case Heartbeat() if answer is ErrorCode.NONE:
                if exchange in self._heartbeats_while_loading:
                    self._heartbeats_while_loading.remove(exchange)
                else:
                    self._check_accepted(exchange, message)
            case OffsetCommit() if message.generation_id >= 0:
                if isinstance(answer, Committed) and ErrorCode.NONE in answer.errors:
                    self._check_accepted(exchange, message)
            case JoinGroup() if isinstance(answer, Joined) and answer.error is ErrorCode.NONE:
                self._joined(exchange, message, answer)
            case SyncGroup() if isinstance(answer, Synced) and answer.error is ErrorCode.NONE:
                self._check_accepted(exchange, message)
                self._synced(exchange, message, answer)
            case LeaveGroup():
                self._left(exchange, message)
            case DeleteGroup() if answer is ErrorCode.NONE:
                self._groups.pop(message.group_id, None)

    def _joined(self, exchange: Exchange, message: JoinGroup, answer: Joined) -> None:
        group, generation = self._groups[message.group_id], answer.generation_id
        if generation < max(group.newest_joined, group.newest_durable):
            self._fail_exchange(
                exchange, f"generation {generation} after {max(group.newest_joined, group.newest_durable)}"
            )
        group.newest_joined = generation
        leader = group.leaders.setdefault(generation, answer.leader)
        if leader != answer.leader and message.group_instance_id is None and not self._was_replaced(group, leader):
            self._fail_exchange(exchange, f"generation {generation} is led by {leader} and by {answer.leader}")
        if message.group_instance_id is not None:
            owner = group.owner_of.get(message.group_instance_id)
            if owner is None or owner[0] != answer.member_id:
                group.owner_of[message.group_instance_id] = answer.member_id, exchange.answered_at
            if owner is not None and owner[0] != answer.member_id:
                group.removed.setdefault(
                    owner[0], (exchange.answered_at, f"{answer.member_id} has taken its instance id")
                )
        group.removed.pop(answer.member_id, None)

    def _was_replaced(self, group: ObservedGroup, member_id: str) -> bool:
        return member_id in group.removed

    def _synced(self, exchange: Exchange, message: SyncGroup, answer: Synced) -> None:
        group, generation = self._groups[message.group_id], message.generation_id
        if generation < group.newest_durable:
            self._fail_exchange(exchange, f"generation {generation} is synced after {group.newest_durable}")
        group.newest_durable = max(group.newest_durable, generation)
        group.first_synced_at.setdefault(generation, int(exchange.answered_at))
        assignment = group.synced[generation].setdefault(message.member_id, answer.assignment)
        if assignment != answer.assignment:
            self._fail_exchange(
                exchange, f"{answer.assignment!r} in generation {generation}, where it was given {assignment!r}"
            )
        offers = group.offered.get(generation, ())
        is_offered = any(offer.get(message.member_id, b"") == answer.assignment for offer in offers)
        if offers and message.group_instance_id is None and not is_offered:
            self._fail_exchange(exchange, f"{answer.assignment!r}, which no leader of generation {generation} gave it")

    def _left(self, exchange: Exchange, message: LeaveGroup) -> None:
        group = self._groups[message.group_id]
        for member, response in zip(message.members, exchange.answer.members, strict=False):
            if response.error is ErrorCode.NONE and member.group_instance_id is None:
                group.removed.setdefault(member.member_id, (exchange.answered_at, "it has left"))

    def _check_accepted(self, exchange: Exchange, message: Heartbeat | OffsetCommit | SyncGroup) -> None:
        """Check a member that was answered NONE: it must belong to the newest synced generation."""
        group, member_id = self._groups[message.group_id], message.member_id
        since, why = group.removed.get(member_id, (inf, ""))
        if exchange.arrived_at > since:
            self._fail_exchange(exchange, f"NONE, but {why}")
        if message.group_instance_id is not None:
            owner, since = group.owner_of.get(message.group_instance_id, (member_id, inf))
            if owner != member_id and exchange.arrived_at > since:
                self._fail_exchange(exchange, f"NONE, but its instance id belongs to {owner}")
        newest = group.newest_durable
        if message.generation_id < newest and exchange.arrived_at > group.first_synced_at.get(newest, inf):
            self._fail_exchange(exchange, f"NONE in generation {message.generation_id}, but {newest} has begun")

    def _fail_exchange(self, exchange: Exchange, answer: str) -> None:
        self._fail(f"{exchange} was answered {answer}")


class AnswerChecker(Listener):
    """Each request that arrived is answered once, unless the coordinator dies. ``overdue`` finds late ones."""

    def __init__(self, fail: Fail, now_s: Callable[[], float]) -> None:
        self._fail = fail
        self._now_s = now_s
        self._waiting: dict[Exchange, float] = {}
        self._answered: set[Exchange] = set()
        self._stable_since_s: dict[str, float] = {}  # by group id
        self._longest_rebalance_s: dict[str, float] = defaultdict(
            float
        )  # group id -> the longest rebalance that its members allow

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if isinstance(message, JoinGroup):
            allowed_s = (message.rebalance_timeout_ms + message.session_timeout_ms) / 1000
            self._longest_rebalance_s[message.group_id] = max(self._longest_rebalance_s[message.group_id], allowed_s)
        self._waiting[exchange] = self._now_s()

    def answered(self, exchange: Exchange) -> None:
        if self._waiting.pop(exchange, None) is None and exchange in self._answered:
            self._fail(f"{exchange} was answered twice")
        self._answered.add(exchange)

    def lost(self, exchange: Exchange) -> None:
        """The client got an error, and a second JoinGroup may replace the first."""
        self._waiting.pop(exchange, None)

    def restarted(self) -> None:
        """Forget the requests of the ended coordinator."""
        self._waiting.clear()
        self._answered.clear()
        self._stable_since_s.clear()

    def group_changed(self, group_id: str, event: GroupEvent) -> None:
        if event.kind is Kind.STATE_CHANGED:
            self._stable_since_s.pop(group_id, None)
            if event.state == State.STABLE:
                self._stable_since_s[group_id] = self._now_s()

    def overdue(self) -> Iterator[Exchange]:
        """The requests that wait for longer than allowed."""
        now_s = self._now_s()
        return (
            exchange for exchange in self._waiting if now_s - self._waits_since_s(exchange) > self._limit_s(exchange)
        )

    def _waits_since_s(self, exchange: Exchange) -> float:
        """In a Stable group no request waits for other members any more."""
        since_s = self._waiting[exchange]
        if isinstance(exchange.message, WAITING_REQUESTS):
            return max(since_s, self._stable_since_s.get(exchange.message.group_id, since_s))
        return since_s

    def check_overdue(self) -> None:
        for exchange in list(self.overdue()):
            waits_s = self._now_s() - self._waits_since_s(exchange)
            self._fail(f"{exchange} waits for {waits_s:.1f} s, more than {self._limit_s(exchange):g}")
        self._answered.clear()

    def _limit_s(self, exchange: Exchange) -> float:
        message: Any = exchange.message
        is_leaders = isinstance(message, SyncGroup) and bool(message.assignments)
        is_parked = isinstance(message, WAITING_REQUESTS) and message.group_id not in self._stable_since_s
        is_parked = is_parked and not is_leaders  # a leader waits for the log only
        return ANSWER_TIMEOUT_S + (
            2 * self._longest_rebalance_s[message.group_id] + NEW_MEMBER_TIMEOUT_S if is_parked else 0
        )
