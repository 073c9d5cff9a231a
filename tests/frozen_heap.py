"""A heap that collections of garbage skip: modules and collected tests, which live until the end."""

from __future__ import annotations

import gc

_freeze, _unfreeze = gc.freeze, gc.unfreeze


class FrozenHeap:
    """Freezes the heap, and again after a test has frozen or unfrozen it.

    With everything unfrozen, a collection in a run of all tests takes most of a second.
    """

    def __init__(self) -> None:
        self._is_changed = True

    def watch(self) -> None:
        """Notice whoever freezes or unfreezes the heap."""

        def freeze() -> None:
            self._is_changed = True
            _freeze()

        def unfreeze() -> None:
            self._is_changed = True
            _unfreeze()

        gc.freeze, gc.unfreeze = freeze, unfreeze

    def restore(self) -> None:
        if self._is_changed:
            _unfreeze()
            gc.collect()
            _freeze()
            self._is_changed = False
