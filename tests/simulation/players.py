"""Clients of a simulated coordinator that send its messages directly, as simply as a correct client can.

``Worker`` is a member of a group that works on its assignment; ``Committer`` commits and fetches without membership;
``Producer`` commits in transactions; ``InvalidClient`` sends requests that no correct client sends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import (
    Commit,
    DeleteGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Protocol,
    SyncGroup,
    TxnOffsetCommit,
)
from callboard.actors.transactions.messages import AddOffsets, EndTransaction, InitProducerId
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.testing.simulation.history import Exchange, Listener
from callboard.runtime.testing.simulation.network import SimulatedChannel
from callboard.runtime.testing.simulation.scenario import Sim

HOST = "/127.0.0.1"
TOPIC = "t"
LONG_PAUSE_S = 150.0  # a group is passivated after one to two minutes
COMMITS_ONLY = 99  # the partition of commits that keep a session
RETRY_S = 0.3  # before a refused or disconnected client retries
LEASE_FRACTION = 0.8  # the part of a session in which a member may rely on the last answer
REQUEST_TIMEOUT_S = 400.0  # also for requests that wait for other members
RETRIABLE_ERRORS = (
    *(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
MEMBER_LOST_ERRORS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class SimulatedClient:
    """A client with a name, a process and channels of its own."""

    def __init__(self, sim: Sim, name: str) -> None:
        self.sim = sim
        self.name = name
        self.process = sim.process(name)
        self.connector = sim.connector(name)
        self.task = self.process.start(self.run())
        self._serial = 0
        self._channels: dict[str, SimulatedChannel] = {}

    async def run(self) -> None:
        raise NotImplementedError

    def unique(self) -> str:
        """Metadata that no other commit has."""
        self._serial += 1
        return f"{self.name}.{self._serial}"

    async def ask(self, message: Any, channel_name: str = "main") -> Any:
        """Send a request on a channel, which is opened if needed. ChannelLost when it breaks."""
        channel = self._channels.get(channel_name)
        try:
            if channel is None:
                channel = self._channels[channel_name] = await self.connector.open(self.name)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await channel.ask(message)
        except (ChannelLost, TimeoutError) as error:
            if channel is not None and self._channels.get(channel_name) is channel:
                del self._channels[channel_name]
            raise ChannelLost(str(error)) from None

    async def pause(self, seconds: float = RETRY_S) -> None:
        await asyncio.sleep(self.sim.random.random() * seconds * 2)


class Worker(SimulatedClient):
    """A member with the eager protocol: it stops all work before it rejoins, and when its lease ends."""

    topic = TOPIC
    offer = Protocol("plain", b"")

    def __init__(
        self,
        sim: Sim,
        name: str,
        group_id: str,
        partitions: int,
        *,
        instance_id: str | None = None,
        session_s: float = 10.0,
        rebalance_s: float = 20.0,
        starts: int = 1,
        is_watched: bool = True,
        heartbeat_s: float | None = None,
    ) -> None:
        """``is_watched``: the checker requires that it is the only owner. False if answered generations may be lost.

        ``heartbeat_s``: the interval between heartbeats, by default a fifth of the session. If it is longer than the
        session, commits keep the session in between.
        """
        self.is_watched = is_watched
        self.interval_s = session_s / 5
        self.heartbeat_s = heartbeat_s or self.interval_s
        self.group_id = group_id
        self.partitions = partitions
        self.instance_id = instance_id
        self.session_s = session_s
        self.rebalance_s = rebalance_s
        self.member_id = ""
        self.generation_id = -1
        self.held: frozenset[int] = frozenset()
        self.is_leaving = False
        self._lease_end_s = self._heartbeat_sent_s = 0.0
        self._owner_name = instance_id or f"{name}/{starts}"
        super().__init__(sim, name)

    def leave(self) -> None:
        """Leave the group as soon as possible."""
        self.is_leaving = True

    async def run(self) -> None:
        while not self.is_leaving:
            try:
                await self._run_generation()
            except ChannelLost:
                await self.pause()
        if self.member_id and self.instance_id is None:
            with suppress(ChannelLost):
                await self.ask(LeaveGroup(self.group_id, (LeavingMember(self.member_id, None),)))

    async def _run_generation(self) -> None:
        joined = await self._join()
        if joined is None:
            return
        synced = await self.ask(self._sync(joined))
        if synced.error is not ErrorCode.NONE:
            await self._refused(synced.error)
            return
        self.generation_id = joined.generation_id
        sent_s = self.sim.now_s
        error = await self.ask(self._heartbeat(), "beat")
        if error is not ErrorCode.NONE:
            await self._refused(error)
            return
        self._heartbeat_sent_s = sent_s
        self._renew(sent_s)  # joins and syncs that are answered at once do not renew the session
        await self._work_until_lease_ends(self._decode(synced.assignment))

    async def _join(self) -> Joined | None:
        answer: Joined = await self.ask(
            JoinGroup(
                self.group_id,
                self.member_id,
                self.instance_id,
                self.name,
                HOST,
                int(self.session_s * 1000),
                int(self.rebalance_s * 1000),
                "consumer",
                (self.offer,),
                needs_member_id=self.instance_id is None,
                can_skip_assignment=False,
            )
        )
        if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error is ErrorCode.NONE:
            return answer
        await self._refused(answer.error)
        return None

    async def _refused(self, error: ErrorCode) -> None:
        if error in MEMBER_LOST_ERRORS:
            self.member_id = ""
        if error is not ErrorCode.MEMBER_ID_REQUIRED:
            await self.pause()

    def _sync(self, joined: Joined) -> SyncGroup:
        """Make the SyncGroup; the leader's distributes the partitions."""
        partitions_by_member: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        names = sorted(partitions_by_member)
        for partition in range(self.partitions if names else 0):
            partitions_by_member[names[partition % len(names)]].append(partition)
        assignments = tuple(
            (name, self._encode(member_partitions)) for name, member_partitions in partitions_by_member.items()
        )
        ids = self.group_id, joined.member_id, self.instance_id, joined.generation_id
        return SyncGroup(*ids, "consumer", self.offer.name, assignments if joined.leader == joined.member_id else ())

    def _encode(self, partitions: list[int]) -> bytes:
        return json.dumps(partitions).encode()

    def _decode(self, assignment: bytes) -> list[int]:
        partitions: list[int] = json.loads(assignment or b"[]")
        return partitions

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self.group_id, self.member_id, self.instance_id, self.generation_id)

    def _renew(self, sent_s: float) -> None:
        """Only a heartbeat tells that no rebalance is in progress."""
        ends_s = min(sent_s + self.session_s, self._heartbeat_sent_s + self.rebalance_s)
        self._lease_end_s = sent_s + (ends_s - sent_s) * LEASE_FRACTION

    async def _work_until_lease_ends(self, partitions: Iterable[int]) -> None:
        self.held = frozenset(partitions)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._work(partition)) for partition in self.held]
                await self._send_heartbeats()
                for task in tasks:
                    task.cancel()
        finally:
            self.held = frozenset()

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until one is not answered with NONE, or the lease ends."""
        while not self.is_leaving:
            sent_s = self.sim.now_s
            try:
                async with asyncio.timeout(max(self._lease_end_s - sent_s, 0)):
                    error = await self._keep_session(sent_s)
                    if error is ErrorCode.NONE:
                        self._renew(sent_s)
                        await asyncio.sleep(self.interval_s)
                    elif error in RETRIABLE_ERRORS:
                        await self.pause()
                    else:
                        await self._refused(error)
                        return
            except ChannelLost:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(self._lease_end_s - self.sim.now_s, 0)):
                        await self.pause()
            except TimeoutError:
                pass
            if self.sim.now_s >= self._lease_end_s:
                return

    async def _keep_session(self, sent_s: float) -> ErrorCode:
        is_due = sent_s >= self._heartbeat_sent_s + self.heartbeat_s
        if is_due or self.heartbeat_s == self.interval_s:
            error: ErrorCode = await self.ask(self._heartbeat(), "beat")
            if error is ErrorCode.NONE:
                self._heartbeat_sent_s = sent_s
            return error
        [error] = (await self.ask(self._commit(COMMITS_ONLY, 0), "beat")).errors
        return error

    async def _work(self, partition: int) -> None:
        resource, token = (self.group_id, self.topic, partition), self._token()
        with self.sim.works_on(resource, self._owner_name, token) if self.is_watched else nullcontext():
            next_offset = await self._next_offset(partition)
            while True:
                await self.pause(2.0)
                next_offset += 1
                with suppress(ChannelLost):
                    await self.ask(self._commit(partition, next_offset), "beat")

    def _token(self) -> int:
        return self.generation_id

    async def _next_offset(self, partition: int) -> int:
        while True:
            try:
                fetched = await self.ask(OffsetFetch(self.group_id, ((self.topic, (partition,)),), True), "beat")
            except ChannelLost:
                await self.pause()
                continue
            for _, partitions in fetched.topics if not fetched.error else ():
                if not partitions[0].error:
                    return max(int(partitions[0].offset), 0)
            await self.pause()

    def _commit(self, partition: int, next_offset: int) -> OffsetCommit:
        ids = self.group_id, self.member_id, self.instance_id, self.generation_id
        return OffsetCommit(*ids, (Commit(self.topic, partition, next_offset, -1, self.unique()),))


class Committer(SimulatedClient):
    """Commits and fetches for a group without members; sometimes sends a commit twice."""

    def __init__(
        self,
        sim: Sim,
        name: str,
        group_id: str,
        partitions: int = 2,
        repeats: float = 0.1,
        stable: float = 0.5,
        pause_s: float = 0.5,
        rests: float = 0,
    ) -> None:
        """``stable``: the fraction of fetches that wait for transactions; 1 if there are producers.

        ``pause_s``: the average pause; a fraction of ``rests`` lasts until the group is passivated.
        """
        self.pause_s = pause_s
        self.rests = rests
        self.group_id = group_id
        self.partitions = partitions
        self.stable = stable
        self.repeats = repeats
        super().__init__(sim, name)

    async def run(self) -> None:
        draw = self.sim.random
        while True:
            await self.pause(LONG_PAUSE_S if draw.random() < self.rests else self.pause_s)
            partitions = sorted(draw.sample(range(self.partitions), draw.randint(1, self.partitions)))
            try:
                if draw.random() < 0.4:
                    await self.ask(
                        OffsetFetch(self.group_id, ((TOPIC, tuple(partitions)),), draw.random() < self.stable)
                    )
                else:
                    await self._commit(partitions)
            except ChannelLost:
                await self.pause()

    async def _commit(self, partitions: list[int]) -> None:
        commits = tuple(
            Commit(TOPIC, partition, self.sim.random.randrange(1000), -1, self.unique()) for partition in partitions
        )
        message = OffsetCommit(self.group_id, "", None, -1, commits)
        repeats = self.sim.random.random() < self.repeats
        await asyncio.gather(
            *(self.ask(message, channel_name) for channel_name in (("main", "other") if repeats else ("main",)))
        )


class Deleter(SimulatedClient):
    """Deletes offsets and whole groups."""

    def __init__(self, sim: Sim, name: str, group_id: str, partitions: int = 2) -> None:
        self.group_id = group_id
        self.partitions = partitions
        super().__init__(sim, name)

    async def run(self) -> None:
        while True:
            await self.pause(2.0)
            partition = self.sim.random.randrange(self.partitions)
            delete = OffsetDelete(self.group_id, ((TOPIC, (partition,)),))
            with suppress(ChannelLost):
                await self.ask(DeleteGroup(self.group_id) if self.sim.random.random() < 0.3 else delete)


class Producer(SimulatedClient):
    """Commits offsets in transactions, which it commits, aborts or leaves open."""

    def __init__(self, sim: Sim, name: str, groups: tuple[str, ...], partitions: int = 2) -> None:
        self.groups = groups
        self.partitions = partitions
        self.transactional_id = name
        super().__init__(sim, name)

    async def run(self) -> None:
        while True:
            try:
                await self._begin()
            except ChannelLost:
                await self.pause()

    async def _begin(self) -> None:
        response = await self.ask(InitProducerId(self.transactional_id, self.sim.random.choice((3000, 10_000))))
        if response.error:
            await self.pause()
            return
        producer = response.producer_id, response.producer_epoch
        while await self._transaction(producer) and self.sim.random.random() < 0.8:
            await self.pause()

    async def _transaction(self, producer: tuple[int, int]) -> bool:
        """Run a transaction. Returns whether the producer may continue."""
        for group_id in self.groups:
            if not await self._is_accepted(AddOffsets(self.transactional_id, *producer, group_id)):
                return False
            offset = self.sim.random.randrange(1000)
            commits = tuple(Commit(TOPIC, partition, offset, -1, self.unique()) for partition in range(self.partitions))
            answer = await self.ask(TxnOffsetCommit(group_id, self.transactional_id, *producer, "", None, -1, commits))
            if any(answer.errors):
                return False
        if self.sim.random.random() < 0.1:
            await self.pause(5.0)
        is_committed = self.sim.random.random() < 0.7
        return await self._is_accepted(EndTransaction(self.transactional_id, *producer, is_committed))

    async def _is_accepted(self, message: Any) -> bool:
        """Repeat the request until the previous transaction is completed."""
        while True:
            answer = await self.ask(message)
            error = getattr(answer, "error", answer)
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return error is ErrorCode.NONE
            await self.pause()


class InvalidClient(SimulatedClient, Listener):
    """Repeats requests of other clients, where that is harmless, and sends invalid requests."""

    def __init__(self, sim: Sim, name: str, group_id: str) -> None:
        self.group_id = group_id
        self._observed_requests: list[Any] = []
        sim.history.listeners.append(self)
        super().__init__(sim, name)

    def arrived(self, exchange: Exchange) -> None:
        message = exchange.message
        if exchange.client != self.name and isinstance(message, Heartbeat | OffsetCommit):
            self._observed_requests.append(message)

    async def run(self) -> None:
        while True:
            await self.pause(1.5)
            with suppress(ChannelLost):
                await self.ask(self._draw_request(), self.sim.random.choice(("main", "other")))

    def _draw_request(self) -> Any:
        draw = self.sim.random
        invalid_requests: list[Any] = [
            Heartbeat(self.group_id, "nobody", None, draw.randint(-1, 9)),
            LeaveGroup(self.group_id, (LeavingMember("nobody", None), LeavingMember("", "no such instance"))),
            SyncGroup(self.group_id, "nobody", None, draw.randint(-1, 9), None, None, (("nobody", b"[0]"),)),
            OffsetCommit(self.group_id, "nobody", None, draw.randint(0, 9), (Commit(TOPIC, 0, 5, -1, self.unique()),)),
            OffsetFetch("", None),
        ]
        return draw.choice(
            self._observed_requests[-50:] if self._observed_requests and draw.random() < 0.7 else invalid_requests
        )
