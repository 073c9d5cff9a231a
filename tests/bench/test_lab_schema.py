"""The form of results.json: the published schema, its version, and the histograms in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from lab_made_up import line, mixed_run, step
from lab_waiting import measure_until_handled

from callboard.bench.concurrency import histograms, measured_process, run
from callboard.bench.concurrency.plan import MeasurementStep
from callboard.bench.concurrency.results import BASE, SCHEMA, LabRun, Measurement, read_line
from callboard.bench.concurrency.schema import RUN, STEP, json_schema

DIGESTS = {3: "e1d3bfccd46ac366", 4: "8ba090973a08a770"}
"""Of each version of the schema. Another form of results.json needs another version, and a row here."""

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (type(None),),
}


def violations(value: Any, schema: dict[str, Any], path: str = "$") -> list[str]:
    """Where a value is not of the form of a schema; for the keywords that the schema uses."""
    if "const" in schema or "enum" in schema:
        return [] if value in schema.get("enum", [schema.get("const")]) else [f"{path} is {value!r}"]
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if isinstance(value, bool) or not isinstance(value, tuple(kind for name in names for kind in TYPES[name])):
        return [f"{path} is {value!r}, not of {names}"]
    if isinstance(value, dict):
        return _violations_of_object(value, schema, path)
    if isinstance(value, list | tuple) and "items" in schema:
        return [
            each for index, item in enumerate(value) for each in violations(item, schema["items"], f"{path}[{index}]")
        ]
    return []


def _violations_of_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> list[str]:
    found = [f"{path} lacks {name}" for name in schema.get("required", []) if name not in value]
    for name, item in value.items():
        of_item = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
        if of_item is False:
            found.append(f"{path} has {name}")
        elif of_item is not True:
            found += violations(item, of_item, f"{path}.{name}")
    return found


def test_results_have_the_form_of_the_schema() -> None:
    written = json.loads(json.dumps(mixed_run().to_json()))
    assert violations(written, json_schema()) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"schema": 2}, ["$.schema is 2"]),
        ({"planned": "many"}, ["$.planned is 'many', not of ['integer']"]),
        ({"more": 1}, ["$ has more"]),
        ({"measurements": [{}]}, None),
    ],
)
def test_other_forms_violate_the_schema(changes: dict[str, Any], found: list[str] | None) -> None:
    """The checker of this file finds what it has to."""
    written = {**json.loads(json.dumps(mixed_run().to_json())), **changes}
    actual = violations(written, json_schema())
    assert actual == found if found else len(actual) == len(Measurement._fields)


def test_schema_names_the_fields_of_the_types() -> None:
    assert set(STEP) == set(MeasurementStep._fields)
    assert {*RUN, "measurements"} == set(LabRun._fields)


def test_form_changes_only_with_its_version() -> None:
    digest = hashlib.sha256(json.dumps(json_schema(), sort_keys=True).encode()).hexdigest()[:16]
    assert digest == DIGESTS[SCHEMA], "give results.SCHEMA the next number, and add its digest"


def test_schema_is_printed_without_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


# Histograms -----------------------------------------------------------------------------------------------------------


def test_histogram_of_a_measurement_is_kept_in_results() -> None:
    measurement = read_line(step(BASE), line(step(BASE), 5, histogram="abc"))
    assert Measurement.from_json(measurement.to_json()).histogram == "abc"
    assert read_line(step(BASE), line(step(BASE), 5)).histogram == ""


def test_histograms_without_hdrhistogram_are_refused_before_measuring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(histograms, "find_spec", lambda name: None)
    assert run.main(["--histograms", "--no-html"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "concurrency: --histograms needs hdrhistogram; run: pip install 'callboard[bench]'\n"
    assert captured.out == ""


def test_measured_histogram_has_all_latencies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of requests that were due and not sent included: at this rate most are."""
    hdr = pytest.importorskip("hdrh.histogram").HdrHistogram
    measure_until_handled(monkeypatch, 30)
    arguments = ["--engine", "plain-loop", "--workload", "heartbeats", "--groups", "2", "--seconds", "0.05"]
    assert measured_process.main([*arguments, "--rate", "200000", "--histogram"]) == 0
    result = json.loads(capsys.readouterr().out)
    histogram = hdr.decode(result["histogram"])
    assert histogram.get_total_count() == result["requests"] + result["unsent"]
    assert histogram.get_max_value() / 1000 == pytest.approx(result["latency_us"]["max"], rel=0.001)
    assert histogram.get_value_at_percentile(50) / 1000 == pytest.approx(result["latency_us"]["p50"], rel=0.002)


def test_run_writes_histograms(tmp_path: Path) -> None:
    hdr = pytest.importorskip("hdrh.histogram").HdrHistogram
    arguments = ["--engines", "lock-group", "--workloads", "heartbeats", "--groups", "2", "--rounds", "1"]
    output = ["--seconds", "0.05", "--no-html", "--output", str(tmp_path)]
    assert run.main([*arguments, *output, "--histograms"]) == 0
    written = json.loads((tmp_path / "results.json").read_text())
    assert violations(written, json_schema()) == []
    (measurement,) = written["measurements"]
    assert hdr.decode(measurement["histogram"]).get_total_count() == measurement["figures"]["requests"]
