"""Client quotas: which there may be, filters, and which one applies to a client. Texts and order are Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.steps import run_steps
from callboard.runtime.security import quotas
from callboard.runtime.security.quotas import (
    ANY,
    DEFAULT,
    EXACT,
    Component,
    Limit,
    check_change,
    check_filter,
    entity_text,
    matches,
    plain_ip,
)

RATE = "request_percentage"


def changed(section: dict[str, Any], changes: list[Any]) -> dict[str, Any]:
    return run_steps(quotas.changed(section, changes))


def table_of(section: dict[str, Any], key: str) -> quotas.QuotaTable:
    [table] = run_steps(quotas.tables_of(section, [key]))
    return table


INVALID: list[tuple[dict[str, str | None], list[tuple[str, float | None]], str]] = [
    ({}, [], "Invalid empty client quota entity"),
    ({"host": "a"}, [], "Unhandled client quota entity type: host"),
    ({"user": ""}, [], "Empty user not supported"),
    ({"user": "u" * 1001}, [], "the user has 1001 characters: expected at most 1000"),
    ({"ip": "127.0.0.1", "user": "a"}, [], "Invalid quota entity combination, IP entity shouldnot be combined with"),
    ({"ip": "no.such.host"}, [], "no.such.host is not a valid IP or resolvable host."),
    ({"user": "a"}, [("connection_creation_rate", 1.0)], "Invalid configuration key connection_creation_rate"),
    ({"ip": "127.0.0.1"}, [(RATE, 1.0)], "Invalid configuration key request_percentage"),
    ({"user": "a"}, [("nothing", 1.0)], "Invalid configuration key nothing"),
    ({"user": "a"}, [(RATE, 0.0)], "Quota request_percentage must be greater than 0"),
    ({"user": "a"}, [(RATE, float("nan"))], "Quota request_percentage must be greater than 0"),
    ({"user": "a"}, [(RATE, float("inf"))], "Proposed value for request_percentage is too large."),
    ({"user": "a"}, [("producer_byte_rate", 1.5)], "producer_byte_rate cannot be a fractional value."),
    ({"user": "a"}, [("producer_byte_rate", 1e19)], "Proposed value for producer_byte_rate is too large for a LONG."),
    ({"ip": None}, [("connection_creation_rate", 2.0**31)], "connection_creation_rate is too large for an INT."),
    ({"user": "a"}, [(RATE, 1.0), (RATE, None)], "a quota occurs twice in the request"),
]


@pytest.mark.parametrize(("entity", "operations", "text"), INVALID)
def test_invalid_changes_are_refused(entity: Any, operations: Any, text: str) -> None:
    with pytest.raises(CoordinatorError) as raised:
        check_change(entity, operations)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert text in str(raised.value)


def test_changes_are_merged_and_an_entity_without_quotas_goes() -> None:
    section = changed({}, [({"user": "a", "client-id": None}, [(RATE, 5.0), ("producer_byte_rate", 7.0)])])
    assert section == {'{"client-id": null, "user": "a"}': {RATE: 5.0, "producer_byte_rate": 7.0}}
    section = changed(section, [({"client-id": None, "user": "a"}, [(RATE, None), ("consumer_byte_rate", 1.0)])])
    assert section == {'{"client-id": null, "user": "a"}': {"producer_byte_rate": 7.0, "consumer_byte_rate": 1.0}}
    removals: list[Any] = [("producer_byte_rate", None), ("consumer_byte_rate", None)]
    assert changed(section, [({"client-id": None, "user": "a"}, removals)]) == {}


def test_address_is_one_entity_however_it_is_written() -> None:
    rate: list[Any] = [("connection_creation_rate", 5.0)]
    section = changed({}, [({"ip": "::FFFF:10.0.0.1"}, rate), ({"ip": "10.0.0.1"}, rate)])
    assert list(section) == ['{"ip": "10.0.0.1"}']
    assert table_of(section, "connection_creation_rate").of_ip("10.0.0.1") == Limit(5.0, ("10.0.0.1", None))
    assert matches({"ip": "10.0.0.1"}, [Component("ip", EXACT, "::ffff:10.0.0.1")], is_strict=True)
    section = changed({}, [({"ip": "fe80::1%eth0"}, rate)])
    assert table_of(section, "connection_creation_rate").of_ip(plain_ip("fe80:0:0:0:0:0:0:1") or "") is not None
    assert plain_ip("10.0.0.1%eth0") is None


def test_number_of_entities_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "ENTITIES_MAX", 1)
    section = changed({}, [({"user": "a"}, [(RATE, 5.0)])])
    with pytest.raises(CoordinatorError, match="1 entities have quotas, which is the limit"):
        changed(section, [({"user": "b"}, [(RATE, 5.0)])])
    assert changed(section, [({"user": "a"}, [(RATE, 6.0)])]) != section


@pytest.mark.parametrize(
    ("components", "code", "text"),
    [
        ([("", ANY, None)], 42, "Invalid empty entity type."),
        (
            [("user", ANY, None), ("user", EXACT, "a")],
            42,
            "Entity type user cannot appear more than once in",
        ),
        ([("host", ANY, None)], 35, "Unsupported entity type host"),
        ([("user", EXACT, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "a")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", ANY, "a")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], 42, "Unknown match type 3"),
        ([("ip", ANY, None), ("user", ANY, None)], 42, "IP filter component should not be used with user or clientId"),
    ],
)
def test_invalid_filters_are_refused(components: list[Any], code: int, text: str) -> None:
    with pytest.raises(CoordinatorError) as raised:
        check_filter([Component(*component) for component in components])
    assert (int(raised.value.code), text in str(raised.value)) == (code, True)


ENTITIES: list[dict[str, str | None]] = [
    {"user": "a"},
    {"user": None},
    {"client-id": "c"},
    {"client-id": "c", "user": "a"},
    {"client-id": None, "user": "a"},
    {"ip": None},
]


@pytest.mark.parametrize(
    ("components", "is_strict", "expected"),
    [
        ([], False, [0, 1, 2, 3, 4, 5]),
        ([], True, []),
        ([("user", ANY, None)], False, [0, 1, 3, 4]),
        ([("user", ANY, None)], True, [0, 1]),
        ([("user", EXACT, "a")], False, [0, 3, 4]),
        ([("user", DEFAULT, None)], False, [1]),
        ([("user", EXACT, "a"), ("client-id", DEFAULT, None)], True, [4]),
        ([("ip", DEFAULT, None)], True, [5]),
    ],
)
def test_components_of_a_filter_are_all_fulfilled(components: list[Any], is_strict: bool, expected: list[int]) -> None:
    conditions = [Component(*component) for component in components]
    assert [i for i, entity in enumerate(ENTITIES) if matches(entity, conditions, is_strict=is_strict)] == expected


ORDER: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
    ({"user": "a", "client-id": "c"}, ("a", "c")),
    ({"user": "a", "client-id": None}, ("a", "c")),
    ({"user": "a"}, ("a", None)),
    ({"user": None, "client-id": "c"}, ("a", "c")),
    ({"user": None, "client-id": None}, ("a", "c")),
    ({"user": None}, ("a", None)),
    ({"client-id": "c"}, (None, "c")),
    ({"client-id": None}, (None, "c")),
]


def test_most_specific_quota_applies() -> None:
    """Each is looked up when those before it are not there."""
    names = [entity_text(entity) for entity, _ in ORDER]
    for first in range(len(ORDER)):
        section = {names[number]: {RATE: float(number)} for number in range(first, len(ORDER))}
        assert table_of(section, RATE).of_client("a", "c") == Limit(first, ORDER[first][1])
    assert table_of({entity_text({"user": "b"}): {RATE: 1.0}}, RATE).of_client("a", "c") is None
    assert table_of({entity_text({"user": "a"}): {"producer_byte_rate": 1.0}}, RATE).of_client("a", "c") is None
