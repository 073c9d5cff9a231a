"""DecisionQueue: what waits for the entry in flight is decided in steps if one of the decisions is long."""

from __future__ import annotations

from typing import Any, cast

import pytest

from callboard.actors.group.decisions import Decided, DecisionQueue
from callboard.actors.group.effects import Effects
from callboard.actors.records import Record
from callboard.actors.steps import SHORT_WORK_ITEMS, Steps

RECORD = cast(Record, object())
SIZES = {"short": 0, "long": SHORT_WORK_ITEMS + 1}


def decide(message: Any, _effects: Effects) -> Steps[Decided]:
    yield
    return Decided(message, (RECORD,))


@pytest.mark.parametrize(
    ("waiting", "is_long"),
    [
        (["short"], False),
        (["short", "short"], False),
        (["long"], True),
        (["short", "long"], True),
        (["short"] * 100, True),
    ],
)
def test_waiting_decisions_are_made_in_steps_if_one_is_long(waiting: list[str], is_long: bool) -> None:
    queue = DecisionQueue(decide, SIZES.__getitem__)
    queue.submit("short", None, Effects())
    for message in waiting:
        queue.submit(message, None, Effects())
    effects = Effects()
    queue.appended(effects)
    assert bool(effects.work) is is_long
    effects.finish_work()
    assert len(effects.records) == len(waiting)
