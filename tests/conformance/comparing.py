"""Plays a script to Callboard, compares the responses with the recorded ones, and shows the first difference.

Who waits for what is part of it: an answer that comes after another step than Kafka's is a difference too.
"""

from __future__ import annotations

import json
from pprint import pformat

from .golden import Responses
from .playing import ConformanceServer, Play, StepResponse
from .script import Script

SHOWN_STEPS = 12  # before the different one


async def compare(server: ConformanceServer, name: str, script: Script, recorded: Responses) -> None:
    """Raise AssertionError at the first step whose responses differ from Kafka's."""
    assert len(script) == len(recorded), f"{name} has changed since it was recorded: record it again"
    run = Play(server)
    try:
        for number, (step, theirs) in enumerate(zip(script, recorded, strict=True)):
            ours = await run.take(step, expected=len(theirs))
            if ours != theirs:
                raise AssertionError(_shown(name, script, recorded, number, ours))
    finally:
        await server.leave()


def _shown(name: str, script: Script, recorded: Responses, number: int, ours: list[StepResponse]) -> str:
    """Format the sequence up to the step, and both responses."""
    first = max(number - SHOWN_STEPS, 0)
    before = [
        line
        for index in range(first, number)
        for line in (f"{index}: {json.dumps(script[index])}", *(f"    {json.dumps(one)}" for one in recorded[index]))
    ]
    theirs = recorded[number]
    return "\n".join(
        [
            f"{name}: other answers after step {number}",
            *before,
            f"{number}: {json.dumps(script[number])}",
            "Kafka's, that ours are not:",
            *(pformat(one, width=118) for one in theirs if one not in ours),
            "ours, that Kafka's are not:",
            *(pformat(one, width=118) for one in ours if one not in theirs),
        ]
    )
