"""docs/operate.md has each cause, finding, phase and field of a record, and no others."""

from __future__ import annotations

import re

from doc_pages import DOCS, dead_links

from callboard.actors.recorder.causes import OTHER, TEXTS
from callboard.actors.recorder.detectors import DETECTORS
from callboard.actors.recorder.record import MemberChanges, Moves, RebalanceRecord, Why
from callboard.actors.recorder.sentence import PHASE_TEXTS
from callboard.runtime.settings.table import BY_NAME

PAGE = DOCS / "operate.md"


def first_cells(header: str, column: int = 1) -> set[str]:
    """The names in a column of the table with this header."""
    table = PAGE.read_text().partition(f"{header}\n")[2].partition("\n\n")[0]
    cells = [line.split("|")[column] for line in table.splitlines()[1:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_causes_are_those_of_records() -> None:
    assert first_cells("| cause | because | what to look at |") == TEXTS.keys() - {OTHER}


def test_findings_are_those_of_the_detectors() -> None:
    assert len(first_cells("| detector | rule |")) == len(DETECTORS)


def test_phases_are_those_of_records() -> None:
    assert first_cells("| protocol | phase | what happens |", column=2) == PHASE_TEXTS.keys()


def test_fields_are_those_of_records_and_moves() -> None:
    parts = {*RebalanceRecord._fields, *Why._fields, *MemberChanges._fields} - {"why", "members"}
    assert first_cells("| field of a record | what it is |") == parts
    assert first_cells("| field of `moves` | what it is |") | {"moved_partitions"} == set(Moves._fields)


def test_settings_of_files_have_their_defaults() -> None:
    rows = re.findall(r"^\| `(events_\w+)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [(name, str(BY_NAME[name].default)) for name in BY_NAME if name.startswith("events_")]


def test_links_lead_somewhere() -> None:
    assert dead_links(PAGE) == []
