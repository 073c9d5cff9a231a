"""Plays a script to Callboard, compares the responses with the recorded ones, and shows the first difference.

The step after which a response arrives is compared, too.
"""

from __future__ import annotations

import json
from pprint import pformat

from .golden import Responses
from .playing import ConformanceServer, Play, StepResponse
from .script import Script

SHOWN_STEPS = 12  # before the first difference


async def compare(
    server: ConformanceServer, name: str, script: Script, recorded: Responses, group: str | None = None
) -> None:
    """Raise AssertionError at the first step whose responses differ from Kafka's. ``group``: the name of ``$group``."""
    assert len(script) == len(recorded), f"{name} has changed since it was recorded: record it again"
    run = Play(server, group)
    try:
        for number, (step, theirs) in enumerate(zip(script, recorded, strict=True)):
            ours = await run.take(step, expected=len(theirs))
            if ours != theirs:
                raise AssertionError(_format_difference(name, script, recorded, number, ours))
    finally:
        await server.leave()


def _format_difference(name: str, script: Script, recorded: Responses, number: int, ours: list[StepResponse]) -> str:
    """Format the sequence up to the step, and both responses."""
    first = max(number - SHOWN_STEPS, 0)
    previous = [
        line
        for index in range(first, number)
        for line in (
            f"{index}: {json.dumps(script[index])}",
            *(f"    {json.dumps(response)}" for response in recorded[index]),
        )
    ]
    theirs = recorded[number]
    return "\n".join(
        [
            f"{name}: other answers after step {number}",
            *previous,
            f"{number}: {json.dumps(script[number])}",
            "Only Kafka's:",
            *(pformat(response, width=118) for response in theirs if response not in ours),
            "Only ours:",
            *(pformat(response, width=118) for response in ours if response not in theirs),
        ]
    )
