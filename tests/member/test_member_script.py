"""A member with a scripted coordinator: every error of every request, and missing answers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from member_helpers import (
    MEMBER_ID,
    ScriptedConnector,
    in_virtual_time,
    member_on_loop_time,
    next_assignment_of,
    unanswered,
    wait_until,
)

from callboard.actors.assignors.consumer_protocol import MemberAssignment, write_assignment
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import (
    Fetched,
    FetchedOffset,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    Synced,
    SyncGroup,
)
from callboard.runtime.member.channel import ChannelLost
from callboard.runtime.member.errors import CommitRefused, Fenced, MemberError, ShardLost
from callboard.runtime.member.member import Member
from callboard.runtime.member.reactions import Reaction, RequestKind, reaction_to
from callboard.runtime.member.shards import Shard

ERRORS = [error for error in ErrorCode if error is not ErrorCode.NONE]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.name)
ASSIGNORS = ("range", "cooperative-sticky")
each_assignor = pytest.mark.parametrize("assignor", ASSIGNORS)


def make_member(connector: ScriptedConnector, **options: Any) -> Member:
    return member_on_loop_time(connector, random=Random(1), **{"resources": {"jobs": 2}, **options})


# No errors -----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_member_joins_leads_syncs_fetches_offsets_and_leaves() -> None:
    connector = ScriptedConnector()
    connector.next_offset = 7
    async with make_member(connector) as member:
        assignment = await next_assignment_of(member, 2)
        assert [(shard.resource, shard.name, shard.next_offset) for shard in assignment.shards] == [
            ("jobs", 0, 7),
            ("jobs", 1, 7),
        ]
        assert assignment.generation == assignment.shards[0].token == member.generation == 2
        assert member.is_leader and member.member_id == MEMBER_ID
        assert (await assignment.commit(assignment.shard("jobs", 1), 8, "half")).durability == "synced"
        assert connector.topics == {"jobs": 2}
    kinds = [type(request) for request in connector.requests]
    assert kinds == [JoinGroup, JoinGroup, Heartbeat, SyncGroup, OffsetFetch, OffsetCommit, LeaveGroup]
    assert connector.last_request(OffsetFetch).require_stable  # waits for open transactions
    assert assignment.is_over and assignment.shards[0].is_lost


@in_virtual_time
async def test_heartbeats_without_error_keep_the_assignment() -> None:
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        assignment = await next_assignment_of(member, 2)
        await asyncio.sleep(3600)
        assert not assignment.is_over
        assert connector.count(Heartbeat) == pytest.approx(1800, abs=2)
        assert connector.opened == 2


@in_virtual_time
async def test_commit_updates_next_offset_and_note() -> None:
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        await shard.commit(5, "five")
        assert (shard.next_offset, shard.note) == (5, "five")
        commit = connector.last_request(OffsetCommit)
        assert (commit.member_id, commit.generation_id) == (MEMBER_ID, 2)
        assert commit.commits[0][:3] == ("jobs", 0, 5)
        for bad in (-1, 2**63, True, "5", 1.5):
            wrong: Any = bad
            with pytest.raises(ValueError, match="next_offset"):
                await shard.commit(wrong)
        wrong = 3
        with pytest.raises(ValueError, match="note"):
            await shard.commit(1, wrong)


# Every error of every request ----------------------------------------------------------------------------------------


async def join_outcome(member: Member) -> Reaction:
    """The reaction that the user sees: an assignment, Fenced, or another error."""
    try:
        async with member:
            await next_assignment_of(member, 2)
            return Reaction.CONTINUE
    except Fenced:
        return Reaction.FENCED
    except MemberError as error:
        assert str(error)
        return Reaction.FAIL


def expected_outcome(requests: RequestKind, error: ErrorCode) -> Reaction:
    reaction = reaction_to(requests, error)
    return reaction if reaction in (Reaction.FENCED, Reaction.FAIL) else Reaction.CONTINUE


@each_assignor
@each_error
@in_virtual_time
async def test_error_in_join_group_causes_its_reaction(error: ErrorCode, assignor: str) -> None:
    connector = ScriptedConnector()
    connector.answer_next(JoinGroup, error)
    assert await join_outcome(make_member(connector, assignor=assignor)) is expected_outcome(RequestKind.JOIN, error)


@each_error
@in_virtual_time
async def test_error_in_join_group_with_member_id_causes_its_reaction(error: ErrorCode) -> None:
    connector = ScriptedConnector()
    connector.answer_next(JoinGroup, ErrorCode.MEMBER_ID_REQUIRED, error)
    assert await join_outcome(make_member(connector)) is expected_outcome(RequestKind.JOIN, error)
    third = [request for request in connector.requests if type(request) is JoinGroup][2:3]
    if error is ErrorCode.UNKNOWN_MEMBER_ID:
        assert third[0].member_id == ""


@each_assignor
@each_error
@in_virtual_time
async def test_error_in_sync_group_causes_its_reaction(error: ErrorCode, assignor: str) -> None:
    connector = ScriptedConnector()
    connector.answer_next(SyncGroup, error)
    assert await join_outcome(make_member(connector, assignor=assignor)) is expected_outcome(RequestKind.SYNC, error)


@each_error
@in_virtual_time
async def test_error_in_offset_fetch(error: ErrorCode) -> None:
    """An error of the whole answer, or of one partition."""
    for answer in (error, Fetched(ErrorCode.NONE, (("jobs", (FetchedOffset(1, -1, -1, "", error),)),))):
        connector = ScriptedConnector()
        connector.answer_next(OffsetFetch, answer)
        assert await join_outcome(make_member(connector)) is expected_outcome(RequestKind.FETCH, error)


@each_assignor
@each_error
@in_virtual_time
async def test_error_in_heartbeat_causes_its_reaction(error: ErrorCode, assignor: str) -> None:
    """Shards are lost if the member id or generation is unknown; otherwise they are revoked or kept."""
    connector = ScriptedConnector()
    async with make_member(connector, assignor=assignor) as member:
        assignment = await next_assignment_of(member, 2)
        connector.answer_next(Heartbeat, error)
        reaction = reaction_to(RequestKind.HEARTBEAT, error)
        heartbeats = connector.count(Heartbeat)
        await wait_until(lambda: connector.count(Heartbeat) > heartbeats)
        await asyncio.sleep(1)
        if reaction in (Reaction.FENCED, Reaction.FAIL):
            assert assignment.shards[0].is_lost
            with pytest.raises(Fenced if reaction is Reaction.FENCED else MemberError):
                await member.next_assignment()
        else:
            keeps_shards = reaction in (Reaction.RETRY, Reaction.RECONNECT) or (
                reaction is Reaction.REJOIN and assignor != "range"
            )
            assert assignment.is_over != keeps_shards
            assert sum(not shard.is_revoked for shard in member.shards) == 2
            assert connector.count(JoinGroup) == {Reaction.JOIN_AS_NEW: 4}.get(
                reaction, 2 if reaction in (Reaction.RETRY, Reaction.RECONNECT) else 3
            )


@each_error
@in_virtual_time
async def test_error_in_offset_commit_causes_its_reaction(error: ErrorCode) -> None:
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        connector.answer_next(OffsetCommit, error)
        reaction = reaction_to(RequestKind.COMMIT, error)
        if reaction is Reaction.FAIL:
            with pytest.raises(CommitRefused, match=error.name):
                await shard.commit(1)
            await shard.commit(2)
        elif reaction in (Reaction.LOSE_SHARDS, Reaction.JOIN_AS_NEW, Reaction.FENCED):
            with pytest.raises(ShardLost):
                await shard.commit(1)
            assert shard.is_lost
        else:
            await shard.commit(1)
            assert connector.count(OffsetCommit) >= 2


@each_error
@in_virtual_time
async def test_error_in_leave_group_is_ignored(error: ErrorCode) -> None:
    connector = ScriptedConnector()
    connector.answer_next(LeaveGroup, error)
    async with make_member(connector) as member:
        await next_assignment_of(member, 2)
    assert connector.count(LeaveGroup) == 1


# Missing answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [JoinGroup, SyncGroup, OffsetFetch], ids=lambda kind: kind.__name__)
@in_virtual_time
async def test_lost_channel_is_reopened(kind: type) -> None:
    connector = ScriptedConnector()
    connector.answer_next(kind, ChannelLost("gone"), ChannelLost("gone"), ChannelLost("gone"))
    async with make_member(connector) as member:
        await next_assignment_of(member, 2)
    assert connector.opened >= 4


@in_virtual_time
async def test_commit_on_a_lost_channel_is_retried() -> None:
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        connector.answer_next(OffsetCommit, ChannelLost("gone"), ChannelLost("gone"))
        await shard.commit(1)
        assert connector.count(OffsetCommit) == 3


@pytest.mark.parametrize("kind", [JoinGroup, SyncGroup], ids=lambda kind: kind.__name__)
@in_virtual_time
async def test_unanswered_join_or_sync_is_retried(kind: type) -> None:
    """After the rebalance timeout and a grace period of 5 s."""
    connector = ScriptedConnector()
    connector.answer_next(kind, unanswered())
    async with make_member(connector, rebalance_timeout_ms=30_000) as member:
        await next_assignment_of(member, 2)
    assert 35 <= connector.request_times_s[-1] - connector.request_times_s[0] < 37


@in_virtual_time
async def test_answer_to_a_former_member_id_is_ignored() -> None:
    """A heartbeat of one generation is answered when the member is in the next."""
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        await next_assignment_of(member, 2)
        late = unanswered()
        connector.answer_next(Heartbeat, late)
        heartbeats = connector.count(Heartbeat)
        await wait_until(lambda: connector.count(Heartbeat) > heartbeats)
        connector.answer_next(OffsetCommit, ErrorCode.REBALANCE_IN_PROGRESS)
        await member.shards[0].commit(1)
        await wait_until(lambda: member.generation == 3)
        late.set_result(ErrorCode.UNKNOWN_MEMBER_ID)
        await asyncio.sleep(5)
        assert (member.generation, len(member.shards)) == (3, 2)


@in_virtual_time
async def test_leave_during_a_pending_join_uses_the_other_channel() -> None:
    """On the join channel it would wait for the end of the rebalance."""
    connector = ScriptedConnector()
    connector.answer_next(JoinGroup, ErrorCode.MEMBER_ID_REQUIRED, unanswered())
    async with make_member(connector):
        await wait_until(lambda: connector.count(JoinGroup) == 2)
    assert connector.last_request(LeaveGroup).members[0].member_id == MEMBER_ID
    assert connector.request_times_s[-1] - connector.request_times_s[0] < 1
    assert connector.request_channels[-1] is not connector.request_channels[0]


@in_virtual_time
async def test_unanswered_leave_group_times_out() -> None:
    connector = ScriptedConnector()
    connector.answer_next(LeaveGroup, unanswered())
    async with make_member(connector) as member:
        await next_assignment_of(member, 2)
    assert connector.count(LeaveGroup) == 1


@pytest.mark.parametrize("error", [ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL])
@in_virtual_time
async def test_refused_join_raises_with_advice(error: ErrorCode) -> None:
    connector = ScriptedConnector()
    connector.answer_next(JoinGroup, error)
    with pytest.raises(MemberError, match=error.name + ": ") as raised:
        async with make_member(connector) as member:
            await member.next_assignment()
    assert raised.value.code is error


# The lease -----------------------------------------------------------------------------------------------------------


@each_assignor
@in_virtual_time
async def test_shards_are_lost_one_margin_before_the_session_ends(assignor: str) -> None:
    """The session counts from the sending of the last answered heartbeat."""
    connector = ScriptedConnector()
    loop = asyncio.get_running_loop()
    async with make_member(connector, assignor=assignor) as member:
        assignment = await next_assignment_of(member, 2)
        shard = assignment.shards[0]
        await asyncio.sleep(20)
        last_s = max(
            time
            for time, one in zip(connector.request_times_s, connector.requests, strict=True)
            if type(one) is Heartbeat
        )
        connector.answer_next(Heartbeat, *(unanswered() for _ in range(50)))
        await shard.lost.wait()
        assert loop.time() == pytest.approx(last_s + 8, abs=0.01)
        assert assignment.is_over
        with pytest.raises(ShardLost):
            await shard.commit(1)


@in_virtual_time
async def test_lease_counts_from_the_sending_of_a_slow_heartbeat() -> None:
    """The coordinator may have received it at once."""
    connector = ScriptedConnector()
    loop = asyncio.get_running_loop()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        heartbeats, slow = connector.count(Heartbeat), unanswered()
        connector.answer_next(Heartbeat, slow, *(unanswered() for _ in range(50)))
        await wait_until(lambda: connector.count(Heartbeat) > heartbeats)
        sent_s = loop.time()
        await asyncio.sleep(2)
        assert not shard.is_lost
        slow.set_result(ErrorCode.NONE)
        await shard.lost.wait()
        assert loop.time() == pytest.approx(sent_s + 8, abs=0.05)


@in_virtual_time
async def test_lease_counts_from_the_sending_of_a_slow_join() -> None:
    """The coordinator may have handled it at once, and its session timer runs since then."""
    connector = ScriptedConnector()
    loop = asyncio.get_running_loop()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        slow = unanswered()
        connector.answer_next(Heartbeat, ErrorCode.REBALANCE_IN_PROGRESS, *(unanswered() for _ in range(50)))
        connector.answer_next(JoinGroup, slow)
        connector.answer_next(SyncGroup, *(unanswered() for _ in range(50)))
        joins = connector.count(JoinGroup)
        await wait_until(lambda: connector.count(JoinGroup) > joins)
        sent_s = loop.time()
        await asyncio.sleep(4)
        join = connector.last_request(JoinGroup)
        slow.set_result(Joined(ErrorCode.NONE, join.member_id, 3, "consumer", join.protocols[0].name, "somebody"))
        await shard.lost.wait()
        assert loop.time() == pytest.approx(sent_s + 8, abs=0.05)


@in_virtual_time
async def test_cooperative_member_loses_kept_shards_if_its_join_waits_longer_than_the_lease() -> None:
    """A member that has not rejoined by the rebalance timeout is removed."""
    connector = ScriptedConnector()
    loop = asyncio.get_running_loop()
    async with make_member(connector, rebalance_timeout_ms=30_000) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        connector.answer_next(Heartbeat, *[ErrorCode.REBALANCE_IN_PROGRESS] * 100)
        connector.answer_next(JoinGroup, unanswered())
        joins = connector.count(JoinGroup)
        await wait_until(lambda: connector.count(JoinGroup) > joins)
        begun_s = loop.time()
        assert not shard.is_revoked
        await shard.lost.wait()
        assert 25 < loop.time() - begun_s <= 28


@in_virtual_time
async def test_unanswered_commit_raises_shard_lost_at_the_end_of_the_lease() -> None:
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        shard = (await next_assignment_of(member, 2)).shards[0]
        connector.answer_next(OffsetCommit, *(unanswered() for _ in range(9)))
        connector.answer_next(Heartbeat, *(unanswered() for _ in range(9)))
        with pytest.raises(ShardLost, match="lost"):
            await shard.commit(1)


@in_virtual_time
async def test_member_rejoins_after_its_lease_and_gets_shards_again() -> None:
    connector = ScriptedConnector()
    async with make_member(connector) as member:
        assignment = await next_assignment_of(member, 2)
        connector.answer_next(Heartbeat, *(unanswered() for _ in range(3)))
        await assignment.shards[0].lost.wait()
        again = await next_assignment_of(member, 2)
        assert again.acquired == again.shards
        assert again.shards[0].token > assignment.shards[0].token


# Other members ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_join_answered_to_a_former_member_id_is_repeated() -> None:
    connector = ScriptedConnector()
    async with make_member(connector, assignor="range") as member:
        await next_assignment_of(member, 2)
        pending_sync = unanswered()
        connector.answer_next(JoinGroup, pending_sync)
        connector.answer_next(Heartbeat, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
        joins = connector.count(JoinGroup)
        await wait_until(lambda: connector.count(JoinGroup) > joins + 1)
        await next_assignment_of(member, 2)
        assert [one.member_id for one in connector.requests if type(one) is JoinGroup][-2:] == ["", MEMBER_ID]


@in_virtual_time
async def test_shard_lost_in_a_handler_is_not_an_error() -> None:
    connector = ScriptedConnector()
    started: list[Shard] = []

    async def handler(shard: Shard) -> None:
        started.append(shard)
        while True:
            await shard.commit(1)
            await asyncio.sleep(0.3)

    async with make_member(connector) as member:
        running = asyncio.ensure_future(member.run(handler))
        await wait_until(lambda: len(started) == 2)
        connector.answer_next(OffsetCommit, ErrorCode.UNKNOWN_MEMBER_ID)
        await wait_until(lambda: len(started) == 4)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@in_virtual_time
async def test_returning_static_leader_skips_the_assignment() -> None:
    """KIP-814: the coordinator tells it to skip the assignment and sends its old one."""
    connector = ScriptedConnector()
    async with make_member(connector, instance_id="one") as member:
        await next_assignment_of(member, 2)
        sync = connector.last_request(SyncGroup)
    assert connector.count(LeaveGroup) == 0
    again = ScriptedConnector()
    again.answer_next(
        JoinGroup, Joined(ErrorCode.NONE, MEMBER_ID, 2, "consumer", "cooperative-sticky", MEMBER_ID, (), True)
    )
    pending_sync = unanswered()
    again.answer_next(SyncGroup, pending_sync)
    async with make_member(again, instance_id="one"):
        await wait_until(lambda: again.count(SyncGroup) == 1)
        assert sync.assignments and again.last_request(SyncGroup).assignments == ()


@in_virtual_time
async def test_name_removed_while_shards_are_revoked_is_given_back_in_the_next_rebalance() -> None:
    """The assignment that has it is still being applied, and does not look its name up again."""
    names = ["acme"]
    connector = ScriptedConnector()
    async with make_member(connector, resources={"tenants": lambda: names}, refresh_interval_ms=500) as member:
        assignment = await next_assignment_of(member, 1)

        async def end_slowly() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(3)

        assignment.create_task(end_slowly(), assignment.shards[0])
        await asyncio.sleep(0)
        only_zenith = write_assignment(MemberAssignment((("tenants.zenith", 0),)))
        connector.answer_next(SyncGroup, Synced(ErrorCode.NONE, "consumer", "", only_zenith))
        names.append("zenith")
        await assignment.shards[0].revoked.wait()
        names.remove("zenith")
        await wait_until(lambda: [shard.name for shard in member.shards if not shard.is_revoked] == ["acme"])
