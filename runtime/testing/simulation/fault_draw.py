"""Numbers the faults of a simulated run, so that a run can be repeated with only some of them.

Every injected fault asks ``permits`` first, and gets the next number. A fault that is left out does not change the
random numbers drawn later. A failing run is shrunk in this way to the few faults that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection


class FaultDraw:
    """Counts the faults of one run. ``only``: the numbers of permitted faults; None: all.

    ``happened``: number and description of each injected fault.
    """

    def __init__(self, only: Collection[int] | None, tell: Callable[[str], None]) -> None:
        self.happened: dict[int, str] = {}
        self._only = None if only is None else frozenset(only)
        self._tell = tell
        self._count = 0

    def permits(self, kind: str, detail: str = "") -> bool:
        """Count a fault. Returns whether it may be injected."""
        self._count += 1
        if self._only is not None and self._count not in self._only:
            return False
        text = f"{kind} {detail}".rstrip()
        self.happened[self._count] = text
        self._tell(f"fault {self._count}: {text}")
        return True
