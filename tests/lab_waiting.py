"""Measurements of the lab that last until enough requests were handled, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from callboard.bench.concurrency import measured_process
from callboard.bench.concurrency.engines import Engine


def until_handled(engine: Engine, requests_min: int) -> Callable[[float], None]:
    """Waits until the seconds of the plan have passed and ``requests_min`` requests were handled."""

    def wait(seconds: float) -> None:
        while engine.clock.monotonic_ms() < seconds * 1000 or handled() < requests_min:
            time.sleep(0.002)

    def handled() -> int:
        return sum(cell.handled for cell in engine.cells)

    return wait


def measure_until_handled(monkeypatch: pytest.MonkeyPatch, requests_min: int) -> None:
    """Make the command line of a measurement wait for requests."""
    monkeypatch.setattr(measured_process, "measure", partial(_measure, measured_process.measure, requests_min))


def _measure(measure: Any, requests_min: int, engine: Engine, *arguments: Any, **options: Any) -> Any:
    return measure(engine, *arguments, wait=until_handled(engine, requests_min), **options)
