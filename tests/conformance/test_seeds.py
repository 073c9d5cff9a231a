"""Hundreds of random request sequences, answered by our node as by the real Kafka that was recorded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from door import on_a_loop

from .comparing import compare
from .golden import Played, read_seeds
from .our_stage import open_stage
from .scenarios import PLAIN
from .script import HANG_UP, WAIT
from .test_scenarios import our_settings

PLAYED = read_seeds()
BATCHES = 10
SEEDS_MIN = 300


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_scripts(batch: int, tmp_path: Path) -> None:
    """One node a batch; what differs is shown with its seed and the sequence up to there."""

    @on_a_loop
    async def play() -> None:
        async with open_stage(tmp_path, our_settings(PLAIN)) as stage:
            for played in PLAYED[batch::BATCHES]:
                await compare(stage, f"seed {played['seed']}", played.steps, played.came)

    play()


def test_there_are_enough() -> None:
    assert len({played["seed"] for played in PLAYED}) >= SEEDS_MIN


def test_they_see_much() -> None:
    """A generator that got stuck would agree with anything."""
    requests = Counter(step[1] for played in PLAYED for step in played.steps if step[0] not in (WAIT, HANG_UP))
    late = sum(_late(played) for played in PLAYED)
    generations = Counter(
        answer["generation_id"]
        for played in PLAYED
        for answers in played.came
        for _, answer in answers
        if "generation_id" in answer
    )
    assert min(requests.values()) >= 50, requests
    assert late >= 1000, "requests that were parked and then answered"
    assert generations[3] >= 100, generations


def _late(played: Played) -> int:
    """Answers that came after another step than that of their request."""
    return sum(number != at for at, answers in enumerate(played.came) for number, _ in answers)
