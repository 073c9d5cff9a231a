"""The recorded responses of a real Kafka: JSON for scenarios, a compressed file per kind of random scripts."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from .playing import StepResponse
from .script import Step

GOLDEN = Path(__file__).parent / "golden"

Responses = list[list[StepResponse]]


def write_chapter(name: str, kafka: str, scenarios: dict[str, Responses]) -> None:
    """Write one response per line, for readable diffs."""
    lines = ["{", f' "kafka": {json.dumps(kafka)},', ' "scenarios": {']
    scenario_texts = [
        f"  {json.dumps(scenario)}: [\n{_format_steps(responses)}\n  ]"
        for scenario, responses in sorted(scenarios.items())
    ]
    text = "\n".join([*lines, ",\n".join(scenario_texts), " }", "}"])
    assert json.loads(text)["scenarios"] == scenarios
    (GOLDEN / f"{name}.json").write_text(text + "\n")


def _format_steps(responses: Responses) -> str:
    return ",\n".join(f"   [{_format_responses(step_responses)}]" for step_responses in responses)


def _format_responses(responses: list[StepResponse]) -> str:
    return ",\n    ".join(json.dumps(response, ensure_ascii=False, sort_keys=True) for response in responses)


def read_chapter(name: str) -> dict[str, Responses]:
    """Return the responses by scenario and step; empty if the chapter was not recorded."""
    path = GOLDEN / f"{name}.json"
    scenarios: dict[str, Responses] = json.loads(path.read_text())["scenarios"] if path.exists() else {}
    return scenarios


class Played(dict[str, Any]):
    """One random script: its ``seed``, its ``steps`` and the ``responses`` after each."""

    @property
    def steps(self) -> list[Step]:
        steps: list[Step] = self["steps"]
        return steps

    @property
    def responses(self) -> Responses:
        responses: Responses = self["responses"]
        return responses


def seeds_file(kind: str) -> Path:
    return GOLDEN / f"seeds-{kind}.json.xz"


def write_seeds(kind: str, kafka: str, played: list[Played]) -> None:
    text = json.dumps({"kafka": kafka, "seeds": played}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    seeds_file(kind).write_bytes(lzma.compress(text.encode(), preset=9))


def read_seeds(kind: str) -> list[Played]:
    """Return the scripts of a kind; empty if it was not recorded."""
    path = seeds_file(kind)
    return (
        [Played(script) for script in json.loads(lzma.decompress(path.read_bytes()))["seeds"]] if path.exists() else []
    )
