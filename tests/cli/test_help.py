"""Tests of help and shell completion: they are complete, and import no library that they do not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from program_helpers import DEADLINE_S, PROGRAM

from callboard.runtime.cli.main import COMMANDS

SLOW_TO_IMPORT = (
    *("pyspark", "py4j", "pyarrow", "pandas", "numpy", "matplotlib"),
    *("asyncio", "kio", "pydantic", "rich", "structlog", "uvloop", "prometheus_client"),
)

SCRIPT = """
import contextlib, io, json, sys
from importlib import import_module
from callboard.runtime.cli.main import COMMANDS
from command_walk import walk_commands

printed = {}
for line in walk_commands():
    name, *rest = line.words
    for option in ("--help", "-h"):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            import_module(COMMANDS[name].module).main([*rest, option])
        printed[" ".join((*line.words, option))] = out.getvalue()
json.dump([printed, sorted(name for name in sys.argv[1:] if sys.modules.get(name) is not None)], sys.stdout)
"""


def test_help_of_each_command_imports_no_slow_library() -> None:
    """The test checks imports, since durations depend on the machine."""
    paths = os.pathsep.join(sys.path)
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT, *SLOW_TO_IMPORT],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    printed, imported = json.loads(completed.stdout)
    assert imported == []
    assert [words for words, text in printed.items() if not text.startswith("Usage: callboard")] == []
    assert {"log dump -h", "history keep --help", "analyse gaps --help", "report --help"} <= printed.keys()


OWN_SCRIPT = """
import contextlib, io, sys
from importlib import import_module
from callboard.runtime.cli.main import COMMANDS

for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        import_module(COMMANDS[name].module).main(["--help"])
print(*sorted(name for name in sys.modules if name.startswith("callboard.")))
"""


def test_help_of_commands_on_files_imports_only_options() -> None:
    """The names are those of packages that read and write the log, or talk to a server."""
    commands = ["serve", "log", "export", "import", "compact", "backup", "worker", "history", "analyse", "report"]
    completed = subprocess.run(
        [sys.executable, "-c", OWN_SCRIPT, *commands], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    imported = completed.stdout.split()
    assert "callboard.runtime.cli.log.commands" in imported, completed.stderr
    imported.remove("callboard.runtime.log")
    for name in ("", ".defaults"):
        imported.remove(f"callboard.runtime.log.compaction{name}")
    work = ("actors.group", "runtime.log", "runtime.kafka", "runtime.client.cluster", "runtime.node", "spark.history")
    assert [name for name in imported if name.removeprefix("callboard.").startswith(work)] == []


@pytest.mark.parametrize("command", ["history", "analyse", "report"])
def test_help_without_spark_is_printed(command: str) -> None:
    program = f"import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None; sys.argv[1:] = ['{command}', '-h']"
    program += "; from callboard.runtime.cli.main import main; main()"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.startswith(f"Usage: callboard {command}")


def complete(*words: str) -> list[str]:
    """What bash offers for the last word."""
    environment = {
        **os.environ,
        "_CALLBOARD_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("callboard", *words)),
        "COMP_CWORD": str(len(words)),
    }
    completed = subprocess.run(
        PROGRAM, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return completed.stdout.split()


def test_shell_completion_offers_commands_and_their_options() -> None:
    assert set(complete("")) == COMMANDS.keys()
    assert complete("se") == ["serve", "settings"]
    assert complete("groups", "re") == ["reset", "resets"]
    assert complete("serve", "--met") == ["--metrics", "--metrics-lag"]
    assert complete("history", "keep", "--da") == ["--data"]


def test_completion_script_of_bash_is_shown() -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    completed = subprocess.run(
        [*PROGRAM, "--show-completion", "bash"], env=environment, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0 and "_CALLBOARD_COMPLETE=complete_bash" in completed.stdout
