"""The report as one self-contained HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ...actors.text import printable
from ...runtime.cli.tables import Table, format_number

CSS = """
:root { color-scheme: light; }
body { background: #fff; color: #1c1c1c; font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, Arial,
  sans-serif; margin: 0 auto; max-width: 64rem; padding: 2rem 1.4rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { border-top: 2px solid #1c1c1c; font-size: 1.35rem; margin: 2.8rem 0 .5rem; padding-top: .6rem; }
p { margin: .4rem 0; max-width: 46rem; }
.sub, .rest { color: #555; }
nav a { margin-right: 1rem; white-space: nowrap; }
figure { margin: .9rem 0 1.2rem; }
figure svg { display: block; height: auto; max-width: 100%; }
.wide { margin: .6rem 0; overflow-x: auto; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; line-height: 1.35; }
th { border-bottom: 2px solid #888; padding: .3rem .6rem; text-align: left; vertical-align: bottom; }
td { border-bottom: 1px solid #e2e2e2; max-width: 22rem; overflow-wrap: anywhere; padding: .32rem .6rem; }
.number { text-align: right; white-space: nowrap; }
@media print { body { font-size: 10.5pt; max-width: none; padding: 0; } figure, tr { break-inside: avoid; } }
"""


def section(name: str, title: str, explanation: str, body: str) -> str:
    return f'<h2 id="{escape(name)}">{escape(title)}</h2>\n<p>{escape(explanation)}</p>\n{body}'


def note(text: str) -> str:
    return f'<p class="rest">{escape(printable(text))}</p>\n'


def figure(svg: str, alt: str) -> str:
    return f'<figure role="img" aria-label="{escape(alt)}">{svg}</figure>\n'


def table(content: Table, rest: str) -> str:
    """A table, and below it a line about the rows that are not shown; none if ``rest`` is empty."""
    kinds = [' class="number"' if column.is_number else "" for column in content.columns]
    head = "".join(f"<th{kind}>{escape(col.title)}</th>" for col, kind in zip(content.columns, kinds, strict=True))
    lines = "".join(
        "<tr>" + "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>\n"
        for row in content.rows
    )
    note_html = note(rest) if rest else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table></div>\n{note_html}'


def page(title: str, facts: Iterable[str], contents: Sequence[tuple[str, str]], body: str) -> str:
    links = "".join(f'<a href="#{escape(name)}">{escape(text)}</a> ' for name, text in contents)
    lines = "".join(f'<p class="sub">{escape(fact)}</p>\n' for fact in facts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"{lines}<nav>{links}</nav>\n{body}</body>\n</html>\n"
    )


def _cell(cell: str | int | None) -> str:
    if cell is None or cell == "":
        return "-"
    return format_number(cell) if isinstance(cell, int) else escape(printable(cell))
