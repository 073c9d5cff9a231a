"""The description of a build of Python says what its configuration states, and no more."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from callboard.bench.harness import machine, print_table
from callboard.runtime.common.python_build import build_features, libpython_is_shared, python_build


@pytest.mark.parametrize(
    ("config", "is_shared", "has_gil", "expected"),
    [
        ({}, None, True, "PGO not stated, LTO not stated"),
        ({"CONFIG_ARGS": None}, True, True, "PGO not stated, LTO not stated, libpython shared"),
        (
            {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto' 'CFLAGS=-O2 -g'"},
            False,
            True,
            "PGO yes, LTO yes, libpython in the executable",
        ),
        ({"CONFIG_ARGS": "--enable-optimizations=no --with-lto=thin"}, None, True, "PGO no, LTO yes (thin)"),
        (
            {"CONFIG_ARGS": "--with-lto --without-lto --disable-optimizations", "Py_DEBUG": 1},
            None,
            True,
            "PGO no, LTO no, debug build",
        ),
        ({"Py_GIL_DISABLED": 1}, None, False, "PGO not stated, LTO not stated, free-threaded, GIL off"),
        ({"Py_GIL_DISABLED": 1}, None, True, "PGO not stated, LTO not stated, free-threaded, GIL on"),
    ],
)
def test_features_are_those_of_the_configuration(
    config: dict[str, Any], is_shared: bool | None, has_gil: bool, expected: str
) -> None:
    assert build_features(config, is_shared, has_gil) == expected


def test_libpython_is_found_in_the_memory_map(tmp_path: Path) -> None:
    memory_map = tmp_path / "maps"
    assert libpython_is_shared(memory_map) is None
    memory_map.write_text("7f0-7f1 r-xp 0 fe:01 1 /usr/lib/libpython3.11.so.1.0\n")
    assert libpython_is_shared(memory_map) is True
    memory_map.write_text("7f0-7f1 r-xp 0 fe:01 1 /usr/bin/python3.11\n")
    assert libpython_is_shared(memory_map) is False


def test_tables_and_results_of_benchmarks_name_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    build = python_build()
    assert build.startswith(f"{platform.python_implementation()} {platform.python_version()}, ")
    assert "\n" not in build
    assert machine()["python_build"] == build
    print_table("title", ["what", "us"], [["a", "1"]], ["a note"])
    assert f"- a note\n- Measured with {build}." in capsys.readouterr().out
    print_table("title", ["what", "us"], [["a", "1"]], [], python="")
    assert "Measured" not in capsys.readouterr().out
