"""The audit trail: what its lines say, that denials are folded, and what happens while the disk fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from callboard.runtime.disk.file_work import InlineFileWork
from callboard.runtime.security import audit_log
from callboard.runtime.security.audit import Asked, Change, Who
from callboard.runtime.security.audit_folding import ALIKE_MAX, OTHERS
from callboard.runtime.security.audit_log import FOLD_MS, FOLDED_CHARS_MAX, RETRY_MS, AuditLog

ALICE = Who("User:alice", "10.0.0.5", 4711, "tool", "PLAINTEXT")
DELETE = Asked("DeleteGroups", 2)


class Outside:
    """The clock, ids, timers and the file of an audit trail."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.lines: list[dict[str, Any]] = []
        self.durable: list[bool] = []
        self.failure: OSError | None = None
        self.is_required = False
        self._ids = count(1)
        self.audit = AuditLog(self, InlineFileWork(), self, self, self._later, lambda: self.is_required)

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def uuid(self) -> str:
        return f"id-{next(self._ids)}"

    def _later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.timers.append((delay_ms, callback))

    def fire(self) -> None:
        timers, self.timers = self.timers, []
        for delay_ms, callback in timers:
            self.now_ms += delay_ms
            callback()

    def append(self, lines: bytes, *, is_durable: bool) -> None:
        if self.failure is not None:
            raise self.failure
        self.lines += map(json.loads, lines.splitlines())
        self.durable.append(is_durable)


def test_change_says_who_has_changed_what() -> None:
    outside = Outside()
    changes = [Change("delete", "Group:a", {"offsets": {"t": {"0": 5}}}), Change("delete", "Group:b")]
    outside.audit.changed(ALICE, DELETE, changes, "old")
    first, second = outside.lines
    assert first == {
        "time": "1970-01-01T00:00:01.000Z",
        "id": "id-2",
        "kind": "changed",
        "principal": "User:alice",
        "host": "10.0.0.5",
        "port": 4711,
        "client_id": "tool",
        "listener": "PLAINTEXT",
        "api": "DeleteGroups",
        "version": 2,
        "operation": "delete",
        "resource": "Group:a",
        "before": {"offsets": {"t": {"0": 5}}},
        "reason": "old",
        "change_id": "id-1",
    }
    assert (second["resource"], second["change_id"]) == ("Group:b", "id-1")
    assert outside.durable == [True, True]


def test_names_of_clients_cannot_end_a_line() -> None:
    outside = Outside()
    outside.audit.changed(ALICE, DELETE, [Change("delete", 'Group:a\n{"kind": "changed"}\u2028')])
    [line] = outside.lines
    assert line["resource"] == 'Group:a\n{"kind": "changed"}\u2028'


def test_denials_that_are_alike_are_one_line_a_minute() -> None:
    outside = Outside()
    for _ in range(3):
        outside.audit.denied(ALICE, DELETE, "DELETE", ["Group:a", "Group:b"])
        outside.now_ms += 5
    outside.audit.denied(ALICE._replace(principal="User:bob"), DELETE, "DELETE", ["Group:a"])
    assert outside.lines == []
    assert [delay_ms for delay_ms, _ in outside.timers] == [FOLD_MS]
    outside.fire()
    shown = [(line["principal"], line["operation"], line["resource"], line["count"]) for line in outside.lines]
    assert shown == [
        ("User:alice", "DELETE", "Group:a", 3),
        ("User:alice", "DELETE", "Group:b", 3),
        ("User:bob", "DELETE", "Group:a", 1),
    ]
    assert outside.lines[0]["first"] == "1970-01-01T00:00:01.000Z"
    assert outside.lines[0]["last"] == "1970-01-01T00:00:01.010Z"
    outside.audit.denied(ALICE, DELETE, "DELETE", ["Group:a"])
    outside.fire()
    assert len(outside.lines) == 4


def test_number_of_folded_lines_is_bounded() -> None:
    outside = Outside()
    outside.audit.denied(ALICE, DELETE, "DELETE", [f"Group:{number}" for number in range(ALIKE_MAX + 7)])
    outside.fire()
    assert len(outside.lines) == ALIKE_MAX + 1
    assert (outside.lines[-1]["resource"], outside.lines[-1]["count"]) == (OTHERS, 7)


def test_refused_clients_are_folded_and_authenticated_ones_are_not() -> None:
    outside = Outside()
    for port in range(3):
        outside.audit.refused(ALICE._replace(port=port), "PLAIN", "invalid credentials")
        outside.audit.authenticated(ALICE._replace(port=port), "PLAIN", {"software": "librdkafka"})
    assert [(line["kind"], line["port"], line["software"]) for line in outside.lines] == [
        ("authenticated", port, "librdkafka") for port in range(3)
    ]
    outside.fire()
    assert (outside.lines[-1]["kind"], outside.lines[-1]["count"]) == ("refused", 3)


def test_lines_that_cannot_be_written_are_written_later() -> None:
    outside = Outside()
    outside.failure = OSError("the disk is full")
    for name in "ab":
        outside.audit.changed(ALICE, DELETE, [Change("delete", f"Group:{name}")])
    assert outside.audit.failure == "the audit trail cannot be written: the disk is full"
    assert {delay_ms for delay_ms, _ in outside.timers} == {RETRY_MS}
    outside.fire()
    assert outside.lines == []
    outside.failure = None
    outside.fire()
    assert [line["resource"] for line in outside.lines] == ["Group:a", "Group:b"]
    assert outside.audit.failure == ""


def test_changes_are_refused_while_a_required_trail_cannot_be_written() -> None:
    outside = Outside()
    outside.is_required = True
    assert outside.audit.refusal == ""
    outside.failure = OSError("the disk is full")
    outside.audit.authenticated(ALICE, "PLAIN", {})
    assert outside.audit.refusal == "the audit trail cannot be written: the disk is full"
    outside.is_required = False
    assert outside.audit.refusal == ""


def test_lines_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(audit_log, "UNWRITTEN_MAX", 2)
    outside = Outside()
    outside.failure = OSError("the disk is full")
    for name in "abc":
        outside.audit.changed(ALICE, DELETE, [Change("delete", f"Group:{name}")])
    outside.failure = None
    outside.fire()
    assert [line["resource"] for line in outside.lines] == ["Group:b", "Group:c"]
    assert "lines of the audit trail are lost lines=1" in caplog.text


def test_close_writes_what_is_folded() -> None:
    outside = Outside()
    outside.audit.denied(ALICE, DELETE, "DELETE", ["Group:a"])
    asyncio.run(outside.audit.close())
    assert [line["resource"] for line in outside.lines] == ["Group:a"]
    outside.audit.changed(ALICE, DELETE, [Change("delete", "Group:b")])
    assert len(outside.lines) == 1


def test_long_texts_of_clients_are_cut_in_folded_lines() -> None:
    outside = Outside()
    for last in "ab":
        outside.audit.denied(ALICE, DELETE, "READ", ["Group:" + 32_000 * "g" + last])
        outside.audit.refused(ALICE._replace(client_id=32_000 * "\x01"), "PLAIN", 32_000 * "r" + last)
    outside.fire()
    assert [(line["kind"], line["count"]) for line in outside.lines] == [("denied", 2), ("refused", 2)]
    texts = [text for line in outside.lines for text in line.values() if isinstance(text, str)]
    assert max(map(len, texts)) == FOLDED_CHARS_MAX + 3


def test_refusals_do_not_take_the_lines_of_denials() -> None:
    outside = Outside()
    for number in range(ALIKE_MAX + 1):
        outside.audit.refused(ALICE, "PLAIN", f"mechanism {number}")
    outside.audit.denied(ALICE, DELETE, "READ", ["Group:a"])
    outside.fire()
    assert [(line["kind"], line["resource"]) for line in outside.lines[ALIKE_MAX:]] == [
        ("refused", OTHERS),
        ("denied", "Group:a"),
    ]
