"""The quota for partitions that clients create and delete, ``controller_mutation_rate`` (KIP-599)."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from ...security.quotas import MUTATION_RATE
from ..call import Call
from .client_quotas import MutationQuota

STRICT_FROM: Final = {"create_topics": 6, "delete_topics": 5, "create_partitions": 3, "metadata": 0}
"""The versions of each API from which on what is above the quota is refused."""


def mutation_quota(call: Call) -> MutationQuota | None:
    """The quota of the client of a request; None if there is no limit, or the request changes nothing."""
    if getattr(call.request, "validate_only", False):
        return None
    connection = call.connection
    is_strict = call.version >= STRICT_FROM[call.schema.name]
    return call.services.quotas.mutations(connection.principal.name, connection.client_id, is_strict=is_strict)


def charge(quota: MutationQuota | None, partitions: int) -> None:
    """Count partitions that are created or deleted. Raises CoordinatorError if the quota is used up."""
    if quota is not None:
        quota.charge(partitions)


def throttle(call: Call) -> timedelta:
    """How long the client has to wait after the response. Its connection is not read meanwhile."""
    quota = mutation_quota(call)
    throttle_ms = 0 if quota is None else quota.throttle_ms()
    if throttle_ms:
        call.services.quotas.throttled[MUTATION_RATE] += 1
        call.connection.mute(throttle_ms)
    return timedelta(milliseconds=throttle_ms)
