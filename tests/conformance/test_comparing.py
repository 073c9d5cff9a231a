"""The comparison detects and shows different, missing and late responses."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from harness import async_test

from .callboard_server import open_server
from .comparing import compare
from .golden import Played, Responses, read_seeds, write_seeds
from .playing import play
from .scenarios import PLAIN
from .script import Names, Script
from .steps import disconnect, heartbeat, join, member, pair, sync, wait
from .test_scenarios import our_settings

PARKED: Script = [*pair(), join("B", "$B1"), join("A", "$A1"), join("B", "$B1"), heartbeat("A", "$A1", 3)]


def other_error(responses: Responses) -> None:
    responses[-1][0][1]["error_code"] = "FENCED_INSTANCE_ID"


def too_early(responses: Responses) -> None:
    """A response of a later step arrives at once."""
    late = next(
        step for step, step_responses in enumerate(responses) if any(number < step for number, _ in step_responses)
    )
    number = responses[late][0][0]
    responses[number].append(responses[late].pop(0))


def never(responses: Responses) -> None:
    next(step_responses for step_responses in responses if len(step_responses) > 1).pop()


@pytest.mark.parametrize("change", [other_error, too_early, never])
def test_difference_is_reported(change: Callable[[Responses], None], tmp_path: Path) -> None:
    @async_test
    async def run() -> None:
        async with open_server(tmp_path, our_settings(PLAIN)) as server:
            responses = await play(server, PARKED)
            await compare(server, "seed 7", PARKED, responses)
            changed = copy.deepcopy(responses)
            change(changed)
            with pytest.raises(AssertionError, match=r"(?s)seed 7: other answers after step .*Kafka's.*ours"):
                await compare(server, "seed 7", PARKED, changed)

    run()


def test_changed_script_requires_new_recording(tmp_path: Path) -> None:
    @async_test
    async def run() -> None:
        async with open_server(tmp_path, our_settings(PLAIN)) as server:
            with pytest.raises(AssertionError, match="record it again"):
                await compare(server, "short", PARKED, [])

    run()


def test_waits_of_script_pass_at_once(tmp_path: Path) -> None:
    """An hour passes at once; a session expires in it, also after a client disconnected."""
    script = [*member("A"), join("B", v=3), disconnect("B"), wait(3_600_000), heartbeat("A", "$A1"), sync("A", "$A1")]

    @async_test
    async def run() -> None:
        async with open_server(tmp_path, our_settings(PLAIN)) as server:
            async with asyncio.timeout(10):
                responses = await play(server, script)
        assert [response["error_code"] for _, response in responses[-2]] == ["UNKNOWN_MEMBER_ID"]

    run()


def test_names_are_translated_both_ways() -> None:
    topic, uuid = UUID(int=5), "12345678-1234-1234-1234-123456789abc"
    names = Names("g-1", {"t": topic})
    response = {
        "member_id": f"A-{uuid}",
        "group_id": "g-1-2",
        "topic_id": topic,
        "metadata": b"\x00\xff",
        "throttle_time": 3,
    }
    common = {"member_id": "$A1", "group_id": "$group-2", "topic_id": "$topic t", "metadata": "$hex 00ff"}
    assert names.to_script(response, frozenset()) == common
    request = {"member_id": "$A1", "topic_id": "$topic t", "parts": ["$bytes x"], "group_id": "$group-2"}
    assert names.to_request(request) == {
        "member_id": f"A-{uuid}",
        "topic_id": topic,
        "parts": [b"x"],
        "group_id": "g-1-2",
    }
    with pytest.raises(KeyError):
        names.to_request("$A2")


def test_seeds_are_encoded_and_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.golden.GOLDEN", tmp_path)
    played = Played(seed=3, steps=[["wait", 5]], responses=[[]])
    write_seeds("clients", "4.3.1", [played])
    assert read_seeds("clients") == [played]
    assert read_seeds("offsets") == []
