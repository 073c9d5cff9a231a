"""The alert rules and the dashboard: what they ask for is what the pages of metrics say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import async_test, running_node
from project_paths import DOCS
from prometheus_client.parser import text_string_to_metric_families

from callboard.runtime.cli.monitoring import alerts, dashboard
from callboard.runtime.cli.monitoring.panels import ROWS
from callboard.runtime.node.group_series import STYLES
from callboard.runtime.node.metrics import metrics
from callboard.runtime.settings.metric_options import MetricOptions

OF_TYPES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
"""The endings of the samples of a metric, by its type."""

FUNCTIONS = {
    *("clamp_min", "deriv", "histogram_quantile", "increase", "last_over_time", "max", "min", "rate", "sum", "topk"),
    *("and", "by", "on", "or"),
}
ADDED_LABELS = {"instance", "job"}
"""By Prometheus."""

SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


Labels = Mapping[str, set[str]]
"""By name, the values that were seen."""


def expressions() -> Iterator[str]:
    """Of the alert rules and of the dashboard."""
    for group in yaml.safe_load(alerts.RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in all_panels(dashboard.make_dashboard()):
        yield from (target["expr"] for target in panel.get("targets", ()))


def all_panels(board: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


async def known_samples(folder: Path) -> Mapping[str, Labels]:
    """The names of all samples that the pages can have, with their labels: those of the docs, if there is no sample."""
    documented = dict(re.findall(r"`(callboard_\w+)\{([\w,]+)\}`", (DOCS / "metrics.md").read_text()))
    async with running_node(folder, {"metric_options": MetricOptions(has_requests=True)}) as harness:
        page = (await metrics(lambda: harness.node)).decode()
    known: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(page):
        for ending in OF_TYPES[family.type]:
            labels = [] if family.samples else documented.get(family.name, "").split(",")
            known[family.name + ending] = {
                label: set() for label in [*labels, *(["le"] if ending == "_bucket" else [])]
            }
        for sample in family.samples:
            seen = known.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                seen.setdefault(name, set()).add(value)
    for style in STYLES.values():
        known |= {name: {label: set() for label in row.labels} for name, row in style.rows.items()}
    return known | {"callboard_groups_unread": {}, "callboard_group_series_dropped": {}, "up": {}}


def names_in(expr: str) -> set[str]:
    """The identifiers of an expression that are not labels, functions or keywords."""
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = GROUPING.sub("", bare)
    return set(re.findall(r"(?<![\w.])[a-zA-Z_:][\w:]*", bare)) - FUNCTIONS


def wrong_matchers(expr: str, known: Mapping[str, Labels]) -> Iterator[str]:
    """Filters by a label that the metric does not have, or by a value that it cannot have."""
    for name, matchers in SELECTOR.findall(expr):
        for label, operator, value in MATCHER.findall(matchers):
            values = known[name].get(label)
            if label in ADDED_LABELS:
                continue
            if values is None:
                yield f"{name} has no label {label}"
            elif values and operator in ("=", "=~") and not set(value.split("|")) <= values:
                yield f"{name} has no {label} {value}"


@async_test
async def test_every_expression_asks_for_what_the_pages_say(tmp_path: Path) -> None:
    known = await known_samples(tmp_path)
    all_expressions = list(expressions())
    assert len(all_expressions) > 50
    for expr in all_expressions:
        names = names_in(expr)
        assert names, f"no metric in {expr}"
        assert names <= known.keys(), expr
        assert list(wrong_matchers(expr, known)) == [], expr
        for grouping in GROUPING.findall(expr):
            labels = {label.strip() for label in grouping.split(",")}
            assert labels <= ADDED_LABELS.union(*(known[name] for name in names)), expr


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("rate(callboard_gone_total[5m])", {"callboard_gone_total"}),
        ('sum by (state) (a{b="c d"}) > 1e9 and on (x) d', {"a", "d"}),
        ("60 * histogram_quantile(0.95, sum by (le) (rate(e_bucket[1h])))", {"e_bucket"}),
    ],
)
def test_names_are_found_in_expressions(expr: str, expected: set[str]) -> None:
    assert names_in(expr) == expected


def test_wrong_labels_and_values_are_found() -> None:
    known = {"a": {"state": {"Stable", "Empty"}}}
    assert list(wrong_matchers('a{state=~"Stable|Empty",instance="x"}', known)) == []
    assert list(wrong_matchers('a{state="stable"}', known)) == ["a has no state stable"]
    assert list(wrong_matchers('a{phase="join"}', known)) == ["a has no label phase"]


def test_alert_rules_are_complete(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        alerts.main([])
    text = capsys.readouterr().out
    assert text == alerts.RULES.read_text()
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))


def test_dashboard_is_json_with_panels_that_do_not_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        dashboard.main([])
    board = json.loads(capsys.readouterr().out)
    assert board == dashboard.make_dashboard()
    panels = list(all_panels(board))
    assert len(panels) == len(ROWS) + sum(len(row.panels) for row in ROWS)
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [cell for panel in panels for cell in cells_of(panel["gridPos"])]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
    for panel in panels:
        queries = panel.get("targets", [])
        assert len({query["refId"] for query in queries}) == len(queries)
        assert all('instance=~"$instance"' in query["expr"] and "{I" not in query["expr"] for query in queries)


def cells_of(position: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(position["x"], position["x"] + position["w"]):
        for y in range(position["y"], position["y"] + position["h"]):
            yield x, y


@async_test
async def test_variable_of_the_dashboard_asks_for_an_existing_metric(tmp_path: Path) -> None:
    [_, variable] = dashboard.make_dashboard()["templating"]["list"]
    [name] = re.findall(r"label_values\((\w+), instance\)", variable["query"]["query"])
    assert name in await known_samples(tmp_path)
