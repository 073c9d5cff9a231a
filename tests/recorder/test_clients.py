"""Who a member is besides its names: noted when it joins, and bounded."""

from __future__ import annotations

import pytest
from recorder.samples import BILLING, NOON_MS, PAYMENTS, now, record

from callboard.actors.recorder import clients as module
from callboard.actors.recorder.clients import MemberClient, MemberClients
from callboard.actors.recorder.now import Refused, RefusedJoin
from callboard.actors.recorder.record import AbsentMember, FurtherCause, LateMember, MemberChanges, MemberCount

ANN = MemberClient("User:ann", "librdkafka 2.16.0")


def noted(*member_ids: str) -> MemberClients:
    clients = MemberClients()
    for member_id in member_ids:
        clients.note("orders", member_id, ANN)
    return clients


def test_each_member_that_a_record_names_is_completed() -> None:
    changes = MemberChanges(
        MemberCount(1, (BILLING,)),
        MemberCount(2, (PAYMENTS,)),
        late=(LateMember(BILLING, 5),),
        absent=(AbsentMember(BILLING, "kept"),),
    )
    full = record(
        also=(FurtherCause(NOON_MS, "new_member", BILLING), FurtherCause(NOON_MS, "x", None)), members=changes
    )
    completed = noted(BILLING.member_id).complete("orders", full)
    known = BILLING._replace(principal="User:ann", software="librdkafka 2.16.0")
    assert completed == full._replace(
        why=full.why._replace(by=known, also=(FurtherCause(NOON_MS, "new_member", known), full.why.also[1])),
        members=changes._replace(
            joined=MemberCount(1, (known,)), late=(LateMember(known, 5),), absent=(AbsentMember(known, "kept"),)
        ),
    )
    assert noted("another").complete("orders", full) == full
    assert noted(BILLING.member_id).complete("another", full) == full


def test_members_of_the_state_now_are_completed() -> None:
    moment = now(missing=(BILLING,), refused=Refused((RefusedJoin(BILLING, ("range",)),)))
    completed = noted(BILLING.member_id).complete("orders", moment)
    assert [name.principal for name in (*completed.missing, *completed.members)] == ["User:ann", "User:ann", ""]
    assert completed.refused.joins[0].member.software == "librdkafka 2.16.0"


def test_members_that_were_noted_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMBERS_MAX", 2)
    clients = noted("a", "b", "a", "c", "x" * 256)
    names = [
        clients.complete("orders", BILLING._replace(member_id=each)).principal for each in ("a", "b", "c", "x" * 256)
    ]
    assert names == ["User:ann", "", "User:ann", ""]
