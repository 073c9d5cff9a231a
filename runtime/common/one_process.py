"""OfOneProcess: objects that make no sense in another process."""

from __future__ import annotations

from typing import NoReturn


class OfOneProcess:
    """It cannot be pickled or copied, for example as an argument of a ``multiprocessing.Process``."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied: pass the address of the server, such as "
            "coordinator.bootstrap, and call callboard.connect(bootstrap) or connect_in_thread(bootstrap) in the other "
            "process"
        )
