"""Each script of ``reauthentication_scripts`` gets the answers of a real Kafka. Waits only advance the clock."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from harness import NodeHarness, async_test
from sasl_helpers import add_user, running_sasl_node

from .reauthentication_scripts import (
    BEHIND_ANOTHER_USER,
    GOLDEN,
    IN_VERSION_0,
    SCRIPTS,
    SESSION_MS,
    WITHOUT_SESSION,
    Script,
    play,
)
from .sasl_scripts import HANGUP, OTHER_USER, as_json
from .test_sasl import differences

RECORDED: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text())
HEARTBEAT_ANSWER = "000000070000000000001900"
"""The error UNKNOWN_MEMBER_ID."""
TOKENS = {
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl_oauthbearer_allow_unsigned": "true",
}


def expected() -> dict[str, Any]:
    """The answers of Kafka, but for the differences that docs/conformance.md lists."""
    answers = dict(RECORDED["session"])
    *before, served, refused = answers[BEHIND_ANOTHER_USER]
    assert served == HEARTBEAT_ANSWER
    answers[BEHIND_ANOTHER_USER] = [*before, refused, HANGUP]
    for name in IN_VERSION_0:
        done = len(SCRIPTS[name]) - 2
        assert answers[name][done] == ""
        answers[name] = [*answers[name][:done], HANGUP]
    return answers


class ManualClock:
    """The clock of sessions, which stands still but for ``advance``."""

    def __init__(self, harness: NodeHarness) -> None:
        self._now_ms = 1_000
        sasl = harness.node.services.sasl
        for name, listener in sasl._listeners.items():
            sasl._listeners[name] = listener._replace(monotonic_ms=lambda: self._now_ms)

    def advance(self, ms: int) -> None:
        self._now_ms += ms


async def play_all(harness: NodeHarness, scripts: dict[str, Script]) -> dict[str, Any]:
    await add_user(harness.node.services.security, OTHER_USER)
    clock, address = ManualClock(harness), ("127.0.0.1", harness.port)
    return {
        name: as_json(await asyncio.to_thread(play, address, script, clock.advance)) for name, script in scripts.items()
    }


@async_test
async def test_answers_to_clients_that_authenticate_again_are_those_of_kafka(tmp_path: Path) -> None:
    settings = {**TOKENS, "connections_max_reauth_ms": str(SESSION_MS)}
    async with running_sasl_node(tmp_path, settings) as harness:
        played = await play_all(harness, dict(SCRIPTS))
    assert differences(expected(), played) == {}


@async_test
async def test_answers_on_a_listener_without_sessions_are_those_of_kafka(tmp_path: Path) -> None:
    async with running_sasl_node(tmp_path, TOKENS) as harness:
        played = await play_all(harness, dict(WITHOUT_SESSION))
    assert differences(RECORDED["without session"], played) == {}
