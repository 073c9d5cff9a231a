"""Errors for clients when a change of the topics fails."""

from __future__ import annotations

from ...actors.errors import CoordinatorError, ErrorCode


def storage_error(error: OSError) -> CoordinatorError:
    return CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, f"the topics cannot be written: {error.strerror}")


def to_coordinator_error(failure: Exception) -> CoordinatorError:
    """A CoordinatorError unchanged; an OSError, or a bug, with Kafka's error code for it."""
    if isinstance(failure, CoordinatorError):
        return failure
    if isinstance(failure, OSError):
        return storage_error(failure)
    return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the change failed: {failure!r}")
