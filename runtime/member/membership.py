"""One member's way through the protocol: it joins, leads, syncs, beats, loses, joins again. Plain asyncio.

Two tasks do it: one joins and syncs, the other beats. What an answer leads to stands in ``protocol.py``, how long the
work may go on in ``lease.py``. Each answer is held against the member id and the generation it was asked with: what
comes late is about somebody that this member no longer is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.messages import Heartbeat, Joined, JoinGroup, LeaveGroup, Leaving, Protocol, Synced, SyncGroup
from .assignors.base import Own
from .assignors.wire import read_assignment
from .channel import ChannelLost, Connector
from .errors import Fenced, HasLeft, MemberError, refused
from .holdings import Holdings
from .leading import Group, offer, protocol_name
from .lease import Lease
from .line import Backoff, Line
from .named import Wanted
from .positions import find_positions
from .protocol import Asked, Step, step_after
from .terms import MemberOptions
from .work import Owner, Shard, TopicPartition

log = logging.getLogger("callboard.member")

CLIENT_ID = "callboard"

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers, with whom a member may share its group."""

LEAVE_TIMEOUT_S = 5.0
"""To say good-bye. Without it the session ends by itself."""

PATIENCE_S = 5.0
"""How much longer than its rebalance timeout a member waits for the answer to a join, as Kafka's clients do."""

FENCED = (
    "another process has joined with instance_id={!r}, and this member of group {!r} must stop; give each process an "
    "instance_id of its own"
)

Identity = tuple[str, int]
"""A member id and a generation."""

NOBODY: Identity = ("", -1)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class Membership:
    """What one member is in its group at the moment, and the tasks that keep it so."""

    def __init__(
        self, connector: Connector, group_id: str, options: MemberOptions, owner: Owner, random: Random
    ) -> None:
        client_id = options.client_id or CLIENT_ID
        self.group_id = group_id
        self.options = options
        self.identity = NOBODY
        self.is_leader = False
        self.lease = Lease(options.terms())
        self.holdings = Holdings(owner)
        self.beats = Line(connector, client_id)  # heartbeats, commits, fetches: they must not wait behind a parked join
        self.random = random
        self._joins = Line(connector, client_id)
        self._connector = connector
        self._client_id = client_id
        self._owner = owner
        self._assignors = options.assignors()
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._wanted = Wanted({}, {})
        self._shard_names: dict[TopicPartition, tuple[str, int | str]] = {}
        self._has_names = False
        self._calls = asyncio.Event()  # set: there is a reason to join again
        self._is_joining = False  # a JoinGroup is on its way, or parked
        self._is_settled = False  # the generation's assignment is here
        self._had: tuple[tuple[TopicPartition, ...], int] = (), -1  # the last assignment, and its generation
        self._watch: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # Begin and end ---------------------------------------------------------------------------------------------------

    def start(self, wanted: Wanted) -> None:
        """Begin to take part, in the background."""
        loop = asyncio.get_running_loop()
        works = partial(self._live, wanted), self.beat
        self._tasks = [loop.create_task(self._or_stop(work)) for work in works]

    async def _live(self, wanted: Wanted) -> None:
        await self.want(wanted)
        await self.take_part()

    async def _or_stop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.stop_with(error)

    def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def leave(self) -> None:
        """Hand back what is held, say good-bye, hang up. What runs on the work may commit until it has ended."""
        if self._tasks:
            self._tasks[0].cancel()  # the heartbeats go on meanwhile
            await asyncio.wait({self._tasks[0]})
        held = self.holdings.held
        try:
            await self.holdings.hand_back(tuple(held), self.lease.hand_back_deadline_s())
            self.holdings.end(HasLeft(f"this member of group {self.group_id!r} has left; make another one"))
            await self._say_good_bye()
        finally:
            self._hang_up()

    async def _say_good_bye(self) -> None:
        """A static member says nothing: it may be back before its session ends (KIP-345)."""
        member_id = self.identity[0]
        if not member_id or self.options.instance_id is not None:
            return
        line = self.beats if self._is_joining else self._joins  # there it would wait behind the join
        request = LeaveGroup(self.group_id, (Leaving(member_id, None, "the member was closed"),))
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await _ask_twice(line, request)
        except (ChannelLost, TimeoutError) as error:
            log.info("member %r could not say good-bye: %r; its session will end by itself", member_id, error)

    def _hang_up(self) -> None:
        self.identity = NOBODY
        self._stop_tasks()
        self._drop_lines()
        if self._watch is not None:
            self._watch.cancel()

    # What is wanted --------------------------------------------------------------------------------------------------

    async def want(self, wanted: Wanted) -> None:
        """Take part for these resources from now on. Their topics are made first, as soon as a coordinator is there."""
        if wanted == self._wanted:
            return
        had = self._wanted.topics()
        new = {topic: number for topic, number in wanted.topics().items() if had.get(topic) != number}
        backoff = Backoff(self.random)
        while new:
            try:
                await self._connector.ensure_topics(new)
                break
            except ChannelLost as error:
                log.info("the topics of group %r cannot be made yet: %s; trying again", self.group_id, error)
                await backoff.wait()
            except CoordinatorError as error:
                raise MemberError(
                    f"the topics of group {self.group_id!r} cannot be made: {error}; other names would do", error.code
                ) from error
        before = self._wanted
        is_other = wanted.names != before.names or set(wanted.numbers) != set(before.numbers)
        if is_other or (self.is_leader and wanted.numbers != before.numbers):  # the leader's numbers count
            self._calls.set()
        self._wanted, self._shard_names = wanted, wanted.shard_names()
        self._has_names = self._has_names or bool(wanted.names)

    # Join and sync ---------------------------------------------------------------------------------------------------

    async def take_part(self) -> None:
        """Join, and join again whenever there is a reason. Raises MemberError when there is no use in going on."""
        while True:
            await self._give_back()
            joined = await self._join()
            assigned = await self._sync(joined)
            if assigned is not None and await self._take_up(assigned):
                await self._calls.wait()

    async def _give_back(self) -> None:
        """What must not be held while joining: all of it, or what is no longer wanted."""
        held = self.holdings.held
        partitions = [partition for partition in held if not self._is_cooperative or partition not in self._shard_names]
        await self.holdings.hand_back(partitions, self.lease.hand_back_deadline_s())

    async def _join(self) -> Joined:
        """Until an answer says that we are in a generation.

        What still runs on lost work has until the lease's end without its margin: after a join before that the work
        would be given to somebody else, who begins at once.
        """
        backoff = Backoff(self.random)
        while True:
            await self.holdings.outlast(self.lease.end_s())
            self._calls.clear()
            identity, sent_s = self.identity, _now_s()
            joined = await self._ask_to_join()
            if joined is None or identity != self.identity:
                await backoff.wait()
                continue
            step = step_after(Asked.JOIN, joined.error)
            if step is Step.GO_ON:
                self._has_joined(joined, sent_s)
                if await self._is_sure(self.identity):
                    self._set_watch()
                    return joined
                continue
            if step is Step.COME_WITH_ID:
                self.identity = joined.member_id, -1
                continue
            self.follow(step, identity, joined.error, "the join")
            await backoff.wait()

    async def _ask_to_join(self) -> Joined | None:
        """None if the answer did not come."""
        options, member_id = self.options, self.identity[0]
        request = JoinGroup(
            group_id=self.group_id,
            member_id=member_id,
            group_instance_id=options.instance_id,
            client_id=self._client_id,
            client_host="",
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            protocol_type=CONSUMER,
            protocols=self._offers(),
            needs_member_id=True,
            can_skip_assignment=True,
        )
        self._is_joining, self._is_settled = True, False
        answer: Joined | None = await self._ask(request)
        self._is_joining = False  # not if we are cancelled, since the join stays parked
        return answer

    def _offers(self) -> tuple[Protocol, ...]:
        owned, generation = self._had
        if self._is_cooperative:
            owned = tuple(self.holdings.held)
        topics = frozenset(self._wanted.topics())
        own = Own(topics, owned, generation, self.options.weight)
        offers = (offer(one, self._wanted, own, self._has_names, self._is_cooperative) for one in self._assignors)
        return tuple(offers)

    def _has_joined(self, joined: Joined, sent_s: float) -> None:
        self.identity = joined.member_id, joined.generation_id
        self.is_leader = joined.leader == joined.member_id
        # The phase ended after the last heartbeat that said it was open, and the next one begins after that.
        self.lease.joined(max(sent_s, self.lease.heard_s))

    async def _sync(self, joined: Joined) -> Sequence[TopicPartition] | None:
        """What we are assigned; None if there was no answer, or it says to join again."""
        identity = self.identity
        request = SyncGroup(
            self.group_id,
            joined.member_id,
            self.options.instance_id,
            joined.generation_id,
            CONSUMER,
            joined.protocol_name,
            await self._lead(joined),
        )
        sent_s = _now_s()
        synced: Synced | None = await self._ask(request)
        if synced is None or identity != self.identity:
            return None
        step = step_after(Asked.SYNC, synced.error)
        if step is not Step.GO_ON:
            self.follow(step, identity, synced.error, "the sync")
            if step is not Step.REJOIN:
                await Backoff(self.random).wait()
            return None
        self.lease.joined(sent_s)
        self._is_settled = True
        assigned = read_assignment(synced.assignment)
        if assigned is None:
            log.error("the assignment of member %r cannot be read; it has nothing to do", identity[0])
        return () if assigned is None else assigned.partitions

    async def _lead(self, joined: Joined) -> tuple[tuple[str, bytes], ...]:
        """Assignments for everybody, if it is for us to make them."""
        if not self.is_leader or joined.skip_assignment:
            return ()
        group = Group(joined.members)
        numbers = dict(self._wanted.numbers)
        foreign = [topic for topic in group.topics if topic not in numbers]
        if foreign:
            try:
                numbers.update(await self._connector.partitions(foreign))
            except ChannelLost:
                log.warning("topics of other members could not be looked up: %s", ", ".join(foreign))
        assignor = next(one for one in self._assignors if protocol_name(one, self._has_names) == joined.protocol_name)
        return group.assign(assignor, numbers)

    async def _ask(self, request: JoinGroup | SyncGroup) -> Any:
        """The answer; None if the way was lost, or it took longer than a rebalance may."""
        try:
            async with asyncio.timeout(self.lease.terms.rebalance_s + PATIENCE_S):
                return await self._joins.ask(request)
        except (ChannelLost, TimeoutError) as error:
            log.info("no answer to %s of %r: %r; trying again", type(request).__name__, self.group_id, error)
            self._joins.drop()
            return None

    # What is assigned ------------------------------------------------------------------------------------------------

    async def _take_up(self, assigned: Sequence[TopicPartition]) -> bool:
        """Hand back what was taken, begin with what was given. False: join again, so that others get what was taken."""
        identity, held = self.identity, self.holdings.held
        partitions = [partition for partition in assigned if partition in self._shard_names]
        if len(partitions) < len(assigned):
            level = logging.INFO if self.is_called else logging.WARNING  # then its names have changed meanwhile
            log.log(
                level,
                "%d partitions were assigned that this member has no resource for",
                len(assigned) - len(partitions),
            )
        self._had = tuple(partitions), identity[1]
        given = set(partitions)
        taken = [partition for partition in held if partition not in given]
        await self.holdings.hand_back(taken, self.lease.hand_back_deadline_s())
        await self.holdings.settle(self.lease.hand_back_deadline_s())
        added = [
            self._new_shard(partition, identity[1]) for partition in partitions if partition not in self.holdings.held
        ]
        if not await find_positions(self, added) or not await self._is_sure(identity):
            return False
        self._set_watch()
        self.holdings.acquire(added, identity[1])
        return not taken

    async def _is_sure(self, identity: Identity) -> bool:
        """Whether we are still that member: the process may have stood still, and somebody else have the work.

        Only a heartbeat says so for sure (``Lease.joined``).
        """
        if _now_s() > self.lease.heard_s + self.lease.terms.interval_s and not await self._beat_now():
            await Backoff(self.random).wait()
        return identity == self.identity and self.check_lease()

    async def _beat_now(self) -> bool:
        """Beat once, beside the others. An answer that comes later than a lease lasts would be of no use."""
        terms = self.lease.terms
        try:
            async with asyncio.timeout(terms.session_s - terms.margin_s):
                return await self._beat_once()
        except TimeoutError:
            self.beats.drop()
            return False

    def _new_shard(self, partition: TopicPartition, token: int) -> Shard:
        resource, name = self._shard_names[partition]
        return Shard(self._owner, resource, name, partition, token)

    @property
    def is_called(self) -> bool:
        """Whether there is a reason to join again."""
        return self._calls.is_set()

    # Heartbeats and the lease ----------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Say that we are there, for ever."""
        interval_s, backoff = self.lease.terms.interval_s, Backoff(self.random)
        await asyncio.sleep(interval_s * self.random.random())  # so that members which start together do not beat so
        while True:
            if self.identity[1] < 0 or await self._beat_once():
                backoff = Backoff(self.random)
                await asyncio.sleep(interval_s)
            else:
                await backoff.wait()

    async def _beat_once(self) -> bool:
        """Whether there was an answer, and none that says to come again soon."""
        identity, sent_s = self.identity, _now_s()
        try:
            error: ErrorCode = await self.beats.ask(
                Heartbeat(self.group_id, identity[0], self.options.instance_id, identity[1])
            )
        except ChannelLost as lost:
            log.info("no answer to a heartbeat of %r: %s; trying again", identity[0], lost)
            if not self._is_settled:
                self._joins.drop()  # a join that is parked there may be lost as well, and nobody would tell
            return False
        if identity != self.identity:
            return True
        step = step_after(Asked.HEARTBEAT, error)
        if step is Step.GO_ON and self._is_settled:
            self.lease.calm(sent_s)
        elif step in (Step.GO_ON, Step.REJOIN):
            self.lease.heard(sent_s)
        if step is not Step.GO_ON:
            self.follow(step, identity, error, "a heartbeat")
        return step not in (Step.AGAIN, Step.RECONNECT)

    def _set_watch(self) -> None:
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_at(self.lease.deadline_s(), self._look)

    def _look(self) -> None:
        self._watch = None
        if self.identity[1] >= 0 and self.check_lease():
            self._set_watch()

    def check_lease(self) -> bool:
        """Whether the work may go on. If not, all of it is lost."""
        now_s = _now_s()
        if now_s < self.lease.deadline_s():
            return True
        self._lose(f"its lease is over; it was heard {now_s - self.lease.heard_s:.1f} s ago")
        if self.lease.is_silent(now_s):
            self._drop_lines()
        if self._is_settled:
            self._calls.set()
        return False

    def _lose(self, why: str) -> None:
        if self.holdings.held:
            log.warning("member %r of %r loses its work: %s", self.identity[0], self.group_id, why)
            self.holdings.lose_all()

    def _drop_lines(self) -> None:
        self.beats.drop()
        self._joins.drop()

    # What answers lead to --------------------------------------------------------------------------------------------

    def follow(self, step: Step, identity: Identity, error: ErrorCode, what: str) -> None:
        """Do what a refusal asks for. Those that only say "later" are for the caller to wait."""
        if identity != self.identity:
            return
        match step:
            case Step.REJOIN:
                if not self._is_joining:
                    self._calls.set()
            case Step.LOSE if self._is_joining:
                pass  # the answer to the join is on its way; the lease says how long we may wait for it
            case Step.LOSE | Step.JOIN_ANEW:
                self._begin_anew(step, error, what)
            case Step.RECONNECT:
                self._drop_lines()
            case Step.FENCED:
                self.stop_with(Fenced(FENCED.format(self.options.instance_id, self.group_id), error))
            case Step.FAIL:
                self.stop_with(MemberError(refused(f"{what} of a member of group {self.group_id!r}", error), error))

    def stop_with(self, error: BaseException) -> None:
        """There is no use in going on: the work is lost, and the user hears why."""
        self.holdings.end(error)
        self.identity = NOBODY
        self._stop_tasks()

    def _begin_anew(self, step: Step, error: ErrorCode, what: str) -> None:
        self._lose(f"{what} was answered {error.name}")
        self.identity = (self.identity[0] if step is Step.LOSE else ""), -1
        self._had = (), -1
        if self._is_joining:
            self._joins.drop()
        self._calls.set()


async def _ask_twice(line: Line, request: LeaveGroup) -> None:
    """A line that nobody has used for long may have been lost unnoticed."""
    try:
        await line.ask(request)
    except ChannelLost:
        await line.ask(request)
