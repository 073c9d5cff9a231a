"""Which build of Python this is, in one line. One without optimisations needs up to 37 % more time."""

from __future__ import annotations

import platform
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOT_STATED = "not stated"
MEMORY_MAP = Path("/proc/self/maps")


def python_build() -> str:
    """This interpreter, its compiler and its optimisations, for log lines and the results of measurements."""
    name = f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}"
    return f"{name}, {build_features(sysconfig.get_config_vars(), libpython_is_shared(), gil_is_enabled())}"


def build_features(config: Mapping[str, Any], is_shared: bool | None, has_gil: bool) -> str:
    """What the build's configuration says.

    Args:
        config: Python's build variables, as of ``sysconfig``. An option that is missing there may have been used all
            the same: some distributions optimise by other means than the options of ``configure``.
        is_shared: whether the interpreter is a shared library, which costs time; None if it is not known.
        has_gil: whether the global interpreter lock is switched on.
    """
    options = shlex.split(str(config.get("CONFIG_ARGS") or ""))
    features = [
        f"PGO {_switch(options, '--enable-optimizations', '--disable-optimizations')}",
        f"LTO {_switch(options, '--with-lto', '--without-lto')}",
    ]
    if is_shared is not None:
        features.append("libpython shared" if is_shared else "libpython in the executable")
    if config.get("Py_DEBUG"):
        features.append("debug build")
    if config.get("Py_GIL_DISABLED"):
        features.append(f"free-threaded, GIL {'on' if has_gil else 'off'}")
    return ", ".join(features)


def _switch(options: list[str], on: str, off: str) -> str:
    """The last option of ``configure`` counts: ``--with-lto``, ``--with-lto=thin``, ``--without-lto``."""
    state = NOT_STATED
    for option in options:
        name, _, value = option.partition("=")
        if name == on:
            state = "no" if value == "no" else f"yes ({value})" if value not in ("", "yes") else "yes"
        elif name == off:
            state = "no"
    return state


def libpython_is_shared(memory_map: Path = MEMORY_MAP) -> bool | None:
    """Whether this process has loaded libpython. ``sysconfig`` does not know: some builds have both forms."""
    try:
        return "/libpython" in memory_map.read_text()
    except OSError:
        return None


def gil_is_enabled() -> bool:
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # since Python 3.13
    return True if is_enabled is None else bool(is_enabled())
