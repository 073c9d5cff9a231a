"""The faults of a simulated run, by number: so that a run can be repeated with only some of them.

Whatever goes wrong on purpose asks here first. Each fault has a number, in the order of their coming; one that is left
out does not happen, and nothing that is drawn afterwards is another for it. That is how a failure is shrunk: to the few
faults without which it does not come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection


class FaultDraw:
    """Counts the faults of one run. ``only``: the numbers of those that may happen; all, if None.

    ``happened``: number and description of each that did.
    """

    def __init__(self, only: Collection[int] | None, tell: Callable[[str], None]) -> None:
        self.happened: dict[int, str] = {}
        self._only = None if only is None else frozenset(only)
        self._tell = tell
        self._count = 0

    def permits(self, kind: str, detail: str = "") -> bool:
        """Whether a fault that is due is to happen."""
        self._count += 1
        if self._only is not None and self._count not in self._only:
            return False
        text = f"{kind} {detail}".rstrip()
        self.happened[self._count] = text
        self._tell(f"fault {self._count}: {text}")
        return True
