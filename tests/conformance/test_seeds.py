"""Hundreds of random scripts have the same responses as the recorded ones of a real Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import async_test

from .callboard_server import STEP_MS, open_server
from .comparing import compare
from .golden import Played, read_seeds
from .kinds import KINDS
from .script import DISCONNECT, WAIT
from .test_scenarios import our_settings

PLAYED = {kind: read_seeds(kind) for kind in KINDS}
A_BATCH = 40
SEEDS_MIN = 560  # of all kinds
KIND_MIN = 15
SLEEPERS = 5  # every fifth
SLEEPY_MS = STEP_MS // 2


def batches() -> list[tuple[str, int]]:
    return [(kind, first) for kind, played in PLAYED.items() for first in range(0, len(played), A_BATCH)]


@pytest.mark.parametrize(("kind", "first"), batches())
def test_random_script_equals_recording(kind: str, first: int, tmp_path: Path) -> None:
    """One node per batch. A difference is shown with its seed and the sequence up to it."""
    _play(kind, PLAYED[kind][first : first + A_BATCH], tmp_path)


def _play(kind: str, batch: Sequence[Played], folder: Path) -> None:
    @async_test
    async def play() -> None:
        async with open_server(folder, our_settings(KINDS[kind].settings)) as server:
            for played in batch:
                await compare(server, f"{kind}, seed {played['seed']}", played.steps, played.came)

    play()


@pytest.mark.parametrize("kind", KINDS)
def test_random_script_with_early_passivation_equals_recording(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients cannot observe that a group is passivated and activated."""
    monkeypatch.setattr("callboard.actors.group.actor.IDLE_MS", SLEEPY_MS)
    _play(kind, PLAYED[kind][::SLEEPERS], tmp_path)


def test_number_of_recorded_seeds() -> None:
    counts = {kind: len({played["seed"] for played in each}) for kind, each in PLAYED.items()}
    assert sum(counts.values()) >= SEEDS_MIN, counts
    assert min(counts.values()) >= KIND_MIN, counts


def test_recorded_seeds_contain_pending_requests_and_generations() -> None:
    """The scripts cover enough, so that agreement means something."""
    all_played = [played for each in PLAYED.values() for played in each]
    requests = Counter(step[1] for played in all_played for step in played.steps if step[0] not in (WAIT, DISCONNECT))
    late = sum(_late(played) for played in all_played)
    generations = Counter(
        answer["generation_id"]
        for played in all_played
        for answers in played.came
        for _, answer in answers
        if "generation_id" in answer
    )
    assert min(requests.values()) >= 20, requests
    assert late >= 1000, "requests that were parked and then answered"
    assert generations[3] >= 100, generations


def _late(played: Played) -> int:
    """Count responses that arrived after a later step than that of their request."""
    return sum(number != at for at, answers in enumerate(played.came) for number, _ in answers)
