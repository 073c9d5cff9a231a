"""The comparison itself: it finds an answer that is other, missing, or late, and shows where."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from door import on_a_loop

from .comparing import compare
from .golden import Came, Played, read_seeds, write_seeds
from .our_stage import open_stage
from .playing import play
from .scenarios import PLAIN
from .script import Names, Script
from .steps import beat, hang_up, join, member, pair, sync, wait
from .test_scenarios import our_settings

PARKED: Script = [*pair(), join("B", "$B1"), join("A", "$A1"), join("B", "$B1"), beat("A", "$A1", 3)]


def other_error(came: Came) -> None:
    came[-1][0][1]["error_code"] = "FENCED_INSTANCE_ID"


def too_early(came: Came) -> None:
    """What came after a later step came at once."""
    late = next(at for at, answers in enumerate(came) if any(number < at for number, _ in answers))
    number = came[late][0][0]
    came[number].append(came[late].pop(0))


def never(came: Came) -> None:
    next(answers for answers in came if len(answers) > 1).pop()


@pytest.mark.parametrize("change", [other_error, too_early, never])
def test_difference_is_reported(change: Callable[[Came], None], tmp_path: Path) -> None:
    @on_a_loop
    async def run() -> None:
        async with open_stage(tmp_path, our_settings(PLAIN)) as stage:
            came = await play(stage, PARKED)
            await compare(stage, "seed 7", PARKED, came)
            changed = copy.deepcopy(came)
            change(changed)
            with pytest.raises(AssertionError, match=r"(?s)seed 7: other answers after step .*Kafka's.*ours"):
                await compare(stage, "seed 7", PARKED, changed)

    run()


def test_changed_script_requires_new_recording(tmp_path: Path) -> None:
    @on_a_loop
    async def run() -> None:
        async with open_stage(tmp_path, our_settings(PLAIN)) as stage:
            with pytest.raises(AssertionError, match="record it again"):
                await compare(stage, "short", PARKED, [])

    run()


def test_waits_of_script_pass_at_once(tmp_path: Path) -> None:
    """An hour passes at once; a session ends in it, and a client that hangs up is no obstacle."""
    script = [*member("A"), join("B", v=3), hang_up("B"), wait(3_600_000), beat("A", "$A1"), sync("A", "$A1")]

    @on_a_loop
    async def run() -> None:
        async with open_stage(tmp_path, our_settings(PLAIN)) as stage:
            async with asyncio.timeout(10):
                came = await play(stage, script)
        assert [answer["error_code"] for _, answer in came[-2]] == ["UNKNOWN_MEMBER_ID"]

    run()


def test_names_are_translated_both_ways() -> None:
    topic, uuid = UUID(int=5), "12345678-1234-1234-1234-123456789abc"
    names = Names("g-1", {"t": topic})
    answer = {
        "member_id": f"A-{uuid}",
        "group_id": "g-1-2",
        "topic_id": topic,
        "metadata": b"\x00\xff",
        "throttle_time": 3,
    }
    common = {"member_id": "$A1", "group_id": "$group-2", "topic_id": "$topic t", "metadata": "$hex 00ff"}
    assert names.common(answer, frozenset()) == common
    asked = {"member_id": "$A1", "topic_id": "$topic t", "parts": ["$bytes x"], "group_id": "$group-2"}
    assert names.concrete(asked) == {
        "member_id": f"A-{uuid}",
        "topic_id": topic,
        "parts": [b"x"],
        "group_id": "g-1-2",
    }
    with pytest.raises(KeyError):
        names.concrete("$A2")


def test_seeds_are_encoded_and_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.golden.GOLDEN", tmp_path)
    played = Played(seed=3, steps=[["wait", 5]], came=[[]])
    write_seeds("clients", "4.3.1", [played])
    assert read_seeds("clients") == [played]
    assert read_seeds("seats") == []
