"""A signal to stop that comes twice at once is one request."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from callboard.runtime.cli import serve
from callboard.runtime.common import stop_request
from callboard.runtime.common.stop_request import SAME_REQUEST_S, StopRequest


def test_signal_soon_after_the_first_one_is_the_same_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    request = StopRequest()
    assert [request.is_second() for _ in range(3)] == [False] * 3
    now_s += SAME_REQUEST_S * 0.9
    assert not request.is_second()
    now_s += SAME_REQUEST_S * 0.2
    assert request.is_second()


def test_server_exits_at_once_for_a_second_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    stopping, request = asyncio.Event(), StopRequest()
    monkeypatch.setattr(stop_request, "SAME_REQUEST_S", float("inf"))
    for _ in range(2):
        serve.on_signal(signal.SIGTERM, stopping, request)
    assert stopping.is_set() and exits == []
    monkeypatch.setattr(stop_request, "SAME_REQUEST_S", 0)
    serve.on_signal(signal.SIGTERM, stopping, request)
    assert exits == [1]
