"""The settings of the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..common.errors import StartError
from .rows import LONG_MAX, row, text_row

NONE: Final = "none"
FILE: Final = "file"
STDOUT: Final = "stdout"


@dataclass(frozen=True)
class AuditRows:
    """A part of ``table.Settings``. Without slots, since several bases of a class cannot have them."""

    audit: str = text_row(
        NONE,
        "Where the audit trail goes: to audit.jsonl in the data folder (file), to standard output, or nowhere. Not in"
        " Kafka.",
        (NONE, FILE, STDOUT),
    )
    audit_required: bool = row(
        False, "Changes are refused with KAFKA_STORAGE_ERROR while the audit trail cannot be written. Not in Kafka."
    )
    audit_file_max_bytes: int = row(
        104_857_600,
        "The file of the audit trail is replaced by a new one at this size. Not in Kafka.",
        4096,
        LONG_MAX,
    )
    audit_files_max: int = row(
        10,
        "Files of the audit trail that are kept, with the one that is written; the oldest is deleted. Not in Kafka.",
        1,
        1000,
    )


def check_audit(settings: AuditRows) -> None:
    """Raise StartError if an audit trail is required, and there is none."""
    if settings.audit_required and settings.audit == NONE:
        raise StartError("audit_required=true needs an audit trail: set audit=file, or audit=stdout")
