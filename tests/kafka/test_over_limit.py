"""A client over a limit is named once in the log; every refusal is counted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from callboard.runtime.kafka.connections.client_ids import SHOWN_CHARS_MAX
from callboard.runtime.kafka.connections.framing import NotServed
from callboard.runtime.kafka.connections.over_limit import CLIENTS_MAX, OverLimitReports
from callboard.runtime.kafka.connections.rejection import report_rejection

LIMIT = "socket_request_max_bytes"
REQUEST = "metadata version 4"


@dataclass
class Peer:
    peer: str
    client_id: str
    client_host: str = "/10.0.0.1"


def test_client_is_named_once_per_limit(caplog: pytest.LogCaptureFixture) -> None:
    reports = OverLimitReports()
    for port in range(3):
        reports.report(Peer(f"10.0.0.1:{port}", "loader"), LIMIT, REQUEST, "a frame of 200 bytes")
    reports.report(Peer("10.0.0.1:5", "other"), LIMIT, REQUEST, "a frame of 200 bytes")
    reports.report(Peer("10.0.0.1:6", "loader"), "queued_max_request_bytes", REQUEST, "300 bytes")
    first, *others = [record.getMessage() for record in caplog.records]
    assert first == (
        f"a client is over a limit (logged once) peer='10.0.0.1:0' client_id='loader' request='{REQUEST}'"
        f" limit='{LIMIT}' reason='a frame of 200 bytes'"
    )
    assert len(others) == 2
    assert reports.counts[LIMIT] == 4
    assert reports.counts["queued_max_request_bytes"] == 1


def test_client_id_is_escaped_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    OverLimitReports().report(Peer("10.0.0.1:1", "a\nb"), LIMIT, REQUEST, "a frame")
    assert "client_id='a\\nb'" in caplog.text


def test_number_of_remembered_clients_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    reports = OverLimitReports()
    for number in range(CLIENTS_MAX + 1):
        reports.report(Peer("10.0.0.1:1", str(number)), LIMIT, REQUEST, "a frame")
    caplog.clear()
    reports.report(Peer("10.0.0.1:1", str(CLIENTS_MAX)), LIMIT, REQUEST, "a frame")
    assert not caplog.records
    reports.report(Peer("10.0.0.1:1", "0"), LIMIT, REQUEST, "a frame")
    assert len(caplog.records) == 1


def test_unknown_limit_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="is not in LIMITS"):
        OverLimitReports().report(Peer("10.0.0.1:1", "a"), "unknown", REQUEST, "a frame")


def test_long_client_id_is_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    reports = OverLimitReports()
    for last in "ab":
        peer = Peer("10.0.0.1:1", "c" * SHOWN_CHARS_MAX + last)
        reports.report(peer, LIMIT, REQUEST, "a frame")
        reports.name_refused(peer, REQUEST, "a frame")
        report_rejection(peer, reports, NotServed("not served"))
    shown = "c" * SHOWN_CHARS_MAX + "..."
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 3, "both have the same beginning"
    assert all(f"'{shown}'" in text for text in texts)
