"""``callboard alerts``: prints alert rules for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...common.printing import print_lines
from ..main import make_app

RULES = Path(__file__).with_name("alerts.yaml")

app = make_app()


@app.command("alerts")
def print_alerts() -> None:
    """Print alert rules for Prometheus, as YAML for its rule_files. They name the metrics of docs/metrics.md."""
    print_lines(RULES.read_text(encoding="utf-8").rstrip("\n"))


def main(argv: Sequence[str]) -> int:
    app(list(argv), prog_name="callboard alerts")
    return 0
