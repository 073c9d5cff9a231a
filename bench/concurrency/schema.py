"""The form of ``results.json`` as a JSON Schema, for programs that read it; printed by ``--schema``."""

from __future__ import annotations

from typing import Any

from callboard.bench.concurrency.results import FAILED, FIGURE_PATHS, REQUIRED_FIGURES, RIGHT, SCHEMA, WRONG

TEXT, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}
OBJECT = {"type": "object"}
TEXTS = {"type": "array", "items": TEXT}
OPTIONAL_NUMBER = {"type": ["number", "null"]}

STEP = {
    "round": INTEGER,
    "workload": TEXT,
    "groups": INTEGER,
    "engine": TEXT,
    "seconds": NUMBER,
    "seed": INTEGER,
    "rate": NUMBER,
}

RUN = {
    "date": TEXT,
    "command": TEXT,
    "machine": OBJECT,
    "python": OBJECT,
    "options": OBJECT,
    "engines": {"type": "object", "additionalProperties": OBJECT},
    "workloads": {"type": "object", "additionalProperties": OBJECT},
    "planned": INTEGER,
    "left_out": TEXTS,
}


def json_schema() -> dict[str, Any]:
    """The schema of the current version."""
    run = {"bench": {"const": "concurrency"}, "schema": {"const": SCHEMA}, **RUN}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"results.json of callboard bench concurrency, version {SCHEMA}",
        **_object({**run, "measurements": {"type": "array", "items": _measurement()}}),
    }


def _measurement() -> dict[str, Any]:
    """``figures`` has all figures if the engine was right, else none. ``ccdf``: pairs of microseconds and a share."""
    figures = {name: NUMBER if name in REQUIRED_FIGURES else OPTIONAL_NUMBER for name in FIGURE_PATHS}
    return _object(
        {
            "step": _object(STEP),
            "status": {"enum": [RIGHT, WRONG, FAILED]},
            "figures": {"type": "object", "properties": figures, "additionalProperties": False},
            "ccdf": {"type": "array", "items": {"type": "array", "items": NUMBER}},
            "reasons": TEXTS,
            "python": OBJECT,
            "histogram": TEXT,
        }
    )


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
