"""In which directions a group that has members may change its protocol (``group.consumer.migration.policy``)."""

from __future__ import annotations

from enum import StrEnum


class MigrationPolicy(StrEnum):
    """The values of the setting. An empty group always takes the protocol of the next member."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """From the classic to the consumer protocol."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """From the consumer to the classic protocol."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)
