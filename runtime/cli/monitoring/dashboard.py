"""``callboard dashboard``: prints a dashboard for Grafana."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from ...common.printing import print_json
from ..main import make_app
from .panels import ROWS, Panel, Query, Row

SCHEMA_VERSION = 39  # Grafana 10.4; later versions migrate it
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
FILTER = 'instance=~"$instance"'
NUMBER_OPTIONS = {"reduceOptions": {"calcs": ["lastNotNull"]}}
GRAPH_OPTIONS = {
    "legend": {"displayMode": "list", "placement": "bottom"},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
PANEL_WIDTH, PANEL_HEIGHT = 6, 8  # a row of the grid is 24 wide

app = make_app()


@app.command("dashboard")
def print_dashboard() -> None:
    """Print a dashboard for Grafana, as JSON to import. Its data source is Prometheus, which scrapes /metrics.

    The last two rows also need the options --request-metrics and --group-metrics; see docs/metrics.md.
    """
    print_json(make_dashboard())


def main(argv: Sequence[str]) -> int:
    app(list(argv), prog_name="callboard dashboard")
    return 0


def make_dashboard() -> dict[str, Any]:
    return {
        "title": "Callboard",
        "uid": "callboard",
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "tags": ["kafka", "callboard"],
        "timezone": "browser",
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), _instance_variable()]},
        "panels": list(_panels(ROWS)),
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}


def _instance_variable() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Server",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(callboard_ready, instance)", "refId": "instance"},
        "refresh": 2,  # when the range of times changes
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    numbers, y = count(1), 0
    for row in rows:
        row_number = next(numbers)
        panels = [
            _panel(panel, next(numbers), x, y + 1) for panel, x in zip(row.panels, count(0, PANEL_WIDTH), strict=False)
        ]
        yield {
            "type": "row",
            "id": row_number,
            "title": row.title,
            "collapsed": not row.is_open,
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
            "panels": [] if row.is_open else panels,
        }
        if row.is_open:
            yield from panels
        y += 1 + PANEL_HEIGHT


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "id": number,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": {"h": PANEL_HEIGHT, "w": PANEL_WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": NUMBER_OPTIONS if panel.is_number else GRAPH_OPTIONS,
        "targets": [_target(query, letter) for query, letter in zip(panel.queries, "ABCDEFGH", strict=False)],
    }


def _target(query: Query, letter: str) -> dict[str, Any]:
    return {"refId": letter, "datasource": SOURCE, "expr": with_filter(query.expr), "legendFormat": query.legend}


def with_filter(expr: str) -> str:
    """The expression for the chosen servers, see ``Query``."""
    return expr.replace("{I", "{" + FILTER)
