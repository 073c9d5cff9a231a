"""The log line of a retention scan that has deleted offsets: how many, and because of which setting."""

from __future__ import annotations

from ...actors.group.effects import ExpiredCounts
from ..common.logs import get_logger
from ..settings.dynamic import DynamicSettings

SETTING = "offsets_retention_minutes"

log = get_logger("callboard.runtime")


def log_expiry(configs: DynamicSettings, expired: ExpiredCounts) -> None:
    """Log the deletions of one scan. The field ``source`` says where the value of the setting comes from."""
    log.info(
        "old offsets were deleted",
        offsets=expired.offsets,
        groups=expired.groups,
        deleted_groups=expired.deleted_groups,
        setting=SETTING,
        value=getattr(configs.settings, SETTING),
        source=configs.origin(SETTING),
    )
