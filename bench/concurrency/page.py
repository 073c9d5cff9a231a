"""The parts of the report's page: style, text, tables and pictures as HTML, all in one file."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Container, Iterable, Sequence
from html import escape

from callboard.bench.concurrency.styles import STYLES, style

CSS = """
:root { color-scheme: light; }
body { background: #fff; color: #1c1c1c; font: 17px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
  Arial, sans-serif; margin: 0 auto; max-width: 66rem; padding: 2.5rem 1.5rem 5rem; }
h1 { font-size: 2.1rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { border-top: 2px solid #1c1c1c; font-size: 1.45rem; margin: 3.2rem 0 .8rem; padding-top: .7rem; }
h3 { font-size: 1.12rem; margin: 2rem 0 .4rem; }
p, ul, ol, dl { max-width: 46rem; }
li { margin: .35rem 0; }
.sub { color: #555; margin-top: 0; }
.short { background: #f3f5f8; border-left: 5px solid #1450f5; margin: 1.6rem 0; max-width: 44rem;
  padding: .8rem 1.2rem; }
.short p { margin: .4rem 0; }
code { background: #f1f1f1; border-radius: 3px; font: .88em ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  overflow-wrap: anywhere; padding: .1em .3em; }
.engine { font-weight: 600; white-space: nowrap; }
.engine i, td i { border-radius: 2px; display: inline-block; height: .7em; margin-right: .35em; width: .7em; }
.wide { margin: .8rem 0 1.4rem; overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; line-height: 1.35; }
caption { color: #333; font-weight: 600; padding: .2rem 0 .4rem; text-align: left; }
th { border-bottom: 2px solid #888; font-weight: 600; padding: .35rem .6rem; text-align: right;
  vertical-align: bottom; }
td { border-bottom: 1px solid #e2e2e2; padding: .38rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
.left { text-align: left; }
.words td { text-align: left; vertical-align: top; white-space: normal; }
.words th { text-align: left; }
.words td:first-child { white-space: nowrap; }
td.best { font-weight: 700; }
td.best::before { color: #555; content: "\\2022\\00a0"; }
tr.base td { background: #f6f6f6; }
td.bad { color: #a30d0d; font-weight: 700; }
td .range { color: #666; font-size: .9em; font-weight: 400; }
figure { margin: 1.2rem 0 1.8rem; }
figure img { display: block; height: auto; max-width: 100%; }
figcaption { color: #555; font-size: .88rem; margin-top: .3rem; max-width: 46rem; }
dt { font-weight: 600; margin-top: .7rem; }
dd { margin-left: 0; }
@media print { body { font-size: 11pt; max-width: none; padding: 0; } figure, table { break-inside: avoid; } }
"""

_ENGINES = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(STYLES, key=len, reverse=True))})(?![\w-])")


class HtmlCell(str):
    """A table cell that is already HTML, with its CSS class."""

    kind: str

    def __new__(cls, html: str, kind: str = "") -> HtmlCell:
        cell = super().__new__(cls, html)
        cell.kind = kind
        return cell


def text(words: str) -> str:
    """Escape text, and mark the names of engines with their colour."""
    return _ENGINES.sub(lambda match: engine(match[0]), escape(words))


def engine(name: str) -> HtmlCell:
    return HtmlCell(f'<span class="engine"><i style="background:{style(name).colour}"></i>{escape(name)}</span>')


def paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{text(sentence)}</p>\n" for sentence in sentences)


def points(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{text(sentence)}</li>\n" for sentence in sentences)
    return f"<ul>\n{items}</ul>\n" if items else ""


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of terms and their definitions."""
    return (
        "<dl>\n"
        + "".join(f"<dt>{text(term)}</dt><dd>{text(definition)}</dd>\n" for term, definition in pairs)
        + "</dl>\n"
    )


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    kind: str = "",
    left: Container[int] = (0,),
) -> str:
    """A table; each row with its class, figures to the right. A plain string is escaped, a ``HtmlCell`` is not."""
    head = "".join(
        f'<th scope="col"{_alignment(index, left)}>{escape(column)}</th>' for index, column in enumerate(columns)
    )
    body = "".join(
        f'<tr class="{name}">{"".join(_cell(cell, index in left) for index, cell in enumerate(cells))}</tr>\n'
        for name, cells in rows
    )
    title = f"<caption>{text(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide"><table class="{kind}">{title}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n"
    )


def _cell(content: str, is_left: bool) -> str:
    kinds = [content.kind if isinstance(content, HtmlCell) else "", "left" if is_left else ""]
    html = content if isinstance(content, HtmlCell) else escape(content)
    return f'<td class="{" ".join(filter(None, kinds))}">{html}</td>'


def _alignment(index: int, left_columns: Container[int]) -> str:
    return ' class="left"' if index in left_columns else ""


def snapshot(png: bytes | None, alt: str, caption: str) -> str:
    """A PNG inside the page; empty for None."""
    if png is None:
        return ""
    data = b64encode(png).decode()
    source = f"data:image/png;base64,{data}"
    return f'<figure><img src="{source}" alt="{escape(alt)}"><figcaption>{text(caption)}</figcaption></figure>\n'


def page(title: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
