"""A consumer group without actors: each heartbeat is decided, and its records are replayed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from callboard.actors.assignors.server.base import ServerAssignor
from callboard.actors.assignors.server.table import SERVER_ASSIGNORS
from callboard.actors.consumer_group.heartbeat import handle_heartbeat
from callboard.actors.consumer_group.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from callboard.actors.consumer_group.plan import ConsumerGroupSettings, Plan, RegexMatcher
from callboard.actors.consumer_group.records import Partition, RegexValue
from callboard.actors.consumer_group.regexes import apply_result
from callboard.actors.consumer_group.removal import member_expired, rebalance_expired, remove_members
from callboard.actors.consumer_group.state import GroupState
from callboard.actors.consumer_group.unchanged import unchanged_reply
from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.steps import Steps, run_steps
from callboard.runtime.node.topic_regexes import TopicRegexes

GROUP = "g"
START_MS = 1_000_000


class Topics:
    """Topics that the test changes. The id of a topic is its name and how often it was created."""

    def __init__(self, **counts: int) -> None:
        self.version = self.created_version = 0
        self._counts: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self._creations = count(1)
        for name, partitions in counts.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int) -> None:
        self.add(name, f"{name}{next(self._creations)}".encode().ljust(16), partitions)

    def add(self, name: str, topic_id: bytes, partitions: int) -> None:
        self._ids[name] = topic_id
        self._counts[name] = partitions
        self.version += 1
        self.created_version = self.version

    def grow(self, name: str, partitions: int) -> None:
        self._counts[name] = partitions
        self.version += 1

    def delete(self, name: str) -> None:
        del self._counts[name], self._ids[name]
        self.version += 1

    def names(self) -> Iterable[str]:
        return self._counts

    def topic_id(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def partition_count(self, name: str) -> int | None:
        return self._counts.get(name)

    def hash(self, names: Iterable[str]) -> Steps[int]:
        yield
        known = sorted((name, self._ids[name], self._counts[name]) for name in names if name in self._counts)
        return hash(tuple(known)) if known else 0


class World:
    """What a decision depends on, with a state that follows its records."""

    def __init__(self, topics: Topics, settings: ConsumerGroupSettings | None = None) -> None:
        self.topics = topics
        self.settings = settings or ConsumerGroupSettings(assignment_interval_ms=0)
        self.assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS
        self.metadata_hash: Callable[[Iterable[str]], Steps[int]] = topics.hash
        self.new_member_id: Callable[[], str] = lambda: "generated"
        self.regexes: RegexMatcher = TopicRegexes()
        self.is_resolving = False
        self.wall_ms = START_MS
        self.state = GroupState(GROUP)
        self.plan = Plan()
        self.unchanged = 0  # heartbeats that needed no decision
        self.sent: dict[ConsumerHeartbeat, ConsumerHeartbeat] = {}  # one that is repeated is the same object

    @property
    def phase(self) -> str:
        return self.state.phase.value

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatReply:
        """A heartbeat that raises if it is refused. ``owned``: "t0 u1" for partitions by topic and number."""
        if "owned" in fields:
            fields["owned"] = self.partitions(fields["owned"])
        return self.heartbeat(member_id, epoch, **fields)

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatReply:
        """The same with the partitions of a request."""
        request = ConsumerHeartbeat(GROUP, member_id, epoch, **fields)
        request = self.sent.setdefault(request, request)
        plan, unchanged = Plan(), unchanged_reply(self.state, request, self)
        try:
            reply = run_steps(handle_heartbeat(self.state, request, self, plan))
        except CoordinatorError:
            assert unchanged is None
            raise
        if unchanged is not None:
            self.unchanged += 1
            assert (unchanged, [], {}, {member_id: None}) == (reply, plan.records, plan.deadlines, plan.sessions)
            assert not (plan.removed or plan.regexes_to_resolve or plan.topics_version or plan.asked_ms)
        self.apply(plan)
        return reply

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerHeartbeatReply:
        given = {"rebalance_timeout_ms": 60_000, "topics": topics, "owned": ""} | fields
        return self.beat(member_id, 0, **given)

    def apply(self, plan: Plan) -> None:
        self.plan = plan
        run_steps(plan.apply_to(self.state))

    def resolve(self, *regexes: str) -> None:
        """The result of the last decision's regular expressions, or of these, is there."""
        found = self.regexes.find(regexes or self.plan.regexes_to_resolve, list(self.topics.names()))
        plan = Plan()
        results = {regex: RegexValue(names, self.topics.version, self.wall_ms) for regex, names in found.items()}
        run_steps(apply_result(self.state, results, self, plan))
        self.apply(plan)

    def remove(self, *member_ids: str) -> None:
        plan = Plan()
        run_steps(remove_members(self.state, member_ids, self, plan))
        self.apply(plan)

    def expire_session(self, member_id: str) -> None:
        plan = Plan()
        run_steps(member_expired(self.state, member_id, self, plan))
        self.apply(plan)

    def expire_rebalance(self, member_id: str, member_epoch: int) -> None:
        plan = Plan()
        run_steps(rebalance_expired(self.state, member_id, member_epoch, self, plan))
        self.apply(plan)

    def error_of(self, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
        try:
            self.beat(member_id, epoch, **fields)
        except CoordinatorError as error:
            return error.code
        return ErrorCode.NONE

    def partitions(self, text: str | None) -> tuple[Partition, ...] | None:
        if text is None:
            return None
        return tuple((self.topics.topic_id(item[0]) or b"?", int(item[1:])) for item in text.split())

    def text(self, partitions: Iterable[Partition] | None) -> str | None:
        """The reverse of ``partitions``, sorted."""
        if partitions is None:
            return None
        names = {self.topics.topic_id(name): name for name in self.topics.names()}
        return " ".join(sorted(f"{names.get(topic_id, '?')}{number}" for topic_id, number in partitions))

    def assigned(self, member_id: str) -> str | None:
        return self.text(self.state.members[member_id].current.assigned)

    def pending(self, member_id: str) -> str | None:
        return self.text(self.state.members[member_id].current.pending_revocation)

    def key_types(self) -> list[int]:
        """Of the records of the last decision; negative for tombstones."""
        return [record.key_type if record.value is not None else -record.key_type for record in self.plan.records]
