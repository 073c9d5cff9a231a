"""Lines of actors, which use ``logging``, in the log of ``callboard serve``."""

from __future__ import annotations

import json
import subprocess
import sys

from callboard.actors.group.states import State
from callboard.actors.text import LogLine

PROGRAM = """
import io, logging
from callboard.actors.text import LogLine
from callboard.runtime.common import logs
stream = io.StringIO()
logs.configure(stream)
log = logging.getLogger("callboard.actors")
log.info(LogLine("group rebalanced", {"group": "g", "joined": 2}))
log.info("about %s", "it")
log.debug(LogLine("member added", {"group": "g"}))
logs.get_logger("callboard.runtime").info("started", port=1)
logging.getLogger("other").info("not logged")
print(stream.getvalue())
"""


def test_lines_of_actors_have_their_fields() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in completed.stdout.split("\n") if line]
    assert [{name: line[name] for name in line if name != "timestamp"} for line in lines] == [
        {"event": "group rebalanced", "level": "info", "logger": "callboard.actors", "group": "g", "joined": 2},
        {"event": "about it", "level": "info", "logger": "callboard.actors"},
        {"event": "started", "level": "info", "logger": "callboard.runtime", "port": 1},
    ]
    assert {tuple(line)[:4] for line in lines} == {("timestamp", "level", "logger", "event")}


def test_line_as_text_has_its_fields() -> None:
    program = "import logging; from callboard.runtime.common import logs; logging.basicConfig(level=logging.INFO);"
    program += 'logs.get_logger("callboard.test").info("started", port=9092, name="a b")'
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stderr == "INFO:callboard.test:started port=9092 name='a b'\n"


def test_enumerations_are_logged_as_their_values() -> None:
    """``logging`` in a host program showed ``state=<State.EMPTY: 'Empty'>``."""
    line = LogLine("group rebalanced", {"group": "g\n", "state": State.EMPTY, "generation": 3, "error": None})
    assert str(line) == r"group rebalanced group='g\n' state='Empty' generation=3 error=None"
