"""Changes of topics, for the audit trail."""

from __future__ import annotations

from typing import Any

from ...security.audit import Change
from ...topics.topic import Topic


def creation(outcome: object) -> Change | None:
    """The change that has created a topic; None for a refusal."""
    return Change("create", f"Topic:{outcome.name}", None, values(outcome)) if isinstance(outcome, Topic) else None


def deletion(topic: Topic) -> Change:
    return Change("delete", f"Topic:{topic.name}", values(topic))


def values(topic: Topic) -> dict[str, Any]:
    return {"partitions": len(topic.partitions), "settings": dict(topic.policy.overrides)}
