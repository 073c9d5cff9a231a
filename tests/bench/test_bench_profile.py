"""``callboard bench profile``: the shares and the picture of given stacks, and a run with a program for py-spy's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from callboard.bench import profile
from callboard.bench.__main__ import main as bench_main
from callboard.bench.flame_graph import Box, boxes, flame_graph, package, parse_samples, shares
from callboard.bench.harness import BenchError

OUTER = "main (runtime/cli/main.py);Runner.run (asyncio/runners.py)"
PUMP, TURN, LOG = "pump (runtime/engine/d.py)", "run_turn (actors/turn.py)", "write (runtime/disk/disk.py)"
STACKS = f"""\
{OUTER};{PUMP};{TURN} 5
{OUTER};{PUMP} 2
{OUTER};{PUMP};{TURN};<lambda> (<string>) 1
_bootstrap (threading.py);Thread.run (threading.py);{LOG} 2
"""
SAMPLES = {(PUMP, TURN): 5, (PUMP,): 2, (PUMP, TURN, "<lambda> (<string>)"): 1, (LOG,): 2}


def test_samples_begin_below_the_frames_that_all_have() -> None:
    assert parse_samples(STACKS) == SAMPLES
    assert parse_samples(f"{OUTER} 3\n") == {("Runner.run (asyncio/runners.py)",): 3}
    assert parse_samples("f (callboard/actors/turn.py) 3\n") == {("f (actors/turn.py)",): 3}


def test_share_is_that_of_the_innermost_function() -> None:
    assert shares(SAMPLES, package) == [
        ("actors", 0.5),
        ("runtime/engine", 0.2),
        ("runtime/disk", 0.2),
        ("libraries", 0.1),
    ]
    assert shares(SAMPLES, str)[0] == (TURN, 0.5)


def test_package_is_the_folder_of_the_module() -> None:
    assert package("f (runtime/kafka/codec/x.py)") == "runtime/kafka/codec"
    assert package("main (typer/main.py)") == "libraries"


def test_boxes_have_the_samples_of_the_functions_below_them() -> None:
    assert list(boxes(SAMPLES)) == [
        Box(PUMP, 0, 0, 8),
        Box(TURN, 1, 0, 6),
        Box("<lambda> (<string>)", 2, 0, 1),
        Box(LOG, 0, 8, 2),
    ]


def test_flame_graph_is_svg_with_escaped_names() -> None:
    root = ElementTree.fromstring(flame_graph(SAMPLES, "a & b"))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [f"{PUMP}: 80.0%", f"{TURN}: 60.0%", "<lambda> (<string>): 10.0%", f"{LOG}: 20.0%"]
    widths = [float(each.attrib["width"]) for each in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths == pytest.approx([943.5, 707.5, 117.5, 235.5])


def made_py_spy(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program that gets py-spy's arguments as ``$*``, the output file as the last of them."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(profile, "py_spy", lambda: str(path))
    monkeypatch.chdir(folder)


def test_samples_of_a_server_under_load_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profile, "ATTACH_S", 0.1)
    made_py_spy(tmp_path, monkeypatch, f"echo \"$*\" > {tmp_path}/arguments; printf '%s' '{STACKS}' > $last")
    arguments = ["--seconds", "1", "--connections", "2", "--output", "result.json", "--plot", "graph.svg"]
    assert bench_main(["profile", *arguments]) == 0, capsys.readouterr().err
    assert "run_turn (actors/turn.py)" in capsys.readouterr().out
    assert "--gil" in (tmp_path / "arguments").read_text()
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["schema"], result["samples"], result["packages"]["actors"]) == (1, 10, 0.5)
    assert result["requests_per_s"] > 0
    assert ElementTree.parse(tmp_path / "graph.svg").getroot().tag.endswith("svg")


def test_refusal_of_py_spy_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profile, "ATTACH_S", 0.1)
    made_py_spy(tmp_path, monkeypatch, "echo 'Permission Denied' >&2; exit 1")
    assert bench_main(["profile", "--seconds", "1", "--connections", "1", "--requests", "heartbeats"]) == 1
    error = capsys.readouterr().err
    assert "CAP_SYS_PTRACE" in error
    assert "Permission Denied" in error


def test_missing_py_spy_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BenchError, match=r"pip install 'callboard\[bench\]'"):
        profile.py_spy()


@pytest.mark.parametrize("argument", ["--seconds", "--in-flight", "--connections"])
def test_number_below_one_is_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_main(["profile", argument, "0"])
    assert f"{argument} 0" in capsys.readouterr().err
