"""``callboard bench memory``: its requests are accepted, and its figures are those of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from callboard.bench import memory
from callboard.bench.__main__ import main as bench_main
from callboard.bench.memory import ACCEPTED_RATIO, Row, counted_in
from callboard.bench.memory_fillings import FILLINGS, Filled

PAGE = """# HELP callboard_memory_bytes Memory
callboard_memory_bytes{kind="topics"} 1.5e+06
callboard_memory_bytes{kind="active groups"} 300.0
callboard_memory_limit_bytes 7.0
"""


def test_counted_bytes_are_those_of_all_kinds() -> None:
    assert counted_in(PAGE) == 1_500_300


@pytest.fixture
def busy_address() -> Iterator[str]:
    """A server whose third answer is a page; all others are errors."""
    answers = iter((503, 503, 200))

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(next(answers, 404))
            self.end_headers()
            self.wfile.write(b"page")

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_metrics_of_busy_server_are_asked_for_again(busy_address: str) -> None:
    assert memory._metrics_page(busy_address) == "page"
    with pytest.raises(OSError, match="GET /metrics was answered with 404"):
        memory._metrics_page(busy_address)


def test_ratio_is_that_of_peak_and_limit() -> None:
    row = Row("groups", "groups", Filled(1, True, 10), 200, 100, 300)
    assert row.ratio == 1.5 <= ACCEPTED_RATIO
    assert row._replace(peak_bytes=None).ratio is None
    assert [row._replace(peak_bytes=size).is_above for size in (None, 300, 301)] == [False, False, True]


@pytest.mark.parametrize(("arguments", "expected"), [(["--limit-mb", "1"], 1), (["--quick"], 0)])
def test_row_above_accepted_ratio_is_the_exit_status(
    arguments: list[str], expected: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Row("ids", "ids", Filled(1, True, 10), 200, 100, 301)
    monkeypatch.setattr(memory, "measure", lambda *_: row)
    assert bench_main(["memory", "--only", "ids", *arguments]) == expected
    assert "above 1.5 times the limit: ids" in capsys.readouterr().out


@pytest.mark.parametrize("name", [filling.name for filling in FILLINGS])
def test_quick_run_fills_a_server(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, members and ids until the server refuses more. The others are not refused but dropped or closed."""
    monkeypatch.chdir(tmp_path)
    assert bench_main(["memory", "--quick", "--only", name, "--output", "figures.json"]) == 0
    [row] = json.loads(Path("figures.json").read_text())["rows"]
    filled = row["filled"]
    assert filled["accepted"] > 0
    assert filled["is_refused"] == (name not in ("records", "unread", "half"))
    assert row["counted_bytes"] > row["limit_bytes"] / 4
    assert row["counted_bytes"] < 3 * row["limit_bytes"]
