"""DynamicMember: a member of a workload that joins, sends heartbeats and leaves, and checks each response."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from callboard.actors.errors import ErrorCode
from callboard.actors.messages import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Left,
    LeftMember,
    Protocol,
    Synced,
    SyncGroup,
)
from callboard.bench.concurrency.cell import Request
from callboard.bench.concurrency.clients import JoinResult, Ledger, RunState

PROTOCOL = "range"
SESSION_MS = 1_800_000  # Kafka's maximum; such a session does not expire during a run
REBALANCE_TIMEOUT_MS = 300_000
SUBSCRIPTION = bytes(32)


class DynamicMember:
    """A member that joins and leaves by requests, and records the responses."""

    def __init__(
        self, run_state: RunState, group_id: str, ledger: Ledger, member_id: str = "", generation: int = -1
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.generation = generation
        self._run_state = run_state
        self._ledger = ledger

    def join(self, subscription: bytes = SUBSCRIPTION) -> Generator[Request, Any, bool]:
        """Join a generation and get an assignment. False if another rebalance started meanwhile."""
        request = join_request(self.group_id, self.member_id, subscription)
        joined = yield request
        if joined.error is not ErrorCode.NONE:
            self._ledger.fail_on_response(joined, request)
        member_ids = tuple(member.member_id for member in joined.members)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        self._ledger.told.append(JoinResult(self.group_id, self.generation, self.member_id, joined.leader, member_ids))
        self._ledger.generations[self.group_id] = self.generation
        self._ledger.joined.setdefault(self.group_id, set()).add(self.member_id)
        return (yield from self._sync(member_ids))

    def _sync(self, member_ids: tuple[str, ...]) -> Generator[Request, Any, bool]:
        assignments = tuple((member_id, assignment(member_id, self.generation)) for member_id in member_ids)
        request = SyncGroup(self.group_id, self.member_id, None, self.generation, "consumer", PROTOCOL, assignments)
        synced = yield request
        if synced.error is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        own_groups = assignment(self.member_id, self.generation)
        if synced != Synced(ErrorCode.NONE, "consumer", PROTOCOL, own_groups):
            self._ledger.fail_on_response(synced, request)
        durable = self._run_state.durable
        if durable is not None and durable.generations.get(self.group_id, -1) < self.generation:
            self._ledger.fail_on_response(f"{synced} before its record was written", request)
        return True

    def beat(self) -> Generator[Request, Any, bool]:
        """Send a heartbeat. False if the response was REBALANCE_IN_PROGRESS."""
        request = Heartbeat(self.group_id, self.member_id, None, self.generation)
        sent_ms = self._run_state.clock.monotonic_ms()
        answer = yield request
        if answer not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._ledger.fail_on_response(answer, request)
        self._ledger.heartbeats_ms[self.group_id, self.member_id] = sent_ms
        return answer is not ErrorCode.REBALANCE_IN_PROGRESS

    def beat_of_past_generation(self) -> Generator[Request, Any, None]:
        """Send a heartbeat that must be refused."""
        request = Heartbeat(self.group_id, self.member_id, None, self.generation - 1)
        answer = yield request
        if answer is not ErrorCode.ILLEGAL_GENERATION:
            self._ledger.fail_on_response(answer, request)

    def leave(self) -> Generator[Request, Any, None]:
        request = LeaveGroup(self.group_id, (LeavingMember(self.member_id, None),))
        answer = yield request
        if answer != Left(ErrorCode.NONE, (LeftMember(self.member_id, None, ErrorCode.NONE),)):
            self._ledger.fail_on_response(answer, request)
        self._ledger.joined[self.group_id].discard(self.member_id)
        self.member_id = ""


def join_request(group_id: str, member_id: str, subscription: bytes) -> JoinGroup:
    return JoinGroup(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=None,
        client_id="lab",
        client_host="/127.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        protocol_type="consumer",
        protocols=(Protocol(PROTOCOL, subscription),),
        needs_member_id=False,
        can_skip_assignment=True,
    )


def assignment(member_id: str, generation: int) -> bytes:
    """An assignment that is unique for the member and generation."""
    return f"{generation} {member_id}".encode()
