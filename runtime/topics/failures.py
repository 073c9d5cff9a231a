"""What a client is told of a change to the topics that was not made."""

from __future__ import annotations

from ...actors.errors import CoordinatorError, ErrorCode


def storage_error(error: OSError) -> CoordinatorError:
    return CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, f"the topics cannot be written: {error.strerror}")


def as_refusal(failure: Exception) -> CoordinatorError:
    """A refusal as it is; an OSError, or a bug, as the code that Kafka has for it."""
    if isinstance(failure, CoordinatorError):
        return failure
    if isinstance(failure, OSError):
        return storage_error(failure)
    return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the change has failed: {failure!r}")
