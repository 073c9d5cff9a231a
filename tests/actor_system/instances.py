"""The instance behind a reference, for tests that look into an actor."""

from __future__ import annotations

from typing import Any

from callboard.actors.base import ActorRef


def instance(ref: ActorRef) -> Any:
    """The instance of an actor that is not passivated."""
    actor = ref.actor_inbox.actor
    assert actor is not None
    return actor
