"""One setting as a row of the table, and the fields of dataclasses that the rows are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple, TypeVar

INT_MAX = 2**31 - 1  # Kafka's INT settings
LONG_MAX = 2**63 - 1  # Kafka's LONG settings

Number = TypeVar("Number", int, float, bool)

SettingValue = float | bool | str

DYNAMIC = frozenset(
    {
        "group_initial_rebalance_delay_ms",
        "group_min_session_timeout_ms",
        "group_max_session_timeout_ms",
        "group_max_size",
        "groups_max",
        "group_consumer_assignment_interval_ms",
        "offset_metadata_max_bytes",
        "offsets_max_per_group",
        "offsets_retention_minutes",
        "offsets_retention_check_interval_ms",
        "log_cleaner_backoff_ms",
        "log_cleaner_dedupe_buffer_size",
        "log_cleaner_delete_retention_ms",
        "log_cleaner_min_cleanable_ratio",
        "max_connections",
        "max_connection_creation_rate",
        "max_connections_per_ip",
        "max_connections_per_ip_overrides",
    }
)
"""Settings that may change while the server runs (``dynamic.py``): groups and the cleaner read them at each use.

The others are read at the start only, or are read-only in Kafka too.
"""

LISTENER_PREFIX: Final = "listener_name_"
"""With it and the name of a listener begins a setting of this listener. As rows there are only its limits."""


class TextForm(NamedTuple):
    """The form of a text. ``fits``: whether a text has it. ``expected`` says it to users, ``range`` in a few words."""

    fits: Callable[[str], bool]
    expected: str
    range: str


class Setting(NamedTuple):
    """One row of the table. ``minimum`` and ``maximum`` are None for a Boolean and a text.

    ``safe_minimum``: values below it delete offsets early or overload the server, and need ``--unsafe-settings``.
    ``choices``: the valid values of a text. ``form``: that of a text. Without both it is a list of names, separated by
    commas.
    """

    name: str
    type: type
    default: SettingValue
    minimum: float | None
    maximum: float | None
    doc: str
    safe_minimum: int | None = None
    choices: tuple[str, ...] | None = None
    form: TextForm | None = None

    @property
    def is_dynamic(self) -> bool:
        return self.name in DYNAMIC or self.name.startswith(LISTENER_PREFIX)

    @property
    def expected(self) -> str:
        if self.type is bool:
            return "true or false"
        if self.form is not None:
            return self.form.expected
        if self.type is str:
            return f"one of {', '.join(self.choices)}" if self.choices else "names, each once, separated by commas"
        return f"{'a number' if self.type is float else 'a whole number'} from {self.minimum} to {self.maximum}"

    @property
    def range(self) -> str:
        """The valid values, for a column of a table."""
        if self.type is bool:
            return "true, false"
        if self.form is not None:
            return self.form.range
        if self.type is str:
            return ", ".join(self.choices) if self.choices else "names"
        if self.safe_minimum is not None:
            return f"{self.safe_minimum}..{self.maximum} (unsafe: from {self.minimum})"
        return f"{self.minimum}..{self.maximum}"

    def has_type(self, value: object) -> bool:
        """Whether a value has the setting's type. True is not a number, but an integer is a valid float."""
        return type(value) is self.type or (self.type is float and type(value) is int)

    def fits(self, value: object) -> bool:
        """Whether a value has the setting's type and is in its range."""
        if not self.has_type(value):
            return False
        if isinstance(value, str):
            return self._fits_text(value)
        return not isinstance(value, int | float) or self.minimum is None or self._is_between(value)

    def _fits_text(self, value: str) -> bool:
        if self.form is not None:
            return self.form.fits(value)
        return value in self.choices if self.choices else _are_names(list_items(value))

    def _is_between(self, value: float) -> bool:
        return self.minimum is not None and self.maximum is not None and self.minimum <= value <= self.maximum


def list_items(text: str) -> list[str]:
    """The items of a list that is given as text."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _are_names(items: Sequence[str]) -> bool:
    return 0 < len(items) == len(set(items))


def row(
    default: Number,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    safe_minimum: int | None = None,
) -> Number:
    """A dataclass field of Settings. The annotation is the type of the attribute's value."""
    limits = {"minimum": minimum, "maximum": maximum, "safe_minimum": safe_minimum}
    dataclass_field: Any = field(default=default, metadata={**limits, "doc": doc})
    value: Number = dataclass_field
    return value


def text_row(default: str, doc: str, choices: tuple[str, ...] | None = None, form: TextForm | None = None) -> str:
    """The same for a text, or a list of names."""
    metadata = {"minimum": None, "maximum": None, "doc": doc, "choices": choices, "form": form}
    dataclass_field: Any = field(default=default, metadata=metadata)
    value: str = dataclass_field
    return value
