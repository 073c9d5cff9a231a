"""``callboard report``: answers all questions about an offsets log in one HTML page with plots.

Exit codes as for ``callboard analyse``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...runtime.cli.main import make_app
from ...runtime.cli.tables import format_number
from ...runtime.common.errors import StartError
from ...runtime.common.printing import print_error, print_line
from ...runtime.disk.output_file import new_output_file
from ..session import session
from .questions import DataOption, NowOption, SinceOption, TableOption, parse_query_input
from .running import FAILED_EXIT_CODE, Master, run_app

app = make_app()


@app.command("report")
def report(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="The page to write.")] = Path(
        "report.html"
    ),
    data: DataOption = None,
    table: TableOption = None,
    since: SinceOption = None,
    now: NowOption = None,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", metavar="DIR", help="Also write each plot as a PNG file.")
    ] = None,
    master: Master = None,
) -> None:
    """Answer all questions about an offsets log in one self-contained HTML page.

    A question that fails is a line of the page; the exit code is 1 then.
    """
    from ..analysis import plots
    from ..analysis.report import render_report

    plots.require()
    if output.is_dir():
        raise StartError(f"bad --output '{output}': found a folder, expected the name of a file")
    for folder, name in ((output.absolute().parent, "--output"), (pictures, "--pictures")):
        if folder is not None and not folder.is_dir():
            raise StartError(f"bad {name}: found no folder {folder}; create it first")
    query = parse_query_input(data, table, since, now)
    with session("callboard report", master) as spark:
        finished = render_report(spark, query, pictures)
        with new_output_file(output) as path:
            path.write_text(finished.html, encoding="utf-8")
    print_line(f"{output}: {format_number(output.stat().st_size)} bytes")
    for name, failure in finished.failures.items():
        print_error(f"{name}: {failure}")
    if finished.failures:
        raise typer.Exit(FAILED_EXIT_CODE)


def main(argv: Sequence[str]) -> int:
    return run_app(app, argv, "callboard report")
