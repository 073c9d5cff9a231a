"""The pure parts of a member: reactions to answers, the lease, names as topics, and options."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.assignors.base import MemberState
from callboard.actors.assignors.consumer_protocol import read_assignment, read_subscription
from callboard.actors.assignors.table import find_assignor
from callboard.actors.errors import ErrorCode
from callboard.actors.messages import JoinedMember
from callboard.runtime.member.leader import GroupSubscriptions, make_protocol
from callboard.runtime.member.lease import Lease, LeaseTimeouts
from callboard.runtime.member.options import MemberOptions, make_options
from callboard.runtime.member.reactions import REACTIONS, Reaction, RequestKind, reaction_to
from callboard.runtime.member.resources import (
    ResourceSet,
    check_resources,
    escape,
    pack_names,
    topic_for_name,
    unescape,
    unpack_names,
)
from callboard.runtime.topics.names import check_name, metric_name

TIMEOUTS = LeaseTimeouts(session_s=10, rebalance_s=60, margin_s=2, interval_s=2)
times = st.floats(0, 1000)
names = st.text(min_size=1, max_size=40)
short = st.text(min_size=1, max_size=15)

# Reactions ----------------------------------------------------------------------------------------------------------


def test_reaction_table_covers_every_error_of_each_request() -> None:
    """An error that is not in the table is raised to the user."""
    assert set(REACTIONS) == set(RequestKind)
    for kind in RequestKind:
        assert reaction_to(kind, ErrorCode.NONE) is Reaction.CONTINUE
        assert reaction_to(kind, ErrorCode.CORRUPT_MESSAGE) is Reaction.FAIL
        for error in ErrorCode:
            assert (reaction_to(kind, error) is Reaction.CONTINUE) == (error is ErrorCode.NONE)


@pytest.mark.parametrize("kind", [RequestKind.JOIN, RequestKind.SYNC, RequestKind.HEARTBEAT, RequestKind.COMMIT])
def test_unknown_member_reaction_is_to_lose_all_shards(kind: RequestKind) -> None:
    assert reaction_to(kind, ErrorCode.UNKNOWN_MEMBER_ID) is Reaction.JOIN_AS_NEW
    assert reaction_to(kind, ErrorCode.ILLEGAL_GENERATION) is Reaction.LOSE_SHARDS
    assert reaction_to(kind, ErrorCode.FENCED_INSTANCE_ID) is Reaction.FENCED


# The lease -----------------------------------------------------------------------------------------------------------


def no_clock() -> float:
    raise AssertionError("the rule depends on no clock")


def test_lease_counts_from_the_send_time_of_the_heartbeat() -> None:
    now_s = 110.9
    lease = Lease(TIMEOUTS, lambda: now_s)
    lease.record_stable(100)
    assert lease.deadline_s() == 108
    lease.record_renewal(103)
    assert lease.deadline_s() == 111
    assert not lease.is_session_over()
    now_s = 111
    assert lease.is_session_over()


def test_lease_ends_with_the_rebalance_timeout_despite_heartbeats() -> None:
    """By then the coordinator has formed a generation without this member."""
    lease = Lease(TIMEOUTS, lambda: 158)
    lease.record_stable(100)
    for sent_s in range(102, 160, 2):
        lease.record_renewal(sent_s)
    assert lease.deadline_s() == 158
    assert lease.is_over() and not lease.is_session_over()


def test_join_answer_does_not_renew_the_session() -> None:
    """If it is answered at once, because nothing changed, the coordinator does not renew its timer."""
    lease = Lease(TIMEOUTS, no_clock)
    lease.record_stable(100)
    lease.record_rebalance(107)
    assert lease.deadline_s() == 108
    lease.record_renewal(160)
    assert lease.deadline_s() == 107 + TIMEOUTS.rebalance_s - TIMEOUTS.margin_s


def test_lease_without_any_answer_is_over() -> None:
    assert Lease(TIMEOUTS, no_clock).deadline_s() < -1e300


@given(st.lists(st.tuples(st.booleans(), times), min_size=1))
def test_answer_never_shortens_a_lease(heard: list[tuple[bool, float]]) -> None:
    """Answers may arrive late and in any order. The lease never ends later than the coordinator may reassign."""
    lease, before = Lease(TIMEOUTS, no_clock), float("-inf")
    for is_stable, sent_s in heard:
        (lease.record_stable if is_stable else lease.record_renewal)(sent_s)
        assert lease.deadline_s() >= before
        before = lease.deadline_s()
        latest_s = max(sent for _, sent in heard)
        assert lease.deadline_s() <= latest_s + TIMEOUTS.session_s - TIMEOUTS.margin_s


@given(times, st.integers(0, 2000))
def test_revoke_deadline_is_before_the_lease_end_of_other_members(rebalance_s: float, earlier_ms: int) -> None:
    """Their last heartbeat without a rebalance may be older by one heartbeat interval."""
    own, other = Lease(TIMEOUTS, no_clock), Lease(TIMEOUTS, no_clock)
    own.record_stable(rebalance_s)
    other.record_stable(rebalance_s - earlier_ms / 1000)
    other.record_renewal(rebalance_s + 1000)
    assert own.revoke_deadline_s() <= other.deadline_s() + 1e-9


# Names ---------------------------------------------------------------------------------------------------------------


@given(names)
def test_escaped_name_is_a_valid_topic_name_and_is_reversible(name: str) -> None:
    assert unescape(escape(name)) == name
    topic = topic_for_name("tenants", name)
    if len(topic) <= 249:
        check_name(topic)


@given(names, names)
def test_different_names_have_topics_that_do_not_collide(one: str, other: str) -> None:
    """Kafka treats "." and "_" as equal when it checks for collisions of topics."""
    assert (metric_name(escape(one)) == metric_name(escape(other))) == (one == other)


def test_unescape_of_an_invalid_name_raises_value_error() -> None:
    for text in ("a b", ".2", ".41", "a_b", ".ff"):
        with pytest.raises(ValueError):
            unescape(text)


@given(st.dictionaries(st.from_regex("[A-Za-z0-9-]{1,9}", fullmatch=True), st.sets(short).map(sorted).map(tuple)))
def test_packed_names_precede_the_assignors_user_data(each: dict[str, tuple[str, ...]]) -> None:
    packed = pack_names(each, b"theirs")
    assert unpack_names(packed) == (each, b"theirs")


@pytest.mark.parametrize(
    "packed",
    [
        b"cbnm\0\0\0\0\0\4none",
        b"cbnm\0\0\0\0\0\0" + zlib.compress(b"{}"),
        *(
            b"cbnm\0\0" + len(zlib.compress(text)).to_bytes(4, "big") + zlib.compress(text)
            for text in (
                b"[]",
                b"[" * 100_000,
                b"nonsense",
                b'{"a": 3}',
                b'{"a_b": ["x"]}',
                json.dumps({"a": ["x" * 300]}).encode(),
            )
        ),
    ],
)
def test_invalid_packed_names_are_decoded_as_none(packed: bytes) -> None:
    assert unpack_names(packed)[0] == {}


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({}, "at least one entry"),
        ({"jobs": -1}, "expected 0 to"),
        ({"jobs": True}, "expected 0 to"),
        ({"jobs": 2.5}, "expected a number of partitions"),
        ({"jobs": "acme"}, "a list of names"),
        ({"my jobs": 3}, "a topic's name"),
        ({"my_tenants": ["a"]}, "call it 'my-tenants'"),
        ({"tenants": [""]}, "not empty"),
        ({"tenants": [7]}, "a string"),
        ({"tenants": ["ä" * 50]}, "most 249"),
    ],
)
def test_invalid_resources_raise_value_error_with_advice(resources: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_resources(resources)


# Subscriptions and assignments ---------------------------------------------------------------------------------------


def test_subscription_without_names_equals_kafkas() -> None:
    range_ = find_assignor("range")
    protocol = make_protocol(
        range_, ResourceSet({"jobs": 3}, {}), MemberState(frozenset({"jobs"})), has_names=False, owns_partitions=False
    )
    assert protocol.name == "range"
    said = read_subscription(protocol.metadata)
    assert said is not None and said.topics == ("jobs",) and said.user_data is None


def test_name_is_assigned_only_to_members_that_list_it() -> None:
    sticky = find_assignor("cooperative-sticky")
    lists = {"a": ("acme", "both"), "b": ("both", "zenith")}
    joined = [
        JoinedMember(
            name,
            None,
            make_protocol(sticky, ResourceSet({}, {"tenants": some}), MemberState(frozenset()), True, True).metadata,
        )
        for name, some in lists.items()
    ]
    given_ = dict(GroupSubscriptions(joined).assign(sticky, {}))
    topics = {name: {topic for topic, _ in _partitions(data)} for name, data in given_.items()}
    assert topics["a"] | topics["b"] == {"tenants.acme", "tenants.both", "tenants.zenith"}
    assert "tenants.acme" in topics["a"] and "tenants.zenith" in topics["b"]


def test_member_with_an_unreadable_subscription_gets_nothing_and_others_all() -> None:
    sticky = find_assignor("cooperative-sticky")
    good = make_protocol(sticky, ResourceSet({"jobs": 2}, {}), MemberState(frozenset({"jobs"})), False, True).metadata
    given_ = dict(
        GroupSubscriptions([JoinedMember("good", None, good), JoinedMember("bad", None, b"\xff")]).assign(
            sticky, {"jobs": 2}
        )
    )
    assert _partitions(given_["good"]) == (("jobs", 0), ("jobs", 1))
    assert _partitions(given_["bad"]) == ()


def _partitions(data: bytes) -> tuple[tuple[str, int], ...]:
    assigned = read_assignment(data)
    assert assigned is not None
    return assigned.partitions


# Options -------------------------------------------------------------------------------------------------------------


def test_heartbeat_interval_and_margin_default_to_a_fifth_of_the_session() -> None:
    assert MemberOptions({"jobs": 1}).timeouts() == LeaseTimeouts(
        session_s=10, rebalance_s=60, margin_s=2, interval_s=2
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assignor": "rnage"}, "there is no assignor 'rnage'"),
        ({"assignor": []}, "at least one"),
        ({"weight": 0}, "weight"),
        ({"instance_id": ""}, "instance_id"),
        ({"session_timeout_ms": 0}, "session_timeout_ms=0"),
        ({"session_timeout_ms": 2.5}, "whole number"),
        ({"heartbeat_interval_ms": 10_000}, "less than session_timeout_ms"),
        ({"lease_margin_ms": 8_000}, "before the next heartbeat"),
        ({"lease_margin_ms": -1}, "0 or more"),
        ({"rebalance_timeout_ms": 1_000}, "rebalance_timeout_ms"),
    ],
)
def test_invalid_options_raise_value_error_with_advice(options: Any, message: str) -> None:
    arguments: Any = {"resources": {"jobs": 1}, **options}
    with pytest.raises(ValueError, match=message):
        make_options(arguments)


def test_unknown_option_raises_type_error_with_the_nearest_name() -> None:
    wrong: Any = {"resources": {"jobs": 1}, "sesion_timeout_ms": 3}
    with pytest.raises(TypeError, match="did you mean 'session_timeout_ms'"):
        make_options(wrong)
    nothing: Any = {}
    with pytest.raises(TypeError, match="needs resources"):
        make_options(nothing)
