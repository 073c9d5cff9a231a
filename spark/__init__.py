"""The offsets log in Spark: a data source, compaction, history and analysis.

Requires the extra ``pip install 'callboard[spark]'``, and Java 17. The libraries are imported with the first use of a
name (PEP 562), so that the help of commands does not need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .offsets import read_groups as read_groups
    from .offsets import read_offsets as read_offsets
    from .rebalances import read_rebalances as read_rebalances
    from .source import register as register

_HOMES = {"read_groups": "offsets", "read_offsets": "offsets", "read_rebalances": "rebalances", "register": "source"}
"""The module of each public name."""

__all__ = ["read_groups", "read_offsets", "read_rebalances", "register"]


if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .extra import require_extra

        require_extra()
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value  # so that the next access does not call this function
        return value


def __dir__() -> list[str]:
    return sorted((*_HOMES, "__doc__"))
